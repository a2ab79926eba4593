//! Interactive transactions: statements that run one by one on the leader, while other writes wait, and that one entry
//! commits.
//!
//! Invariants:
//! - What is committed is what the caller was told, statement by statement, or nothing is.
//! - A call that was dropped before it returned leaves nobody knowing what belongs to the transaction: it is over.

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
use crate::params::{IntoParams, IntoStatement};
use crate::results::{self, BatchResult, Written};
use crate::row_methods::row_methods;
use crate::submitter::{Attempt, Held, Submitter};

/// The place where the statements of one transaction run. Dropping it rolls back.
pub(crate) trait TransactionHost: Send {
    /// Where the state stands on which they run.
    fn position(&self) -> Position;

    /// Runs one. After any error but [`Error::Failed`] the transaction is over.
    fn run(&mut self, statement: Statement) -> BoxFuture<'_, Result<DryRunResult, Error>>;

    /// Proposes what was recorded.
    fn commit(self: Box<Self>, proposal: Bytes) -> BoxFuture<'static, Result<(Position, Outcome), Attempt>>;
}

/// A transaction whose statements run one after the other, on the leader, each seeing what those before did: reads and
/// writes in any order. Other writes of the cluster wait meanwhile, for at most [`HOLD_MAX`](crate::HOLD_MAX): so keep
/// it short, and prefer [`Sql::batch`](crate::Sql::batch) or [`Sql::transact`](crate::Sql::transact), which hold nobody
/// up.
///
/// A statement that fails leaves nothing behind, and the transaction goes on without it. All statements see one time.
/// Dropping the transaction rolls it back.
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
    /// `None` when it is over.
    host: Option<Box<dyn TransactionHost>>,
    position: Position,
    commands: Vec<Command>,
    stamps: Vec<Stamp>,
    /// Until when statements may run.
    end: Instant,
    /// How long committing may take.
    limit: Duration,
}

impl Transaction {
    pub(crate) async fn begin(submitter: Arc<Submitter>, limit: Duration) -> Result<Self, Error> {
        let (ticket, host, begun) = submitter.begin(limit).await?;
        let end = begun + limit.min(HOLD_MAX);
        let position = host.position();
        let (commands, stamps) = (Vec::new(), Vec::new());
        Ok(Self { submitter, ticket, host: Some(host), position, commands, stamps, end, limit })
    }

    /// Runs a statement, and says what it did.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] where the statement fails: then it did nothing, and the transaction goes on.
    /// [`Error::TransactionAborted`] where the transaction is over.
    pub async fn execute(
        &mut self,
        sql: impl Into<Cow<'static, str>>,
        params: impl IntoParams,
    ) -> Result<StatementResult, Error> {
        let statement = (sql, params).into_statement().into_query()?;
        // Taken, so that a call that is dropped leaves none.
        let Some(mut host) = self.host.take() else { return Err(over("it ended before")) };
        let end = self.end;
        let running = statement.clone();
        let ran = self.submitter.runtime().run(async move {
            let ran = timeout_at(end, host.run(running)).await;
            (ran.unwrap_or_else(|_| Err(time_up())), host)
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
            Err(error @ (Error::TransactionAborted(_) | Error::Closed | Error::Forbidden(_))) => Err(error),
            Err(error) => Err(Error::TransactionAborted(error.reason())),
        }
    }

    /// Runs a statement and returns its rows: of a query, or of a statement with `RETURNING`; at most 16 MiB of them.
    ///
    /// # Errors
    ///
    /// Those of [`Transaction::execute`].
    pub async fn query(&mut self, sql: impl Into<Cow<'static, str>>, params: impl IntoParams) -> Result<Rows, Error> {
        self.execute(sql, params).await.map(Into::into)
    }

    row_methods!(&mut self);

    /// Where the state stands on which it runs.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Makes all that the statements did take effect, exactly once. The result has what each of them did that may have
    /// written, which is what [`Transaction::execute`] said.
    ///
    /// # Errors
    ///
    /// [`Error::TransactionAborted`] where the leader was lost, or the time was up, before it was proposed: nothing was
    /// done. [`Error::Failed`] for what is checked at the end: deferred foreign keys. [`Error::Unknown`] where nobody
    /// can tell.
    pub async fn commit(mut self) -> Result<BatchResult, Error> {
        let host = self.host.take().ok_or_else(|| over("it ended before"))?;
        if self.commands.is_empty() {
            return Ok(BatchResult { results: Vec::new(), position: self.position });
        }
        let (index, stamps) = (self.position.index, std::mem::take(&mut self.stamps));
        let commands = std::mem::take(&mut self.commands);
        let origin = Some(self.ticket.origin());
        let proposal = Proposal { dry_run: Some(DryRunRecord { index, stamps }), ..Proposal::new(origin, commands) };
        proposal.check_limits()?;
        let bytes = codec::encode_proposal(&proposal)?;
        let first = host.commit(bytes.clone());
        match self.submitter.settle_begun(&self.ticket, first, bytes, self.limit).await? {
            Some((position, Ok(reply))) => Ok(Written { position, reply }.into()),
            Some((_, Err(failure))) => Err(aborted(failure)),
            None => Err(over("its session had expired")),
        }
    }

    /// Makes nothing of it take effect. Dropping it does the same.
    pub fn rollback(self) {}
}

/// Its time is up.
pub(crate) fn time_up() -> Error {
    over(&format!("its time was up: the handle's deadline, and never more than {HOLD_MAX:?}"))
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

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").field("position", &self.position).finish_non_exhaustive()
    }
}
