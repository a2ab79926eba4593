//! Interactive transactions: their statements run one by one on the leader while other writes wait, and are committed
//! as one entry.
//!
//! Invariants:
//! - Either the statements are committed with exactly the results that they returned to the caller, or nothing is
//!   committed.
//! - If a call is dropped before it returns, the transaction ends, because it is not known whether the statement
//!   belongs to it.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use quorate_apply::DryRunResult;
use quorate_consensus::HOLD_MAX;
use quorate_env::{Instant, timeout_at};
use quorate_model::{
    Command, DryRunRecord, Failure, FailureKind, Outcome, Position, Proposal, SqlCommand, Stamp, Statement,
    StatementResult, codec,
};
use quorate_sql::query::Rows;

use crate::error::Error;
use crate::keys::Replies;
use crate::params::{IntoParams, IntoStatement};
use crate::results::{self, BatchResult, Written};
use crate::row_methods::row_methods;
use crate::submitter::{Acknowledge, Attempt, Held, Submitter};

/// The most savepoints of a transaction.
pub const SAVEPOINTS_MAX: usize = 1_024;

/// The most bytes of the name of a savepoint, so that the savepoints of a transaction fit into memory.
pub const SAVEPOINT_BYTES_MAX: usize = 1_024;

/// The code that SQLite has for a savepoint that is not there.
const SQLITE_ERROR: i32 = 1;

/// The place where the statements of one transaction run. Dropping it rolls back.
pub(crate) trait TransactionHost: Send {
    /// Returns the position of the state on which they run.
    fn position(&self) -> Position;

    /// Runs a statement. After any error except [`Error::Failed`], the transaction has ended.
    fn run(&mut self, statement: Statement) -> BoxFuture<'_, Result<DryRunResult, Error>>;

    /// Undoes the recorded statements but this many. After any error, the transaction has ended.
    fn rewind(&mut self, count: usize) -> BoxFuture<'_, Result<(), Error>>;

    /// Proposes the recorded statements.
    fn commit(self: Box<Self>, proposal: Bytes) -> BoxFuture<'static, Result<(Position, Outcome), Attempt>>;
}

/// An interactive transaction, from [`Sql::begin`](crate::Sql::begin). Its statements run one after another on the
/// leader, reads and writes in any order, and each one sees the effects of those before it.
///
/// All other writes of the cluster wait while the transaction is open, for at most [`HOLD_MAX`](crate::HOLD_MAX). Keep
/// it short, and prefer [`Sql::batch`](crate::Sql::batch) or [`Sql::transact`](crate::Sql::transact), which do not
/// block other writes.
///
/// A statement that fails has no effect, and the transaction continues. All statements see the same time. Dropping the
/// transaction rolls it back.
///
/// ```
/// # async fn f(sql: quorate::Sql) -> Result<(), quorate::Error> {
/// let mut tx = sql.begin().await?;
/// tx.execute("UPDATE stock SET left = left - 1 WHERE item = ?", ("tea",)).await?;
/// let left: i64 = tx.query_one("SELECT left FROM stock WHERE item = ?", ("tea",)).await?;
/// if left < 0 {
///     tx.rollback();
/// } else {
///     tx.commit().await?;
/// }
/// # Ok(())
/// # }
/// ```
pub struct Transaction {
    submitter: Arc<Submitter>,
    ticket: Held<Arc<Submitter>>,
    /// `None` when the transaction has ended.
    host: Option<Box<dyn TransactionHost>>,
    position: Position,
    commands: Vec<Command>,
    stamps: Vec<Stamp>,
    savepoints: Savepoints,
    /// The time limit for statements.
    end: Instant,
    /// The time limit for the commit.
    limit: Duration,
    /// When the commit returns.
    acknowledge: Acknowledge,
}

impl Transaction {
    pub(crate) async fn begin(
        submitter: Arc<Submitter>,
        limit: Duration,
        acknowledge: Acknowledge,
    ) -> Result<Self, Error> {
        let (ticket, host, begun) = submitter.begin(limit).await?;
        let end = begun + limit.min(HOLD_MAX);
        let position = host.position();
        Ok(Self {
            submitter,
            ticket,
            host: Some(host),
            position,
            commands: Vec::new(),
            stamps: Vec::new(),
            savepoints: Savepoints::default(),
            end,
            limit,
            acknowledge,
        })
    }

