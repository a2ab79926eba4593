//! Every error that a user of the SQL interface can get: its exact text, and whether the same call may succeed later.
//! Errors that can't be provoked here are tested next to their code; those of migrations in `tests/migrations.rs`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

#[path = "../support/mod.rs"]
mod support;

mod cluster;
mod reads;
mod rows;
mod sources;
mod statements;
mod transactions;

use quorate::Error;

/// Returns the text of an error, and whether the same call may succeed later.
#[track_caller]
fn error_of<T>(result: Result<T, Error>) -> (String, bool) {
    let error = result.map(drop).expect_err("it did not fail");
    (error.to_string(), error.is_retryable())
}

/// Checks for an error that is final.
#[track_caller]
fn fails<T>(result: Result<T, Error>, text: &str) {
    assert_eq!(error_of(result), (text.to_owned(), false));
}

/// Checks for an error that can be retried.
#[track_caller]
fn fails_for_now<T>(result: Result<T, Error>, text: &str) {
    assert_eq!(error_of(result), (text.to_owned(), true));
}

/// Returns the error text for a cluster that does not answer, with this reason.
fn unavailable(why: &str) -> String {
    format!(
        "the cluster is not available: {why}; check that a majority of its nodes is up and reachable, and try again"
    )
}

/// Returns the error text for an aborted interactive transaction, with this reason.
fn aborted(why: &str) -> String {
    format!("the transaction was aborted: {why}; it had no effect, run it again")
}

/// Returns the error text for an overload, with this reason.
fn overloaded(why: &str) -> String {
    format!("overloaded: {why}; send less at a time, or try again later")
}

/// Returns the error text for a write with an unknown outcome, with this reason.
fn unknown(why: &str) -> String {
    format!("the outcome of the write is not known: {why}; check the data before writing it again")
}
