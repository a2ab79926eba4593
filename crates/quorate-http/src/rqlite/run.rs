//! Runs the statements of one request.
//!
//! Without `transaction`, a failing statement does not keep those after it from running; yet all writes of a request
//! are one entry, so that no other write comes between them.

use std::time::Duration;

use quorate::{Error, Failure};
use quorate_env::Instant;

use super::asked::Asked;
use super::decode::Statement;
use super::since;
use crate::error::Problem;
use crate::text::Kind;
use crate::work::{Bound, Ran, Work};

/// The most statements of a request that may be refused before it is proposed; the next one fails the request.
const REFUSED_MAX: usize = 64;

/// What a request may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Execute,
    Query,
    /// Both, in any order.
    Unified,
}

/// The result of a statement.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) ran: Result<Ran, Problem>,
    /// Whether it is shown as rows, even if there are none.
    pub(super) is_query: bool,
    pub(super) time: Duration,
}

impl Done {
    fn new(ran: Result<Ran, Problem>, is_query: bool, begun: Instant) -> Self {
        let is_query = is_query || ran.as_ref().is_ok_and(|ran| !ran.rows.columns().is_empty());
        Self { ran, is_query, time: since(begun) }
    }
}

/// Runs statements.
///
/// # Errors
///
/// A problem of the server, which concerns them all. The problems of statements are in their results.
pub(super) async fn run(
    work: &mut Work,
    mode: Mode,
    asked: &Asked,
    statements: Vec<Statement>,
) -> Result<Vec<Done>, Problem> {
    let kinds = || statements.iter().map(|statement| Kind::of(&statement.sql));
    let only_reads = kinds().all(|kind| matches!(kind, Kind::Read | Kind::Explain));
    let only_writes = kinds().all(|kind| matches!(kind, Kind::Write { .. }));
    match mode {
        Mode::Query => queries(work, asked.transaction, statements).await,
        Mode::Execute if asked.transaction => transaction(work, statements).await,
        Mode::Execute => writes(work, statements).await,
        Mode::Unified if only_reads => queries(work, asked.transaction, statements).await,
        Mode::Unified if only_writes && asked.transaction => transaction(work, statements).await,
        Mode::Unified if only_writes => writes(work, statements).await,
        Mode::Unified if statements.len() == 1 => each(work, statements).await,
        Mode::Unified => mixed(work, asked.transaction, statements).await,
    }
}

/// Runs queries, on one state if they are a transaction.
async fn queries(work: &mut Work, is_transaction: bool, statements: Vec<Statement>) -> Result<Vec<Done>, Problem> {
    let mut snapshot = if is_transaction { Some(work.sql().snapshot().await?) } else { None };
    let mut all = Vec::with_capacity(statements.len());
    for statement in statements {
        let begun = Instant::now();
        let ran = match (statement.bound(), &mut snapshot) {
            (Ok(bound), Some(snapshot)) => work.look(snapshot, bound).await,
            (Ok(bound), None) => work.query(bound).await,
            (Err(problem), _) => Err(problem),
        };
        let ran = of_server(ran)?;
        let stops = ran.is_err() && is_transaction;
        all.push(Done::new(ran, true, begun));
        if stops {
            break;
        }
    }
    Ok(all)
}

/// Runs one statement, which may read or write.
async fn each(work: &mut Work, statements: Vec<Statement>) -> Result<Vec<Done>, Problem> {
    let mut all = Vec::with_capacity(statements.len());
    for statement in statements {
        let begun = Instant::now();
        let ran = match statement.bound() {
            Ok(bound) => work.run(bound).await,
            Err(problem) => Err(problem),
        };
        all.push(Done::new(of_server(ran)?, false, begun));
    }
    Ok(all)
}

