//! A simulated world for Quorate's nodes: disk, net and clock under one seed.
//!
//! A [`SimWorld`] runs nodes in one thread and in virtual time, on tokio's paused clock. Each life of a node gets an
//! [`Env`](quorate_env::Env) of its own; the world ends it, by a kill or a power failure, cuts the [`SimNet`] between
//! nodes, and sets their clocks wrong. [`Trace`] tells what happened, and its hash proves that a seed replays.
//!
//! [`SimDisk`] keeps files in memory and forgets, tears and reorders what was not synced when its power fails. It can
//! also be full, slow to admit errors, or damaged.
//!
//! # Invariants
//!
//! - Equal seeds and equal calls give equal behaviour, bit by bit.
//! - A fault never harms what [`quorate_env::disk`] promises to keep: what was synced stays, until it is damaged on
//!   purpose.

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
