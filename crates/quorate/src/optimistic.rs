//! Optimistic transactions. A closure reads one state and collects writes. One entry contains both the reads and the
//! writes; every node checks the reads before it runs the writes.
//!
//! Invariants:
//! - The closure's result depends only on recorded reads. A read after the closure has returned fails. If a read has
//!   failed, nothing is written, because no node could check that read again.
//! - A read is recorded with the clock and the randomness that it used, so that it can be repeated with the same
//!   result.
//! - Neither the writes nor the value of an attempt that did not commit are kept.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use quorate_env::{Instant, lock};
use quorate_model::limits::{COMMANDS_MAX, READ_CHECKS_MAX};
use quorate_model::{Bulk, Command, Failure, FailureKind, Position, Proposal, Read, ReadCheck, Stamp, Step};
use quorate_sql::query::Rows;
use quorate_sql::rows_hash;

use crate::error::Error;
use crate::level::Level;
use crate::params::{BatchStep, IntoParams, IntoStatement, pack};
use crate::results::{BatchResult, Committed, Written};
use crate::row_methods::row_methods;
use crate::runtime::Runtime;
use crate::snapshot::{Query, State};
use crate::submitter::{Acknowledge, Backoff, Limits, Submitter};

/// One attempt of a transaction, which is passed to the closure of [`Sql::transact`](crate::Sql::transact). All clones
/// refer to the same attempt. After the closure has returned, all calls fail.
#[derive(Clone)]
pub struct Optimistic(Arc<Attempt>);

struct Attempt {
    runtime: Runtime,
    deadline: Instant,
    limits: Limits,
    /// The time that all reads see.
    now: u64,
    position: Position,
    /// `None` when the attempt has ended. The mutex runs one read at a time.
    state: tokio::sync::Mutex<Option<Box<dyn State>>>,
    gathered: Mutex<Gathered>,
}

/// The reads and writes of an attempt so far.
#[derive(Default)]
struct Gathered {
    read_checks: Vec<ReadCheck>,
    commands: Vec<Command>,
    /// The error of the first read that failed.
    failed: Option<Error>,
    /// Whether a read failed for a reason outside of the transaction, so that another attempt may succeed.
    is_worth_retrying: bool,
    has_ended: bool,
}

/// The attempts of one transaction.
pub(crate) struct Attempts {
    submitter: Arc<Submitter>,
    limits: Limits,
    /// The budget of the entry, in steps of SQLite.
    budget: u64,
    deadline: Instant,
    /// The level of the state that the next attempt reads.
    level: Level,
    backoff: Backoff,
    /// When a commit returns.
    acknowledge: Acknowledge,
}

impl Optimistic {
    /// Runs a query on the state that this attempt reads, and returns its rows. The limits of the handle apply.
    ///
    /// When the transaction commits, the rows are compared in their order, so use `ORDER BY` if a query returns several
    /// rows.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Failed`] with [`FailureKind::Refused`] if the statement writes, if the transaction has already
    /// added a write (a read would not see it), or if the closure has returned.
    pub async fn query(&self, sql: impl Into<Cow<'static, str>>, params: impl IntoParams) -> Result<Rows, Error> {
        let statement = (sql, params).into_statement().into_query()?;
        let attempt = &*self.0;
        let read = attempt.runtime.run(async {
            let stamp = Stamp { now: attempt.now, seed: attempt.runtime.env().rng().next_u64() };
            let query = Query { statement, limits: attempt.limits, stamp: Some(stamp) };
            let mut state = attempt.state.lock().await;
            attempt.gathered().check_may_read()?;
            let rows = state.as_mut().ok_or_else(ended)?.query(&query, attempt.deadline).await;
            let mut gathered = attempt.gathered();
            if gathered.has_ended {
                *state = None;
            }
            gathered.record_read(query.statement, stamp, &rows)?;
            rows
        });
        read.await.unwrap_or(Err(Error::Closed))
    }

    row_methods!(&self);

