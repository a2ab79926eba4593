//! Keys, elements and replies as JSON.
//!
//! Invariant: versions are strings, because many clients read numbers as floats; times are seconds since 1970.

use bytes::Bytes;
use quorate::keys::{Change, KeyEntry, KeyInfo, KeysReply, Kind, Version};

use crate::json::{Json, seconds};
use crate::octets::write;

/// The names of what a key holds, as in the views of SQL.
pub(super) const KINDS: [(&str, Kind); 5] = [
    ("string", Kind::String),
    ("hash", Kind::Hash),
    ("set", Kind::Set),
    ("sorted set", Kind::SortedSet),
    ("list", Kind::List),
];

/// Returns the name of what a key holds.
pub(super) fn name(kind: Kind) -> &'static str {
    KINDS.iter().find(|(_, known)| *known == kind).map_or("", |(name, _)| name)
}

/// Writes the members of an object that say what there is to know of a key.
pub(super) fn info(json: &mut Json, info: &KeyInfo) {
    json.raw("\"type\":").string(name(info.kind)).raw(",");
    described(json, info.version, info.expires_at);
}

/// Writes the members that say which version something has, and when it expires.
fn described(json: &mut Json, version: Version, expires_at: Option<u64>) {
    json.raw("\"version\":").string(&version.0.to_string()).raw(",\"expires_at\":");
    json.raw(&expires_at.map_or("null".to_owned(), seconds));
}

/// Writes a key of a listing.
pub(super) fn entry(json: &mut Json, entry: KeyEntry) {
    json.raw("{\"key\":");
    write(json, &entry.key);
    json.raw(",");
    info(json, &entry.info);
    if let Some(value) = entry.value {
        json.raw(",\"value\":");
        write(json, &value);
    }
    json.raw("}");
}

/// Writes a field with its value.
pub(super) fn pair(json: &mut Json, (field, value): (Bytes, Bytes)) {
    json.raw("[");
    write(json, &field);
    json.raw(",");
    write(json, &value);
    json.raw("]");
}

/// Writes a member with its score.
pub(super) fn scored(json: &mut Json, (member, score): (Bytes, f64)) {
    json.raw("[");
    write(json, &member);
    json.raw(",").float(score).raw("]");
}

/// Writes a value, or null.
fn maybe<T>(json: &mut Json, value: Option<T>, write: impl FnOnce(&mut Json, T)) {
    match value {
        None => {
            json.raw("null");
        }
        Some(value) => write(json, value),
    }
}

/// Writes bytes.
pub(super) fn bytes(json: &mut Json, bytes: Bytes) {
    write(json, &bytes);
}

fn number<N: Into<i128>>(json: &mut Json, number: N) {
    json.integer(number);
}

fn float(json: &mut Json, number: f64) {
    json.float(number);
}

fn truth(json: &mut Json, is_so: bool) {
    json.raw(if is_so { "true" } else { "false" });
}

/// Writes the reply to a command.
pub(super) fn reply(json: &mut Json, reply: KeysReply) {
    match reply {
        KeysReply::Done => truth(json, true),
        KeysReply::Missing => {
            json.raw("null");
        }
        KeysReply::NotApplied => truth(json, false),
        KeysReply::Set { applied, .. } => truth(json, applied),
        KeysReply::Count(count) => number(json, count),
        KeysReply::Integer(sum) => number(json, sum),
        KeysReply::Integers(sums) => {
            json.list(sums, |json, sum| maybe(json, sum, number));
        }
        KeysReply::Value(value) => write(json, &value),
        KeysReply::Values(values) => {
            json.list(values, |json, value| maybe(json, value, bytes));
        }
        KeysReply::Key(found) => object(json, |json| info(json, &found)),
        KeysReply::Size(size) => {
            json.raw("{\"count\":").integer(size.count).raw(",\"bytes\":").integer(size.bytes).raw("}");
        }
        KeysReply::Keys(page) => {
            json.list(page.rows, entry);
        }
        KeysReply::Flags(flags) => {
            json.list(flags, truth);
        }
        KeysReply::Elements(page) => {
            json.list(page.rows, pair);
        }
        KeysReply::Expired(changes) => {
            json.list(changes, |json, change| truth(json, has_applied(change)));
        }
        KeysReply::Described(found) => {
            json.list(found, |json, found| {
                maybe(json, found, |json, (version, at)| object(json, |json| described(json, version, at)));
            });
        }
        KeysReply::Members(members) | KeysReply::MembersOf(_, members) => {
            json.list(members, bytes);
        }
        KeysReply::Indexes(indexes) => {
            json.list(indexes, number);
        }
        KeysReply::Scores(scores) => {
            json.list(scores, |json, score| maybe(json, score, float));
        }
        KeysReply::Score(score) => float(json, score),
        KeysReply::Rank(rank, score) => {
            json.raw("[").integer(rank).raw(",").float(score).raw("]");
        }
        KeysReply::Scored(members) | KeysReply::ScoredOf(_, members) => {
            json.list(members, scored);
        }
        KeysReply::ScoredPage(page) => {
            json.list(page.rows, scored);
        }
    }
}

fn object(json: &mut Json, write: impl FnOnce(&mut Json)) {
    json.raw("{");
    write(json);
    json.raw("}");
}

fn has_applied(change: Change) -> bool {
    matches!(change, Change::Done | Change::Removed)
}
