//! Commands on sorted sets and lists.

use std::ops::Bound;

use quorate::keys::{
    AddOptions, End as Side, ExpiryCondition, KeyCommand, KeysCommand, Kind, ListCommand, Range, SortedSetCommand,
    Which,
};
use serde::Deserialize;

use super::{all, rows_max, time};
use crate::asked::Asked;
use crate::error::Problem;
use crate::octets::Text;

/// A command on a sorted set.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum SortedSet {
    Add {
        key: Text,
        members: Vec<(Text, f64)>,
        #[serde(default, rename = "if")]
        which: Members,
    },
    Increment {
        key: Text,
        member: Text,
        by: f64,
    },
    Remove {
        key: Text,
        members: Vec<Text>,
    },
    Scores {
        key: Text,
        members: Vec<Text>,
    },
    Rank {
        key: Text,
        member: Text,
        #[serde(default)]
        reverse: bool,
    },
    Range {
        key: Text,
        min: Option<f64>,
        max: Option<f64>,
        #[serde(default)]
        reverse: bool,
        #[serde(default)]
        offset: u64,
        #[serde(default = "rows_max")]
        limit: u64,
    },
    Count {
        key: Text,
    },
    Pop {
        key: Text,
        #[serde(default = "one")]
        count: u64,
        #[serde(default)]
        reverse: bool,
    },
    Describe {
        key: Text,
        members: Vec<Text>,
    },
    Expire {
        key: Text,
        members: Vec<Text>,
        ttl: Option<String>,
        expires: Option<f64>,
    },
    Persist {
        key: Text,
        members: Vec<Text>,
    },
}

/// Which members a command adds or changes.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Members {
    #[default]
    Any,
    Missing,
    Exists,
}

/// A command on lists.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum List {
    Push {
        key: Text,
        values: Vec<Text>,
        end: End,
    },
    Pop {
        key: Text,
        #[serde(default = "one")]
        count: u64,
        end: End,
    },
    Move {
        key: Text,
        end: End,
        to: Text,
        to_end: End,
    },
    Range {
        key: Text,
        start: i64,
        stop: i64,
    },
    Count {
        key: Text,
    },
    Set {
        key: Text,
        index: i64,
        value: Text,
    },
    Trim {
        key: Text,
        start: i64,
        stop: i64,
    },
    Insert {
        key: Text,
        at: Place,
        value: Text,
    },
    Remove {
        key: Text,
        #[serde(default)]
        count: i64,
        value: Text,
    },
}

/// A place beside the first item that has a value.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Place {
    Before(Text),
    After(Text),
}

/// An end of a list.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum End {
    Left,
    Right,
}

impl From<End> for Side {
    fn from(end: End) -> Self {
        match end {
            End::Left => Self::Left,
            End::Right => Self::Right,
        }
    }
}

fn one() -> u64 {
    1
}

impl SortedSet {
    pub(super) fn command(self, asked: &Asked<'_>) -> Result<KeysCommand, Problem> {
        let expire = |key: Text, members, (at, relative)| {
            let condition = ExpiryCondition::Always;
            SortedSetCommand::Expire { key: key.0, members: all(members), at, condition, relative }
        };
        let command = match self {
            Self::Add { key, members, which } => {
                let members = members.into_iter().map(|(member, score)| (score, member.0)).collect();
                let options = AddOptions { which: which.into(), ..AddOptions::default() };
                SortedSetCommand::Add { key: key.0, members, options, count_changed: false }
            }
            Self::Increment { key, member, by } => {
                SortedSetCommand::Increment { key: key.0, member: member.0, by, options: AddOptions::default() }
            }
            Self::Remove { key, members } => SortedSetCommand::Remove { key: key.0, members: all(members) },
            Self::Scores { key, members } => SortedSetCommand::Scores { key: key.0, members: all(members) },
            Self::Rank { key, member, reverse } => SortedSetCommand::Rank { key: key.0, member: member.0, reverse },
            Self::Range { key, min, max, reverse, offset, limit } => {
                let bound = |score: Option<f64>| score.map_or(Bound::Unbounded, Bound::Included);
                SortedSetCommand::Range {
                    key: key.0,
                    range: Range::Score(bound(min), bound(max)),
                    reverse,
                    offset,
                    limit,
                }
            }
            Self::Count { key } => return Ok(KeyCommand::Count { key: key.0, kind: Kind::SortedSet }.into()),
            Self::Pop { key, count, reverse } => SortedSetCommand::Pop { key: key.0, count, reverse },
            Self::Describe { key, members } => SortedSetCommand::Describe { key: key.0, members: all(members) },
            Self::Expire { key, members, ttl, expires } => expire(key, members, time(asked, ttl.as_deref(), expires)?),
            Self::Persist { key, members } => expire(key, members, (None, false)),
        };
        Ok(command.into())
    }
}

impl From<Members> for Which {
    fn from(members: Members) -> Self {
        match members {
            Members::Any => Self::Any,
            Members::Missing => Self::Missing,
            Members::Exists => Self::Exists,
        }
    }
}

impl List {
    pub(super) fn command(self) -> KeysCommand {
        let command = match self {
            Self::Push { key, values, end } => {
                ListCommand::Push { key: key.0, values: all(values), end: end.into(), existing: false }
            }
            Self::Pop { key, count, end } => ListCommand::Pop { key: key.0, count, end: end.into() },
            Self::Move { key, end, to, to_end } => {
                ListCommand::Move { from: key.0, to: to.0, from_end: end.into(), to_end: to_end.into() }
            }
            Self::Range { key, start, stop } => ListCommand::Range { key: key.0, start, stop },
            Self::Count { key } => return KeyCommand::Count { key: key.0, kind: Kind::List }.into(),
            Self::Set { key, index, value } => ListCommand::Set { key: key.0, index, value: value.0 },
            Self::Trim { key, start, stop } => ListCommand::Trim { key: key.0, start, stop },
            Self::Insert { key, at, value } => {
                let (before, pivot) = match at {
                    Place::Before(pivot) => (true, pivot.0),
                    Place::After(pivot) => (false, pivot.0),
                };
                ListCommand::Insert { key: key.0, before, pivot, value: value.0 }
            }
            Self::Remove { key, count, value } => ListCommand::Remove { key: key.0, count, value: value.0 },
        };
        command.into()
    }
}
