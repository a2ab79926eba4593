//! The parameters of a statement that writes: values, or values that an earlier step of the same batch returned.

use std::fmt;

use crate::sql::NO_ROWS;
use crate::{CommandResult, Failure, FailureKind, Value};

/// The source of a parameter's value.
#[derive(Clone, Debug, PartialEq)]
pub enum Param {
    /// A value.
    Value(Value),
    /// A value that an earlier step of the same batch returned.
    Returned(Returned),
}

/// A value in the only row that an earlier step of the same batch returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Returned {
    /// The number of the step, from 0.
    pub step: u32,
    /// The column of the row.
    pub column: Column,
}

/// A column of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Column {
    /// By its number, from 0.
    Number(u32),
    /// By its name, as the statement spells it; the first one if several have this name.
    Name(String),
}

/// A step of a batch, by its number from 0, that returns one row: `Step(0).column("id")` can be a parameter of a later
/// step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step(pub u32);

impl Step {
    /// Returns a parameter for the value in a column, by number from 0 or by name.
    pub fn column(self, column: impl Into<Column>) -> Param {
        Param::Returned(Returned { step: self.0, column: column.into() })
    }
}

impl Column {
    /// Returns the number of bytes of the name.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Number(_) => 0,
            Self::Name(name) => name.len(),
        }
    }
}

impl From<u32> for Column {
    fn from(number: u32) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Column {
    fn from(name: &str) -> Self {
        Self::Name(name.to_owned())
    }
}

impl From<String> for Column {
    fn from(name: String) -> Self {
        Self::Name(name)
    }
}

impl<T: Into<Value>> From<T> for Param {
    fn from(value: T) -> Self {
        Self::Value(value.into())
    }
}

impl Param {
    /// Returns the value of a parameter of a single statement, which has no earlier steps to refer to.
    pub fn into_value(self) -> Result<Value, Failure> {
        match self {
            Self::Value(value) => Ok(value),
            Self::Returned(_) => {
                let text = "what a step returned can be a parameter only of a later statement of the same batch";
                Err(Failure::new(FailureKind::Refused, text))
            }
        }
    }

    /// Returns the value; `results` are those of the earlier steps.
    pub fn value<'a>(&'a self, results: &'a [CommandResult]) -> Result<&'a Value, Failure> {
        match self {
            Self::Value(value) => Ok(value),
            Self::Returned(returned) => returned.value(results),
        }
    }
}

impl Returned {
    fn value<'a>(&self, results: &'a [CommandResult]) -> Result<&'a Value, Failure> {
        let result = usize::try_from(self.step).ok().and_then(|step| results.get(step));
        let value = result.map_or_else(|| Err(NO_ROWS.to_owned()), |result| result.value(&self.column));
        value.map_err(|why| self.failure(&why))
    }

    /// Fails unless the referenced step comes before the step with this number.
    pub(crate) fn check_before(&self, step: usize) -> Result<(), Failure> {
        match usize::try_from(self.step) {
            Ok(earlier) if earlier < step => Ok(()),
            _ => Err(self.failure("does not come before it in its batch: refer to an earlier one")),
        }
    }

    fn failure(&self, why: &str) -> Failure {
        let step = u64::from(self.step).saturating_add(1);
        Failure::new(
            FailureKind::Sql,
            format!("a parameter refers to {} of statement {step}, which {why}", self.column),
        )
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "column number {number}"),
            Self::Name(name) => write!(f, "the column {name}"),
        }
    }
}
