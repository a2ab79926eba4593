//! The common ways in which answers of the store become replies.

use std::fmt::Debug;

use bytes::Bytes;
use quorate_keys::{Change, KeysReply};

use crate::frame::Frame;

/// Returns the reply to an answer that the command can't have.
pub fn unexpected(reply: &impl Debug) -> Frame {
    let kind = format!("{reply:?}");
    let kind = kind.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    Frame::error(format!("ERR the store answered with {kind}, which the command does not know; report this"))
}

/// Returns OK, whatever came of it.
pub fn ok(_: KeysReply) -> Frame {
    Frame::OK
}

/// Returns a number of things.
pub fn count(reply: KeysReply) -> Frame {
    match reply {
        KeysReply::Count(number) => Frame::count(number),
        KeysReply::Integer(number) => Frame::Integer(number),
        KeysReply::Missing | KeysReply::NotApplied => Frame::Integer(0),
        KeysReply::Done => Frame::Integer(1),
        KeysReply::Set { applied, .. } => Frame::Integer(i64::from(applied)),
        other => unexpected(&other),
    }
}

/// Returns bytes, or null.
pub fn value(reply: KeysReply) -> Frame {
    match reply {
        KeysReply::Value(value) => Frame::Bulk(value),
        KeysReply::Missing => Frame::Null,
        KeysReply::Set { previous, .. } => Frame::bulk_or_null(previous),
        KeysReply::Values(values) => Frame::bulk_or_null(values.into_iter().next().flatten()),
        KeysReply::Members(members) => Frame::bulk_or_null(members.into_iter().next()),
        KeysReply::Elements(page) => Frame::bulk_or_null(page.rows.into_iter().next().map(|(field, _)| field)),
        other => unexpected(&other),
    }
}

/// Returns an array of bytes and nulls.
pub fn values(reply: KeysReply) -> Frame {
    match reply {
        KeysReply::Values(values) => Frame::Array(values.into_iter().map(Frame::bulk_or_null).collect()),
        KeysReply::Members(members) => Frame::bulks(members),
        KeysReply::Elements(page) => Frame::bulks(page.rows.into_iter().map(|(field, _)| field)),
        KeysReply::Missing => Frame::NullArray,
        other => unexpected(&other),
    }
}

/// Returns a set.
pub fn set(reply: KeysReply) -> Frame {
    match values(reply) {
        Frame::Array(members) => Frame::Set(members),
        Frame::NullArray => Frame::Set(Vec::new()),
        other => other,
    }
}

/// Returns 1 or 0 for each.
pub fn flags(reply: KeysReply) -> Frame {
    let KeysReply::Flags(flags) = reply else { return unexpected(&reply) };
    Frame::Array(flags.into_iter().map(|flag| Frame::Integer(i64::from(flag))).collect())
}

/// Returns the first of flags.
pub fn flag(reply: KeysReply) -> Frame {
    let KeysReply::Flags(flags) = reply else { return unexpected(&reply) };
    Frame::Integer(i64::from(flags.first().copied().unwrap_or_default()))
}

/// Returns a score, or null.
pub fn score(reply: KeysReply) -> Frame {
    match reply {
        KeysReply::Score(score) => Frame::Double(score),
        KeysReply::NotApplied | KeysReply::Missing => Frame::Null,
        KeysReply::Scores(scores) => scores.into_iter().next().flatten().map_or(Frame::Null, Frame::Double),
        other => unexpected(&other),
    }
}

/// Returns scores and nulls.
pub fn scores(reply: KeysReply) -> Frame {
    let KeysReply::Scores(scores) = reply else { return unexpected(&reply) };
    Frame::Array(scores.into_iter().map(|score| score.map_or(Frame::Null, Frame::Double)).collect())
}

/// Returns members, with their scores or without them.
pub fn scored(with_scores: bool) -> impl FnOnce(KeysReply) -> Frame + Send {
    move |reply| match reply {
        KeysReply::Scored(members) if with_scores => Frame::Pairs(pairs(members).collect()),
        KeysReply::Scored(members) => Frame::bulks(members.into_iter().map(|(member, _)| member)),
        other => unexpected(&other),
    }
}

/// Returns members with their scores as parts of a reply.
pub fn pairs(members: Vec<(Bytes, f64)>) -> impl Iterator<Item = (Frame, Frame)> {
    members.into_iter().map(|(member, score)| (Frame::Bulk(member), Frame::Double(score)))
}

/// Returns what became of the expiries of fields; `kept` where the condition was not met.
pub fn changes(kept: i64) -> impl FnOnce(KeysReply) -> Frame + Send {
    move |reply| {
        let KeysReply::Expired(changes) = reply else { return unexpected(&reply) };
        let number = |change| match change {
            Change::Missing => -2,
            Change::NotApplied => kept,
            Change::Done => 1,
            Change::Removed => 2,
        };
        Frame::Array(changes.into_iter().map(|change| Frame::Integer(number(change))).collect())
    }
}
