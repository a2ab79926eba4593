//! Verifications: the logical hash of the database at one position, computed while other work goes on.
//!
//! The writer ends its batch at the entry that requests a verification, and opens a read transaction at that point. A
//! worker of its own computes the hash. Invariants:
//!
//! - The hash covers the state right after that entry, on every node, wherever batches end.
//! - Only the latest verification is computed, for at most [`HASH_MAX`]. An earlier one, which a node that catches up
//!   may find, is dropped. A verification is stopped when it keeps the `-wal` from being emptied for too long. A failed
//!   verification never stops applying.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorate_env::signal::Signal;
use quorate_env::worker::{Step, Worker};
use quorate_env::{Instant, lock, timeout_at};
use tokio::sync::watch;

use super::shared::{Shared, Stop};
use crate::connection::{self, Attached};
use crate::error::OpenError;
use crate::ffi::hooks;
use crate::generation::Generation;
use crate::logical_hash;
use crate::usage::{Scope, Temp};

/// How long a hash may take.
const HASH_MAX: Duration = Duration::from_secs(300);

/// Bytes of the page cache that a hash uses.
const CACHE_BYTES: u32 = 8 << 20;

/// Steps of SQLite's virtual machine between two checks of the limits.
const TICK_STEPS: u16 = 10_000;

/// The failure text of a verification that ends with its node.
const STOPPING: &str = "the node is stopping";

/// The number of verifications whose results are kept.
const KEPT: usize = 4;

/// The result of a verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verification {
    /// It is being computed.
    Running,
    /// The logical hash of each table by its name, the store's own among them.
    Done(Arc<BTreeMap<String, u128>>),
    /// It was stopped, for this reason.
    Failed(String),
}

/// The verifications by the index of the entry that requested them.
#[derive(Debug, Default)]
pub(crate) struct Verifications(watch::Sender<BTreeMap<u64, Verification>>);

impl Verifications {
    pub(crate) async fn get(&self, index: u64, deadline: Instant) -> Option<Verification> {
        let mut all = self.0.subscribe();
        let settled = all.wait_for(|all| all.get(&index) != Some(&Verification::Running));
        // On timeout too, the present state is the answer.
        drop(timeout_at(deadline, settled).await);
        self.0.borrow().get(&index).cloned()
    }

    pub(crate) fn latest(&self) -> Option<(u64, Verification)> {
        self.0.borrow().last_key_value().map(|(index, known)| (*index, known.clone()))
    }

    /// Records a verification that begins, and drops the one that is running.
    fn begin(&self, index: u64) {
        self.0.send_modify(|all| {
            all.retain(|_, known| *known != Verification::Running);
            all.insert(index, Verification::Running);
            while all.len() > KEPT {
                all.pop_first();
            }
        });
    }

    fn is_running(&self, index: u64) -> bool {
        self.0.borrow().get(&index) == Some(&Verification::Running)
    }

    /// Records the result of a verification, unless it was dropped in the meantime.
    fn end(&self, index: u64, verification: Verification) {
        self.0.send_if_modified(|all| match all.get_mut(&index) {
            Some(known @ Verification::Running) => {
                *known = verification;
                true
            }
            _ => false,
        });
    }
}

/// Begins to compute the hash of the present state. Must be called under the writer lock, between two transactions.
pub(super) fn begin(shared: &Arc<Shared>, generation: &Arc<Generation>, index: u64) {
    shared.verifications.begin(index);
    let failed = |error: &dyn std::fmt::Display| {
        tracing::warn!(index, %error, "the database can't be verified");
        shared.verifications.end(index, Verification::Failed(error.to_string()));
    };
    let reason = Reason::default();
    match snapshot(shared, generation, index, &reason) {
        Err(error) => failed(&error),
        Ok(conn) => {
            let hasher = Hasher { shared: Arc::clone(shared), index, conn: Some(conn), reason };
            if let Err(error) = shared.env.start_worker("verification", hasher, &Signal::new()) {
                failed(&error);
            }
        }
    }
}

/// Opens a connection that sees the present state until it is closed.
fn snapshot(
    shared: &Arc<Shared>,
    generation: &Arc<Generation>,
    index: u64,
    reason: &Reason,
) -> Result<Attached, OpenError> {
    let conn = connection::open_reader(generation, CACHE_BYTES)?;
    let sqlite = |error| OpenError::sqlite(&generation.path())(error);
    let (shared, inside, reason) = (Arc::clone(shared), Arc::clone(generation), reason.clone());
    let deadline = Instant::now() + HASH_MAX;
    let is_over = move || {
        let max = shared.options.hold_bytes_max;
        reason.give(if shared.stop() != Stop::Running {
            Some(STOPPING.to_owned())
        } else if !shared.verifications.is_running(index) {
            Some("a later verification was requested".to_owned())
        } else if inside.wal_bytes() > max {
            Some(format!("the -wal grew beyond {max} bytes meanwhile"))
        } else if Instant::now() > deadline {
            Some(format!("it took longer than {HASH_MAX:?}"))
        } else {
            None
        })
    };
    hooks::set_progress_handler(&conn, TICK_STEPS, is_over).map_err(sqlite)?;
    conn.execute_batch("BEGIN; SELECT \"index\" FROM _quorate_applied").map_err(sqlite)?;
    Ok(conn)
}

/// The reason why a hash is stopped.
#[derive(Clone, Debug, Default)]
struct Reason(Arc<Mutex<Option<String>>>);

impl Reason {
    /// Records the first reason, and returns whether there is one.
    fn give(&self, why: Option<String>) -> bool {
        let mut reason = lock(&self.0);
        if reason.is_none() {
            *reason = why;
        }
        reason.is_some()
    }

    fn take(&self) -> Option<String> {
        lock(&self.0).take()
    }
}

/// Computes one hash.
struct Hasher {
    shared: Arc<Shared>,
    index: u64,
    conn: Option<Attached>,
    reason: Reason,
}

impl Worker for Hasher {
    fn run_once(&mut self) -> Step {
        if let Some(conn) = self.conn.take() {
            let hashed = {
                let _scope = Scope::read(0, &Temp::of_reader(conn.generation().temp()), Duration::MAX);
                logical_hash::by_table(&conn)
            };
            let generation = Arc::clone(conn.generation());
            // Release the snapshot before the result is published.
            drop(conn);
            self.shared.verifications.end(
                self.index,
                match hashed {
                    Ok(hashes) => Verification::Done(Arc::new(hashes.into_iter().collect())),
                    Err(unread) => {
                        let why = self.reason.take().unwrap_or_else(|| unread.to_string());
                        self.shared.readers.suspect(&generation, unread.sql, unread.error);
                        Verification::Failed(why)
                    }
                },
            );
        }
        Step::Done
    }
}

impl Drop for Hasher {
    fn drop(&mut self) {
        // The worker was ended before it began.
        if self.conn.take().is_some() {
            self.shared.verifications.end(self.index, Verification::Failed(STOPPING.to_owned()));
        }
    }
}
