//! Failures of commands. They are deterministic, so that they are part of the replicated history.

use std::fmt;

/// Why a command failed. The numbers are part of the log format and of the outcome hash: never reuse one.
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
    /// A deferred foreign key was still violated at the end.
    ForeignKey = 6,
    /// A rowid reached the maximum, after which SQLite would choose rowids at random.
    RowidExhausted = 7,
    /// The session does not exist, or no longer exists: whether its earlier requests were applied can't be determined.
    SessionExpired = 8,
    /// The sequence is below the session's floor: the client has given up its outcome.
    OutcomeForgotten = 9,
    /// The sequence is too far above the session's floor.
    WindowExceeded = 10,
    /// The entry has a format level or a tag that is not known to the state to which it is applied.
    Unsupported = 11,
    /// The statement was applied before, but its result was too large to be kept for a retry.
    OutcomeTooBig = 12,
    /// Data that the transaction had read, or the version of a key, have changed since; it may succeed if it is run
    /// again.
    Conflict = 13,
    /// Another entry was applied between the statements of an interactive transaction and its end; the transaction may
    /// succeed if it is run again.
    Aborted = 14,
    /// A majority of the nodes could not apply the entry, or it took longer than the leader allows, so the cluster
    /// decided not to run it.
    Rejected = 15,
    /// A command of a pipeline did not run, because an earlier one ended the transaction of the pipeline.
    NotRun = 16,
    /// There is a user with this name, or a token with this id.
    UserExists = 17,
    /// The user, or the token of the user, does not exist.
    UserUnknown = 18,
    /// The change would leave no administrator who can log in.
    NoAdmin = 19,
    /// The key of the request was used for another request.
    KeyReused = 20,
    /// So many keys of requests are remembered that there is no room for another; some are forgotten with time, so the
    /// same request may succeed later.
    KeysFull = 21,
    /// The key holds something of another kind than the command is for.
    WrongType = 22,
    /// A value of a key, or of a command on it, is not what the command needs: not a number, out of range, and so on.
    InvalidValue = 23,
    /// The lock is not held with this token, or no longer.
    NotHeld = 24,
}

impl FailureKind {
    /// All kinds.
    pub const ALL: [Self; 24] = [
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
        Self::UserExists,
        Self::UserUnknown,
        Self::NoAdmin,
        Self::KeyReused,
        Self::KeysFull,
        Self::WrongType,
        Self::InvalidValue,
        Self::NotHeld,
    ];

    /// Returns the number that stands for the kind in logs and hashes.
    pub fn number(self) -> u32 {
        self as u32
    }

    /// Returns the name of the kind in metrics and similar places.
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
            Self::UserExists => "user_exists",
            Self::UserUnknown => "user_unknown",
            Self::NoAdmin => "no_admin",
            Self::KeyReused => "key_reused",
            Self::KeysFull => "keys_full",
            Self::WrongType => "wrong_type",
            Self::InvalidValue => "invalid_value",
            Self::NotHeld => "not_held",
        }
    }

    /// Returns the kind with a number.
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

/// Why a proposal, or one command of a pipeline, failed and changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The kind.
    pub kind: FailureKind,
    /// SQLite's extended result code, or 0.
    pub sqlite_code: i32,
    /// The number of the command that failed, from 0, if the failure is that of one command.
    pub command: Option<u32>,
    /// The number of the row that failed, from 0, if the command has many rows.
    pub row: Option<u32>,
    /// A text for people. It is not part of the replicated state and may differ between nodes.
    pub message: String,
}

impl Failure {
    /// Creates a failure without a code of SQLite.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, sqlite_code: 0, command: None, row: None, message: message.into() }
    }

    /// Returns the same failure, as that of the command with this number.
    #[must_use]
    pub fn at(self, command: usize) -> Self {
        Self { command: u32::try_from(command).ok(), ..self }
    }

    /// Returns whether a row would have had the same key as another row: in a `UNIQUE` constraint or index, a primary
    /// key, or a rowid.
    pub fn is_unique_violation(&self) -> bool {
        [PRIMARY_KEY, UNIQUE, ROWID].contains(&self.sqlite_code)
    }

    /// Returns whether a foreign key refers to a row that does not exist, whether found at once or at the end of the
    /// transaction.
    pub fn is_foreign_key_violation(&self) -> bool {
        self.kind == FailureKind::ForeignKey || self.sqlite_code == FOREIGN_KEY
    }

    /// Returns whether a `NOT NULL` column would have been NULL.
    pub fn is_not_null_violation(&self) -> bool {
        self.sqlite_code == NOT_NULL
    }

    /// Returns whether a `CHECK` constraint does not hold.
    pub fn is_check_violation(&self) -> bool {
        self.sqlite_code == CHECK
    }

    /// Returns SQLite's name for the constraint that does not hold: `table.column` for columns, with commas between
    /// several of them; the name of a `CHECK`, or its text if it has no name; `index 'name'` for an index on
    /// expressions. `None` for foreign keys, and for failures without a constraint.
    pub fn constraint(&self) -> Option<&str> {
        let is_constraint = self.kind == FailureKind::Constraint;
        self.message.split_once(" constraint failed: ").filter(|_| is_constraint).map(|(_, name)| name)
    }

    /// Returns whether the same request may succeed later, which only [`FailureKind::KeysFull`] may. Any other would
    /// fail again, on any node.
    pub fn is_retryable(&self) -> bool {
        self.kind == FailureKind::KeysFull
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
