//! What both sides do, and how they answer.

use std::fmt;

use quorate::{
    Value,
    sql::{Param, Statement},
};

use super::generate::is_hopeless;

/// A statement with its parameters.
pub type Call = Statement<Param>;

/// A piece of work that is an entry, a transaction or a query.
#[derive(Clone, Debug)]
pub enum Unit {
    Execute(Call),
    Returning(Call),
    /// A statement with many rows of parameters.
    Many(String, Vec<Vec<Value>>),
    Batch(Vec<Call>),
    /// Reads and then writes. If it passes, the first value of the last read is the first parameter of each write.
    Closure {
        reads: Vec<Call>,
        writes: Vec<Call>,
        passes: bool,
    },
    Interactive {
        calls: Vec<Call>,
        commits: bool,
    },
    /// A query of a node.
    Query {
        call: Call,
        node: usize,
        level: Level,
    },
    Vacuum,
}

/// How fresh a query is. Nothing is written meanwhile, so each must show the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    AtLeast,
    Linearizable,
    Bounded,
    OwnWrites,
    /// A stream of a snapshot.
    Snapshot,
}

/// What a statement did, as far as the side tells.
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
    /// This, or 0: SQLite tells the same number before and after.
    Perhaps(i64),
}

/// Rows with the names of their columns.
#[derive(Clone, Debug, Default)]
pub struct Table {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Value>>,
}

/// How a statement, or the whole, failed.
#[derive(Clone, Debug)]
pub struct Failed {
    /// SQLite's extended code, or 0 where it is no error of SQLite's.
    pub code: i32,
    /// Which statement, from 0.
    pub step: Option<usize>,
    /// Which of its rows.
    pub row: Option<usize>,
    /// For people.
    pub message: String,
}

/// What came of a unit.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Of each statement that the side tells of. None where the unit failed as a whole.
    pub steps: Vec<Result<Seen, Failed>>,
    pub end: Result<(), Failed>,
}

impl Answer {
    /// Of a unit that is done as a whole, or not at all.
    pub fn of(done: Result<Vec<Seen>, Failed>) -> Self {
        match done {
            Ok(steps) => Self { steps: steps.into_iter().map(Ok).collect(), end: Ok(()) },
            Err(failed) => Self { steps: Vec::new(), end: Err(failed) },
        }
    }

    /// All rows that were returned.
    pub fn rows(&self) -> impl Iterator<Item = &Vec<Value>> {
        self.steps.iter().flatten().filter_map(|step| step.rows.as_ref()).flat_map(|table| &table.rows)
    }

    /// All that failed.
    pub fn failures(&self) -> impl Iterator<Item = &Failed> {
        self.steps.iter().filter_map(|step| step.as_ref().err()).chain(self.end.as_ref().err())
    }
}

impl Unit {
    /// What its kind is called.
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

    /// Its statements. One with many rows counts once.
    pub fn calls(&self) -> Vec<&Call> {
        match self {
            Self::Execute(call) | Self::Returning(call) | Self::Query { call, .. } => vec![call],
            Self::Batch(calls) | Self::Interactive { calls, .. } => calls.iter().collect(),
            Self::Closure { reads, writes, .. } => reads.iter().chain(writes).collect(),
            Self::Many(..) | Self::Vacuum => Vec::new(),
        }
    }

    /// How many statements it has.
    pub fn statements(&self) -> u64 {
        self.calls().len().max(1) as u64
    }

    /// Whether it has a statement that no schema can mend, so that nothing of it can ever be done.
    pub fn is_hopeless(&self) -> bool {
        !matches!(self, Self::Interactive { .. }) && self.calls().iter().any(|call| is_hopeless(&call.sql))
    }

    /// Whether it may change the schema.
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