    /// Returns the same transaction, whose commit returns only when it is archived; see
    /// [`Sql::with_archived_writes`](crate::Sql::with_archived_writes), which begins such transactions.
    #[must_use]
    pub fn with_archived_commit(self) -> Self {
        Self { acknowledge: Acknowledge::Archived, ..self }
    }

    /// Runs a statement and returns its result.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Failed`] if the statement fails; it has no effect then, and the transaction continues. Returns
    /// [`Error::TransactionAborted`] if the transaction was rolled back, because the leader was lost or the time limit
    /// was reached. After any error except [`Error::Failed`], the transaction has ended.
    pub async fn execute(
        &mut self,
        sql: impl Into<Cow<'static, str>>,
        params: impl IntoParams,
    ) -> Result<StatementResult, Error> {
        let statement = (sql, params).into_statement().into_query()?;
        // Taken out, so that a dropped call ends the transaction.
        let Some(mut host) = self.host.take() else { return Err(over("it has already ended")) };
        let end = self.end;
        let running = statement.clone();
        let ran = self.submitter.runtime().run(async move {
            let ran = timeout_at(end, host.run(running)).await;
            (ran.unwrap_or_else(|_| Err(time_limit_reached())), host)
        });
        let (ran, host) = ran.await.map_err(|_| Error::Closed)?;
        match ran {
            Ok(DryRunResult { result, recorded }) => {
                if let Some(stamp) = recorded {
                    self.commands.push(Command::Sql(SqlCommand::Statement(statement.into())));
                    self.stamps.push(stamp);
                }
                self.host = Some(host);
                Ok(results::statement(result))
            }
            Err(error @ Error::Failed(_)) => {
                self.host = Some(host);
                Err(error)
            }
            Err(error) => Err(ended(error)),
        }
    }

    /// Runs a query, or a statement with `RETURNING`, and returns its rows; at most 16 MiB.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Transaction::execute`].
    pub async fn query(&mut self, sql: impl Into<Cow<'static, str>>, params: impl IntoParams) -> Result<Rows, Error> {
        self.execute(sql, params).await.map(Into::into)
    }

    row_methods!(&mut self);

    /// Sets a savepoint, to which [`Transaction::rollback_to`] returns. A transaction has at most [`SAVEPOINTS_MAX`],
    /// with names of at most [`SAVEPOINT_BYTES_MAX`]. As in SQLite, names are compared without regard to case, and a
    /// name may be used again: the latest one counts.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Failed`] if there are too many, or if the name is too long.
    pub fn savepoint(&mut self, name: impl Into<String>) -> Result<(), Error> {
        Ok(self.savepoints.set(name.into(), self.commands.len())?)
    }

    /// Undoes the statements that ran since a savepoint, which stays, and forgets the savepoints that were set since.
    /// The leader does this by running the statements before it again, so it takes as long as they took.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Failed`] if there is no such savepoint; the transaction continues. After any other error, it
    /// has ended.
    pub async fn rollback_to(&mut self, name: &str) -> Result<(), Error> {
        let count = self.savepoints.return_to(name)?;
        if count == self.commands.len() {
            return Ok(());
        }
        let Some(mut host) = self.host.take() else { return Err(over("it has already ended")) };
        let end = self.end;
        let rewound = self.submitter.runtime().run(async move {
            let rewound = timeout_at(end, host.rewind(count)).await;
            (rewound.unwrap_or_else(|_| Err(time_limit_reached())), host)
        });
        let (rewound, host) = rewound.await.map_err(|_| Error::Closed)?;
        rewound.map_err(ended)?;
        self.commands.truncate(count);
        self.stamps.truncate(count);
        self.host = Some(host);
        Ok(())
    }

    /// Forgets a savepoint and those that were set since; the effects of the statements stay.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Failed`] if there is no such savepoint.
    pub fn release(&mut self, name: &str) -> Result<(), Error> {
        Ok(self.savepoints.release(name)?)
    }

