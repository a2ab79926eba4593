//! Batches: steps that run under conditions.
//!
//! Clients send a transaction as a batch `BEGIN`, statements, `COMMIT`, `ROLLBACK`, each under the condition that the
//! one before it succeeded. As an interactive transaction this would make all other writes wait. If all its statements
//! write, it is sent as one atomic entry instead; if all only read, they read one snapshot.
//!
//! Why this is sound: the entry is used only if, should every step of the transaction succeed, the conditions would let
//! each of them run. If the entry succeeds, that is what has happened. If it fails it had no effect, and the steps run
//! again one by one, in an interactive transaction, which gives each its own result or error. One that took more than
//! it may is not run again.

use quorate::{Error, Failure, FailureKind};

use super::decode::{Batch, Condition, Step};
use super::stream::Stream;
use crate::error::Problem;
use crate::options::BODY_BYTES_MAX;
use crate::text::{Begin, Kind};
use crate::work::{Bound, Ran, Work};

/// The result of a step; `None` if it did not run.
#[derive(Debug)]
pub(super) struct StepResult {
    pub(super) ran: Option<Result<Ran, Problem>>,
    pub(super) want_rows: bool,
}

/// What the statements of a transaction do.
#[derive(Clone, Copy, PartialEq)]
enum Does {
    Write,
    Read,
}

/// Runs a batch.
///
/// # Errors
///
/// A problem that ends the batch. Those of its steps are in their results.
pub(super) async fn run(stream: &mut Stream, work: &mut Work, batch: Batch) -> Result<Vec<StepResult>, Problem> {
    let mut results: Vec<StepResult> = Vec::with_capacity(batch.steps.len());
    let mut steps = batch.steps.into_iter().map(Some).collect::<Vec<_>>();
    let mut at = 0;
    while at < steps.len() {
        let whole = transaction(stream, steps.get(at..).unwrap_or_default(), &results);
        if let Some((length, does)) = whole
            && let Some(done) = at_once(stream, work, steps.get(at..at + length).unwrap_or_default(), does).await?
        {
            at += length;
            results.extend(done);
            continue;
        }
        // Without a transaction that can be sent whole, or after it has failed, its steps run one by one.
        for step in steps.get_mut(at..at + whole.map_or(1, |(length, _)| length)).unwrap_or_default() {
            at += 1;
            let Some(Step { condition, stmt }) = step.take() else { continue };
            let want_rows = stmt.want_rows();
            let runs = condition.is_none_or(|condition| holds(&condition, &results, stream.is_autocommit()));
            let ran = if runs { Some(stream.execute(work, stmt).await) } else { None };
            results.push(StepResult { ran, want_rows });
        }
    }
    Ok(results)
}

fn holds(condition: &Condition, results: &[StepResult], is_autocommit: bool) -> bool {
    let is_ok = |step: usize| Some(results.get(step)?.ran.as_ref()?.is_ok());
    condition.holds(&is_ok, is_autocommit)
}

/// Returns how many steps are a transaction that can be sent whole, from its `BEGIN` to its `COMMIT`, and what its
/// statements do.
fn transaction(stream: &Stream, steps: &[Option<Step>], results: &[StepResult]) -> Option<(usize, Does)> {
    if !stream.is_autocommit() {
        return None;
    }
    let mut does = None;
    for (step, number) in steps.iter().zip(0_usize..) {
        let step = step.as_ref()?;
        // All steps of the transaction so far are taken to have succeeded.
        let is_ok = |found: usize| match results.get(found) {
            Some(result) => Some(result.ran.as_ref()?.is_ok()),
            None => (found < results.len() + number).then_some(true),
        };
        let runs = |condition: &Condition| condition.holds(&is_ok, number == 0);
        let kind = Kind::of(stream.text_of(&step.stmt)?);
        if !step.condition.as_ref().is_none_or(runs) {
            return None;
        }
        does = match (kind, does) {
            (Kind::Begin(Begin::Deferred | Begin::Immediate), None) if number == 0 => continue,
            (Kind::Begin(Begin::ReadOnly), None) if number == 0 => None,
            (Kind::Commit, Some(does)) if number > 0 => return Some((number + 1, does)),
            _ if number == 0 => return None,
            (Kind::Write { removes: true }, _) if stream.is_without_foreign_keys() => return None,
            (Kind::Write { .. }, None | Some(Does::Write)) => Some(Does::Write),
            (Kind::Read, None | Some(Does::Read)) => Some(Does::Read),
            _ => return None,
        };
    }
    None
}

