//! The seams between Quorate and the world.
//!
//! Everything that Quorate asks of a machine goes through an [`Env`]: the wall clock, randomness, files ([`disk`]),
//! sockets ([`net`]), threads ([`worker`]) and asynchronous tasks. [`Env::real`] is this machine. The crate
//! `quorate-env-sim` makes others that live, many nodes at once, in one thread under one seed and a virtual clock.
//!
//! The asynchronous runtime is tokio's current-thread scheduler in both worlds: on a machine each node has one on a
//! thread of its own, in the simulator all nodes share one whose clock is paused and so runs as fast as there is work.
//! Nothing that is compiled for production differs from what the simulator runs; only the `Env` does.
//!
//! # Invariants
//!
//! - This crate does not know what Raft or SQLite is.
//! - Code outside of it takes time, randomness, files, sockets, threads and tasks from nowhere else; `clippy.toml` bans
//!   the ways around it.
//! - A task spawned through an `Env` runs with that `Env` as [`Env::current`], and so do the tasks that it spawns.

#![forbid(unsafe_code)]

pub mod disk;
mod env;
mod host;
mod lock;
mod machine;
pub mod metrics;
pub mod mutant;
pub mod net;
mod priority;
mod rng;
pub mod signal;
mod task;
mod throttle;
pub mod worker;

pub use env::{Env, Parts, WallClock};
pub use host::{AbortHandle, BoxTask, Host, RealHost, Usage};
pub use lock::lock;
pub use machine::{host_name, memory_room, thread_time};
pub use rng::Rng;
pub use task::{Elapsed, Instant, JoinHandle, Sleep, Timeout, sleep, sleep_until, timeout, timeout_at, yield_now};
pub use throttle::Throttle;
