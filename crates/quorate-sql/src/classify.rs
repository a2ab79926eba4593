//! Decides whether an error of SQLite is the statement's, and so an outcome that is equal on all nodes, or the node's.
//!
//! The extended code decides, with two exceptions. If the authorizer refused something ([`Context`]), that is the
//! reason. And `SQLITE_FULL` means either a full disk or a table without free rowids; it means the disk if a write
//! failed.

use quorate_apply::Trouble;
use quorate_model::limits::{SQL_BYTES_MAX, VALUE_BYTES_MAX};
use quorate_model::{Failure, FailureKind, StoreFault};
use rusqlite::{Error, ffi};

use crate::usage;

/// The most bytes of an error's text that are kept. The text may quote the user's, which can be long.
pub const MESSAGE_BYTES_MAX: usize = 2048;

/// The start of SQLite's message about a schema that it can't parse.
const MALFORMED_SCHEMA: &str = "malformed database schema";

/// The message of the failure if a table has no rowid for a new row.
const NO_ROWID: &str =
    "the table has given out the largest rowid; make a new table, or give each row a rowid of its own";

/// What is known about an error besides its code.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// Whether a write to a file failed while the statement ran.
    pub write_failed: bool,
    /// Why the authorizer refused the statement, if it did.
    pub refusal: Option<String>,
}

/// Classifies the error of a user's statement.
pub fn classify(error: &Error, context: Context) -> Trouble {
    let (code, message) = describe(error);
    if let Some(fault) = fault(code, context.write_failed, &message) {
        return Trouble::Fault(fault);
    }
    let (kind, message) = match (context.refusal, kind(code)) {
        (Some(refusal), _) => (FailureKind::Refused, refusal),
        // SQLite's message blames a full disk, which is wrong here.
        (None, FailureKind::RowidExhausted) => (FailureKind::RowidExhausted, format!("{NO_ROWID} (SQLite: {message})")),
        (None, FailureKind::TooBig) => (FailureKind::TooBig, too_big(&message)),
        (None, kind) => (kind, message),
    };
    Trouble::Failure(Failure { sqlite_code: code, ..Failure::new(kind, shortened(message)) })
}

/// Returns the failure of a statement that changed the schema to one that SQLite can't parse, if that is the error.
///
/// SQLite stores the text of what is created, parses it at once, and reports a text that it can't parse as
/// `SQLITE_CORRUPT`, like a damaged page. The statement could be prepared, so the schema before it was readable, and
/// only its own change can be wrong. The caller must roll back the transaction and read the schema again, which detects
/// a damaged page.
pub fn of_schema_text(error: &Error) -> Option<Failure> {
    let (code, message) = describe(error);
    if code != ffi::SQLITE_CORRUPT || !message.starts_with(MALFORMED_SCHEMA) {
        return None;
    }
    let text = format!("SQLite can't read back what it would keep of this: {message}; use another name, or quote it");
    Some(Failure { sqlite_code: code, ..Failure::new(FailureKind::Sql, shortened(text)) })
}

/// Returns the fault for an error of the store's own statements, or of a COMMIT: it is always the node's.
pub fn own(error: &Error) -> StoreFault {
    // SQLite says that there is no memory, also if the entry has taken too long: then it may be tried again.
    if let Some(fault) = usage::fault(error) {
        return fault;
    }
    let (code, message) = describe(error);
    match code & 0xff {
        ffi::SQLITE_FULL => StoreFault::Full(message),
        ffi::SQLITE_NOMEM => StoreFault::Memory(message),
        ffi::SQLITE_CORRUPT | ffi::SQLITE_NOTADB => StoreFault::Damaged(message),
        _ => StoreFault::Io(message),
    }
}

