//! The clock that SQLite sees.
//!
//! On a thread that applies, it is the entry's stamp, and there is no local time zone: `'localtime'` and `'utc'` fail.
//! Elsewhere it is the wall clock of the running task's [`Env`], or the machine's where there is none.
//!
//! Invariant: within one statement SQLite asks once, so a statement sees one time, triggers included.

use std::cell::Cell;

use quorate_env::Env;

/// The Julian day of 1970-01-01 in milliseconds.
const UNIX_EPOCH_JULIAN_MILLIS: i64 = 210_866_760_000_000;

const NANOS_PER_MILLI: u64 = 1_000_000;
const MILLIS_PER_DAY: f64 = 86_400_000.0;

thread_local! {
    static STAMP: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Sets what SQLite calls the time on this thread, in nanoseconds since 1970-01-01 UTC, or gives the clock back.
///
/// All values that fit lie between the years 1970 and 2554, so SQLite can show each. The resolution is a millisecond.
/// Set it before a statement is prepared and keep it until its last step.
pub fn set(now: Option<u64>) {
    STAMP.set(now);
}

/// Whether this thread's clock is a stamp.
pub(crate) fn is_stamped() -> bool {
    STAMP.get().is_some()
}

/// The time in milliseconds of Julian days, or `None` to ask the base VFS.
pub(crate) fn julian_millis() -> Option<i64> {
    let nanos = STAMP.get().or_else(|| Env::current().map(|env| env.unix_nanos()))?;
    let millis = i64::try_from(nanos / NANOS_PER_MILLI).unwrap_or(i64::MAX);
    Some(millis.saturating_add(UNIX_EPOCH_JULIAN_MILLIS))
}

/// Days to milliseconds.
#[expect(clippy::cast_possible_truncation, reason = "SQLite converts so; the cast saturates")]
pub(crate) fn millis_of_days(days: f64) -> i64 {
    (days * MILLIS_PER_DAY) as i64
}

/// Milliseconds to days.
#[expect(clippy::cast_precision_loss, reason = "SQLite converts so; a day has few enough milliseconds")]
pub(crate) fn days_of_millis(millis: i64) -> f64 {
    millis as f64 / MILLIS_PER_DAY
}
