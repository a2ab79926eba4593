//! Handles to a database, and the types of statements, parameters and results.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quorate_model::limits::{BUDGET_DEFAULT, COMMANDS_MAX};
use quorate_model::{Failure, FailureKind, Proposal, Read, UserRole};
use quorate_sql::query::Rows;
use quorate_sql::readers::{BYTES_DEFAULT, ROWS_DEFAULT};

use crate::error::Error;
use crate::level::Level;
use crate::optimistic::{Attempts, Optimistic};
use crate::params::pack;
use crate::request;
use crate::results::Written;
use crate::rights::{Right, StreamMethod};
use crate::row_methods::row_methods;
use crate::snapshot::Snapshot;
use crate::submitter::{Acknowledge, Limits, ReadAnswer, ReadRequest, Submitter};
use crate::transaction::Transaction;

pub use quorate_model::{
    Bulk, Column, Command, CommandResult, Mode, PackedRows, Param, RowPacker, SqlCommand, SqlReply, Statement,
    StatementResult,
};
pub use quorate_sql::extensions::Aggregator;
pub use quorate_sql::query::{FromRowOwned, FromValue, Mismatch, RowError, RowRef};

pub use crate::migrations::{DoneMigration, MigrateError, Migration, MigrationStatus};
pub use crate::params::{BatchStep, IntoParams, IntoStatement};
pub use crate::results::{BatchResult, Committed, Executed, PipelineResult, Returned};
pub use crate::snapshot::RowStream;

/// A handle to a database: that of a node in this process ([`Node::sql`](crate::Node::sql)), or that of a remote
/// cluster ([`Client::sql`](crate::Client::sql)). Cheap to clone; all clones share one session.
///
/// Writes go to the leader, whichever node the handle belongs to, and take effect exactly once: if the leader changes,
/// the handle retries until its deadline. Many writes may be in progress at once, and they may take effect in any
/// order. To fix their order, wait for each write before sending the next one, or send them as one [`Sql::batch`].
///
/// A write whose future is dropped may have taken effect, or may still take effect.
#[derive(Clone)]
pub struct Sql {
    pub(crate) submitter: Arc<Submitter>,
    level: Level,
    sees_own_writes: bool,
    deadline: Duration,
    limits: Limits,
    budget: u64,
    /// What a caller of this handle may do. The connection below it may be allowed to do more.
    held: Right,
    /// The key of its writes.
    key: Option<Bytes>,
    /// When its writes return.
    acknowledge: Acknowledge,
}

impl Sql {
    pub(crate) fn new(submitter: Arc<Submitter>, level: Level, deadline: Duration) -> Self {
        let limits = Limits { rows: ROWS_DEFAULT, bytes: BYTES_DEFAULT, timeout: Duration::MAX };
        Self {
            submitter,
            level,
            sees_own_writes: false,
            deadline,
            limits,
            budget: BUDGET_DEFAULT,
            held: Right::Admin,
            key: None,
            acknowledge: Acknowledge::Applied,
        }
    }

    /// Returns the same handle with another level for its reads.
    #[must_use]
    pub fn at(&self, level: Level) -> Self {
        Self { level, ..self.clone() }
    }

    /// Returns the same handle for a user with this role: what the role does not permit fails with
    /// [`Error::Forbidden`], whatever the handle itself may do. A role can only take rights away.
    #[must_use]
    pub fn with_role(&self, role: UserRole) -> Self {
        Self { held: self.held.min(role.into()), ..self.clone() }
    }

