//! Keys: Redis' data types, replicated, in the same database and the same transactions as SQL.
//!
//! [`Keys`] has the strings, and what is the same for all keys; [`Keys::hash`], [`Keys::set_of`],
//! [`Keys::sorted_set`] and [`Keys::list`] return what a key of another kind can do, and [`Keys::bits`] what can be
//! done with the bits of a string. Each method returns a call: awaited, it runs; given to a batch, it is one of its
//! steps. Keys, fields and values are bytes.
//!
//! ```
//! # async fn f(keys: quorate::Keys, sql: quorate::Sql) -> Result<(), quorate::Error> {
//! use std::time::Duration;
//! use quorate::{params, steps};
//!
//! keys.set("session:7", "ann").expires(Duration::from_secs(3600)).await?;
//! assert_eq!(keys.get("session:7").await?.as_deref(), Some(&b"ann"[..]));
//! keys.hash("user:ann").set([("city", "Bern")]).await?;
//! keys.sorted_set("scores").increment("ann", 2.5).await?;
//!
//! // One transaction of SQL and keys.
//! let done = sql
//!     .batch(steps![
//!         ("INSERT INTO visits (name) VALUES (?)", params!["ann"]),
//!         keys.increment("visits", 1),
//!         keys.list("queue").push_right(["ann"]),
//!     ])
//!     .await?;
//! let visits: Option<i64> = done.replies.get(1);
//! # Ok(())
//! # }
//! ```
//!
//! # Invariants
//!
//! - What only reads is answered at the level of the handle, and takes no entry of the log; all else is a write,
//!   exactly once.
//! - What has expired does not exist, for any command. A write takes the stamp of its entry, a read the cluster's time:
//!   the stamp of what its node has applied, plus what has passed since.

use std::time::Duration;

use quorate_env::Env;
use quorate_model::UserRole;

use crate::error::Error;
use crate::level::Level;
use crate::sql::Sql;

mod bits;
mod call;
mod elements;
mod generic;
mod into_bytes;
mod json;
mod lists;
mod pop;
mod premises;
mod put;
mod reply;
mod scan;
mod sorted_sets;
mod strings;
mod wait;
mod watch;
mod when;

pub use quorate_apply::changes::{CHANGES_WAITING_BYTES_MAX, CHANGES_WAITING_MAX, KeyWatch, Watched};
pub use quorate_model::keys::{
    AddOptions, Aggregate, BitAction, BitCommand, BitInteger, BitOperation, BitRange, BitStep, BitUnit, Change,
    Collection, Compare, Condition, ElementCommand, End, EventClasses, Expiry, ExpiryCondition, HashCommand, KeyChange,
    KeyCommand, KeyEntry, KeyEvent, KeyInfo, KeysCommand, KeysReply, Kind, ListCommand, Order, Overflow, Page, Range,
    SetCommand, SetOperation, SortedSetCommand, Space, SpaceCommand, Span, StringCommand, Version, Which, limits,
};

pub use self::bits::Bits;
pub use self::call::KeysCall;
pub use self::elements::{Hash, Set};
pub use self::into_bytes::IntoBytes;
pub use self::json::{JsonError, from_json, to_json};
pub use self::lists::List;
pub use self::pop::{Pop, Taken};
pub use self::put::Put;
pub use self::reply::{FromReply, Replies};
pub use self::scan::{ElementScan, Scan};
pub use self::sorted_sets::{Expiring, InRange, Popped, SortedSet};
pub use self::wait::WAIT_LOOK;
pub use self::watch::{PREFIX_LOOKS_APART, Seen, WATCHED_KEYS_MAX, Watch};
pub use self::when::When;

/// A handle to the keys of one space: those of a node in this process ([`Node::keys`](crate::Node::keys)), or those of
/// a remote cluster ([`Client::keys`](crate::Client::keys)). Cheap to clone.
///
/// It has the options of an [`Sql`] handle; the methods that change them are documented there.
#[derive(Clone, Debug)]
pub struct Keys {
    sql: Sql,
    space: Space,
}

impl Sql {
    /// Returns the handle to the keys of the database, with the options of this one.
    pub fn keys(&self) -> Keys {
        Keys { sql: self.clone(), space: 0 }
    }
}

impl Keys {
    /// Returns the handle to another space, below [`limits::SPACES`]. Keys of different spaces have nothing to do with
    /// each other. The first one is 0.
    #[must_use]
    pub fn space(&self, space: Space) -> Self {
        Self { space, ..self.clone() }
    }

    /// Returns a call of any command. The other methods are made of this one.
    pub fn run<T: FromReply>(&self, command: impl Into<KeysCommand>) -> KeysCall<T> {
        KeysCall::new(self.sql.clone(), SpaceCommand { space: self.space, command: command.into() })
    }

    /// Returns a number for a draw.
    fn seed(&self) -> u64 {
        self.env().rng().next_u64()
    }

    fn env(&self) -> &Env {
        self.sql.submitter.runtime().env()
    }

    fn with(&self, sql: Sql) -> Self {
        Self { sql, space: self.space }
    }
}

/// Options, as [`Sql`] has them.
impl Keys {
    /// See [`Sql::at`].
    #[must_use]
    pub fn at(&self, level: Level) -> Self {
        self.with(self.sql.at(level))
    }

    /// See [`Sql::with_role`].
    #[must_use]
    pub fn with_role(&self, role: UserRole) -> Self {
        self.with(self.sql.with_role(role))
    }

    /// See [`Sql::with_own_writes`].
    #[must_use]
    pub fn with_own_writes(&self) -> Self {
        self.with(self.sql.with_own_writes())
    }

    /// See [`Sql::with_deadline`].
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        self.with(self.sql.with_deadline(deadline))
    }

    /// See [`Sql::with_budget`].
    #[must_use]
    pub fn with_budget(&self, steps: u64) -> Self {
        self.with(self.sql.with_budget(steps))
    }

    /// See [`Sql::with_key`]. The request must be the same when it is sent again, so draw nothing at random.
    #[must_use]
    pub fn with_key(&self, key: impl Into<Vec<u8>>) -> Self {
        self.with(self.sql.with_key(key))
    }

    /// See [`Sql::with_archived_writes`].
    #[must_use]
    pub fn with_archived_writes(&self) -> Self {
        self.with(self.sql.with_archived_writes())
    }
}

/// The error for an answer of another kind than the question.
fn other_answer() -> Error {
    Error::Unavailable("the cluster answered a command on keys with a reply of another kind".into())
}
