//! Every error that a user of the SQL side can meet: what it says, to the letter, and whether the same call may succeed
//! later. Errors that no story leads to have their tests beside their code; those of migrations are in
//! `tests/migrations.rs`.

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
mod statements;
mod transactions;

use quorate::Error;

/// What an error says, and whether the same call may succeed later.
#[track_caller]
fn told<T>(result: Result<T, Error>) -> (String, bool) {
    let error = result.map(drop).expect_err("it did not fail");
    (error.to_string(), error.is_retryable())
}

/// Fails for good, and says so.
#[track_caller]
fn fails<T>(result: Result<T, Error>, text: &str) {
    assert_eq!(told(result), (text.to_owned(), false));
}

/// Fails for now, and says so.
#[track_caller]
fn fails_for_now<T>(result: Result<T, Error>, text: &str) {
    assert_eq!(told(result), (text.to_owned(), true));
}

/// What is said of a cluster that does not answer, because of this.
fn unavailable(why: &str) -> String {
    format!("the cluster is not available: {why}; see that a majority of its nodes is up and reachable, and try again")
}

/// What is said of an interactive transaction that is over, because of this.
fn aborted(why: &str) -> String {
    format!("the transaction was aborted: {why}; nothing of it was done, run it again")
}

/// What is said where too much waits, of this.
fn overloaded(why: &str) -> String {
    format!("overloaded: {why}; send less at a time, or try again later")
}

/// What is said of a write of which nobody knows whether it was done, because of this.
fn unknown(why: &str) -> String {
    format!("the outcome of the write is not known: {why}; look before writing it again")
}
