//! The running hash of outcomes: nodes with the same value at the same index have returned the same outcomes since the
//! cluster was founded.
//!
//! For each entry it is the XXH3 (64 bits, seeded with the previous value) of the entry's index (8 bytes,
//! little-endian), followed by the canonical bytes of the outcome if the entry holds a proposal
//! ([`append_canonical_outcome`]).

use quorate_env::mutant::Mutant;
use quorate_model::codec::append_canonical_outcome;
use quorate_model::{CommandResult, Outcome};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The hash, with a buffer that each step reuses.
#[derive(Clone, Debug, Default)]
pub struct OutcomeHash {
    value: u64,
    bytes: Vec<u8>,
}

impl OutcomeHash {
    /// Continues from a value.
    pub fn new(value: u64) -> Self {
        Self { value, bytes: Vec::new() }
    }

    /// Returns the current value.
    pub fn value(&self) -> u64 {
        self.value
    }

    /// Adds the outcome of the entry at `index`; `None` for an entry that holds no proposal.
    pub fn update(&mut self, index: u64, outcome: Option<&Outcome>) {
        self.bytes.clear();
        self.bytes.extend_from_slice(&index.to_le_bytes());
        if let Some(outcome) = outcome.filter(|outcome| !is_left_out(outcome)) {
            append_canonical_outcome(&mut self.bytes, outcome);
        }
        self.value = xxh3_64_with_seed(&self.bytes, self.value);
    }
}

/// Whether the deliberate bug [`Mutant::FamilyNotHashed`] leaves an outcome out.
fn is_left_out(outcome: &Outcome) -> bool {
    let is_items = |result: &CommandResult| matches!(result, CommandResult::Items(_));
    Mutant::FamilyNotHashed.is_on() && outcome.as_ref().is_ok_and(|reply| reply.results.iter().any(is_items))
}

#[cfg(test)]
mod tests {
    use quorate_model::{ControlReply, Failure, FailureKind, Reply, SessionId, SqlReply, StatementResult, Value};

    use super::*;

    fn of(outcomes: &[Option<Outcome>]) -> u64 {
        let mut hash = OutcomeHash::default();
        (1..).zip(outcomes).for_each(|(index, outcome)| hash.update(index, outcome.as_ref()));
        hash.value()
    }

    fn rows(values: Vec<Value>) -> Option<Outcome> {
        let result = StatementResult { rows: vec![values], ..StatementResult::default() };
        Some(Ok(Reply::of([SqlReply::Statement(result).into()])))
    }

    #[test]
    fn the_value_is_pinned() {
        let failure = Failure { sqlite_code: 2067, ..Failure::new(FailureKind::Constraint, "text") }.at(0);
        let results =
            vec![ControlReply::Done.into(), ControlReply::Session(SessionId(2)).into(), SqlReply::Done.into()];
        let session = Some(Ok(Reply::of(results)));
        let values = vec![Value::Null, Value::Integer(-1), Value::Real(0.5), "a".into(), vec![0_u8].into()];
        assert_eq!(of(&[None, Some(Err(failure)), session, rows(values)]), PINNED);
    }

    /// Part of the format: replicas of all versions must agree on it.
    const PINNED: u64 = 6_711_564_235_102_611_727;

    #[test]
    fn only_messages_and_column_names_are_left_out() {
        let failure = |message: &str, command| Some(Err(Failure::new(FailureKind::Sql, message).at(command)));
        assert_eq!(of(&[failure("a", 0)]), of(&[failure("b", 0)]));
        assert_eq!(of(&[failure("a", 0)]), of(&[failure("", 0)]));
        assert_ne!(of(&[failure("a", 0)]), of(&[failure("a", 1)]));
        let of_row = |row| Some(Err(Failure { row, ..Failure::new(FailureKind::Sql, "a") }));
        assert_ne!(of(&[of_row(None)]), of(&[of_row(Some(0))]));
        assert_ne!(of(&[of_row(Some(1))]), of(&[of_row(Some(0))]));
        assert_ne!(of(&[rows(vec!["ab".into(), "c".into()])]), of(&[rows(vec!["a".into(), "bc".into()])]));
        assert_ne!(of(&[rows(vec![1.into()])]), of(&[rows(vec![1.0.into()])]));
        assert_ne!(of(&[None]), of(&[None, None]));
        let columns = |names: &[&str]| {
            let columns = names.iter().map(|name| (*name).to_owned()).collect();
            let result = StatementResult { columns, ..StatementResult::default() };
            Some(Ok(Reply::of([SqlReply::Statement(result).into()])))
        };
        assert_eq!(of(&[columns(&["a"])]), of(&[columns(&["bc"])]));
        assert_ne!(of(&[columns(&["a"])]), of(&[columns(&["a", "a"])]));
        let result = |result: CommandResult| Some(Ok(Reply::of([result])));
        assert_ne!(of(&[result(ControlReply::Done.into())]), of(&[result(SqlReply::Done.into())]));
    }
}
