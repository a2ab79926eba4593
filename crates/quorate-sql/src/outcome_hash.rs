//! The running hash of outcomes: nodes that hold the same value at the same index have answered alike ever since the
//! cluster was born.
//!
//! For each entry, the XXH3 (64 bits, seeded with the value before) of these bytes, numbers in little-endian order: the
//! index (8); then 0 for an entry that is no proposal; or 1, the kind (4), SQLite's code (4), the number of the command
//! plus one (8) and that of the row (8), if there is one, of a failure; or 2 and the results of the commands. A result
//! is 3 where there is nothing to tell, 4 and the session (8), or 5, changes (8), last rowid (8), rows (8), columns (8)
//! and the values. A value is its class, 6 to 10 (NULL, integer, real, text, blob), then 8 bytes, or a length (8) and
//! that many bytes.
//!
//! Texts for people (messages, names of columns) are left out: they may change with SQLite's version.

use quorate_model::{CommandResult, Outcome, StatementResult, Value};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The hash, and memory for the next step.
#[derive(Clone, Debug, Default)]
pub struct OutcomeHash {
    value: u64,
    bytes: Vec<u8>,
}

impl OutcomeHash {
    /// Goes on from a value.
    pub fn new(value: u64) -> Self {
        Self { value, bytes: Vec::new() }
    }

    /// The value.
    pub fn value(&self) -> u64 {
        self.value
    }

    /// Takes in the outcome of the entry at `index`; `None` for an entry that is no proposal.
    pub fn update(&mut self, index: u64, outcome: Option<&Outcome>) {
        self.bytes.clear();
        self.number(index);
        match outcome {
            None => self.bytes.push(0),
            Some(Err(failure)) => {
                self.bytes.push(1);
                self.bytes.extend_from_slice(&failure.kind.number().to_le_bytes());
                self.bytes.extend_from_slice(&failure.sqlite_code.to_le_bytes());
                self.number(failure.command.map_or(0, |command| u64::from(command) + 1));
                if let Some(row) = failure.row {
                    self.number(row.into());
                }
            }
            Some(Ok(reply)) => {
                self.bytes.push(2);
                reply.results.iter().for_each(|result| self.result(result));
            }
        }
        self.value = xxh3_64_with_seed(&self.bytes, self.value);
    }

    fn result(&mut self, result: &CommandResult) {
        match result {
            CommandResult::Done => self.bytes.push(3),
            CommandResult::Session(session) => {
                self.bytes.push(4);
                self.number(session.0);
            }
            CommandResult::Statement(statement) => self.statement(statement),
        }
    }

    fn statement(&mut self, statement: &StatementResult) {
        self.bytes.push(5);
        self.number(statement.changes);
        self.number(statement.last_insert_rowid.cast_unsigned());
        self.length(statement.rows.len());
        self.length(statement.columns.len());
        statement.rows.iter().flatten().for_each(|value| self.value_of(value));
    }

    fn value_of(&mut self, value: &Value) {
        match value {
            Value::Null => self.bytes.push(6),
            Value::Integer(value) => {
                self.bytes.push(7);
                self.number(value.cast_unsigned());
            }
            Value::Real(value) => {
                self.bytes.push(8);
                self.number(value.to_bits());
            }
            Value::Text(text) => self.sized(9, text.as_bytes()),
            Value::Blob(bytes) => self.sized(10, bytes),
        }
    }

    fn sized(&mut self, class: u8, bytes: &[u8]) {
        self.bytes.push(class);
        self.length(bytes.len());
        self.bytes.extend_from_slice(bytes);
    }

    fn length(&mut self, length: usize) {
        self.number(length as u64);
    }

    fn number(&mut self, number: u64) {
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use quorate_model::{Failure, FailureKind, Reply, SessionId};

    use super::*;

    fn of(outcomes: &[Option<Outcome>]) -> u64 {
        let mut hash = OutcomeHash::default();
        (1..).zip(outcomes).for_each(|(index, outcome)| hash.update(index, outcome.as_ref()));
        hash.value()
    }

    fn rows(values: Vec<Value>) -> Option<Outcome> {
        let result = StatementResult { rows: vec![values], ..StatementResult::default() };
        Some(Ok(Reply { results: [CommandResult::Statement(result)].into() }))
    }

    #[test]
    fn the_value_is_pinned() {
        let failure = Failure { sqlite_code: 2067, ..Failure::new(FailureKind::Constraint, "text") }.at(0);
        let session =
            Some(Ok(Reply { results: vec![CommandResult::Done, CommandResult::Session(SessionId(2))].into() }));
        let values = vec![Value::Null, Value::Integer(-1), Value::Real(0.5), "a".into(), vec![0_u8].into()];
        assert_eq!(of(&[None, Some(Err(failure)), session, rows(values)]), PINNED);
    }

    /// Part of the format: replicas of all versions must agree on it.
    const PINNED: u64 = 5_211_377_122_464_384_938;

    #[test]
    fn what_nodes_may_differ_in_is_left_out_and_all_else_counts() {
        let failure = |message: &str, command| Some(Err(Failure::new(FailureKind::Sql, message).at(command)));
        assert_eq!(of(&[failure("a", 0)]), of(&[failure("b", 0)]));
        assert_ne!(of(&[failure("a", 0)]), of(&[failure("a", 1)]));
        let of_row = |row| Some(Err(Failure { row, ..Failure::new(FailureKind::Sql, "a") }));
        assert_ne!(of(&[of_row(None)]), of(&[of_row(Some(0))]));
        assert_ne!(of(&[of_row(Some(1))]), of(&[of_row(Some(0))]));
        assert_ne!(of(&[rows(vec!["ab".into(), "c".into()])]), of(&[rows(vec!["a".into(), "bc".into()])]));
        assert_ne!(of(&[rows(vec![1.into()])]), of(&[rows(vec![1.0.into()])]));
        assert_ne!(of(&[None]), of(&[None, None]));
    }
}
