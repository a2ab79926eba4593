//! Whole clusters of Quorate in one seeded thread.
//!
//! [`run`] takes three whole nodes through one seed: their logs and their SQLite databases lie on simulated disks,
//! their connections on a simulated net, and time is virtual. Power fails, processes are killed, disks are lost, links
//! are cut, clocks are hours apart, batches end where the seed wants them to. Clients write all the while, and in the
//! end everything that they were told is compared with what the nodes hold.
//!
//! # What is checked
//!
//! - Every acknowledged write is there exactly once, with what the client was told of it; one in doubt at most once;
//!   one
//!   that failed not at all. An atomic batch is there as a whole or not at all.
//! - A linearizable read shows all that was acknowledged before it; a read at a position shows the write of that
//!   position,
//!   on every node.
//! - An index has one log id, one payload and one outcome on all nodes and in all their lives; equal indexes have equal
//!   states; the logs hold the same bytes where they overlap; a term has one leader in one life.
//! - No task panics, no node gives up, and a mended cluster soon is whole and serves.
//!
//! # Invariants
//!
//! - A seed gives the same events, bit by bit: their hash proves it.
//! - All `unsafe` code lies in `vfs::ffi`.

#![deny(unsafe_code)]

mod cluster;
mod damage;
mod faults;
mod history;
mod ledger;
mod load;
mod scenario;
mod vfs;

pub use faults::Crashes;
pub use ledger::Counts;
pub use scenario::{Failure, Plan, Report, run};
pub use vfs::VfsError;
