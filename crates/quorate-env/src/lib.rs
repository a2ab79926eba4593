//! The interfaces between Quorate and the outside world.
//!
//! Quorate uses the machine only through an [`Env`]: the wall clock, randomness, files ([`disk`]), sockets ([`net`]),
//! threads ([`worker`]) and asynchronous tasks. [`Env::real`] is this machine. The crate `quorate-env-sim` provides
//! simulated environments for many nodes in one thread, with one seed and a virtual clock.
//!
//! The asynchronous runtime is tokio's current-thread scheduler in both cases. On a machine each node has its own, on
//! its own thread. In the simulator all nodes share one with a paused clock, so virtual time advances as fast as the
//! work allows. The simulator runs the same compiled code as production; only the `Env` differs.
//!
//! # Invariants
//!
//! - This crate depends on neither Raft nor SQLite.
//! - Code outside this crate gets time, randomness, files, sockets, threads and tasks only from it; `clippy.toml` bans
//!   the alternatives.
//! - A task spawned through an `Env` runs with that `Env` as [`Env::current`], and so do the tasks that it spawns.

#![forbid(unsafe_code)]

mod cause;
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
pub mod serving;
pub mod signal;
mod task;
mod throttle;
mod wakes;
pub mod worker;

pub use cause::Cause;
pub use env::{Env, Parts, WallClock};
pub use host::{AbortHandle, BoxTask, Host, RealHost, Usage};
pub use lock::{lock, unpoisoned};
pub use machine::{host_name, memory_room, thread_time};
pub use priority::Priority;
pub use rng::Rng;
pub use task::{Elapsed, Instant, JoinHandle, Sleep, Timeout, sleep, sleep_until, timeout, timeout_at, yield_now};
pub use throttle::Throttle;
