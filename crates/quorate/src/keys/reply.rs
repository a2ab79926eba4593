//! The results of commands: types that replies are converted to.

use std::collections::BTreeMap;

use bytes::Bytes;
use quorate_model::CommandResult;
use quorate_model::keys::{Change, KeyEntry, KeyInfo, KeysReply, Page, Version};
use quorate_model::locks::LocksReply;

use crate::locks::FromLocksReply;

/// A type that a reply to a command can be read as.
pub trait FromReply: Sized {
    /// Converts a reply; `None` if it is of another kind.
    fn from_reply(reply: KeysReply) -> Option<Self>;
}

/// The replies to the commands on keys and locks among the steps of a batch, a pipeline or a transaction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replies {
    keys: BTreeMap<usize, KeysReply>,
    locks: BTreeMap<usize, LocksReply>,
}

impl Replies {
    /// Takes the replies out of results.
    pub(crate) fn of(results: &mut [CommandResult]) -> Self {
        let mut replies = Self::default();
        for (step, result) in results.iter_mut().enumerate() {
            match result {
                CommandResult::Keys(reply) => {
                    replies.keys.insert(step, std::mem::replace(reply, KeysReply::Done));
                }
                CommandResult::Locks(reply) => {
                    replies.locks.insert(step, std::mem::replace(reply, LocksReply::Missing));
                }
                _ => {}
            }
        }
        replies
    }

    /// Returns the reply to a step, by its number from 0; `None` if the step is no command on keys, has failed, or its
    /// reply is of another kind.
    pub fn get<T: FromReply>(&self, step: usize) -> Option<T> {
        self.keys.get(&step).cloned().and_then(T::from_reply)
    }

    /// Does the same for a command on locks.
    pub fn of_lock<T: FromLocksReply>(&self, step: usize) -> Option<T> {
        self.locks.get(&step).cloned().and_then(T::from_reply)
    }
}

impl FromReply for KeysReply {
    fn from_reply(reply: KeysReply) -> Option<Self> {
        Some(reply)
    }
}

/// Says which kinds of replies a type is read from.
macro_rules! replies {
    ($($type:ty: { $($reply:pat => $value:expr,)+ })*) => {$(
        impl FromReply for $type {
            fn from_reply(reply: KeysReply) -> Option<Self> {
                match reply {
                    $($reply => $value,)+
                    _ => None,
                }
            }
        }
    )*};
}

replies! {
    (): {
        KeysReply::Done => Some(()),
    }
    bool: {
        KeysReply::Done => Some(true),
        KeysReply::Missing | KeysReply::NotApplied => Some(false),
        KeysReply::Set { applied, .. } => Some(applied),
        KeysReply::Count(count) => Some(count > 0),
        KeysReply::Flags(flags) => flags.first().copied(),
        KeysReply::Integers(bits) => bits.first().map(|bit| *bit == Some(1)),
    }
    u64: {
        KeysReply::Count(count) => Some(count),
    }
    i64: {
        KeysReply::Integer(number) => Some(number),
    }
    f64: {
        KeysReply::Score(score) => Some(score),
        KeysReply::Value(text) => std::str::from_utf8(&text).ok()?.parse().ok(),
    }
    Bytes: {
        KeysReply::Value(value) => Some(value),
    }
    Option<u64>: {
        KeysReply::Count(count) => Some(Some(count)),
        KeysReply::Indexes(indexes) => Some(indexes.first().copied()),
        KeysReply::Missing | KeysReply::NotApplied => Some(None),
    }
    Option<f64>: {
        KeysReply::Score(score) => Some(Some(score)),
        KeysReply::Scores(scores) => scores.first().copied(),
        KeysReply::Missing | KeysReply::NotApplied => Some(None),
    }
    Option<Bytes>: {
        KeysReply::Value(value) => Some(Some(value)),
        KeysReply::Values(values) => values.into_iter().next(),
        KeysReply::Missing | KeysReply::NotApplied => Some(None),
    }
    (bool, Option<Bytes>): {
        KeysReply::Set { applied, previous } => Some((applied, previous)),
    }
    Option<KeyInfo>: {
        KeysReply::Key(info) => Some(Some(info)),
        KeysReply::Missing => Some(None),
    }
    Option<(u64, f64)>: {
        KeysReply::Rank(rank, score) => Some(Some((rank, score))),
        KeysReply::Missing => Some(None),
    }
    Vec<bool>: {
        KeysReply::Flags(flags) => Some(flags),
    }
    Vec<Bytes>: {
        KeysReply::Members(members) => Some(members),
        KeysReply::Missing => Some(Vec::new()),
    }
    Vec<Option<Bytes>>: {
        KeysReply::Values(values) => Some(values),
    }
    Vec<Option<f64>>: {
        KeysReply::Scores(scores) => Some(scores),
    }
    Vec<u64>: {
        KeysReply::Indexes(indexes) => Some(indexes),
    }
    Vec<Option<i64>>: {
        KeysReply::Integers(integers) => Some(integers),
    }
    Option<(Bytes, Vec<Bytes>)>: {
        KeysReply::MembersOf(key, members) => Some(Some((key, members))),
        KeysReply::Missing => Some(None),
    }
    Option<(Bytes, Vec<(Bytes, f64)>)>: {
        KeysReply::ScoredOf(key, members) => Some(Some((key, members))),
        KeysReply::Missing => Some(None),
    }
    Vec<(Bytes, f64)>: {
        KeysReply::Scored(members) => Some(members),
    }
    Vec<(Bytes, Bytes)>: {
        KeysReply::Elements(page) => Some(page.rows),
    }
    Vec<Change>: {
        KeysReply::Expired(changes) => Some(changes),
    }
    Vec<Option<(Version, Option<u64>)>>: {
        KeysReply::Described(elements) => Some(elements),
    }
    Page<KeyEntry>: {
        KeysReply::Keys(page) => Some(page),
    }
    Page<(Bytes, Bytes)>: {
        KeysReply::Elements(page) => Some(page),
    }
}