    /// Adds a statement that writes; it runs when the transaction commits. Returns its number in the transaction:
    /// [`Step::column`] uses a value that it returns as a parameter of a later statement, and [`Committed::results`]
    /// has its result at that index.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Failed`] with [`FailureKind::Refused`] if the closure has returned, and with
    /// [`FailureKind::TooBig`] if the transaction has too many statements.
    pub fn execute(&self, sql: impl Into<Cow<'static, str>>, params: impl IntoParams) -> Result<Step, Error> {
        self.0.gathered().add_write((sql, params).into())
    }

    /// Adds a statement that runs once for each row of parameters, like
    /// [`Sql::execute_many`](crate::Sql::execute_many).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Optimistic::execute`], and fails if there is no row, or if a row is empty or has named
    /// parameters.
    pub fn execute_many<P: IntoParams>(
        &self,
        sql: impl Into<Cow<'static, str>>,
        rows: impl IntoIterator<Item = P>,
    ) -> Result<Step, Error> {
        self.0.gathered().add_write(Bulk { sql: sql.into(), rows: pack(rows)? }.into())
    }

    /// Adds a step of any kind, such as a command on keys. [`Committed::replies`] has the reply to it.
    ///
    /// # Errors
    ///
    /// Those of [`Optimistic::execute`].
    pub fn add(&self, step: impl Into<BatchStep>) -> Result<Step, Error> {
        self.0.gathered().add_write(step.into())
    }

    /// Returns the position of the state that this attempt reads.
    pub fn position(&self) -> Position {
        self.0.position
    }

    /// Ends the attempt and releases its state.
    fn end(&self) -> Gathered {
        let ended = Gathered { has_ended: true, ..Gathered::default() };
        let gathered = std::mem::replace(&mut *self.0.gathered(), ended);
        // A read that is still running releases the state when it ends.
        if let Ok(mut state) = self.0.state.try_lock() {
            *state = None;
        }
        gathered
    }
}

impl Attempt {
    fn gathered(&self) -> MutexGuard<'_, Gathered> {
        lock(&self.gathered)
    }
}

impl Gathered {
    fn check_may_read(&self) -> Result<(), Error> {
        if self.has_ended {
            return Err(ended());
        }
        if !self.commands.is_empty() {
            let text = "a transaction reads before it writes, because a read would not see its writes; read first, or \
                        use `begin`";
            return Err(refused(text));
        }
        Ok(())
    }

    /// Records a read whose result the closure gets.
    fn record_read(
        &mut self,
        query: quorate_model::Statement,
        stamp: Stamp,
        rows: &Result<Rows, Error>,
    ) -> Result<(), Error> {
        // A clone may have added a write during the read.
        self.check_may_read()?;
        match rows {
            // One read more than the limit is enough for the proposal to be refused.
            Ok(rows) if self.read_checks.len() <= READ_CHECKS_MAX => {
                self.read_checks.push(ReadCheck { read: Read::Sql(query), stamp, answer: rows_hash::of(rows) });
            }
            Ok(_) => {}
            Err(error) => {
                self.is_worth_retrying |=
                    matches!(error, Error::Unavailable(_) | Error::SnapshotEnded | Error::Overloaded(_));
                self.failed.get_or_insert_with(|| error.clone());
            }
        }
        Ok(())
    }

    fn add_write(&mut self, BatchStep(command): BatchStep) -> Result<Step, Error> {
        if self.has_ended {
            return Err(ended());
        }
        let step = u32::try_from(self.commands.len()).map(Step);
        let step = step.ok().filter(|_| self.commands.len() < COMMANDS_MAX);
        let text = || format!("a transaction has at most {COMMANDS_MAX} statements that write; split it");
        let step = step.ok_or_else(|| Failure::new(FailureKind::TooBig, text()))?;
        self.commands.push(command);
        Ok(step)
    }
}

