//! The family of commands that the SQL store runs.

use std::borrow::Cow;

use crate::limits::{
    EXTENSION_NAME_BYTES_MAX, EXTENSIONS_MAX, IN_PIECES, PARAMETERS_MAX, SQL_BYTES_MAX, VALUE_BYTES_MAX, check_text,
    limit,
};
use crate::{Bulk, Column, Failure, FailureKind, Param, Value};

/// The error for a reference to a command that returns no rows.
pub(crate) const NO_ROWS: &str = "returns no rows: refer to one with RETURNING";

/// A command of this family.
#[derive(Clone, Debug, PartialEq)]
pub enum SqlCommand {
    /// Runs a statement that writes.
    Statement(Statement<Param>),
    /// Runs a statement that writes once for each of many rows of parameters.
    Bulk(Bulk),
    /// Rewrites the database without free pages. It must be the only command of its entry.
    Vacuum,
    /// Enables the functions and collations with these names, which every voter has announced, for later commands. It
    /// must be the only command of its entry.
    Extend(Vec<String>),
}

/// The result of a command of this family.
#[derive(Clone, Debug, PartialEq)]
pub enum SqlReply {
    /// The command succeeded and returns nothing.
    Done,
    /// The result of a statement.
    Statement(StatementResult),
}

/// One statement with its parameters: values for a query, [`Param`]s for a step of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement<P = Value> {
    /// One statement of SQL. A literal is borrowed, so that no call allocates for it.
    pub sql: Cow<'static, str>,
    /// Its parameters; without names, `params[0]` is number 1.
    pub params: Vec<P>,
    /// Either empty, or the name of each parameter as the statement spells it: `:a`, `@a` or `$a`.
    pub names: Vec<String>,
}

/// The values of a row, in the order of its columns.
pub type Row = Vec<Value>;

/// The result of a statement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatementResult {
    /// The number of rows inserted, updated or deleted, as counted by SQLite's `changes()`.
    pub changes: u64,
    /// The rowid of the last row that this statement inserted, as returned by `last_insert_rowid()`; 0 if it inserted
    /// none.
    pub last_insert_rowid: i64,
    /// The names of the returned columns.
    pub columns: Vec<String>,
    /// The returned rows.
    pub rows: Vec<Row>,
}

impl SqlCommand {
    /// Returns whether it must be the only command of its entry: VACUUM can't run inside a transaction, and enabling an
    /// extension must not be rolled back alone.
    pub fn is_alone(&self) -> bool {
        matches!(self, Self::Vacuum | Self::Extend(_))
    }

    /// Returns whether it may have run before its entry was proposed.
    pub(crate) fn may_run_dry(&self) -> bool {
        matches!(self, Self::Statement(_))
    }

    /// Checks the limits of the command at place `number` of its proposal.
    pub(crate) fn check_limits(&self, number: usize) -> Result<(), Failure> {
        match self {
            Self::Statement(statement) => {
                statement.check_limits()?;
                statement.check_references(number)
            }
            Self::Bulk(bulk) => bulk.check_limits(),
            Self::Extend(names) => check_names(names),
            Self::Vacuum => Ok(()),
        }
    }
}

impl SqlReply {
    /// Returns the value in a column of the only row that it returned. The error completes "statement 1, which ...".
    pub(crate) fn value(&self, column: &Column) -> Result<&Value, String> {
        let Self::Statement(result) = self else { return Err(NO_ROWS.to_owned()) };
        let [row] = result.rows.as_slice() else {
            return Err(format!("returned {} rows: it must return exactly one row, with RETURNING", result.rows.len()));
        };
        let place = match column {
            Column::Number(number) => usize::try_from(*number).ok(),
            Column::Name(name) => result.columns.iter().position(|column| column == name),
        };
        let value = place.and_then(|place| row.get(place));
        value.ok_or_else(|| format!("returned only the columns {}", result.columns.join(", ")))
    }
}

impl<P> Default for Statement<P> {
    fn default() -> Self {
        Self { sql: Cow::Borrowed(""), params: Vec::new(), names: Vec::new() }
    }
}

impl From<Statement> for Statement<Param> {
    fn from(statement: Statement) -> Self {
        let Statement { sql, params, names } = statement;
        Self { sql, params: params.into_iter().map(Param::Value).collect(), names }
    }
}

impl Statement<Param> {
    /// Returns the same statement as a query, which has no earlier steps to refer to.
    pub fn into_query(self) -> Result<Statement, Failure> {
        check_text(&self.sql)?;
        let params = self.params.into_iter().map(Param::into_value).collect::<Result<_, _>>()?;
        Ok(Statement { sql: self.sql, params, names: self.names })
    }

    /// Checks the limits on the text, the parameters and their names.
    pub fn check_limits(&self) -> Result<(), Failure> {
        self.check_shape()?;
        self.params.iter().try_for_each(|param| match param {
            Param::Value(value) => check_value(value),
            Param::Returned(returned) => {
                limit("bytes of a name", returned.column.size(), SQL_BYTES_MAX, "give the column's number")
            }
        })
    }

    /// Fails if a parameter refers to a step that does not come before this one.
    fn check_references(&self, step: usize) -> Result<(), Failure> {
        self.params.iter().try_for_each(|param| match param {
            Param::Value(_) => Ok(()),
            Param::Returned(returned) => returned.check_before(step),
        })
    }
}

impl Statement {
    /// Checks the limits on the text, the parameters and their names.
    pub fn check_limits(&self) -> Result<(), Failure> {
        self.check_shape()?;
        self.params.iter().try_for_each(check_value)
    }
}

impl<P> Statement<P> {
    fn check_shape(&self) -> Result<(), Failure> {
        check_text(&self.sql)?;
        limit("parameters of a statement", self.params.len(), PARAMETERS_MAX, "split it, or pass them as one JSON")?;
        if !self.names.is_empty() && self.names.len() != self.params.len() {
            let text =
                format!("{} parameters but {} names: give each a name, or none", self.params.len(), self.names.len());
            return Err(Failure::new(FailureKind::Sql, text));
        }
        Ok(())
    }
}

fn check_names(names: &[String]) -> Result<(), Failure> {
    limit("functions and collations", names.len(), EXTENSIONS_MAX, "register fewer")?;
    names.iter().try_for_each(|name| limit("bytes of a name", name.len(), EXTENSION_NAME_BYTES_MAX, "shorten it"))
}

fn check_value(value: &Value) -> Result<(), Failure> {
    limit("bytes of a value", value.size(), VALUE_BYTES_MAX, IN_PIECES)
}
