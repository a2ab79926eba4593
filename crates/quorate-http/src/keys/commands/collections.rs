//! Commands on hashes and sets.

use quorate::keys::{
    Collection, ElementCommand, ExpiryCondition, HashCommand, KeyCommand, KeysCommand, Kind, SetCommand, SetOperation,
};
use serde::Deserialize;

use super::{If, all, rows_max, time};
use crate::asked::Asked;
use crate::error::Problem;
use crate::octets::Text;

/// A command on a hash.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Hash {
    Set {
        key: Text,
        fields: Vec<(Text, Text)>,
        ttl: Option<String>,
        expires: Option<f64>,
        #[serde(default)]
        keep_ttl: bool,
        #[serde(default, rename = "if")]
        condition: If,
    },
    Get {
        key: Text,
        fields: Vec<Text>,
    },
    Scan {
        key: Text,
        #[serde(default)]
        from: Option<Text>,
        #[serde(default = "rows_max")]
        limit: u64,
    },
    Count {
        key: Text,
    },
    Remove {
        key: Text,
        fields: Vec<Text>,
    },
    Increment {
        key: Text,
        field: Text,
        by: serde_json::Number,
    },
    Describe {
        key: Text,
        fields: Vec<Text>,
    },
    Expire {
        key: Text,
        fields: Vec<Text>,
        ttl: Option<String>,
        expires: Option<f64>,
    },
    Persist {
        key: Text,
        fields: Vec<Text>,
    },
}

/// A command on sets.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Set {
    Add { key: Text, members: Vec<Text>, ttl: Option<String>, expires: Option<f64> },
    Remove { key: Text, members: Vec<Text> },
    Contains { key: Text, members: Vec<Text> },
    Count { key: Text },
    Describe { key: Text, members: Vec<Text> },
    Expire { key: Text, members: Vec<Text>, ttl: Option<String>, expires: Option<f64> },
    Persist { key: Text, members: Vec<Text> },
    Move { key: Text, to: Text, member: Text },
    Union { keys: Vec<Text>, store: Option<Text> },
    Intersection { keys: Vec<Text>, store: Option<Text> },
    Difference { keys: Vec<Text>, store: Option<Text> },
}

impl Hash {
    pub(super) fn command(self, asked: &Asked<'_>) -> Result<KeysCommand, Problem> {
        let of = Collection::Hash;
        Ok(match self {
            Self::Set { key, fields, ttl, expires, keep_ttl, condition } => {
                let fields = fields.into_iter().map(|(field, value)| (field.0, value.0)).collect();
                let expiry = asked.expiry_of(ttl.as_deref(), expires, keep_ttl)?;
                HashCommand::Set { key: key.0, fields, condition: condition.condition()?, expiry }.into()
            }
            Self::Get { key, fields } => HashCommand::Get { key: key.0, fields: all(fields) }.into(),
            Self::Scan { key, from, limit } => {
                let from = from.map(|from| from.0).unwrap_or_default();
                ElementCommand::Scan { of, key: key.0, from, limit }.into()
            }
            Self::Count { key } => KeyCommand::Count { key: key.0, kind: Kind::Hash }.into(),
            Self::Remove { key, fields } => ElementCommand::Remove { of, key: key.0, fields: all(fields) }.into(),
            Self::Increment { key, field, by } => match by.as_i64() {
                Some(by) => HashCommand::Add { key: key.0, field: field.0, by }.into(),
                None => HashCommand::AddFloat { key: key.0, field: field.0, by: by.to_string().into() }.into(),
            },
            Self::Describe { key, fields } => ElementCommand::Describe { of, key: key.0, fields: all(fields) }.into(),
            Self::Expire { key, fields, ttl, expires } => {
                expire(of, key, fields, time(asked, ttl.as_deref(), expires)?)
            }
            Self::Persist { key, fields } => expire(of, key, fields, (None, false)),
        })
    }
}

impl Set {
    pub(super) fn command(self, asked: &Asked<'_>) -> Result<KeysCommand, Problem> {
        let of = Collection::Set;
        let combine = |operation, keys, store: Option<Text>| {
            SetCommand::Combine { operation, keys: all(keys), store: store.map(|store| store.0) }.into()
        };
        Ok(match self {
            Self::Add { key, members, ttl, expires } => {
                let expiry = asked.expiry_of(ttl.as_deref(), expires, false)?;
                SetCommand::Add { key: key.0, members: all(members), expiry }.into()
            }
            Self::Remove { key, members } => ElementCommand::Remove { of, key: key.0, fields: all(members) }.into(),
            Self::Contains { key, members } => ElementCommand::Contains { of, key: key.0, fields: all(members) }.into(),
            Self::Count { key } => KeyCommand::Count { key: key.0, kind: Kind::Set }.into(),
            Self::Describe { key, members } => ElementCommand::Describe { of, key: key.0, fields: all(members) }.into(),
            Self::Expire { key, members, ttl, expires } => {
                expire(of, key, members, time(asked, ttl.as_deref(), expires)?)
            }
            Self::Persist { key, members } => expire(of, key, members, (None, false)),
            Self::Move { key, to, member } => SetCommand::Move { from: key.0, to: to.0, member: member.0 }.into(),
            Self::Union { keys, store } => combine(SetOperation::Union, keys, store),
            Self::Intersection { keys, store } => combine(SetOperation::Intersection, keys, store),
            Self::Difference { keys, store } => combine(SetOperation::Difference, keys, store),
        })
    }
}

/// Returns the command that lets elements expire at a time, which may count from the entry, or never.
fn expire(of: Collection, key: Text, elements: Vec<Text>, (at, relative): (Option<u64>, bool)) -> KeysCommand {
    let condition = ExpiryCondition::Always;
    ElementCommand::Expire { of, key: key.0, fields: all(elements), at, condition, relative }.into()
}