    /// Returns a handle whose reads also see every write of this handle and its clones that was acknowledged before the
    /// read began. This holds on every node and for every level.
    ///
    /// ```
    /// # async fn f(sql: quorate::Sql) -> Result<(), quorate::Error> {
    /// let sql = sql.with_own_writes();
    /// sql.execute("INSERT INTO users (name) VALUES (?)", ("ann",)).await?;
    /// let found: i64 = sql.query_one("SELECT count(*) FROM users WHERE name = ?", ("ann",)).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_own_writes(&self) -> Self {
        Self { sees_own_writes: true, ..self.clone() }
    }

    /// Returns the same handle with another deadline: the time for which a call is retried before it fails. The default
    /// is 30 seconds.
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self { deadline, ..self.clone() }
    }

    /// Returns the same handle with other limits on the result of a query, in rows and in bytes of values. The defaults
    /// are a million rows and 64 MiB. A query with a larger result fails with [`Error::TooLarge`]. The limits do not
    /// apply to a [`Snapshot`].
    #[must_use]
    pub fn with_limits(&self, rows: usize, bytes: usize) -> Self {
        Self { limits: Limits { rows, bytes, ..self.limits }, ..self.clone() }
    }

    /// Returns the same handle with a time limit for each query, including those of [`Sql::transact`]. A query that
    /// exceeds it fails with [`Error::TimedOut`]. The node's own limit, `sql.query_timeout` (5 seconds by default),
    /// applies too, so this method can only shorten the time. It does not apply to a [`Snapshot`], whose pieces are
    /// limited by the handle's deadline and the node's limit.
    ///
    /// A query whose future is dropped is interrupted, also on a remote node.
    #[must_use]
    pub fn with_query_timeout(&self, timeout: Duration) -> Self {
        Self { limits: Limits { timeout, ..self.limits }, ..self.clone() }
    }

    /// Returns the same handle with another budget for each write: the number of steps of SQLite's virtual machine that
    /// it may take. The default is 25 million, which is up to a second of work. The processor time of a write, and the
    /// bytes that it may move through memory and temporary files, are limited in proportion (see docs/limits.md). A
    /// write that needs more steps fails with [`FailureKind::Budget`] and has no effect.
    ///
    /// While a write is applied, no other write takes effect on any node. Use a larger budget only for work that can't
    /// be split, such as creating an index of a large table. Interactive transactions always use the default.
    #[must_use]
    pub fn with_budget(&self, steps: u64) -> Self {
        Self { budget: steps, ..self.clone() }
    }

    /// Returns a handle for one write with a key, 1 to 256 bytes that no other request has, such as a UUID. If the
    /// write is sent again with the same key, by any handle and to any node, it takes effect once: each of them gets
    /// the result of the first one, with its position, or its failure. So a caller that lost an answer, and its session
    /// with it, can send the request again. The cluster remembers a key for 24 hours.
    ///
    /// ```
    /// # async fn f(sql: quorate::Sql, key: String) -> Result<(), quorate::Error> {
    /// let pay = "UPDATE accounts SET balance = balance - ? WHERE name = ?";
    /// sql.with_key(key).execute(pay, (10, "ann")).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A key belongs to one request: [`Sql::execute`], [`Sql::execute_returning`], [`Sql::execute_many`],
    /// [`Sql::batch`] or [`Sql::pipeline`], with the same statements and parameters. Another write with it fails with
    /// [`FailureKind::KeyReused`]. [`Sql::begin`] and [`Sql::transact`] fail with [`FailureKind::Refused`]; reads take
    /// no notice of the key.
    ///
    /// A write whose result has more than 64 KiB fails with [`FailureKind::TooBig`] and has no effect. While the
    /// cluster remembers as many keys as it may (see docs/limits.md), a write with a new key fails with
    /// [`Error::Overloaded`]. Until all members know keys, it fails with [`FailureKind::Unsupported`].
    #[must_use]
    pub fn with_key(&self, key: impl Into<Vec<u8>>) -> Self {
        Self { key: Some(Bytes::from(key.into())), ..self.clone() }
    }

    /// Whether the handle has a key.
    pub(crate) fn has_key(&self) -> bool {
        self.key.is_some()
    }

    /// Returns the same handle without the key.
    pub(crate) fn without_key(&self) -> Self {
        Self { key: None, ..self.clone() }
    }

    /// Returns the same handle, whose writes return only when they are in the [archive](crate::archive): they survive
    /// the loss of all nodes. This holds for every kind of write, and takes about as long as the interval at which the
    /// cluster archives, because nothing is sent to the store sooner. Reads take no notice of it.
    ///
    /// If the deadline passes first, the write fails with [`Error::NotArchived`], although it was done. If no node
    /// archives, it fails with [`FailureKind::Refused`], as a rule before it has an effect.
    ///
    /// ```
    /// # async fn f(sql: quorate::Sql, key: String) -> Result<(), quorate::Error> {
    /// let pay = "UPDATE accounts SET balance = balance - ? WHERE name = ?";
    /// sql.with_archived_writes().with_key(key).execute(pay, (10, "ann")).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_archived_writes(&self) -> Self {
        Self { acknowledge: Acknowledge::Archived, ..self.clone() }
    }

    /// Runs a statement that writes. Returns the number of changed rows, the last inserted rowid, and the position of
    /// the write.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Failed`] if the statement fails or is not allowed, [`Error::Unavailable`] or
    /// [`Error::Overloaded`] if the cluster did not accept it before the deadline, and [`Error::Unknown`] if its
    /// outcome is not known. After every error except [`Error::Unknown`] and [`Error::NotArchived`], the write had no
    /// effect.
    pub async fn execute(&self, sql: impl Into<Cow<'static, str>>, params: impl IntoParams) -> Result<Executed, Error> {
        self.write((sql, params)).await.map(Into::into)
    }

    /// Runs a statement that writes and returns rows (`RETURNING`). Returns the rows, at most 16 MiB, and the position
    /// of the write.
    ///
    /// # Errors
    ///
    /// Those of [`Sql::execute`].
    pub async fn execute_returning(
        &self,
        sql: impl Into<Cow<'static, str>>,
        params: impl IntoParams,
    ) -> Result<Returned, Error> {
        self.write((sql, params)).await.map(Into::into)
    }

    /// Runs statements that write as one atomic transaction, in their order: either all of them take effect, or none.
    ///
    /// ```
    /// # async fn f(sql: quorate::Sql) -> Result<(), quorate::Error> {
    /// use quorate::params;
    ///
    /// sql.batch([
    ///     ("UPDATE accounts SET balance = balance - ? WHERE name = ?", params![10, "ann"]),
    ///     ("UPDATE accounts SET balance = balance + ? WHERE name = ?", params![10, "bob"]),
    /// ])
    /// .await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A parameter may be a value that an earlier statement returned, if that statement returned one row:
    ///
    /// ```
    /// # async fn f(sql: quorate::Sql) -> Result<(), quorate::Error> {
    /// use quorate::{Step, params};
    ///
    /// sql.batch([
    ///     ("INSERT INTO orders (customer) VALUES (?) RETURNING id", params!["ann"]),
    ///     ("INSERT INTO lines (order_id, item) VALUES (?, ?)", params![Step(0).column("id"), "tea"]),
    ///     ("INSERT INTO lines (order_id, item) VALUES (?, ?)", params![Step(0).column(0), "milk"]),
    /// ])
    /// .await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Sql::execute`]. The [`Failure`] of a statement contains its number. An empty batch is
    /// refused.
    pub async fn batch<S: Into<BatchStep>>(&self, steps: impl IntoIterator<Item = S>) -> Result<BatchResult, Error> {
        self.propose(Proposal::new(None, commands(steps)?)).await.map(Into::into)
    }

    /// Runs statements that write, in their order; each one succeeds or fails independently. A statement that fails has
    /// no effect, and those after it still run. All of them are one entry of the log, so no other write takes effect
    /// between them, and a retry after a lost answer does not run them again.
    ///
    /// A statement that ends the transaction (`ON CONFLICT ROLLBACK`, `RAISE(ROLLBACK)`, or a budget that is used up)
    /// is the last one that runs. The effects of those before it are kept; those after it fail with
    /// [`FailureKind::NotRun`].
    ///
    /// ```
    /// # async fn f(sql: quorate::Sql) -> Result<(), quorate::Error> {
    /// use quorate::params;
    ///
    /// let insert = "INSERT INTO users (name) VALUES (?)";
    /// let written = sql.pipeline([(insert, params!["ann"]), (insert, params!["bob"])]).await?;
    /// for failure in written.results.iter().filter_map(|result| result.as_ref().err()) {
    ///     println!("{failure}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Sql::execute`] if the pipeline can't be proposed, for example if a statement has a
    /// syntax error. The failure of a statement at run time is not an error of the call: it is part of the result.
    pub async fn pipeline<S: Into<BatchStep>>(
        &self,
        steps: impl IntoIterator<Item = S>,
    ) -> Result<PipelineResult, Error> {
        self.propose(Proposal { mode: Mode::Pipeline, ..Proposal::new(None, commands(steps)?) }).await.map(Into::into)
    }

    /// Runs a statement that writes once for each row of parameters, in their order, as one atomic transaction. This
    /// costs a fraction of a batch with as many statements. The result is that of all runs together.
    ///
    /// Other writes wait while the rows are applied, so split more than some ten thousand rows, or more than a few MiB,
    /// into several calls.
    ///
    /// ```
    /// # async fn f(sql: quorate::Sql) -> Result<(), quorate::Error> {
    /// let words = ["one", "two", "three"];
    /// sql.execute_many("INSERT INTO words (number, word) VALUES (?, ?)", (1..).zip(words)).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Sql::execute`]. The [`Failure`] contains the number of the row that failed. Returns
    /// [`FailureKind::Refused`] if the statement returns rows or changes the schema, if the parameters are named, and
    /// if there is no row.
    pub async fn execute_many<P: IntoParams>(
        &self,
        sql: impl Into<Cow<'static, str>>,
        rows: impl IntoIterator<Item = P>,
    ) -> Result<Executed, Error> {
        self.write(Bulk { sql: sql.into(), rows: pack(rows)? }).await.map(Into::into)
    }

    /// Runs a closure that reads and then writes, as one serializable transaction. When the transaction commits, every
    /// node repeats its reads; the writes are done only if the results are unchanged. Otherwise the closure runs again
    /// on a newer state, until the deadline. No locks are held. The handle may belong to any node.
    ///
    /// The closure may run several times, so it should have no side effects. All its reads see one time and one state,
    /// which is at least as fresh as the handle's level requires. Its writes run after it has returned, one after
    /// another, as one entry. If the closure returns an error, the transaction ends without effect.
    ///
    /// A transfer that must not overdraw an account:
    ///
    /// ```
    /// use quorate::sql::Committed;
    /// use quorate::{Error, Sql};
    ///
    /// async fn transfer(sql: &Sql, from: &str, to: &str, amount: i64) -> Result<Committed<bool>, Error> {
    ///     sql.transact(|tx| async move {
    ///         let balance: i64 = tx.query_one("SELECT balance FROM accounts WHERE name = ?", (from,)).await?;
    ///         if balance < amount {
    ///             return Ok(false);
    ///         }
    ///         tx.execute("UPDATE accounts SET balance = balance - ? WHERE name = ?", (amount, from))?;
    ///         tx.execute("UPDATE accounts SET balance = balance + ? WHERE name = ?", (amount, to))?;
    ///         Ok(true)
    ///     })
    ///     .await
    /// }
    /// ```
    ///
    /// The closure's error may be any type that implements `From<Error>`:
    ///
    /// ```
    /// # use quorate::sql::Committed;
    /// # use quorate::{Error, Sql};
    /// enum SeatError {
    ///     SoldOut,
    ///     Database(Error),
    /// }
    ///
    /// impl From<Error> for SeatError {
    ///     fn from(error: Error) -> Self {
    ///         Self::Database(error)
    ///     }
    /// }
    ///
    /// async fn take_seat(sql: &Sql, guest: &str) -> Result<Committed<i64>, SeatError> {
    ///     sql.transact(|tx| async move {
    ///         let free = "SELECT number FROM seats WHERE guest IS NULL ORDER BY number LIMIT 1";
    ///         let seat: i64 = tx.query_optional(free, ()).await?.ok_or(SeatError::SoldOut)?;
    ///         tx.execute("UPDATE seats SET guest = ? WHERE number = ?", (guest, seat))?;
    ///         Ok(seat)
    ///     })
    ///     .await
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the closure's error, the errors of [`Sql::execute`], and [`Error::Conflict`] if every attempt until the
    /// deadline conflicted. If a read has failed and the closure writes nevertheless, returns the error of that read.
    pub async fn transact<T, E, F>(&self, body: impl FnMut(Optimistic) -> F) -> Result<Committed<T>, E>
    where
        F: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        self.check(Right::Write)?;
        request::without_key(self.key.as_ref()).map_err(Error::from)?;
        let (submitter, level) = (Arc::clone(&self.submitter), self.level()?);
        let attempts = Attempts::new(submitter, level, self.limits, self.budget, self.deadline)?;
        attempts.acknowledged(self.acknowledge).run(body).await
    }

    /// Begins an interactive transaction: its statements run one after another on the leader, while all other writes
    /// wait. It may last for this handle's deadline, but at most for [`HOLD_MAX`](crate::HOLD_MAX).
    ///
    /// # Errors
    ///
    /// Returns [`Error::Overloaded`] if the writes before it, or another transaction, took until the deadline, and
    /// [`Error::Unavailable`] if no leader could be reached.
    pub async fn begin(&self) -> Result<Transaction, Error> {
        self.check(StreamMethod::Interactive.right())?;
        request::without_key(self.key.as_ref())?;
        self.acknowledge.begin(&self.submitter, self.deadline).await?;
        Transaction::begin(Arc::clone(&self.submitter), self.deadline, self.acknowledge).await
    }

    /// Runs a query at this handle's level and returns its rows.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Failed`] if the query fails, with [`FailureKind::Refused`] if the statement writes. Returns
    /// [`Error::TimedOut`] if the query takes too long, and [`Error::TooLarge`] if its result exceeds the limits of the
    /// handle.
    pub async fn query(&self, sql: impl Into<Cow<'static, str>>, params: impl IntoParams) -> Result<Rows, Error> {
        let statement = (sql, params).into_statement().into_query()?;
        match self.read(Read::Sql(statement)).await? {
            ReadAnswer::Sql(rows) => Ok(rows),
            _ => Err(Error::Unavailable("the node answered a query with a reply of another kind".into())),
        }
    }

    pub(crate) async fn read(&self, read: Read) -> Result<ReadAnswer, Error> {
        let request = ReadRequest { read, level: self.level()?, limits: self.limits };
        self.submitter.read(request, self.deadline).await
    }

    row_methods!(&self);

    /// Opens a snapshot: one state, at this handle's level, for many reads. The handle's deadline limits the time to
    /// open it, and the time for each piece of a result.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Overloaded`] if the node keeps its maximum number of snapshots until the deadline.
    pub async fn snapshot(&self) -> Result<Snapshot, Error> {
        let state = self.submitter.snapshot(self.level()?, self.deadline).await?;
        Ok(Snapshot::new(state, self.submitter.runtime().clone(), self.deadline))
    }

    /// Returns the level of a read that begins now.
    pub(crate) fn level(&self) -> Result<Level, Error> {
        if self.sees_own_writes { self.submitter.seeing_own_writes(self.level) } else { Ok(self.level) }
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Ends the session of this handle and its clones, so that the cluster can forget the outcomes of their writes.
    /// Calling this is optional. A later write opens a new session.
    pub async fn end_session(&self) {
        self.submitter.end_session().await;
    }

    fn check(&self, needed: Right) -> Result<(), Error> {
        needed.check(self.held).map_err(|failure| Error::Forbidden(failure.text.into()))
    }

    pub(crate) async fn write(&self, step: impl Into<BatchStep>) -> Result<Written, Error> {
        self.propose(Proposal::new(None, vec![step.into().0])).await
    }

    /// Proposes what the caller asks for, with the options of the handle.
    pub(crate) async fn propose(&self, proposal: Proposal) -> Result<Written, Error> {
        let needed = proposal.commands.iter().map(Right::of_command).max();
        self.check(needed.unwrap_or(Right::Write))?;
        let proposal = Proposal { budget: self.budget, ..proposal };
        let proposal = match &self.key {
            Some(key) => request::with_key(proposal, key)?,
            None => proposal,
        };
        let due = self.acknowledge.begin(&self.submitter, self.deadline).await?;
        let (position, outcome) = self.submitter.propose(proposal, due.left(&self.submitter)?).await?;
        let reply = outcome?;
        due.reach(&self.submitter, position).await?;
        Ok(Written { position, reply })
    }
}

/// Returns the commands of a batch or a pipeline. Fails if it has no statement.
pub(crate) fn commands<S: Into<BatchStep>>(steps: impl IntoIterator<Item = S>) -> Result<Vec<Command>, Failure> {
    // One command more than the limit is enough for the proposal to be refused.
    let steps = steps.into_iter().take(COMMANDS_MAX.saturating_add(1));
    let commands: Vec<Command> = steps.map(|step| step.into().0).collect();
    if commands.is_empty() {
        return Err(Failure::new(FailureKind::Refused, "the batch holds no statement; give it at least one"));
    }
    Ok(commands)
}

impl fmt::Debug for Sql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sql").field("level", &self.level).field("deadline", &self.deadline).finish_non_exhaustive()
    }
}
