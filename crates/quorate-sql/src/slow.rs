//! Statements that took long are told: a line of the log each, and a count.
//!
//! Invariants: values are never told, which may be secrets: only the text of a statement, cut to [`TEXT_MAX`]. Of many
//! slow statements in one second [`LINES_MAX`] are told, and how many were not.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorate_env::metrics::Counter;
use quorate_env::{Instant, lock};
use quorate_model::{Command, Proposal};

/// Characters of a statement's text that are told.
const TEXT_MAX: usize = 1024;

/// Statements that are told in one second.
const LINES_MAX: u32 = 10;

/// How long a statement may take where nothing else is said.
pub const SLOW_DEFAULT: Duration = Duration::from_secs(1);

/// What tells of slow statements. Clones are the same.
#[derive(Clone, Debug)]
pub struct SlowLog(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// From when on a statement is slow; none is where this is nothing.
    after: Option<Duration>,
    queries: Counter,
    writes: Counter,
    second: Mutex<Second>,
}

/// What was told since a moment.
#[derive(Debug, Default)]
struct Second {
    since: Option<Instant>,
    lines: u32,
    omitted: u64,
}

impl SlowLog {
    /// Tells of what takes so long; of nothing if that is zero.
    pub fn new(after: Duration) -> Self {
        let (queries, writes, second) = Default::default();
        Self(Arc::new(Inner { after: Some(after).filter(|after| !after.is_zero()), queries, writes, second }))
    }

    /// Queries, or pieces of streamed results, that took long.
    pub fn queries(&self) -> u64 {
        self.0.queries.get()
    }

    /// Entries whose statements took long to be applied.
    pub fn writes(&self) -> u64 {
        self.0.writes.get()
    }

    /// A query has run for so long.
    pub(crate) fn query(&self, took: Duration, sql: &str) {
        if self.is_slow(took) {
            self.0.queries.inc();
            if let Some(omitted) = self.line() {
                tracing::warn!(event = "slow_query", took = ?took, sql = %Cut(sql), omitted, "a query took long");
            }
        }
    }

    /// When a write begins, if that is of interest.
    pub(crate) fn now(&self) -> Option<Instant> {
        self.0.after.map(|_| Instant::now())
    }

    /// A write has begun then, and was applied now.
    pub(crate) fn write(&self, begun: Option<Instant>, index: u64, proposal: &Proposal) {
        if let Some(took) = begun.map(|begun| begun.elapsed()).filter(|took| self.is_slow(*took)) {
            self.0.writes.inc();
            if let Some(omitted) = self.line() {
                let (sql, commands) = (Cut(first_sql(proposal)), proposal.commands.len());
                tracing::warn!(event = "slow_write", index, took = ?took, %sql, commands, omitted, "a write took long");
            }
        }
    }

    fn is_slow(&self, took: Duration) -> bool {
        self.0.after.is_some_and(|after| took >= after)
    }

    /// Whether there is room for one more line, and then how many were left out since the last.
    fn line(&self) -> Option<u64> {
        let mut second = lock(&self.0.second);
        if second.since.is_none_or(|since| since.elapsed() >= Duration::from_secs(1)) {
            *second = Second { since: Some(Instant::now()), lines: 0, omitted: second.omitted };
        }
        if second.lines == LINES_MAX {
            second.omitted = second.omitted.saturating_add(1);
            return None;
        }
        second.lines = second.lines.saturating_add(1);
        Some(std::mem::take(&mut second.omitted))
    }
}

impl Default for SlowLog {
    fn default() -> Self {
        Self::new(SLOW_DEFAULT)
    }
}

fn first_sql(proposal: &Proposal) -> &str {
    proposal.commands.iter().find_map(Command::sql_text).unwrap_or_default()
}

/// The beginning of a text.
struct Cut<'a>(&'a str);

impl fmt::Display for Cut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.0.char_indices().nth(TEXT_MAX).map(|(at, _)| at);
        let (told, rest) = end.and_then(|end| self.0.split_at_checked(end)).unwrap_or((self.0, ""));
        f.write_str(told)?;
        if rest.is_empty() { Ok(()) } else { write!(f, "... ({} bytes more)", rest.len()) }
    }
}

#[cfg(test)]
mod tests {
    use quorate_model::{ControlCommand, SqlCommand, Statement};

    use super::*;

    #[test]
    fn of_many_slow_statements_some_are_told_and_the_others_counted() {
        let slow = SlowLog::new(Duration::from_millis(5));
        slow.query(Duration::from_millis(4), "SELECT 1");
        assert_eq!(slow.queries(), 0);
        assert!((0..LINES_MAX).all(|_| slow.line() == Some(0)));
        assert_eq!((slow.line(), slow.line()), (None, None));
        lock(&slow.0.second).since = None;
        assert_eq!((slow.line(), slow.line()), (Some(2), Some(0)));
        slow.query(Duration::from_millis(5), "SELECT 1");
        assert_eq!(slow.queries(), 1);
        let off = SlowLog::new(Duration::ZERO);
        off.query(Duration::from_secs(9), "SELECT 1");
        assert_eq!(off.queries(), 0);
    }

    #[test]
    fn texts_are_cut_between_characters_and_values_are_not_told() {
        let sql = "é".repeat(TEXT_MAX);
        assert_eq!(Cut(&sql).to_string(), sql);
        assert_eq!(Cut(&format!("{sql}éa")).to_string(), format!("{sql}... (3 bytes more)"));
        let sql = "INSERT INTO t VALUES (?)".to_owned();
        let statement = Statement { sql, params: vec!["secret".into()], names: Vec::new() };
        let proposal =
            Proposal::new(None, vec![ControlCommand::OpenSession.into(), SqlCommand::Statement(statement).into()]);
        assert_eq!(first_sql(&proposal), "INSERT INTO t VALUES (?)");
    }
}
