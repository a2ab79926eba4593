//! Logs and counts slow statements.
//!
//! Invariants: parameter values are never logged, because they may be secrets; only the text of a statement is, cut to
//! [`TEXT_MAX`]. At most [`LINES_MAX`] statements are logged in one second; the next line gives the number of those
//! that were omitted.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorate_env::metrics::Counter;
use quorate_env::{Instant, lock};
use quorate_model::{Command, Proposal};

/// The most characters of a statement's text in a log line.
const TEXT_MAX: usize = 1024;

/// The most statements that are logged in one second.
const LINES_MAX: u32 = 10;

/// The default time from which a statement counts as slow.
pub const SLOW_DEFAULT: Duration = Duration::from_secs(1);

/// Logs and counts slow statements. Clones share their state.
#[derive(Clone, Debug)]
pub struct SlowLog(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The time from which a statement counts as slow; if `None`, no statement does.
    after: Option<Duration>,
    queries: Counter,
    writes: Counter,
    second: Mutex<Second>,
}

/// The lines that were logged since `since`.
#[derive(Debug, Default)]
struct Second {
    since: Option<Instant>,
    lines: u32,
    omitted: u64,
}

impl SlowLog {
    /// Returns a log of statements that take at least `after`; zero disables it.
    pub fn new(after: Duration) -> Self {
        let (queries, writes, second) = Default::default();
        Self(Arc::new(Inner { after: Some(after).filter(|after| !after.is_zero()), queries, writes, second }))
    }

    /// Returns the number of slow queries and of slow pieces of streamed results.
    pub fn queries(&self) -> u64 {
        self.0.queries.get()
    }

    /// Returns the number of entries that were slow to apply.
    pub fn writes(&self) -> u64 {
        self.0.writes.get()
    }

    /// Records a query that has run for `took`.
    pub(crate) fn query(&self, took: Duration, sql: &str) {
        if self.is_slow(took) {
            self.0.queries.inc();
            if let Some(omitted) = self.line() {
                tracing::warn!(event = "slow_query", took = ?took, sql = %Cut(sql), omitted, "a query took long");
            }
        }
    }

    /// Returns the start time of a write, or `None` if the log is disabled.
    pub(crate) fn now(&self) -> Option<Instant> {
        self.0.after.map(|_| Instant::now())
    }

    /// Records a write that began at `begun` and has just been applied.
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

    /// Returns the number of lines omitted since the last one if another line may be logged now, or `None` if not.
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

/// Displays the first [`TEXT_MAX`] characters of a text, and how many bytes follow.
struct Cut<'a>(&'a str);

impl fmt::Display for Cut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.0.char_indices().nth(TEXT_MAX).map(|(at, _)| at);
        let (start, rest) = end.and_then(|end| self.0.split_at_checked(end)).unwrap_or((self.0, ""));
        f.write_str(start)?;
        if rest.is_empty() { Ok(()) } else { write!(f, "... ({} bytes more)", rest.len()) }
    }
}

#[cfg(test)]
mod tests {
    use quorate_model::{ControlCommand, SqlCommand, Statement};

    use super::*;

    #[test]
    fn surplus_slow_statements_are_counted_not_logged() {
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
    fn texts_are_cut_between_characters_without_values() {
        let sql = "é".repeat(TEXT_MAX);
        assert_eq!(Cut(&sql).to_string(), sql);
        assert_eq!(Cut(&format!("{sql}éa")).to_string(), format!("{sql}... (3 bytes more)"));
        let sql = "INSERT INTO t VALUES (?)".to_owned();
        let statement = Statement { sql: sql.into(), params: vec!["secret".into()], names: Vec::new() };
        let proposal =
            Proposal::new(None, vec![ControlCommand::OpenSession.into(), SqlCommand::Statement(statement).into()]);
        assert_eq!(first_sql(&proposal), "INSERT INTO t VALUES (?)");
    }
}
