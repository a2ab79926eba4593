//! The names of SQLite's result codes, by which clients recognise errors.

use quorate::{Failure, FailureKind};

/// Codes and names, from `sqlite3.h`: those that the statement of a client can cause.
const NAMES: &[(i32, &str)] = &[
    (1, "SQLITE_ERROR"),
    (257, "SQLITE_ERROR_MISSING_COLLSEQ"),
    (513, "SQLITE_ERROR_RETRY"),
    (769, "SQLITE_ERROR_SNAPSHOT"),
    (4, "SQLITE_ABORT"),
    (516, "SQLITE_ABORT_ROLLBACK"),
    (5, "SQLITE_BUSY"),
    (6, "SQLITE_LOCKED"),
    (8, "SQLITE_READONLY"),
    (9, "SQLITE_INTERRUPT"),
    (10, "SQLITE_IOERR"),
    (11, "SQLITE_CORRUPT"),
    (267, "SQLITE_CORRUPT_VTAB"),
    (523, "SQLITE_CORRUPT_SEQUENCE"),
    (13, "SQLITE_FULL"),
    (17, "SQLITE_SCHEMA"),
    (18, "SQLITE_TOOBIG"),
    (19, "SQLITE_CONSTRAINT"),
    (275, "SQLITE_CONSTRAINT_CHECK"),
    (531, "SQLITE_CONSTRAINT_COMMITHOOK"),
    (787, "SQLITE_CONSTRAINT_FOREIGNKEY"),
    (1043, "SQLITE_CONSTRAINT_FUNCTION"),
    (1299, "SQLITE_CONSTRAINT_NOTNULL"),
    (1555, "SQLITE_CONSTRAINT_PRIMARYKEY"),
    (1811, "SQLITE_CONSTRAINT_TRIGGER"),
    (2067, "SQLITE_CONSTRAINT_UNIQUE"),
    (2323, "SQLITE_CONSTRAINT_VTAB"),
    (2579, "SQLITE_CONSTRAINT_ROWID"),
    (2835, "SQLITE_CONSTRAINT_PINNED"),
    (3091, "SQLITE_CONSTRAINT_DATATYPE"),
    (20, "SQLITE_MISMATCH"),
    (21, "SQLITE_MISUSE"),
    (23, "SQLITE_AUTH"),
    (25, "SQLITE_RANGE"),
];

/// Returns the name of the code of a failure: SQLite's extended one, or else the one that comes closest to its kind.
pub(crate) fn of(failure: &Failure) -> &'static str {
    let named = |code: i32| NAMES.iter().find(|(known, _)| *known == code).map(|(_, name)| *name);
    let is_own = matches!(failure.kind, FailureKind::Sql | FailureKind::Constraint);
    let by_code = named(failure.sqlite_code).or_else(|| named(failure.sqlite_code & 0xff));
    if let Some(name) = by_code.filter(|_| is_own) {
        return name;
    }
    match failure.kind {
        FailureKind::Constraint => "SQLITE_CONSTRAINT",
        FailureKind::ForeignKey => "SQLITE_CONSTRAINT_FOREIGNKEY",
        FailureKind::Refused => "SQLITE_AUTH",
        FailureKind::TooBig => "SQLITE_TOOBIG",
        FailureKind::Budget | FailureKind::Rejected => "SQLITE_INTERRUPT",
        FailureKind::RowidExhausted => "SQLITE_FULL",
        FailureKind::NotRun => "SQLITE_ABORT",
        FailureKind::Conflict => "SQLITE_BUSY",
        FailureKind::Aborted => "TRANSACTION_ABORTED",
        FailureKind::KeyReused => "KEY_REUSED",
        FailureKind::WrongType => "WRONG_TYPE",
        FailureKind::InvalidValue => "INVALID_VALUE",
        _ => "SQLITE_ERROR",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_have_the_names_that_clients_know() {
        let failure = |kind, sqlite_code| Failure { sqlite_code, ..Failure::new(kind, "why") };
        for (kind, code, name) in [
            (FailureKind::Constraint, 1555, "SQLITE_CONSTRAINT_PRIMARYKEY"),
            (FailureKind::Constraint, 2067, "SQLITE_CONSTRAINT_UNIQUE"),
            (FailureKind::Constraint, 19 | 99 << 8, "SQLITE_CONSTRAINT"),
            (FailureKind::ForeignKey, 0, "SQLITE_CONSTRAINT_FOREIGNKEY"),
            (FailureKind::Sql, 1, "SQLITE_ERROR"),
            (FailureKind::Sql, 0, "SQLITE_ERROR"),
            (FailureKind::Refused, 1, "SQLITE_AUTH"),
            (FailureKind::TooBig, 18, "SQLITE_TOOBIG"),
        ] {
            assert_eq!(of(&failure(kind, code)), name);
        }
    }
}
