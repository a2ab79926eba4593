//! Optimistic transactions: a closure reads one state and gathers writes; one entry ships both, and every node checks
//! what was read before it does what was written.
//!
//! Invariants:
//! - What the closure was given rests on recorded reads only: what is read after it has returned is given to nobody,
//!   and nothing is written where a read has failed, for no node could check that again.
//! - A read is recorded with the clock and the randomness that it saw, so that it can give the same rows again.
//! - Nothing of an attempt that did not commit is kept: neither its writes nor its value.

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
use crate::submitter::{Backoff, Limits, Submitter};

/// One attempt of a transaction: what the closure of [`Sql::transact`](crate::Sql::transact) reads from and writes to.
/// Its clones are the same attempt. When the closure has returned, it can't be used any more.
#[derive(Clone)]
pub struct Optimistic(Arc<Attempt>);

struct Attempt {
    runtime: Runtime,
    deadline: Instant,
    limits: Limits,
    /// The time that all its reads see.
    now: u64,
    position: Position,
    /// `None` when the attempt has ended. Reads take turns.
    state: tokio::sync::Mutex<Option<Box<dyn State>>>,
    gathered: Mutex<Gathered>,
}

/// What an attempt has done so far.
#[derive(Default)]
struct Gathered {
    read_checks: Vec<ReadCheck>,
    commands: Vec<Command>,
    /// The error of the first read that failed.
    failed: Option<Error>,
    /// A read failed for a reason that lies outside of the transaction: another attempt may fare better.
    was_let_down: bool,
    has_ended: bool,
}

/// The attempts of one transaction.
pub(crate) struct Attempts {
    submitter: Arc<Submitter>,
    limits: Limits,
    /// Steps that the entry may take.
    budget: u64,
    deadline: Instant,
    /// The state that the next one reads.
    level: Level,
    backoff: Backoff,
}

impl Optimistic {
    /// Runs a query on the state that this attempt reads, and returns its rows: at most as many as the handle's limits
    /// allow. The order of rows counts for what has changed: say `ORDER BY` where a query returns several.
    ///
    /// # Errors
    ///
    /// [`FailureKind::Refused`] for a statement that writes, and after a write: a transaction reads first, since it
    /// would not see what it is to write.
    pub async fn query(&self, sql: impl Into<Cow<'static, str>>, params: impl IntoParams) -> Result<Rows, Error> {
        let statement = (sql, params).into_statement().into_query()?;
        let attempt = &*self.0;
        let read = attempt.runtime.run(async {
            let stamp = Stamp { now: attempt.now, seed: attempt.runtime.env().rng().next_u64() };
            let query = Query { statement, limits: attempt.limits, stamp: Some(stamp) };
            let mut state = attempt.state.lock().await;
            attempt.gathered().may_read()?;
            let rows = state.as_mut().ok_or_else(ended)?.query(&query, attempt.deadline).await;
            let mut gathered = attempt.gathered();
            if gathered.has_ended {
                *state = None;
            }
            gathered.has_read(query.statement, stamp, &rows)?;
            rows
        });
        read.await.unwrap_or(Err(Error::Closed))
    }

    row_methods!(&self);

    /// Adds a statement that writes, to be run when the transaction commits. Says which step of it that is:
    /// [`Step::column`] makes what it returns a parameter of a later one, and [`Committed::results`] has its result at
    /// that place.
    ///
    /// # Errors
    ///
    /// [`FailureKind::Refused`] if the closure has returned.
    pub fn execute(&self, sql: impl Into<Cow<'static, str>>, params: impl IntoParams) -> Result<Step, Error> {
        self.0.gathered().writes((sql, params).into())
    }

