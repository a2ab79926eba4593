//! Locks between processes, replicated, in the same transactions as SQL and keys.
//!
//! [`Locks::acquire`] waits its turn and returns a [`LockGuard`], which renews its lease by itself and knows until when
//! it can be sure of it. Because no guard can stop the world, each grant has a fencing [`Token`]: a step
//! [`Locks::holds`] in a batch makes that fail unless the lock is still held with it.
//!
//! ```
//! # async fn f(node: quorate::Node) -> Result<(), quorate::Error> {
//! use std::time::Duration;
//! use quorate::{params, steps};
//!
//! let (locks, sql) = (node.locks(), node.sql());
//! let guard = locks.acquire("report").ttl(Duration::from_secs(10)).wait(Duration::from_secs(30)).await?;
//! sql.batch(steps![
//!     guard.holds(),
//!     ("INSERT INTO reports (day) VALUES (?)", params!["2026-11-28"]),
//! ])
//! .await?;
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Invariants
//!
//! - A guard is never surer than the cluster: it counts from before its request was sent, by its own monotonic clock,
//!   and gives up a quarter of the lease for clocks of nodes that differ.
//! - A guard gives back its own grant, and never a later one of the same holder.
//! - Whatever happens to a process, nothing of its leases and waits lasts longer than their time.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use quorate_model::UserRole;
use quorate_model::keys::Span;
use quorate_model::locks::limits::LIST_MAX;
use quorate_sql::locks::topic;

use crate::error::Error;
use crate::keys::{IntoBytes, Page};
use crate::level::Level;
use crate::sql::Sql;

mod acquire;
mod call;
mod guard;
mod reply;

pub use quorate_model::locks::{Claim, Lease, LockInfo, LocksCommand, LocksReply, Token, Wait, limits};

pub use self::acquire::{Acquire, Grant, TTL_DEFAULT};
pub use self::call::LocksCall;
pub use self::guard::{Fence, LockGuard};
pub use self::reply::FromLocksReply;

/// A handle to the locks of a cluster: of a node in this process ([`Node::locks`](crate::Node::locks)), or of a remote
/// cluster ([`Client::locks`](crate::Client::locks)). Cheap to clone.
///
/// It has the options of an [`Sql`] handle; the methods that change them are documented there.
#[derive(Clone, Debug)]
pub struct Locks {
    sql: Sql,
}

impl Sql {
    /// Returns the handle to the locks of the cluster, with the options of this one.
    pub fn locks(&self) -> Locks {
        Locks { sql: self.clone() }
    }
}

impl Locks {
    /// Acquires a lock. Awaited, it waits for its turn.
    pub fn acquire(&self, name: impl IntoBytes) -> Acquire {
        Acquire::new(self, name.into_bytes())
    }

    /// Acquires a lock if it is free, with the usual options; [`Acquire::attempt`] does it with others.
    pub async fn try_acquire(&self, name: impl IntoBytes) -> Result<Option<LockGuard>, Error> {
        self.acquire(name).attempt().await
    }

    /// Fails with [`FailureKind::NotHeld`](crate::FailureKind::NotHeld), and with it the batch that it is a step of,
    /// unless the lock is held with this token.
    pub fn holds(&self, name: impl IntoBytes, token: Token) -> LocksCall<Lease> {
        self.run(LocksCommand::Expect { name: name.into_bytes(), token })
    }

    /// Returns who holds a lock and who waits for it; `None` if nobody does.
    pub fn inspect(&self, name: impl IntoBytes) -> LocksCall<Option<LockInfo>> {
        self.run(LocksCommand::Inspect { name: name.into_bytes() })
    }

    /// Returns the first locks whose names start with a prefix. [`Page::next`] is the name with which the next page
    /// begins, for [`Locks::list_from`].
    pub fn list(&self, prefix: impl IntoBytes) -> LocksCall<Page<LockInfo>> {
        self.run(LocksCommand::List { names: Span::prefix(&prefix.into_bytes()), limit: LIST_MAX })
    }

    /// Returns the next locks whose names start with a prefix.
    pub fn list_from(&self, prefix: impl IntoBytes, next: impl IntoBytes) -> LocksCall<Page<LockInfo>> {
        let names = Span { from: next.into_bytes(), ..Span::prefix(&prefix.into_bytes()) };
        self.run(LocksCommand::List { names, limit: LIST_MAX })
    }

    /// Takes a lock from those who hold it, or only from the one with a token, and returns the tokens that have ended.
    /// Their guards find out at their next renewal; steps [`Locks::holds`] fail at once.
    pub fn force(&self, name: impl IntoBytes, token: Option<Token>) -> LocksCall<Vec<Token>> {
        self.run(LocksCommand::Force { name: name.into_bytes(), token })
    }

    /// Returns a call of any command. The other methods are made of this one.
    pub fn run<T: FromLocksReply>(&self, command: LocksCommand) -> LocksCall<T> {
        LocksCall::new(self.sql.clone(), command)
    }

    /// Registers for what happens to a holder. `None` if no node has served that within the limit: the caller must ask
    /// from time to time anyway.
    async fn register(&self, name: &Bytes, holder: &Bytes, limit: Duration) -> Option<BoxFuture<'static, ()>> {
        self.sql.submitter.register(topic(name, holder), limit).await.ok()
    }

    fn with(sql: Sql) -> Self {
        Self { sql }
    }
}

/// Options, as [`Sql`] has them.
impl Locks {
    /// See [`Sql::at`].
    #[must_use]
    pub fn at(&self, level: Level) -> Self {
        Self::with(self.sql.at(level))
    }

    /// See [`Sql::with_role`].
    #[must_use]
    pub fn with_role(&self, role: UserRole) -> Self {
        Self::with(self.sql.with_role(role))
    }

    /// See [`Sql::with_own_writes`].
    #[must_use]
    pub fn with_own_writes(&self) -> Self {
        Self::with(self.sql.with_own_writes())
    }

    /// See [`Sql::with_deadline`]. It is not how long one waits for a lock: [`Acquire::wait`] says that.
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self::with(self.sql.with_deadline(deadline))
    }
}

/// The error for an answer of another kind than the question.
fn other_answer() -> Error {
    Error::Unavailable("the cluster answered a command on locks with a reply of another kind".into())
}
