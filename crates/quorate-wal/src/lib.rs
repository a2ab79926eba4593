//! Quorate's log on disk: what a node has promised, kept through crashes and power loss.
//!
//! One [`Wal`] serves all groups of a node. [`Wal::open`] recovers a directory and gives three parts: the [`Wal`]
//! handle, cheap to clone, which appends and reads and never waits for the disk; the [`WalWriter`], which takes
//! everything that is queued, writes it as one frame, syncs once and then runs the completions in order (group commit);
//! and the [`SegmentKeeper`], which prepares segments ahead and recycles those that are no longer needed. The two
//! active parts are [`Worker`](quorate_env::worker::Worker)s: a thread each, or the simulator's tasks.
//!
//! [`inspect`] reads a log without opening it.
//!
//! The format is described byte by byte in `docs/wal-format.md`.
//!
//! # Invariants
//!
//! - The log never looks into entries, votes or identities.
//! - Completions run strictly in the order of submission; when one runs, everything submitted before is durable too.
//! - At most one frame that a durable completion waits for is unsynced at a time, and each frame says up to where the
//!   log is known to be durable. So recovery can tell a torn tail, which it cuts, from damage to what was acknowledged,
//!   which it refuses ([`OpenError::Corrupt`]). The frames of the very last sync are the one exception.
//! - Sectors of a synced frame are never written again, until their whole segment is recycled.
//! - An error of a write or a sync is final: the log is poisoned and every later call answers with it.

#![forbid(unsafe_code)]

mod batch;
mod builder;
mod error;
mod frame;
mod group;
mod handle;
mod header;
mod index;
pub mod inspect;
mod keeper;
mod metrics;
mod open;
mod options;
mod queue;
mod read;
mod record;
mod recovery;
mod segment;
mod shared;
mod state;
mod writer;

pub use error::{OpenError, ReadError, WalError};
pub use handle::{Completion, Wal, WalStats};
pub use keeper::SegmentKeeper;
pub use metrics::{LONG_SYNC, LONG_SYNCS_MAX, LongSync, LongSyncs, WalMetrics};
pub use open::{GroupRecovery, Opened, Recovery, Restart};
pub use options::{Durability, MAX_ENTRY_BYTES, MAX_STATE_BYTES, WalOptions};
pub use writer::WalWriter;