    /// Adds a statement that is run once for each row of parameters, as [`Sql::execute_many`](crate::Sql::execute_many)
    /// does.
    ///
    /// # Errors
    ///
    /// Those of [`Optimistic::execute`], and for rows that can't be parameters.
    pub fn execute_many<P: IntoParams>(
        &self,
        sql: impl Into<Cow<'static, str>>,
        rows: impl IntoIterator<Item = P>,
    ) -> Result<Step, Error> {
        self.0.gathered().writes(Bulk { sql: sql.into(), rows: pack(rows)? }.into())
    }

    /// Where the state that is read stands in the history.
    pub fn position(&self) -> Position {
        self.0.position
    }

    /// Ends the attempt and gives its state back.
    fn end(&self) -> Gathered {
        let ended = Gathered { has_ended: true, ..Gathered::default() };
        let gathered = std::mem::replace(&mut *self.0.gathered(), ended);
        // Who still reads gives it back when it has read.
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
    fn may_read(&self) -> Result<(), Error> {
        if self.has_ended {
            return Err(ended());
        }
        if !self.commands.is_empty() {
            let text = "a transaction reads before it writes: it would not see what it is to write; read first, or \
                        use `begin`";
            return Err(refused(text));
        }
        Ok(())
    }

    /// Records a read whose result the closure will see.
    fn has_read(
        &mut self,
        query: quorate_model::Statement,
        stamp: Stamp,
        rows: &Result<Rows, Error>,
    ) -> Result<(), Error> {
        // The writes of a clone may have begun meanwhile.
        self.may_read()?;
        match rows {
            // One more than allowed is enough to be refused.
            Ok(rows) if self.read_checks.len() <= READ_CHECKS_MAX => {
                self.read_checks.push(ReadCheck { read: Read::Sql(query), stamp, answer: rows_hash::of(rows) });
            }
            Ok(_) => {}
            Err(error) => {
                self.was_let_down |=
                    matches!(error, Error::Unavailable(_) | Error::SnapshotEnded | Error::Overloaded(_));
                self.failed.get_or_insert_with(|| error.clone());
            }
        }
        Ok(())
    }

    fn writes(&mut self, BatchStep(command): BatchStep) -> Result<Step, Error> {
        if self.has_ended {
            return Err(ended());
        }
        let step = u32::try_from(self.commands.len()).map(Step);
        let step = step.ok().filter(|_| self.commands.len() < COMMANDS_MAX);
        let text = || format!("a transaction has at most {COMMANDS_MAX} statements that write; split it");
        let step = step.ok_or_else(|| Failure::new(FailureKind::TooBig, text()))?;
        self.commands.push(command.into());
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
        Ok(Self { submitter, limits, budget, deadline, level, backoff })
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
                Err(_) if gathered.was_let_down && self.may_go_on().await => continue,
                Err(error) => return Err(error),
            };
            if gathered.commands.is_empty() {
                return Ok(Committed { value, results: Vec::new(), position: transaction.position() });
            }
            if let Some(BatchResult { results, position }) = self.commit(gathered).await? {
                return Ok(Committed { value, results, position });
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

    /// Ships an attempt. `None` if it conflicts with the write of another and there is time for one more.
    async fn commit(&mut self, gathered: Gathered) -> Result<Option<BatchResult>, Error> {
        let Gathered { read_checks, commands, .. } = gathered;
        let proposal = Proposal { budget: self.budget, read_checks, ..Proposal::new(None, commands) };
        match self.submitter.propose(proposal, self.left()?).await? {
            (position, Ok(reply)) => Ok(Some(Written { position, reply }.into())),
            (position, Err(failure)) if failure.kind == FailureKind::Conflict => {
                // What it conflicts with lies before the conflict.
                if self.level != Level::Linearizable {
                    self.level = Level::AtLeast(position);
                }
                if self.may_go_on().await { Ok(None) } else { Err(Error::Conflict(failure.message.into())) }
            }
            (_, Err(failure)) => Err(failure.into()),
        }
    }

    /// Pauses before another attempt; `false` if there is no time for one.
    async fn may_go_on(&mut self) -> bool {
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
