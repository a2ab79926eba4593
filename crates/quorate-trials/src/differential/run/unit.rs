//! The units that both sides do, and their answers.

use std::fmt;

use quorate::Value;
use quorate::sql::{Param, Statement};

use super::generate::is_hopeless;

/// A statement with its parameters.
pub type Call = Statement<Param>;

/// What a statement of an interactive transaction does with a savepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Savepoint<'a> {
    Set(&'a str),
    RollBackTo(&'a str),
    Release(&'a str),
}

impl<'a> Savepoint<'a> {
    /// Returns what a statement of the generator does; `None` if it is about no savepoint.
    pub fn of(call: &'a Call) -> Option<Self> {
        let name = |verb: &str| call.sql.strip_prefix(verb);
        name("SAVEPOINT ")
            .map(Self::Set)
            .or_else(|| name("ROLLBACK TO ").map(Self::RollBackTo))
            .or_else(|| name("RELEASE ").map(Self::Release))
    }
}

/// A unit of work: an entry, a transaction or a query.
#[derive(Clone, Debug)]
pub enum Unit {
    Execute(Call),
    Returning(Call),
    /// A statement with many rows of parameters.
    Many(String, Vec<Vec<Value>>),
    Batch(Vec<Call>),
    /// Reads, then writes. With `passes`, the first value of the last read is the first parameter of each write.
    Closure {
        reads: Vec<Call>,
        writes: Vec<Call>,
        passes: bool,
    },
    Interactive {
        calls: Vec<Call>,
        commits: bool,
    },
    /// A query on one node.
    Query {
        call: Call,
        node: usize,
        level: Level,
    },
    Vacuum,
}

/// The level of a query. Nothing is written meanwhile, so all levels must return the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    AtLeast,
    Linearizable,
    Bounded,
    OwnWrites,
    /// A stream from a snapshot.
    Snapshot,
}

/// What a statement did, as far as the side reports it.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub changes: Option<u64>,
    pub last_rowid: Option<Rowid>,
    pub rows: Option<Table>,
}

/// The rowid of the last row that a statement inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rowid {
    Is(i64),
    /// This, or 0: SQLite reports the same number before and after.
    Perhaps(i64),
}

/// Rows with the names of their columns.
#[derive(Clone, Debug, Default)]
pub struct Table {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Value>>,
}

/// How a statement or the whole unit failed.
#[derive(Clone, Debug)]
pub struct Failed {
    /// SQLite's extended code, or 0 if it is not an error of SQLite.
    pub code: i32,
    /// The number of the statement, from 0.
    pub step: Option<usize>,
    /// The number of its row of parameters.
    pub row: Option<usize>,
    /// The error text, which is not compared.
    pub message: String,
}

/// The outcome of a unit.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The result of each statement that the side reports; empty if the unit failed as a whole.
    pub steps: Vec<Result<Seen, Failed>>,
    pub end: Result<(), Failed>,
}

impl Answer {
    /// Creates the answer of a unit that is done as a whole or not at all.
    pub fn of(done: Result<Vec<Seen>, Failed>) -> Self {
        match done {
            Ok(steps) => Self { steps: steps.into_iter().map(Ok).collect(), end: Ok(()) },
            Err(failed) => Self { steps: Vec::new(), end: Err(failed) },
        }
    }

    /// Returns all rows of the answer.
    pub fn rows(&self) -> impl Iterator<Item = &Vec<Value>> {
        self.steps.iter().flatten().filter_map(|step| step.rows.as_ref()).flat_map(|table| &table.rows)
    }

    /// Returns all failures.
    pub fn failures(&self) -> impl Iterator<Item = &Failed> {
        self.steps.iter().filter_map(|step| step.as_ref().err()).chain(self.end.as_ref().err())
    }
}

impl Unit {
    /// Returns the name of its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Execute(_) => "execute",
            Self::Returning(_) => "execute_returning",
            Self::Many(..) => "execute_many",
            Self::Batch(_) => "batch",
            Self::Closure { .. } => "transact",
            Self::Interactive { .. } => "interactive",
            Self::Query { .. } => "query",
            Self::Vacuum => "vacuum",
        }
    }

    /// Returns its statements. One with many rows counts once.
    pub fn calls(&self) -> Vec<&Call> {
        match self {
            Self::Execute(call) | Self::Returning(call) | Self::Query { call, .. } => vec![call],
            Self::Batch(calls) | Self::Interactive { calls, .. } => calls.iter().collect(),
            Self::Closure { reads, writes, .. } => reads.iter().chain(writes).collect(),
            Self::Many(..) | Self::Vacuum => Vec::new(),
        }
    }

    /// Returns how many statements it has.
    pub fn statements(&self) -> u64 {
        self.calls().len().max(1) as u64
    }

    /// Returns whether it has a statement that fails under any schema, so that the unit can never be done.
    pub fn is_hopeless(&self) -> bool {
        !matches!(self, Self::Interactive { .. }) && self.calls().iter().any(|call| is_hopeless(&call.sql))
    }

    /// Returns whether it may change the schema.
    pub fn changes_schema(&self) -> bool {
        self.calls().iter().any(|call| ["CREATE", "ALTER", "DROP"].iter().any(|verb| call.sql.starts_with(verb)))
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind())?;
        match self {
            Self::Closure { reads, passes, .. } => write!(f, " ({} reads, passes: {passes})", reads.len())?,
            Self::Interactive { commits, .. } => write!(f, " (commits: {commits})")?,
            Self::Query { node, level, .. } => write!(f, " (of node {node}, {level:?})")?,
            Self::Many(sql, rows) => {
                write!(f, "\n  {sql}")?;
                rows.iter().try_for_each(|row| write!(f, "\n    {row:?}"))?;
            }
            _ => {}
        }
        for (number, call) in self.calls().into_iter().enumerate() {
            write!(f, "\n  {number}: {}", call.sql)?;
            if !call.params.is_empty() {
                write!(f, "\n     with {:?} {:?}", call.params, call.names)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, step) in self.steps.iter().enumerate() {
            match step {
                Ok(seen) => write!(f, "\n  {number}: {seen:?}")?,
                Err(failed) => write!(f, "\n  {number}: {failed}")?,
            }
        }
        match &self.end {
            Ok(()) => f.write_str("\n  done"),
            Err(failed) => write!(f, "\n  {failed}"),
        }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, step, row, message } = self;
        write!(f, "FAILED with code {code}, step {step:?}, row {row:?}: {message}")
    }
}
