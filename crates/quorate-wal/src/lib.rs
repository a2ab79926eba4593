//! Quorate's write-ahead log: what a node has promised, kept through crashes and power loss.
//!
//! One [`Wal`] serves all groups of a node. [`Wal::open`] recovers a directory and returns three parts: the [`Wal`]
//! handle, cheap to clone, which appends and reads (only reads of entries no longer in memory wait for the disk); the
//! [`WalWriter`], which takes everything that is queued, writes it as one frame, syncs once and then runs the
//! completions in order (group commit); and the [`SegmentKeeper`], which prepares segments in advance and recycles
//! those that are no longer needed. The writer and the keeper are [`Worker`](quorate_env::worker::Worker)s: each runs
//! on a thread of its own, or as a task in the simulator.
//!
//! [`inspect`] reads a log without opening it.
//!
//! The format is described byte by byte in `docs/wal-format.md`.
//!
//! # Invariants
//!
//! - The log never interprets entries, votes or identities.
//! - Completions run strictly in the order of submission; when one runs, everything submitted before is durable too.
//! - At most one unsynced frame at a time has a completion that needs durability, and each frame records up to which
//!   sequence the log is known to be durable. Recovery can therefore distinguish a torn tail, which it cuts off, from
//!   damage to acknowledged records, which it refuses ([`OpenError::Corrupt`]). The one exception is the frames of the
//!   very last sync.
//! - Sectors of a synced frame are not written again until the whole segment is recycled.
//! - A write or sync error is final: the log is poisoned and every later call returns that error.

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
