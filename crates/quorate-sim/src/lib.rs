//! A deterministic simulator that runs whole Quorate clusters in one thread, from a seed.
//!
//! [`run`] runs one seed: a cluster of three or five whole nodes, whose logs and SQLite databases lie on simulated
//! disks, whose connections go over a simulated network, and whose time is virtual. The seed decides which faults
//! happen: power fails, even in the middle of an I/O; processes are killed; disks fail, fill up and are lost; links are
//! cut; clocks are up to a year wrong. It also decides where batches end. [`Coverage`] counts which faults struck nodes
//! in which phases. Clients write all the time. At the end the results that they got are compared with the data of the
//! nodes. `docs/testing.md` describes the fault model and the checks in detail.
//!
//! # What is checked
//!
//! - Every acknowledged write is present exactly once, with the result that its client got; a write in doubt at most
//!   once; a failed write not at all. An atomic batch is present as a whole or not at all.
//! - A linearizable read shows every write that was acknowledged before the read; a read at a position shows the write
//!   at that position, on every node.
//! - An index has one log id, one payload and one outcome on all nodes and in all their process lives. Nodes at equal
//!   indexes have equal states, which verification confirms. The logs hold the same bytes where they overlap.
//! - A leader id leads in one process life only, and its log holds everything that was committed before its term. An id
//!   whose disk was lost never comes back, and a node that lost nothing keeps its id.
//! - No task panics. No node stops unless its disk failed. A node whose disk was full continues without help. Soon
//!   after the faults end, all nodes are voters that have caught up, and the cluster serves.
//!
//! # Invariants
//!
//! - A seed always gives the same events, bit by bit; the hash of the events shows it.
//! - All `unsafe` code lies in `vfs::ffi`.

#![deny(unsafe_code)]

mod archive;
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

pub use atlas::classes;
pub use coverage::{Coverage, Phase};
pub use faults::Crashes;
pub use ledger::Counts;
pub use scenario::{Failure, Plan, Report, run, run_without};
pub use shorten::shorten;
pub use vfs::VfsError;
