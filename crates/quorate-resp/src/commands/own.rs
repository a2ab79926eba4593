//! Our own commands on keys: by version, and in the order of their names.

use bytes::Bytes;
use quorate_keys::{
    Condition, Expiry, KeyCommand, KeyEntry, KeysCommand, KeysReply, Order, Page, SetCommand, Span, StringCommand,
    Version,
};

use super::fields::{self, Of};
use super::times::{Clock, MILLISECONDS, SECONDS, When};
use crate::args::{Args, Planned};
use crate::error::Refusal;
use crate::frame::Frame;
use crate::plan::all;
use crate::replies;
use crate::table::{NONE, ONE, Spec, read, write};

/// The rows of our own commands on keys.
pub const COMMANDS: &[Spec] = &[
    read("q.version", 2, ONE, OURS, "Returns the version of a key, or 0.", version),
    read("q.getv", 2, ONE, OURS, "Returns the version of a string, and the string.", get),
    write("q.cas", -4, ONE, OURS, "Sets a key to a string if it has this version; 0: if it is missing.", set),
    write("q.cad", 3, ONE, OURS, "Removes a key if it has this version.", delete),
    read("q.range", -3, NONE, OURS, "Returns the keys from one on and below another, in their order.", range),
    read("q.prefix", -2, NONE, OURS, "Returns the keys that start so, in their order.", prefix),
    read("q.sttl", -5, ONE, OURS, "Returns in how many seconds members of a set expire.", |args| {
        fields::expires(args, Of::Set, SECONDS)
    }),
    read("q.spttl", -5, ONE, OURS, "Returns in how many milliseconds members of a set expire.", |args| {
        fields::expires(args, Of::Set, MILLISECONDS)
    }),
    write("q.sexpire", -6, ONE, OURS, "Has members of a set expire in seconds.", |args| {
        fields::expire(args, Of::Set, SECONDS)
    }),
    write("q.spexpire", -6, ONE, OURS, "Has members of a set expire in milliseconds.", |args| {
        fields::expire(args, Of::Set, MILLISECONDS)
    }),
    write("q.spersist", -5, ONE, OURS, "Has members of a set never expire.", |args| fields::persist(args, Of::Set)),
    read("q.zttl", -5, ONE, OURS, "Returns in how many seconds members of a sorted set expire.", |args| {
        fields::expires(args, Of::SortedSet, SECONDS)
    }),
    read("q.zpttl", -5, ONE, OURS, "Returns in how many milliseconds members of a sorted set expire.", |args| {
        fields::expires(args, Of::SortedSet, MILLISECONDS)
    }),
    write("q.zexpire", -6, ONE, OURS, "Has members of a sorted set expire in seconds.", |args| {
        fields::expire(args, Of::SortedSet, SECONDS)
    }),
    write("q.zpexpire", -6, ONE, OURS, "Has members of a sorted set expire in milliseconds.", |args| {
        fields::expire(args, Of::SortedSet, MILLISECONDS)
    }),
    write("q.zpersist", -5, ONE, OURS, "Has members of a sorted set never expire.", |args| {
        fields::persist(args, Of::SortedSet)
    }),
    write("q.sadd", -7, ONE, OURS, "Adds members to a set, which expire, also those that it has.", add),
];

/// The version of Quorate that has had our own commands first.
pub const OURS: &str = "0.1.0";

/// The keys of a page if the client does not say how many.
const PAGE_KEYS: u64 = 100;

fn describe(key: &Bytes) -> KeysCommand {
    KeysCommand::Key(KeyCommand::Describe { key: key.clone() })
}

/// Returns the version of a key, or 0.
fn number(reply: &KeysReply) -> Frame {
    match reply {
        KeysReply::Key(info) => Frame::count(info.version.0),
        KeysReply::Missing => Frame::Integer(0),
        other => replies::unexpected(other),
    }
}

fn version(args: &mut Args) -> Planned {
    let key = args.next()?;
    args.plan(describe(&key), |reply| number(&reply))
}

fn get(args: &mut Args) -> Planned {
    let key = args.next()?;
    let commands = vec![describe(&key), KeysCommand::String(StringCommand::Get { key })];
    args.plan_all(commands, |answers| match all(answers).as_deref() {
        Ok([_, KeysReply::Missing]) => Frame::NullArray,
        Ok([info, KeysReply::Value(value)]) => Frame::Array(vec![number(info), Frame::Bulk(value.clone())]),
        Ok(others) => others.last().map_or(Frame::NullArray, replies::unexpected),
        Err(failure) => failure.clone().into(),
    })
}