/// Runs writes: all of them take effect, or none.
async fn transaction(work: &mut Work, statements: Vec<Statement>) -> Result<Vec<Done>, Problem> {
    let begun = Instant::now();
    let mut bound = Vec::with_capacity(statements.len());
    for (number, statement) in statements.into_iter().enumerate() {
        match statement.bound() {
            Ok(one) => bound.push(one),
            Err(problem) => return Ok(failed_at(number, problem, begun)),
        }
    }
    match work.batch(bound).await {
        Ok(all) => Ok(all.into_iter().map(|ran| Done::new(Ok(ran), false, begun)).collect()),
        Err(Error::Failed(failure)) => {
            let number = failure.command.and_then(|number| usize::try_from(number).ok()).unwrap_or_default();
            Ok(failed_at(number, failure.into(), begun))
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns the results of a transaction of which a statement failed: those before it did nothing in the end, and those
/// after it did not run.
fn failed_at(number: usize, problem: Problem, begun: Instant) -> Vec<Done> {
    let nothing = (0..number).map(|_| Done::new(Ok(Ran::default()), false, begun));
    nothing.chain([Done::new(Err(problem), false, begun)]).collect()
}

/// Runs writes, each by itself, as one entry. The library refuses an entry with a statement that can never run; such
/// statements are left out.
async fn writes(work: &mut Work, statements: Vec<Statement>) -> Result<Vec<Done>, Problem> {
    let begun = Instant::now();
    let mut results: Vec<Option<Result<Ran, Problem>>> = Vec::with_capacity(statements.len());
    let mut left: Vec<(usize, Bound)> = Vec::with_capacity(statements.len());
    for (number, statement) in statements.into_iter().enumerate() {
        match statement.bound() {
            Ok(bound) => {
                left.push((number, bound));
                results.push(None);
            }
            Err(problem) => results.push(Some(Err(problem))),
        }
    }
    let mut refused = 0_usize;
    while !left.is_empty() {
        let failure = match work.pipeline(left.iter().map(|(_, bound)| bound.clone()).collect()).await {
            Ok(done) => {
                for ((number, _), ran) in left.drain(..).zip(done) {
                    set(&mut results, number, ran);
                }
                break;
            }
            Err(Error::Failed(failure)) => failure,
            Err(error) => return Err(error.into()),
        };
        refused = refused.saturating_add(1);
        let place = failure.command.and_then(|place| usize::try_from(place).ok()).filter(|place| *place < left.len());
        let Some(place) = place.filter(|_| refused <= REFUSED_MAX) else { return Err(failure.into()) };
        let (number, _) = left.remove(place);
        set(&mut results, number, Err(Problem::from(Failure { command: None, ..failure })));
    }
    let done = results.into_iter().map(|ran| Done::new(ran.unwrap_or_else(|| Ok(Ran::default())), false, begun));
    Ok(done.collect())
}

fn set(results: &mut [Option<Result<Ran, Problem>>], number: usize, ran: Result<Ran, Problem>) {
    if let Some(result) = results.get_mut(number) {
        *result = Some(ran);
    }
}

/// Runs reads and writes one after another on one state, as an interactive transaction.
async fn mixed(work: &mut Work, is_transaction: bool, statements: Vec<Statement>) -> Result<Vec<Done>, Problem> {
    let mut open = work.begin().await?;
    let mut all = Vec::with_capacity(statements.len());
    for statement in statements {
        let (begun, is_query) = (Instant::now(), Kind::of(&statement.sql) == Kind::Read);
        let ran = match statement.bound() {
            Ok(bound) => work.step(&mut open, bound).await,
            Err(problem) => Err(problem),
        };
        let ran = of_server(ran)?;
        let stops = ran.is_err() && is_transaction;
        all.push(Done::new(ran, is_query, begun));
        if stops {
            open.rollback();
            return Ok(all);
        }
    }
    let begun = Instant::now();
    match work.commit(open).await {
        Ok(()) => Ok(all),
        Err(Error::Failed(failure)) => Ok(failed_at(all.len().saturating_sub(1), failure.into(), begun)),
        Err(error) => Err(error.into()),
    }
}

/// Separates a problem of the server from that of a statement.
fn of_server(ran: Result<Ran, Problem>) -> Result<Result<Ran, Problem>, Problem> {
    match ran {
        Err(problem) if problem.is_of_server() => Err(problem),
        ran => Ok(ran),
    }
}
