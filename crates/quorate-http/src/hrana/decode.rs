//! The requests of Hrana, from JSON. Fields that are not known are ignored, as the protocol demands.
//!
//! Invariant: no bytes cause a panic, and nesting is bounded by the JSON reader.

use base64::Engine as _;
use quorate::Value;
use serde::Deserialize;
use serde::de::Error as _;

use crate::error::Problem;
use crate::json::BASE64;
use crate::options::STATEMENTS_MAX;

#[derive(Debug, Deserialize)]
pub(super) struct PipelineBody {
    #[serde(default)]
    pub(super) baton: Option<String>,
    pub(super) requests: Vec<StreamRequest>,
}

#[derive(Debug, Deserialize)]
pub(super) struct CursorBody {
    #[serde(default)]
    pub(super) baton: Option<String>,
    pub(super) batch: Batch,
}

#[derive(Debug, Deserialize)]
pub(super) struct ExecuteBody {
    pub(super) stmt: Stmt,
}

/// A request on a stream.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum StreamRequest {
    Close,
    Execute {
        stmt: Stmt,
    },
    Batch {
        batch: Batch,
    },
    Sequence {
        #[serde(flatten)]
        text: Text,
    },
    Describe {
        #[serde(flatten)]
        text: Text,
    },
    StoreSql {
        sql_id: i32,
        sql: String,
    },
    CloseSql {
        sql_id: i32,
    },
    GetAutocommit,
}

/// A text of SQL, or the number of a stored one.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Text {
    #[serde(default)]
    pub(super) sql: Option<String>,
    #[serde(default)]
    pub(super) sql_id: Option<i32>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Stmt {
    #[serde(default)]
    sql: Option<String>,
    #[serde(default)]
    sql_id: Option<i32>,
    #[serde(default)]
    pub(super) args: Option<Vec<Wire>>,
    #[serde(default)]
    pub(super) named_args: Option<Vec<NamedArg>>,
    #[serde(default)]
    want_rows: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct NamedArg {
    pub(super) name: String,
    pub(super) value: Wire,
}

#[derive(Debug, Deserialize)]
pub(super) struct Batch {
    pub(super) steps: Vec<Step>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Step {
    #[serde(default)]
    pub(super) condition: Option<Condition>,
    pub(super) stmt: Stmt,
}

/// When a step of a batch runs.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Condition {
    Ok { step: usize },
    Error { step: usize },
    Not { cond: Box<Condition> },
    And { conds: Vec<Condition> },
    Or { conds: Vec<Condition> },
    IsAutocommit,
}

/// A value.
#[derive(Clone, Debug)]
pub(super) struct Wire(pub(super) Value);

impl<'de> Deserialize<'de> for Wire {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(tag = "type", rename_all = "snake_case")]
        enum Tagged {
            Null,
            Integer { value: String },
            Float { value: f64 },
            Text { value: String },
            Blob { base64: String },
        }
        Ok(Self(match Tagged::deserialize(deserializer)? {
            Tagged::Null => Value::Null,
            Tagged::Integer { value } => {
                let wrong = |error| D::Error::custom(format!("the integer {value:?}: {error}"));
                Value::Integer(value.parse().map_err(wrong)?)
            }
            Tagged::Float { value } => Value::Real(value),
            Tagged::Text { value } => Value::Text(value),
            Tagged::Blob { base64 } => {
                let bytes = BASE64.decode(base64.as_bytes());
                Value::Blob(bytes.map_err(|error| D::Error::custom(format!("a blob in base64: {error}")))?.into())
            }
        }))
    }
}

/// Reads a body.
pub(super) fn decode<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Problem> {
    serde_json::from_slice(body).map_err(|error| Problem::malformed(error.to_string()))
}

/// Reads any bytes as a pipeline, for fuzzing; returns whether they are one.
pub(crate) fn fuzz_pipeline(body: &[u8]) -> bool {
    let pipeline = decode::<PipelineBody>(body).is_ok_and(|body| body.check().is_ok());
    let cursor = decode::<CursorBody>(body).is_ok_and(|body| body.batch.check().is_ok());
    pipeline || cursor
}

