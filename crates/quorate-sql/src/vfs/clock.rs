//! The clock that SQLite uses.
//!
//! On a thread that applies entries it is the entry's stamp, and there is no local time zone: `'localtime'` and `'utc'`
//! fail. In a query that reads keys it is the cluster's time. Elsewhere it is the wall clock of the running task's
//! [`Env`], or the machine's clock if there is no task.
//!
//! Invariant: SQLite reads the clock once per statement, so a statement and its triggers see one time.

use std::cell::Cell;

use quorate_env::Env;

/// The Julian day of 1970-01-01 in milliseconds.
const UNIX_EPOCH_JULIAN_MILLIS: i64 = 210_866_760_000_000;

const NANOS_PER_MILLI: u64 = 1_000_000;
const MILLIS_PER_DAY: f64 = 86_400_000.0;

thread_local! {
    static STAMP: Cell<Option<u64>> = const { Cell::new(None) };
    static QUERY: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Sets the time that SQLite uses on this thread, in nanoseconds since 1970-01-01 UTC; `None` restores the usual clock.
///
/// Every `u64` is a time between the years 1970 and 2554, which SQLite can represent. The resolution is a millisecond.
/// Set the time before a statement is prepared and keep it until its last step.
pub fn set(now: Option<u64>) {
    STAMP.set(now);
}

/// Sets the time that queries see on this thread unless there is a stamp; `None` restores the usual clock.
pub(crate) fn set_of_query(now: Option<u64>) {
    QUERY.set(now);
}

/// Returns whether this thread's clock is a stamp.
pub(crate) fn is_stamped() -> bool {
    STAMP.get().is_some()
}

/// Returns the stamp that is this thread's clock; 0 if none is.
pub(crate) fn stamp() -> u64 {
    STAMP.get().unwrap_or_default()
}

/// Returns the time as a Julian day in milliseconds, or `None` if the base VFS supplies it.
pub(crate) fn julian_millis() -> Option<i64> {
    let set = STAMP.get().or_else(|| QUERY.get());
    let nanos = set.or_else(|| Env::current().map(|env| env.unix_nanos()))?;
    let millis = i64::try_from(nanos / NANOS_PER_MILLI).unwrap_or(i64::MAX);
    Some(millis.saturating_add(UNIX_EPOCH_JULIAN_MILLIS))
}

/// Converts days to milliseconds.
#[expect(clippy::cast_possible_truncation, reason = "SQLite converts the same way; the cast saturates")]
pub(crate) fn millis_of_days(days: f64) -> i64 {
    (days * MILLIS_PER_DAY) as i64
}

/// Converts milliseconds to days.
#[expect(clippy::cast_precision_loss, reason = "SQLite converts the same way; an f64 is precise enough for the range")]
pub(crate) fn days_of_millis(millis: i64) -> f64 {
    millis as f64 / MILLIS_PER_DAY
}
