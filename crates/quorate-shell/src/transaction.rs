//! The statements between BEGIN and COMMIT, which are sent as one atomic batch.
//!
//! Invariant: no statement reaches the cluster before COMMIT, so ROLLBACK, an error and the end of the shell leave
//! nothing behind.

use quorate::Params;
use quorate::limits::{COMMANDS_MAX, PROPOSAL_BYTES_MAX};

use crate::error::{Error, Result};
use crate::script::Place;

/// An upper bound of the bytes that a statement takes in addition to its text.
const STATEMENT_OVERHEAD: usize = 32;

/// A transaction that was begun.
#[derive(Debug)]
pub struct Transaction {
    begun: Option<Place>,
    statements: Vec<(String, Params, Option<Place>)>,
    bytes: usize,
}

impl Transaction {
    /// An empty transaction.
    pub fn begin(begun: Option<Place>) -> Self {
        Self { begun, statements: Vec::new(), bytes: 0 }
    }

    /// The place of its BEGIN.
    pub fn begun(&self) -> Option<&Place> {
        self.begun.as_ref()
    }

    /// The number of its statements.
    pub fn len(&self) -> usize {
        self.statements.len()
    }

    /// Adds a statement.
    pub fn add(&mut self, statement: &str, params: Params, place: Option<Place>) -> Result<()> {
        let bytes = self.bytes.saturating_add(statement.len()).saturating_add(STATEMENT_OVERHEAD);
        if self.statements.len() >= COMMANDS_MAX || bytes > PROPOSAL_BYTES_MAX {
            let limits = format!("{COMMANDS_MAX} statements and {} MiB", PROPOSAL_BYTES_MAX >> 20);
            return Err(Error::new(format!(
                "a transaction may have {limits}; COMMIT what it holds, and begin another"
            )));
        }
        self.bytes = bytes;
        self.statements.push((statement.to_owned(), params, place));
        Ok(())
    }

    /// The statements, in their order.
    pub fn statements(&self) -> Vec<(String, Params)> {
        self.statements.iter().map(|(statement, params, _)| (statement.clone(), params.clone())).collect()
    }

    /// The place and the beginning of the statement with this number, counted from 0.
    pub fn describe(&self, number: usize) -> Option<(Option<&Place>, String)> {
        const SHOWN: usize = 60;
        let (statement, _, place) = self.statements.get(number)?;
        let line = statement.split_whitespace().collect::<Vec<_>>().join(" ");
        let shown: String = line.chars().take(SHOWN).collect();
        let dots = if shown.len() < line.len() { "…" } else { "" };
        Some((place.as_ref(), format!("{shown}{dots}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_is_bounded_in_statements_and_bytes() {
        let mut many = Transaction::begin(None);
        for _ in 0..COMMANDS_MAX {
            assert!(many.add("x", Params::default(), None).is_ok());
        }
        assert!(
            many.add("x", Params::default(), None).is_err_and(|error| error.to_string().contains("65536 statements"))
        );
        let mut large = Transaction::begin(None);
        let statement = "x".repeat(1 << 20);
        assert_eq!((0..40).filter(|_| large.add(&statement, Params::default(), None).is_ok()).count(), 31);
        assert_eq!((many.len(), large.len()), (COMMANDS_MAX, 31));
    }

    #[test]
    fn a_statement_is_described_by_its_beginning() {
        let mut transaction = Transaction::begin(None);
        assert!(
            transaction.add(&format!("INSERT\n  INTO t VALUES ({})", "1".repeat(100)), Params::default(), None).is_ok()
        );
        let (_, text) = transaction.describe(0).unwrap_or_default();
        assert!(text.starts_with("INSERT INTO t VALUES (1") && text.ends_with('…'), "{text}");
        assert_eq!(transaction.describe(1), None);
    }
}
