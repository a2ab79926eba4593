//! SQL, keys and locks over HTTP: a database of Quorate for the clients of libSQL and of rqlite, and for any HTTP
//! client (`docs/http.md`).
//!
//! [`serve`](serve()) opens a port inside of a program. [`Doors`] answers single requests, for programs that have an
//! HTTP server of their own. Both work on the handle of a node in the process, and on that of a remote cluster.
//!
//! ```no_run
//! # async fn f() -> Result<(), Box<dyn std::error::Error>> {
//! use quorate::{Config, Node};
//! use quorate_http::{Options, serve};
//!
//! let node = Node::start(Config::single("data")).await?;
//! let server = serve("127.0.0.1:8080", node.sql(), Options::default()).await?;
//! println!("libSQL clients connect to http://{}", server.local_addr());
//! # Ok(())
//! # }
//! ```
//!
//! # Invariants
//!
//! - The library runs each statement, so an answer reports a write as done only if a majority has it.
//! - No request causes a panic. The size of requests and answers, the number of streams, and all waits are limited by
//!   named constants.
//! - A transaction of a client that goes away is rolled back.
//! - Each request is checked against the users of the cluster, before its body is read, and its statements against the
//!   role of its user. Over WebSocket, it is checked when it begins.

#![forbid(unsafe_code)]

mod asked;
#[cfg(feature = "client")]
pub mod client;
mod cluster;
mod codes;
mod door;
mod error;
mod events;
#[doc(hidden)]
pub mod fuzzing;
mod hrana;
mod hustdb;
mod json;
mod keys;
mod locks;
pub mod login;
mod message;
mod octets;
mod openapi;
pub mod options;
pub mod port;
mod resource;
mod rqlite;
mod text;
mod work;

pub use cluster::{Cluster, MemberView, View};
pub use door::{BODY_TIME_MAX, Doors};
pub use message::{Answer, AnswerBody, Request, duration, level, whole};
pub use options::Options;
pub use port::{Port, ServeError, serve};
pub use text::may_write;