/// Returns the fault of the node that a code stands for, if it does.
fn fault(code: i32, write_failed: bool, message: &str) -> Option<StoreFault> {
    let text = || format!("{message} (code {code})");
    match code {
        // These depend on the data alone: content that a virtual table finds wrong, and a bad row in `sqlite_sequence`.
        ffi::SQLITE_CORRUPT_VTAB | ffi::SQLITE_CORRUPT_SEQUENCE | ffi::SQLITE_LOCKED_VTAB => return None,
        _ => {}
    }
    match code & 0xff {
        ffi::SQLITE_FULL if write_failed => Some(StoreFault::Full(text())),
        ffi::SQLITE_NOMEM => Some(StoreFault::Memory(text())),
        ffi::SQLITE_INTERRUPT => Some(StoreFault::Slow(text())),
        ffi::SQLITE_CORRUPT | ffi::SQLITE_NOTADB => Some(StoreFault::Damaged(text())),
        // Another error has rolled the transaction back, and a virtual table has dropped that error.
        ffi::SQLITE_ABORT
        | ffi::SQLITE_INTERNAL
        | ffi::SQLITE_PERM
        | ffi::SQLITE_BUSY
        | ffi::SQLITE_LOCKED
        | ffi::SQLITE_READONLY
        | ffi::SQLITE_IOERR
        | ffi::SQLITE_CANTOPEN
        | ffi::SQLITE_PROTOCOL
        | ffi::SQLITE_SCHEMA
        | ffi::SQLITE_MISUSE
        | ffi::SQLITE_NOLFS => Some(StoreFault::Io(text())),
        _ => None,
    }
}

fn kind(code: i32) -> FailureKind {
    match code & 0xff {
        ffi::SQLITE_CONSTRAINT => FailureKind::Constraint,
        ffi::SQLITE_TOOBIG => FailureKind::TooBig,
        ffi::SQLITE_AUTH => FailureKind::Refused,
        ffi::SQLITE_FULL => FailureKind::RowidExhausted,
        _ => FailureKind::Sql,
    }
}

/// Adds the limit to SQLite's message, which does not name it.
fn too_big(message: &str) -> String {
    if message == "statement too long" {
        return format!("{message}: the limit is {SQL_BYTES_MAX} bytes; pass its values as parameters");
    }
    format!("{message}: the limit of a value and of a row is {VALUE_BYTES_MAX} bytes; keep it in pieces")
}

/// Returns the extended code and the text of an error. Errors that rusqlite itself detects get `SQLITE_ERROR`.
fn describe(error: &Error) -> (i32, String) {
    match error {
        Error::SqliteFailure(code, text) => {
            (code.extended_code, text.clone().unwrap_or_else(|| ffi::code_to_str(code.extended_code).to_owned()))
        }
        Error::SqlInputError { error, msg, .. } => (error.extended_code, msg.clone()),
        other => (ffi::SQLITE_ERROR, other.to_string()),
    }
}

fn shortened(mut message: String) -> String {
    if message.len() > MESSAGE_BYTES_MAX {
        let end = (0..=MESSAGE_BYTES_MAX).rev().find(|at| message.is_char_boundary(*at)).unwrap_or(0);
        message.truncate(end);
        message.push_str("...");
    }
    message
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, reason = "tests")]

    use super::*;

    fn code(code: i32) -> Error {
        Error::SqliteFailure(ffi::Error::new(code), None)
    }

    #[test]
    fn only_codes_that_depend_on_data_are_outcomes() {
        let data = [1, 12, 18, 19, 20, 25, 267, 523, 518, 787, 1555, 1811, 2067];
        let node = [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 14, 15, 17, 21, 22, 26, 261, 262, 266, 516, 522, 778, 779, 3338];
        for number in data {
            assert!(matches!(classify(&code(number), Context::default()), Trouble::Failure(_)), "{number}");
        }
        for number in node {
            assert!(matches!(classify(&code(number), Context::default()), Trouble::Fault(_)), "{number}");
        }
    }

    #[test]
    fn full_is_the_disk_only_if_a_write_failed() {
        let full = code(ffi::SQLITE_FULL);
        let failed = Context { write_failed: true, refusal: None };
        assert!(matches!(classify(&full, failed), Trouble::Fault(StoreFault::Full(_))));
        let Trouble::Failure(failure) = classify(&full, Context::default()) else { panic!("a fault") };
        let text = "the table has given out the largest rowid; make a new table, or give each row a rowid of its own \
                    (SQLite: database or disk is full)";
        assert_eq!((failure.kind, failure.to_string().as_str()), (FailureKind::RowidExhausted, text));
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        let long = Error::SqliteFailure(ffi::Error::new(1), Some("ä".repeat(MESSAGE_BYTES_MAX)));
        let Trouble::Failure(failure) = classify(&long, Context::default()) else { panic!("a fault") };
        assert!(failure.message.len() <= MESSAGE_BYTES_MAX + 3 && failure.message.ends_with("ä..."));
    }
}
