//! How a command fails: deterministically, so that it is part of the replicated history.

use std::fmt;

/// Why a command was not done. The numbers are part of the log format and of the outcome hash: never reuse one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureKind {
    /// SQLite refused the statement: no such table, wrong types, bad JSON, and so on.
    Sql = 1,
    /// A constraint does not hold.
    Constraint = 2,
    /// The statement is not allowed here; the message says why and what to do instead.
    Refused = 3,
    /// Something exceeds a limit, which the message names.
    TooBig = 4,
    /// The budget of steps was used up.
    Budget = 5,
    /// A deferred foreign key was still open at the end.
    ForeignKey = 6,
    /// A rowid reached the maximum, after which SQLite would choose rowids at random.
    RowidExhausted = 7,
    /// The session does not exist, or no longer: whether earlier requests of it were applied can't be told any more.
    SessionExpired = 8,
    /// The sequence lies below the session's floor: its outcome was given up by the client.
    OutcomeForgotten = 9,
    /// The sequence lies too far above the session's floor.
    WindowExceeded = 10,
    /// The entry's format level or a tag in it is not known to the state it met.
    Unsupported = 11,
    /// The statement was applied before, but what it returned was too large to be kept for a retry.
    OutcomeTooBig = 12,
    /// What the transaction had read has changed since; run anew, it may succeed.
    Conflict = 13,
    /// Another entry came between the statements of an interactive transaction and its end; run anew, it may succeed.
    Aborted = 14,
    /// A majority of the nodes could not apply the entry, or the leader had no time for it, so the cluster decided not
    /// to run it.
    Rejected = 15,
    /// A command of a pipeline did not run, because an earlier one ended the transaction of the pipeline.
    NotRun = 16,
}

impl FailureKind {
    /// All kinds.
    pub const ALL: [Self; 16] = [
        Self::Sql,
        Self::Constraint,
        Self::Refused,
        Self::TooBig,
        Self::Budget,
        Self::ForeignKey,
        Self::RowidExhausted,
        Self::SessionExpired,
        Self::OutcomeForgotten,
        Self::WindowExceeded,
        Self::Unsupported,
        Self::OutcomeTooBig,
        Self::Conflict,
        Self::Aborted,
        Self::Rejected,
        Self::NotRun,
    ];

    /// The number that stands for the kind in logs and hashes.
    pub fn number(self) -> u32 {
        self as u32
    }

    /// What the kind is called in metrics and the like.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sql => "sql",
            Self::Constraint => "constraint",
            Self::Refused => "refused",
            Self::TooBig => "too_big",
            Self::Budget => "budget",
            Self::ForeignKey => "foreign_key",
            Self::RowidExhausted => "rowid_exhausted",
            Self::SessionExpired => "session_expired",
            Self::OutcomeForgotten => "outcome_forgotten",
            Self::WindowExceeded => "window_exceeded",
            Self::Unsupported => "unsupported",
            Self::OutcomeTooBig => "outcome_too_big",
            Self::Conflict => "conflict",
            Self::Aborted => "aborted",
            Self::Rejected => "rejected",
            Self::NotRun => "not_run",
        }
    }

    /// The kind of a number.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }
}

/// Extended result codes of SQLite, from `sqlite3.h`.
const CHECK: i32 = 275;
const FOREIGN_KEY: i32 = 787;
const NOT_NULL: i32 = 1299;
const PRIMARY_KEY: i32 = 1555;
const UNIQUE: i32 = 2067;
const ROWID: i32 = 2579;

/// Why nothing of a proposal was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The kind.
    pub kind: FailureKind,
    /// SQLite's extended result code, or 0.
    pub sqlite_code: i32,
    /// The number of the command that failed, from 0, where there is one to name.
    pub command: Option<u32>,
    /// The number of the row that failed, from 0, of a command that has many.
    pub row: Option<u32>,
    /// For people. Not part of the replicated state: it may differ between nodes.
    pub message: String,
}

impl Failure {
    /// A failure without a code of SQLite.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, sqlite_code: 0, command: None, row: None, message: message.into() }
    }

    /// The same failure, of the command with this number.
    #[must_use]
    pub fn at(self, command: usize) -> Self {
        Self { command: u32::try_from(command).ok(), ..self }
    }

    /// Whether a row would have had the same key as another: of a `UNIQUE` constraint or index, a primary key, or a
    /// rowid.
    pub fn is_unique_violation(&self) -> bool {
        [PRIMARY_KEY, UNIQUE, ROWID].contains(&self.sqlite_code)
    }

    /// Whether a foreign key leads nowhere, at once or at the end of the transaction.
    pub fn is_foreign_key_violation(&self) -> bool {
        self.kind == FailureKind::ForeignKey || self.sqlite_code == FOREIGN_KEY
    }

    /// Whether a column that is `NOT NULL` would have been NULL.
    pub fn is_not_null_violation(&self) -> bool {
        self.sqlite_code == NOT_NULL
    }

    /// Whether a `CHECK` constraint does not hold.
    pub fn is_check_violation(&self) -> bool {
        self.sqlite_code == CHECK
    }

    /// What SQLite names of the constraint that does not hold: `table.column` for columns, several of them with commas
    /// between them; of a `CHECK` its name, or its text where it has none; `index 'name'` for an index on expressions.
    /// `None` for foreign keys, and where no constraint is to blame.
    pub fn constraint(&self) -> Option<&str> {
        let is_constraint = self.kind == FailureKind::Constraint;
        self.message.split_once(" constraint failed: ").filter(|_| is_constraint).map(|(_, name)| name)
    }

    /// Never: the same proposal would fail again, on any node.
    pub fn is_retryable(&self) -> bool {
        false
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(number) = self.command.filter(|number| *number > 0) {
            write!(f, "statement {}: ", number.saturating_add(1))?;
        }
        if let Some(number) = self.row {
            write!(f, "row {}: ", u64::from(number).saturating_add(1))?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}
