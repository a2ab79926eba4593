//! The status of scheduled backups (`docs/backups.md`).

use quorate_backup::schedule::Seen;
use serde::Serialize;

/// The scheduled backups of a cluster, as one node knows them.
#[derive(Debug, Serialize)]
pub struct BackupStatus {
    /// The name of the newest backup; none if the node knows of none.
    pub last: Option<String>,
    /// The time in that name, in seconds since 1970-01-01 UTC.
    pub last_at: Option<u64>,
    /// The size of that object, in bytes.
    pub last_bytes: Option<u64>,
    /// The next scheduled time, in seconds since 1970-01-01 UTC.
    pub next_at: Option<u64>,
    /// The number of attempts of this node that failed.
    pub failures: u64,
    /// Why the last attempt of this node failed; none after one that succeeded.
    pub error: Option<String>,
}

impl BackupStatus {
    pub(super) fn of(seen: Seen) -> Self {
        let Seen { next, last, failures, error } = seen;
        Self {
            last: last.map(|last| last.name.to_string()),
            last_at: last.map(|last| last.name.time()),
            last_bytes: last.map(|last| last.bytes),
            next_at: next,
            failures,
            error,
        }
    }
}