fn known(args: &mut Args) -> Result<Version, Refusal> {
    args.positive().map(Version)
}

/// Sets a string, and returns its new version; null if the key has another one.
fn set(args: &mut Args) -> Planned {
    let (key, version, value) = (args.next()?, known(args)?, args.next()?);
    let condition = if version == Version(0) { Condition::Missing } else { Condition::Version(version) };
    let when = if args.option("KEEPTTL") { Some(When::Keep) } else { When::read(args)? };
    let expiry = when.map(|when| when.expiry(args, Clock::later)).transpose()?.unwrap_or(Expiry::Never);
    let set = StringCommand::Set { key: key.clone(), value, condition, expiry, get: false };
    args.plan_all(vec![KeysCommand::String(set), describe(&key)], |answers| match all(answers).as_deref() {
        Ok([KeysReply::Set { applied: false, .. }, _]) => Frame::Null,
        Ok([KeysReply::Set { .. }, info]) => number(info),
        Ok(others) => others.first().map_or(Frame::Null, replies::unexpected),
        Err(failure) => failure.clone().into(),
    })
}

/// Adds members that expire.
fn add(args: &mut Args) -> Planned {
    let key = args.next()?;
    let expiry = When::read(args)?.ok_or(Refusal::Syntax)?.expiry(args, Clock::later)?;
    let members = fields::elements(args, Of::Set)?;
    args.plan(KeysCommand::Set(SetCommand::Add { key, members, expiry }), replies::count)
}

fn delete(args: &mut Args) -> Planned {
    let (key, version) = (args.next()?, known(args)?);
    let condition = Condition::Version(version);
    args.plan(KeysCommand::Key(KeyCommand::Delete { keys: vec![key], condition }), replies::count)
}

/// The options of a page.
#[derive(Debug)]
struct Options {
    order: Order,
    limit: u64,
    values: bool,
    from: Option<Bytes>,
}

impl Options {
    fn read(args: &mut Args, may_resume: bool) -> Result<Self, Refusal> {
        let mut options = Self { order: Order::Up, limit: PAGE_KEYS, values: false, from: None };
        while !args.is_empty() {
            if args.option("LIMIT") {
                options.limit = args.positive()?;
            } else if args.option("WITHVALUES") {
                options.values = true;
            } else if args.option("REV") {
                options.order = Order::Down;
            } else if may_resume && args.option("FROM") {
                options.from = Some(args.next()?);
            } else {
                return Err(Refusal::Syntax);
            }
        }
        Ok(options)
    }

    fn plan(self, args: &Args, span: Span) -> Planned {
        let Self { order, limit, values, .. } = self;
        let scan = KeyCommand::Scan { span, order, limit, kind: None, values };
        args.plan(KeysCommand::Key(scan), move |reply| match reply {
            KeysReply::Keys(page) => page_of(page, values),
            other => replies::unexpected(&other),
        })
    }
}

/// Returns where the next page begins, and the keys of this one.
fn page_of(Page { rows, next }: Page<KeyEntry>, with_values: bool) -> Frame {
    let rows = if with_values {
        let pair = |KeyEntry { key, value, .. }| (Frame::Bulk(key), Frame::bulk_or_null(value));
        Frame::Pairs(rows.into_iter().map(pair).collect())
    } else {
        Frame::bulks(rows.into_iter().map(|row| row.key))
    };
    // No key comes before the empty one, and as the end of a range it would stand for the end of all.
    Frame::Array(vec![Frame::bulk_or_null(next.filter(|next| !next.is_empty())), rows])
}

fn range(args: &mut Args) -> Planned {
    let (from, to) = (args.next()?, args.next()?);
    let to = Some(to).filter(|to| !to.is_empty());
    Options::read(args, false)?.plan(args, Span { from, to })
}

fn prefix(args: &mut Args) -> Planned {
    let mut span = Span::prefix(&args.next()?);
    let mut options = Options::read(args, true)?;
    match (options.from.take(), options.order) {
        (Some(from), Order::Up) => span.from = span.from.max(from),
        (Some(from), Order::Down) => span.to = Some(span.to.map_or(from.clone(), |to| to.min(from))),
        (None, _) => {}
    }
    options.plan(args, span)
}
