//! A replicated SQL database that runs inside an application: SQLite on every node, kept equal by Raft.
//!
//! An application starts a [`Node`] with a data directory and, for more than one machine, a list of members. The node's
//! [`Sql`] handle replicates writes through Raft, so an acknowledged write survives the loss of any minority of the
//! nodes. Reads use the SQLite database that every node keeps.
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
//! - [`Config`]: the configuration of a node, set in code or read from TOML. [`Node`]: a running node.
//! - [`Sql`]: [`execute`](Sql::execute), [`query`](Sql::query), atomic [`batch`](Sql::batch), serializable
//!   [`transact`](Sql::transact), and a [`Snapshot`] for many reads of one state. [`Level`] sets how fresh a read must
//!   be. [`Keys`]: Redis' data types in the same database, alone or in a batch with statements. [`Locks`]:
//!   leases with fencing tokens. A [`Client`] provides the same handles in a process that is not a member.
//! - [`backup`](backup()) and [`restore`](restore()): copy a live database to a plain SQLite file, and create a cluster
//!   from such a file. [`verify`](verify()) checks that all nodes hold the same data.
//! - [`Admin`]: lists and changes the members of a cluster, and its users. [`users`]: who may log in at doors.
//! - [`Error`]: the error of a read or a write. Every error except [`Error::Unknown`] means that the write had no
//!   effect.
//!
//! # Invariants
//!
//! - A write takes effect exactly once or not at all, however often the library retries it.
//! - Handles work in any executor. Calls on a handle whose node has ended fail; they neither hang nor panic.
//! - Sessions, retries and deadlines have one implementation, which both kinds of handles share.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod admin;
pub mod archive;
pub mod backup;
pub mod config;
mod error;
pub mod events;
#[doc(hidden)]
pub mod fuzzing;
mod hooks;
pub mod keys;
mod level;
pub mod locks;
mod many;
pub mod metrics;
mod migrations;
mod node;
mod optimistic;
mod params;
mod protocol;
mod readiness;
mod remote;
mod request;
pub mod restore;
mod results;
mod rights;
mod row_methods;
mod runtime;
mod snapshot;
pub mod sql;
mod status;
mod submitter;
mod transaction;
pub mod types;
pub mod users;
mod verify;

pub use admin::Admin;
pub use config::{Ca, ClientTls, Config, SecretSource, TlsConfig};
pub use error::{ConnectError, Error, StartError};
pub use events::Events;
pub use keys::Keys;
pub use level::Level;
pub use locks::Locks;
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
pub use remote::{Client, ClientConfig, backup, verify};
pub use restore::restore;
pub use snapshot::Snapshot;
pub use sql::Sql;
pub use status::{ArchiveStatus, Status};
pub use transaction::{SAVEPOINT_BYTES_MAX, SAVEPOINTS_MAX, Transaction};

/// Items for simulations only.
#[doc(hidden)]
pub mod sim {
    pub use crate::hooks::{OpenGroup, SimHooks, TuneStore, WatchStore};
    pub use crate::node::{appoint, group, tick};
    pub use crate::remote::{Waiter, backup_in, register_waiter, verify_in};
    pub use crate::restore::restore_in;
}

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Compiles the examples of the guide to SQL.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/sql.md")]
struct Guide;

/// Compiles the examples of the guide to events.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/events.md")]
struct EventsGuide;

/// Compiles the examples of the guide to keys.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/keys.md")]
struct KeysGuide;

/// Compiles the examples of the guide to locks.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/locks.md")]
struct LocksGuide;