impl Attempts {
    pub(crate) fn new(
        submitter: Arc<Submitter>,
        level: Level,
        limits: Limits,
        budget: u64,
        limit: Duration,
    ) -> Result<Self, Error> {
        let deadline = submitter.runtime().inside(|| Instant::now() + limit).map_err(|_| Error::Closed)?;
        let backoff = submitter.backoff();
        Ok(Self { submitter, limits, budget, deadline, level, backoff, acknowledge: Acknowledge::Applied })
    }

    /// Returns the same attempts, whose commit returns at another time.
    pub(crate) fn acknowledged(self, acknowledge: Acknowledge) -> Self {
        Self { acknowledge, ..self }
    }

    /// Runs a closure until an attempt commits.
    pub(crate) async fn run<T, E, F>(mut self, mut body: impl FnMut(Optimistic) -> F) -> Result<Committed<T>, E>
    where
        F: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        loop {
            let transaction = self.begin().await?;
            let value = body(transaction.clone()).await;
            let mut gathered = transaction.end();
            let failed = gathered.failed.take().filter(|_| !gathered.commands.is_empty());
            let value = match value.and_then(|value| failed.map_or(Ok(value), |error| Err(error.into()))) {
                Ok(value) => value,
                Err(_) if gathered.is_worth_retrying && self.pause_before_retry().await => continue,
                Err(error) => return Err(error),
            };
            if gathered.commands.is_empty() {
                let (results, replies) = Default::default();
                return Ok(Committed { value, results, replies, position: transaction.position() });
            }
            if let Some(BatchResult { results, replies, position }) = self.commit(gathered).await? {
                return Ok(Committed { value, results, replies, position });
            }
        }
    }

    async fn begin(&self) -> Result<Optimistic, Error> {
        let state = self.submitter.snapshot(self.level, self.left()?).await?;
        let runtime = self.submitter.runtime().clone();
        let attempt = Attempt {
            deadline: self.deadline,
            limits: self.limits,
            now: runtime.env().unix_nanos(),
            position: state.position(),
            state: tokio::sync::Mutex::new(Some(state)),
            gathered: Mutex::default(),
            runtime,
        };
        Ok(Optimistic(Arc::new(attempt)))
    }

    /// Proposes the attempt. Returns `None` if it conflicts with another write and there is time for another attempt.
    async fn commit(&mut self, gathered: Gathered) -> Result<Option<BatchResult>, Error> {
        let Gathered { read_checks, commands, .. } = gathered;
        let proposal = Proposal::new(None, commands).with_read_checks(read_checks);
        let proposal = Proposal { budget: self.budget, ..proposal };
        let due = self.acknowledge.begin(&self.submitter, self.left()?).await?;
        match self.submitter.propose(proposal, self.left()?).await? {
            (position, Ok(reply)) => {
                due.reach(&self.submitter, position).await?;
                Ok(Some(Written { position, reply }.into()))
            }
            (position, Err(failure)) if failure.kind == FailureKind::Conflict => {
                // The conflicting write has a lower position than the conflict.
                if self.level != Level::Linearizable {
                    self.level = Level::AtLeast(position);
                }
                if self.pause_before_retry().await { Ok(None) } else { Err(Error::Conflict(failure.message.into())) }
            }
            (_, Err(failure)) => Err(failure.into()),
        }
    }

    /// Pauses before another attempt. Returns `false` if there is no time for one.
    async fn pause_before_retry(&mut self) -> bool {
        let pause = self.submitter.pause(&mut self.backoff, self.deadline);
        self.submitter.runtime().run(pause).await.unwrap_or(false)
    }

    fn left(&self) -> Result<Duration, Error> {
        let left = || self.deadline.saturating_duration_since(Instant::now());
        self.submitter.runtime().inside(left).map_err(|_| Error::Closed)
    }
}

fn refused(text: &str) -> Error {
    Failure::new(FailureKind::Refused, text).into()
}

fn ended() -> Error {
    refused("the closure of this transaction has returned; nothing can be read or written with it any more")
}

impl fmt::Debug for Optimistic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Optimistic").field("position", &self.0.position).finish_non_exhaustive()
    }
}