/// Runs a transaction whole. Returns `None` if it failed and had no effect, so that its steps must run one by one.
async fn at_once(
    stream: &mut Stream,
    work: &mut Work,
    steps: &[Option<Step>],
    does: Does,
) -> Result<Option<Vec<StepResult>>, Problem> {
    let Some(bound) = statements(stream, steps) else { return Ok(None) };
    let ran = match does {
        Does::Write => match work.batch(bound).await {
            Ok(ran) => ran,
            // With a key this failure is the outcome, whenever the request is sent.
            Err(Error::Failed(failure)) if !is_too_much(&failure) && !work.has_key() => return Ok(None),
            Err(Error::Failed(failure)) => return Err(failure.into()),
            Err(error) => return Err(error.into()),
        },
        Does::Read => {
            let Some(ran) = reads(work, bound).await? else { return Ok(None) };
            ran
        }
    };
    let want_rows = steps.iter().flatten().map(|step| step.stmt.want_rows());
    let all = std::iter::once(Ran::default()).chain(ran).chain(std::iter::once(Ran::default()));
    Ok(Some(all.zip(want_rows).map(|(ran, want_rows)| StepResult { ran: Some(Ok(ran)), want_rows }).collect()))
}

/// Returns whether a transaction took more time or memory than it may, so that it must not run again.
fn is_too_much(failure: &Failure) -> bool {
    matches!(failure.kind, FailureKind::Budget | FailureKind::Rejected)
}

/// Returns the statements between `BEGIN` and `COMMIT`; `None` if one would be refused by the stream, or if a stored
/// text would be copied so often that they take more memory than a request may.
fn statements(stream: &Stream, steps: &[Option<Step>]) -> Option<Vec<Bound>> {
    let between = steps.get(1..steps.len().checked_sub(1)?)?;
    let texts = between.iter().flatten().filter_map(|step| stream.text_of(&step.stmt));
    if texts.fold(0_usize, |sum, text| sum.saturating_add(text.len())) > BODY_BYTES_MAX {
        return None;
    }
    between.iter().map(|step| stream.bound(step.as_ref()?.stmt.clone()).ok()).collect()
}

/// Reads one state. Returns `None` if a statement fails.
async fn reads(work: &mut Work, statements: Vec<Bound>) -> Result<Option<Vec<Ran>>, Problem> {
    let mut snapshot = work.sql().snapshot().await?;
    let mut all = Vec::with_capacity(statements.len());
    for statement in statements {
        match work.look(&mut snapshot, statement).await {
            Ok(ran) => all.push(ran),
            Err(problem) if problem.is_of_server() => return Err(problem),
            Err(_) => return Ok(None),
        }
    }
    Ok(Some(all))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

    use super::*;
    use crate::hrana::decode::decode;

    #[test]
    fn a_stored_text_is_copied_as_often_as_its_copies_fit_into_a_body() {
        let mut stream = Stream::default();
        let text = format!("SELECT 1 --{}", "x".repeat(1 << 20));
        let most = BODY_BYTES_MAX / text.len();
        stream.texts.store(7, text).unwrap();
        // The first and the last step are those that begin and end the transaction.
        let copied = |copies: usize| {
            let step = || decode::<Step>(br#"{"stmt":{"sql_id":7}}"#).unwrap();
            let steps: Vec<_> = (0..copies + 2).map(|_| Some(step())).collect();
            statements(&stream, &steps).map(|bound| bound.len())
        };
        assert_eq!((copied(most), copied(most + 1)), (Some(most), None));
    }
}
