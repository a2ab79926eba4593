//! The handle to a database.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use quorate_model::limits::{BUDGET_DEFAULT, COMMANDS_MAX};
use quorate_model::{Command, Failure, FailureKind, Mode, Proposal, Read};
use quorate_sql::query::Rows;
use quorate_sql::readers::{BYTES_DEFAULT, ROWS_DEFAULT};

use crate::error::Error;
use crate::level::Level;
use crate::optimistic::{Attempts, Optimistic};
use crate::params::pack;
use crate::results::Written;
use crate::row_methods::row_methods;
use crate::snapshot::Snapshot;
use crate::submitter::{Limits, ReadAnswer, ReadRequest, Submitter};
use crate::transaction::Transaction;

pub use quorate_model::{Bulk, Column, PackedRows, Param, RowPacker, Statement, StatementResult};
pub use quorate_sql::extensions::Aggregator;
pub use quorate_sql::query::{FromRowOwned, FromValue, Mismatch, RowError, RowRef};

pub use crate::migrations::{DoneMigration, MigrateError, Migration, MigrationStatus};
pub use crate::params::{BatchStep, IntoParams, IntoStatement};
pub use crate::results::{BatchResult, Committed, Executed, PipelineResult, Returned};
pub use crate::snapshot::RowStream;

/// The handle to a database: of a node in this process ([`Node::sql`](crate::Node::sql)), or of a cluster elsewhere
/// ([`Client`](crate::Client)). Cheap to clone; all clones share one session.
///
/// Writes go to the leader, whichever node the handle belongs to, and take effect exactly once: the handle tries again
/// over changes of the leader until its deadline. Many may be under way at once, and they may take effect in any order;
/// who needs an order waits for the one before, or sends a [`Sql::batch`].
///
/// A call that is dropped before it returns may have taken effect, or may still.
#[derive(Clone)]
pub struct Sql {
    submitter: Arc<Submitter>,
    level: Level,
    sees_own_writes: bool,
    deadline: Duration,
    limits: Limits,
    budget: u64,
}

impl Sql {
    pub(crate) fn new(submitter: Arc<Submitter>, level: Level, deadline: Duration) -> Self {
        let limits = Limits { rows: ROWS_DEFAULT, bytes: BYTES_DEFAULT, timeout: Duration::MAX };
        Self { submitter, level, sees_own_writes: false, deadline, limits, budget: BUDGET_DEFAULT }
    }

    /// The same handle, reading at another level.
    #[must_use]
    pub fn at(&self, level: Level) -> Self {
        Self { level, ..self.clone() }
    }

    /// The same handle, whose reads also see every write of it and of its clones that was acknowledged before they
    /// began, on whichever node, whatever their level is.
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

