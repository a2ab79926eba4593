//! SQLite you can kill: replicated SQL that one embeds.
//!
//! An application starts a [`Node`] with a data directory and, for more than one machine, a list of members. Its
//! [`Sql`] handle writes through Raft, so that an acknowledged write survives the loss of any minority of the nodes,
//! and reads the SQLite database that every node has.
//!
//! ```
//! use quorate::{Config, Level, Node};
//!
//! # let dir = tempfile::tempdir()?;
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let node = Node::start(Config::single(dir.path())).await?;
//! let sql = node.sql();
//!
//! sql.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT NOT NULL, age INTEGER)", ()).await?;
//! let ann = sql.execute("INSERT INTO users (name, age) VALUES (?, ?)", ("Ann", 42)).await?;
//!
//! // Every write returns its position. A read at it sees the write, on whichever node.
//! let (id, age): (i64, i64) = sql
//!     .at(Level::AtLeast(ann.position))
//!     .query_one("SELECT id, age FROM users WHERE name = ?", ("Ann",))
//!     .await?;
//! assert_eq!((id, age), (ann.last_insert_rowid, 42));
//!
//! node.stop().await;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Principal types
//!
//! - [`Config`], in code or from TOML, and [`Node`], which runs it.
//! - [`Sql`]: [`execute`](Sql::execute), [`query`](Sql::query), atomic [`batch`](Sql::batch), serializable
//!   [`transact`](Sql::transact), a [`Snapshot`] for many reads; [`Level`] says how fresh a read must be. [`Client`]
//!   hands out the same handles in a process that is not a member.
//! - [`backup`](backup()) and [`restore`](restore()): a live database as a plain SQLite file, and back.
//!   [`verify`](verify()): do all nodes hold the same?
//! - [`Admin`]: the members of a cluster, looked at and changed.
//! - [`Error`]: all but [`Error::Unknown`] mean that a write had no effect.
//!
//! # Invariants
//!
//! - A write takes effect exactly once, or not at all, however often the library had to try.
//! - Handles work in any executor, and calls on a handle whose node has ended fail; they never hang or panic.
//! - What sessions, retries and deadlines mean is written once, for both kinds of handles.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod admin;
pub mod backup;
pub mod config;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod hooks;
mod level;
pub mod metrics;
mod migrations;
mod node;
mod optimistic;
mod params;
mod protocol;
mod readiness;
mod remote;
pub mod restore;
mod results;
mod row_methods;
mod runtime;
mod snapshot;
pub mod sql;
mod status;
mod submitter;
mod transaction;
pub mod types;
mod verify;

pub use admin::Admin;
pub use config::{Config, SecretSource};
pub use error::{Error, StartError};
pub use level::Level;
pub use migrations::Migrations;
pub use node::{Node, Observer};
pub use optimistic::Optimistic;
pub use params::Params;
pub use quorate_consensus::inspect;
pub use quorate_consensus::{Ended, HOLD_MAX};
pub use quorate_derive::{FromRow, migrations};
pub use quorate_env::Cause;
pub use quorate_model::{Failure, FailureKind, Position, Step, Value, limits};
pub use quorate_sql::extensions::Extensions;
pub use quorate_sql::query::{FromRow, Rows};
pub use readiness::NotReady;
pub use remote::{Client, ClientConfig, ConnectError, backup, verify};
pub use restore::restore;
pub use snapshot::Snapshot;
pub use sql::Sql;
pub use status::Status;
pub use transaction::Transaction;

/// What only simulations use.
#[doc(hidden)]
pub mod sim {
    pub use crate::hooks::{SimHooks, TuneStore, WatchStore};
    pub use crate::node::tick;
    pub use crate::remote::{backup_in, verify_in};
    pub use crate::restore::restore_in;
}

/// The examples of the README compile.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// So do those of the guide to SQL.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/sql.md")]
struct Guide;
