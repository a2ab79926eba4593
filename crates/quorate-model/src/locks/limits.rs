//! The limits of locks.

use std::time::Duration;

/// The most bytes of a name; it has at least one.
pub const NAME_BYTES_MAX: usize = 256;

/// The most bytes of a holder; it has at least one.
pub const HOLDER_BYTES_MAX: usize = 128;

/// The most bytes of a note.
pub const NOTE_BYTES_MAX: usize = 1024;

/// The shortest lease or wait: shorter ones end before a renewal can arrive.
pub const TTL_MIN: Duration = Duration::from_millis(100);

/// The longest lease or wait.
pub const TTL_MAX: Duration = Duration::from_secs(86_400);

/// The most permits of a lock.
pub const PERMITS_MAX: u64 = 1_000;

/// The most that wait for a lock at a time.
pub const WAITERS_MAX: u64 = 1_000;

/// The most locks of a page of a list. It also ends with the lock that brings the holders and waiters on it to
/// [`LIST_CLAIMS_MAX`].
pub const LIST_MAX: u64 = 1_000;

/// See [`LIST_MAX`].
pub const LIST_CLAIMS_MAX: usize = 10_000;