    /// The same handle, trying for another time before a call fails; 30 seconds is the default.
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self { deadline, ..self.clone() }
    }

    /// The same handle with other limits on the result of a query, in rows and in bytes of values; a million rows and
    /// 64 MiB are the default. More is [`Error::TooLarge`].
    #[must_use]
    pub fn with_limits(&self, rows: usize, bytes: usize) -> Self {
        Self { limits: Limits { rows, bytes, ..self.limits }, ..self.clone() }
    }

    /// The same handle, none of whose queries runs longer than this; those of a snapshot's stream, no longer for each
    /// piece. A node lets no query run longer than its `sql.query_timeout`, 5 seconds by default. What has run too long
    /// fails with [`Error::TimedOut`].
    ///
    /// A query whose future is dropped ends as well, on whichever node it runs.
    #[must_use]
    pub fn with_query_timeout(&self, timeout: Duration) -> Self {
        Self { limits: Limits { timeout, ..self.limits }, ..self.clone() }
    }

    /// The same handle, whose writes may take so many steps of SQLite each; 25 million is the default, up to a second
    /// of work. Its processor time, and the bytes that it may move through memory and temporary files, are limited in
    /// proportion (docs/limits.md). A write that needs more steps fails with [`FailureKind::Budget`] and does nothing.
    /// While one is applied, no other takes effect, on any node: a large budget is for an index of a large table and
    /// the like, and what can be done in parts is better done so. Interactive transactions keep the default.
    #[must_use]
    pub fn with_budget(&self, steps: u64) -> Self {
        Self { budget: steps, ..self.clone() }
    }

    /// Runs a statement that writes, and says what it did.
    ///
    /// # Errors
    ///
    /// Every error but [`Error::Unknown`] means that nothing was done.
    pub async fn execute(&self, sql: impl Into<Cow<'static, str>>, params: impl IntoParams) -> Result<Executed, Error> {
        self.write((sql, params)).await.map(Into::into)
    }

    /// Runs a statement that writes and returns rows (`RETURNING`), at most 16 MiB of them.
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

    /// Runs statements that write, in their order, all of them or none.
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
    /// A parameter may be what an earlier statement returned, if that returned one row:
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
    /// Those of [`Sql::execute`]; a [`Failure`] names the statement that failed.
    pub async fn batch<S: Into<BatchStep>>(&self, steps: impl IntoIterator<Item = S>) -> Result<BatchResult, Error> {
        self.write_all(Mode::Atomic, commands(steps)?).await.map(Into::into)
    }

    /// Runs statements that write, in their order, each of which succeeds or fails by itself: one that fails changes
    /// nothing, and those after it still run. All of them are one entry, so no other write comes in between, and a
    /// retry after a lost answer runs none of them again.
    ///
    /// A statement that ends the transaction (`ON CONFLICT ROLLBACK`, `RAISE(ROLLBACK)`, or the budget of steps is used
    /// up) is the last one that runs: those before it stay, those after it fail with [`FailureKind::NotRun`].
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
    /// Those of [`Sql::execute`], where nothing can be proposed: for a statement with a syntax error too. A statement
    /// that fails when it runs is not an error of the call.
    pub async fn pipeline<S: Into<BatchStep>>(
        &self,
        steps: impl IntoIterator<Item = S>,
    ) -> Result<PipelineResult, Error> {
        self.write_all(Mode::Pipeline, commands(steps)?).await.map(Into::into)
    }

    /// Runs a statement that writes once for each row of parameters, in their order, all of them or none: at a fraction
    /// of what a batch of as many statements costs. The result is that of all runs together. For more than some ten
    /// thousand rows, or some MiB, call it several times: nobody else's writes take effect while one call's do.
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
    /// Those of [`Sql::execute`]; a [`Failure`] names the row that failed. [`FailureKind::Refused`] for a statement
    /// that returns rows or changes the schema, for parameters by name, and where there is no row.
    pub async fn execute_many<P: IntoParams>(
        &self,
        sql: impl Into<Cow<'static, str>>,
        rows: impl IntoIterator<Item = P>,
    ) -> Result<Executed, Error> {
        self.write(Bulk { sql: sql.into(), rows: pack(rows)? }).await.map(Into::into)
    }

    /// Runs a closure that reads and then writes, as one transaction that is serializable: its writes are done only if
    /// all that it has read is still so when they are. If it is not, the closure runs again, on a newer state, until
    /// the deadline. Nothing is locked meanwhile. Works on any node's handle.
    ///
    /// The closure may run several times, so it should have no other effects than its value. All its reads see one
    /// state, no older than this handle's level asks for, and one time; its writes are done when it has returned, one
    /// after the other, by one entry. Its errors end the transaction, and nothing was done.
    ///
    /// A transfer that must not overdraw:
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
    /// The closure's error may be any that is made from an [`Error`]:
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
    /// The closure's own; those of [`Sql::execute`]; [`Error::Conflict`] where it conflicted until the deadline. Where
    /// a read has failed and the closure writes all the same, the error of that read.
    pub async fn transact<T, E, F>(&self, body: impl FnMut(Optimistic) -> F) -> Result<Committed<T>, E>
    where
        F: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        let (submitter, level) = (Arc::clone(&self.submitter), self.level()?);
        let attempts = Attempts::new(submitter, level, self.limits, self.budget, self.deadline)?;
        attempts.run(body).await
    }

    /// Begins a transaction whose statements run one after the other on the leader, while other writes wait. It lasts
    /// for this handle's deadline at most, and never longer than [`HOLD_MAX`](crate::HOLD_MAX).
    ///
    /// # Errors
    ///
    /// [`Error::Overloaded`] where the writes before it took until the deadline.
    pub async fn begin(&self) -> Result<Transaction, Error> {
        Transaction::begin(Arc::clone(&self.submitter), self.deadline).await
    }

    /// Runs a query and returns its rows.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] with [`FailureKind::Refused`] for a statement that writes.
    pub async fn query(&self, sql: impl Into<Cow<'static, str>>, params: impl IntoParams) -> Result<Rows, Error> {
        let statement = (sql, params).into_statement().into_query()?;
        let request = ReadRequest { read: Read::Sql(statement), level: self.level()?, limits: self.limits };
        let ReadAnswer::Sql(rows) = self.submitter.read(request, self.deadline).await?;
        Ok(rows)
    }

    row_methods!(&self);

    /// Keeps one state for many reads, of this handle's level. Its deadline is for opening it, and for each piece of a
    /// result.
    ///
    /// # Errors
    ///
    /// [`Error::Overloaded`] where the node keeps as many snapshots as it may until the deadline.
    pub async fn snapshot(&self) -> Result<Snapshot, Error> {
        let state = self.submitter.snapshot(self.level()?, self.deadline).await?;
        Ok(Snapshot::new(state, self.submitter.runtime().clone(), self.deadline))
    }

    /// The level of a read that begins now.
    fn level(&self) -> Result<Level, Error> {
        if self.sees_own_writes { self.submitter.seeing_own_writes(self.level) } else { Ok(self.level) }
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Tells the cluster that this handle and its clones write no more for now, so that it need not remember what they
    /// wrote. Nothing is lost if this is never called; a later write begins anew.
    pub async fn end_session(&self) {
        self.submitter.end_session().await;
    }

    async fn write(&self, step: impl Into<BatchStep>) -> Result<Written, Error> {
        self.write_all(Mode::Atomic, vec![step.into().0.into()]).await
    }

    async fn write_all(&self, mode: Mode, commands: Vec<Command>) -> Result<Written, Error> {
        let proposal = Proposal { budget: self.budget, mode, ..Proposal::new(None, commands) };
        let (position, outcome) = self.submitter.propose(proposal, self.deadline).await?;
        Ok(Written { position, reply: outcome? })
    }
}

/// The commands of a batch or a pipeline, at least one.
fn commands<S: Into<BatchStep>>(steps: impl IntoIterator<Item = S>) -> Result<Vec<Command>, Failure> {
    // One more than allowed is enough to be refused.
    let steps = steps.into_iter().take(COMMANDS_MAX.saturating_add(1));
    let commands: Vec<Command> = steps.map(|step| step.into().0.into()).collect();
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
