//! Commands on keys, whatever they hold, and on strings.

use quorate::keys::{ExpiryCondition, KeyCommand, KeysCommand, StringCommand};
use serde::Deserialize;

use super::{If, all, time, version};
use crate::asked::Asked;
use crate::error::Problem;
use crate::octets::Text as Bytes;

/// A command on keys.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Key {
    Delete {
        keys: Vec<Bytes>,
        #[serde(default, rename = "if")]
        condition: If,
    },
    Exist {
        keys: Vec<Bytes>,
    },
    Describe {
        key: Bytes,
    },
    Expect {
        key: Bytes,
        version: Option<String>,
    },
    Expire {
        key: Bytes,
        ttl: Option<String>,
        expires: Option<f64>,
    },
    Persist {
        key: Bytes,
    },
    Rename {
        key: Bytes,
        to: Bytes,
        #[serde(default)]
        replace: bool,
    },
    Copy {
        key: Bytes,
        to: Bytes,
        #[serde(default)]
        replace: bool,
    },
}

/// A command on a string.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Text {
    Get {
        key: Bytes,
    },
    Set {
        key: Bytes,
        value: Bytes,
        ttl: Option<String>,
        expires: Option<f64>,
        #[serde(default)]
        keep_ttl: bool,
        #[serde(default, rename = "if")]
        condition: If,
    },
    Take {
        key: Bytes,
    },
    Append {
        key: Bytes,
        value: Bytes,
    },
    Increment {
        key: Bytes,
        by: serde_json::Number,
    },
}

impl Key {
    pub(super) fn command(self, asked: &Asked<'_>) -> Result<KeysCommand, Problem> {
        let to_space = asked.space()?;
        let condition = ExpiryCondition::Always;
        let command = match self {
            Self::Delete { keys, condition } => {
                KeyCommand::Delete { keys: all(keys), condition: condition.condition()? }
            }
            Self::Exist { keys } => KeyCommand::Exists { keys: all(keys) },
            Self::Describe { key } => KeyCommand::Describe { key: key.0 },
            Self::Expect { key, version: known } => {
                KeyCommand::Expect { key: key.0, version: known.as_deref().map(version).transpose()? }
            }
            Self::Expire { key, ttl, expires } => {
                let (at, relative) = time(asked, ttl.as_deref(), expires)?;
                KeyCommand::Expire { key: key.0, at, condition, relative }
            }
            Self::Persist { key } => KeyCommand::Expire { key: key.0, at: None, condition, relative: false },
            Self::Rename { key, to, replace } => KeyCommand::Rename { key: key.0, to_space, to: to.0, replace },
            Self::Copy { key, to, replace } => KeyCommand::Copy { key: key.0, to_space, to: to.0, replace },
        };
        Ok(command.into())
    }
}

impl Text {
    pub(super) fn command(self, asked: &Asked<'_>) -> Result<KeysCommand, Problem> {
        let command = match self {
            Self::Get { key } => StringCommand::Get { key: key.0 },
            Self::Set { key, value, ttl, expires, keep_ttl, condition } => StringCommand::Set {
                key: key.0,
                value: value.0,
                condition: condition.condition()?,
                expiry: asked.expiry_of(ttl.as_deref(), expires, keep_ttl)?,
                get: false,
            },
            Self::Take { key } => StringCommand::Take { key: key.0 },
            Self::Append { key, value } => StringCommand::Append { key: key.0, value: value.0 },
            Self::Increment { key, by } => match by.as_i64() {
                Some(by) => StringCommand::Add { key: key.0, by },
                None => StringCommand::AddFloat { key: key.0, by: by.to_string().into() },
            },
        };
        Ok(command.into())
    }
}
