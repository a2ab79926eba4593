//! The door of Quorate for the clients of Redis: RESP 2 and 3.
//!
//! A [`Door`] is what a connection is, without its I/O. Bytes go in, and become a [`Batch`]; a batch asks the store by
//! [`Job`]s, takes the answers, and becomes bytes for the client:
//!
//! 1. [`Reader`] takes requests from the bytes.
//! 2. `table` finds the row of each command; its function reads the arguments and makes a plan: the commands for the
//!    store, and how their answers become a [`Frame`]. Or the connection replies by itself.
//! 3. The plans of requests that arrived together are a batch, and its writes one job.
//!
//! # Invariants
//!
//! - Nothing here but [`serve`](serve()) does I/O. Nothing reads a clock or draws at random.
//! - Each request has its reply, in the order of the requests; each command sees what those before it wrote.
//! - No input causes a panic. What is held for a client is limited by named constants.

#![forbid(unsafe_code)]

mod args;
mod audience;
mod batch;
mod commands;
mod connection;
mod control;
mod cursors;
#[doc(hidden)]
pub mod differential;
mod door;
mod error;
mod frame;
mod glob;
mod host;
pub mod limits;
mod notifications;
mod number;
mod plan;
mod replies;
mod request;
mod serve;
mod slow_log;
mod summary;
mod table;

pub use args::Moment;
pub use audience::Audience;
pub use batch::{Answered, Batch, Job, Terms};
pub use connection::{Common, Connection, REDIS_VERSION};
pub use cursors::Cursors;
pub use door::Done;
pub use door::Door;
pub use frame::{Frame, Protocol, with_code};
pub use host::{Host, NOAUTH, Role};
pub use notifications::{NOTIFY, Notifications};
pub use plan::{Awaited, Premise, Results, Wait};
pub use request::{ProtocolError, Reader};
pub use serve::{Store, serve};
pub use slow_log::{SLOW_LOG_ENTRIES_MAX, SlowLog};
pub use summary::Summary;
