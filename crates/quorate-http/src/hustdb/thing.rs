//! What a request is about: something with a version of its own, or an element that has the version of its table.

use bytes::Bytes;
use quorate::Keys;
use quorate::keys::{KeysCall, KeysReply};

use super::{KEYS, Of, TABLES, body_or, parameter};
use crate::asked::Asked;
use crate::error::Problem;
use crate::keys::Target;
use crate::message::Request;

/// What a request is about.
pub(super) enum Thing {
    /// A key, or a field of a hash.
    Own(Target),
    /// A member of a set.
    Member(Element),
    /// A member of a sorted set.
    Scored(Element),
}

/// A member of a set or of a sorted set.
pub(super) struct Element {
    pub(super) keys: Keys,
    pub(super) table: Bytes,
    pub(super) member: Bytes,
}

impl Thing {
    /// Returns what a request is about.
    pub(super) fn of(keys: &Keys, of: Of, asked: &Asked<'_>, request: &Request) -> Result<Self, Problem> {
        let element = || -> Result<Element, Problem> {
            let (keys, table) = (keys.space(TABLES), parameter(asked, "tb")?);
            Ok(Element { keys, table, member: body_or(request, asked, "key")? })
        };
        Ok(match of {
            Of::Key => Self::Own(Target::new(keys.space(KEYS), parameter(asked, "key")?, None)?),
            Of::Hash => {
                let (table, field) = (parameter(asked, "tb")?, parameter(asked, "key")?);
                Self::Own(Target::new(keys.space(TABLES), table, Some(field))?)
            }
            Of::Set => Self::Member(element()?),
            Of::SortedSet => Self::Scored(element()?),
        })
    }

    /// Returns its version, as [`described`](crate::keys::described) reads it.
    pub(super) fn describe(&self) -> KeysCall<KeysReply> {
        match self {
            Self::Own(target) => target.describe(),
            Self::Member(element) | Self::Scored(element) => element.describe(),
        }
    }

    /// Returns the names of its parameters.
    pub(super) fn parameters(&self) -> &'static [&'static str] {
        match self {
            Self::Own(target) if target.field().is_none() => &["key"],
            _ => &["tb", "key"],
        }
    }

    /// Returns why it is missing: because its table is, or alone.
    pub(super) async fn missing(&self) -> Problem {
        let table = match self {
            Self::Own(target) if target.field().is_none() => return Problem::NoKey,
            Self::Own(target) => target.keys().describe(target.key()).await,
            Self::Member(element) | Self::Scored(element) => element.keys.describe(element.table.clone()).await,
        };
        match table {
            Ok(Some(_)) => Problem::NoKey,
            Ok(None) => Problem::NoTable,
            Err(error) => error.into(),
        }
    }
}

impl Element {
    /// Returns what there is to know of its table.
    pub(super) fn describe(&self) -> KeysCall<KeysReply> {
        self.keys.run(quorate::keys::KeyCommand::Describe { key: self.table.clone() })
    }
}