impl StreamRequest {
    /// Returns the name of the request, and of its response.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Close => "close",
            Self::Execute { .. } => "execute",
            Self::Batch { .. } => "batch",
            Self::Sequence { .. } => "sequence",
            Self::Describe { .. } => "describe",
            Self::StoreSql { .. } => "store_sql",
            Self::CloseSql { .. } => "close_sql",
            Self::GetAutocommit => "get_autocommit",
        }
    }

    /// Fails if the request violates the protocol.
    pub(super) fn check(&self) -> Result<(), Problem> {
        match self {
            Self::Execute { stmt } => stmt.check(),
            Self::Batch { batch } => batch.check(),
            Self::Sequence { text } | Self::Describe { text } => text.check(),
            _ => Ok(()),
        }
    }
}

impl Text {
    fn check(&self) -> Result<(), Problem> {
        if self.sql.is_some() == self.sql_id.is_some() {
            return Err(Problem::malformed("give either \"sql\" or \"sql_id\""));
        }
        Ok(())
    }
}

impl Stmt {
    /// Returns its text, or the number of that.
    pub(super) fn text(&mut self) -> Text {
        Text { sql: self.sql.take(), sql_id: self.sql_id }
    }

    /// Returns its text, unless it is a stored one.
    pub(super) fn number(&self) -> (Option<&str>, Option<i32>) {
        (self.sql.as_deref(), self.sql_id)
    }

    pub(super) fn want_rows(&self) -> bool {
        self.want_rows.unwrap_or(true)
    }

    fn check(&self) -> Result<(), Problem> {
        if self.sql.is_some() == self.sql_id.is_some() {
            return Err(Problem::malformed("give either \"sql\" or \"sql_id\" of a statement"));
        }
        Ok(())
    }
}

impl PipelineBody {
    /// Fails if it has too many requests, or one that can't be read.
    pub(super) fn check(&self) -> Result<(), Problem> {
        if self.requests.len() > STATEMENTS_MAX {
            return Err(Problem::malformed(format!("a pipeline has at most {STATEMENTS_MAX} requests")));
        }
        self.requests.iter().try_for_each(StreamRequest::check)
    }
}

impl Batch {
    /// Fails if it has too many steps, or a condition that refers to a step that does not come before it.
    pub(super) fn check(&self) -> Result<(), Problem> {
        if self.steps.len() > STATEMENTS_MAX {
            return Err(Problem::malformed(format!("a batch has at most {STATEMENTS_MAX} steps")));
        }
        self.steps.iter().zip(0..).try_for_each(|(step, number)| {
            step.stmt.check()?;
            step.condition.as_ref().map_or(Ok(()), |condition| condition.check(number))
        })
    }
}

impl Condition {
    fn check(&self, number: usize) -> Result<(), Problem> {
        match self {
            Self::Ok { step } | Self::Error { step } if *step >= number => {
                let text =
                    format!("the condition of step {number} refers to step {step}, which does not come before it");
                Err(Problem::malformed(text))
            }
            Self::Ok { .. } | Self::Error { .. } | Self::IsAutocommit => Ok(()),
            Self::Not { cond } => cond.check(number),
            Self::And { conds } | Self::Or { conds } => conds.iter().try_for_each(|cond| cond.check(number)),
        }
    }

    /// Returns whether it holds. `is_ok` returns whether a step succeeded (`true`), failed (`false`), or did not run.
    pub(super) fn holds(&self, is_ok: &impl Fn(usize) -> Option<bool>, is_autocommit: bool) -> bool {
        match self {
            Self::Ok { step } => is_ok(*step) == Some(true),
            Self::Error { step } => is_ok(*step) == Some(false),
            Self::Not { cond } => !cond.holds(is_ok, is_autocommit),
            Self::And { conds } => conds.iter().all(|cond| cond.holds(is_ok, is_autocommit)),
            Self::Or { conds } => conds.iter().any(|cond| cond.holds(is_ok, is_autocommit)),
            Self::IsAutocommit => is_autocommit,
        }
    }
}
