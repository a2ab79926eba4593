//! Archives a SQLite database of another application while that application writes it.
//!
//! A [`Follower`] watches the `-wal` of the database and takes boundaries, which an
//! [`Archiver`](quorate_archive::Archiver) stores. [`replicate`] does both, and goes on until it is told to stop;
//! [`restore_pages`] brings the database back.
//!
//! # Invariants
//!
//! - The database is only read. No table is created, no row is written, and no commit is made.
//! - The application never waits longer than SQLite's locks take for a moment; it never gets an error that it would not
//!   get from any other reader.
//! - Knows nothing of Raft, and of no kind of store.

#![forbid(unsafe_code)]

mod boundary;
mod changes;
mod connections;
mod copy;
mod error;
mod follow;
mod follower;
mod following;
mod generations;
mod looks;
mod origin;
mod place;
mod replicate;
mod restore;
mod spool;
mod uploads;
mod wal;

pub use error::ReplicateError;
pub use follow::{FollowOptions, follow};
pub use follower::{Counts, Follower};
pub use following::Turns;
pub use replicate::{BACKOFF_MAX, Options, STOP_MAX, Status, Syncs, replicate};
pub use restore::{Restored, restore_pages};