    /// Returns the position of the state on which the transaction runs.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Commits the transaction, exactly once. Returns the results of the statements that may have written; they are
    /// equal to the results that [`Transaction::execute`] returned. A transaction that only read commits nothing and
    /// returns no results.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TransactionAborted`] if the leader was lost or the time limit was reached before the
    /// transaction was proposed; it has no effect then. Returns [`Error::Failed`] if a deferred foreign key is
    /// violated, or if the transaction exceeds a limit. Returns [`Error::Unknown`] if the outcome is not known, and
    /// [`Error::NotArchived`] if it was committed, but is not known to be archived.
    pub async fn commit(mut self) -> Result<BatchResult, Error> {
        let host = self.host.take().ok_or_else(|| over("it has already ended"))?;
        if self.commands.is_empty() {
            return Ok(BatchResult { results: Vec::new(), replies: Replies::default(), position: self.position });
        }
        let (index, stamps) = (self.position.index, std::mem::take(&mut self.stamps));
        let commands = std::mem::take(&mut self.commands);
        let origin = Some(self.ticket.origin());
        let proposal = Proposal { dry_run: Some(DryRunRecord { index, stamps }), ..Proposal::new(origin, commands) };
        proposal.check_limits()?;
        let bytes = codec::encode_proposal(&proposal)?;
        let due = self.acknowledge.begin(&self.submitter, self.limit).await?;
        let first = host.commit(bytes.clone());
        let limit = due.left(&self.submitter)?;
        match self.submitter.settle_begun(&self.ticket, first, bytes, limit).await? {
            Some((position, Ok(reply))) => {
                due.reach(&self.submitter, position).await?;
                Ok(Written { position, reply }.into())
            }
            Some((_, Err(failure))) => Err(aborted(failure)),
            None => Err(over("its session had expired")),
        }
    }

    /// Rolls back the transaction. Dropping it does the same.
    pub fn rollback(self) {}
}

/// Returns the error of a transaction that has reached its time limit.
pub(crate) fn time_limit_reached() -> Error {
    over(&format!("its time limit was reached: the handle's deadline, at most {HOLD_MAX:?}"))
}

/// Returns the error of a call that has ended the transaction.
fn ended(error: Error) -> Error {
    match error {
        Error::TransactionAborted(_) | Error::Closed | Error::Forbidden(_) => error,
        error => Error::TransactionAborted(error.reason()),
    }
}

fn over(why: &str) -> Error {
    Error::TransactionAborted(why.into())
}

fn aborted(failure: Failure) -> Error {
    if failure.kind == FailureKind::Aborted {
        Error::TransactionAborted(failure.message.into())
    } else {
        failure.into()
    }
}

/// The savepoints of a transaction, the earliest first: the name of each, and how many statements were recorded before.
#[derive(Debug, Default)]
struct Savepoints(Vec<(String, usize)>);

impl Savepoints {
    fn set(&mut self, name: String, recorded: usize) -> Result<(), Failure> {
        if self.0.len() >= SAVEPOINTS_MAX {
            let text = format!("a transaction has at most {SAVEPOINTS_MAX} savepoints; release some");
            return Err(Failure::new(FailureKind::TooBig, text));
        }
        if name.len() > SAVEPOINT_BYTES_MAX {
            let text = format!("the name of a savepoint has at most {SAVEPOINT_BYTES_MAX} bytes");
            return Err(Failure::new(FailureKind::TooBig, text));
        }
        self.0.push((name, recorded));
        Ok(())
    }

    /// Forgets those after the one of this name; returns how many statements were recorded before it.
    fn return_to(&mut self, name: &str) -> Result<usize, Failure> {
        let at = self.find(name)?;
        self.0.truncate(at.saturating_add(1));
        Ok(self.0.last().map_or(0, |(_, recorded)| *recorded))
    }

    fn release(&mut self, name: &str) -> Result<(), Failure> {
        let at = self.find(name)?;
        self.0.truncate(at);
        Ok(())
    }

    fn find(&self, name: &str) -> Result<usize, Failure> {
        let found = self.0.iter().rposition(|(known, _)| known.eq_ignore_ascii_case(name));
        let missing = || Failure {
            sqlite_code: SQLITE_ERROR,
            ..Failure::new(FailureKind::Sql, format!("no such savepoint: {name}"))
        };
        found.ok_or_else(missing)
    }
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").field("position", &self.position).finish_non_exhaustive()
    }
}
