//! A simulated world for Quorate's nodes: disk, net and clock under one seed.
//!
//! A [`SimWorld`] runs nodes in one thread and in virtual time, on tokio's paused clock. Each life of a node, from a
//! start to the next kill or power failure, gets an [`Env`](quorate_env::Env) of its own. The world ends lives, cuts
//! the [`SimNet`] between nodes, and sets their clocks wrong. A [`Trace`] records the events; its hash proves that a
//! seed replays.
//!
//! [`SimDisk`] keeps files in memory. When its power fails, it drops, tears and reorders unsynced changes. It can also
//! be full, fail, or be damaged.
//!
//! # Invariants
//!
//! - Equal seeds and equal calls give identical behaviour.
//! - A fault never breaks the promises of [`quorate_env::disk`]: synced data stays until a test damages it on purpose.

#![forbid(unsafe_code)]

mod clock;
pub mod disk;
mod host;
mod net;
mod scheduler;
mod trace;
mod world;

pub use clock::SimClock;
pub use disk::{Fault, SimDisk};
pub use host::{Pace, SimHost};
pub use net::{Latency, NodeNet, SimNet};
pub use trace::Trace;
pub use world::{RUN_LIMIT, RunError, SimWorld};
