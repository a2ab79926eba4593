//! Whole clusters of Quorate in one seeded thread.
//!
//! [`run`] takes three whole nodes, or five, through one seed: their logs and their SQLite databases lie on simulated
//! disks, their connections on a simulated net, and time is virtual. Power fails, in the middle of an I/O too,
//! processes are killed, disks fail, fill up and are lost, links are cut, clocks are up to a year wrong, batches end
//! where the seed wants them to ([`Coverage`] counts what happened when). Clients write all the while, and in the end
//! everything that they were told is compared with what the nodes hold. `docs/testing.md` tells the rest.
//!
//! # What is checked
//!
//! - Every acknowledged write is there exactly once, with what the client was told of it; one in doubt at most once;
//!   one that failed not at all. An atomic batch is there as a whole or not at all.
//! - A linearizable read shows all that was acknowledged before it; a read at a position shows the write of that
//!   position, on every node.
//! - An index has one log id, one payload and one outcome on all nodes and in all their lives; equal indexes have equal
//!   states, which verification confirms; the logs hold the same bytes where they overlap.
//! - A leader id leads in one life only, and holds what was committed before its term. An id whose disk was lost never
//!   comes back, and a node that lost nothing keeps its own.
//! - No task panics, no node gives up unless its disk failed, one whose disk was full goes on by itself, and a mended
//!   cluster soon is whole and serves.
//!
//! # Invariants
//!
//! - A seed gives the same events, bit by bit: their hash proves it.
//! - All `unsafe` code lies in `vfs::ffi`.

#![deny(unsafe_code)]

mod atlas;
mod cluster;
mod coverage;
mod damage;
mod faults;
mod history;
mod ledger;
mod load;
mod program;
mod scenario;
mod shorten;
mod vfs;
mod watched;

pub use coverage::{Coverage, Phase};
pub use faults::Crashes;
pub use ledger::Counts;
pub use scenario::{Failure, Plan, Report, run, run_without};
pub use shorten::shorten;
pub use vfs::VfsError;
