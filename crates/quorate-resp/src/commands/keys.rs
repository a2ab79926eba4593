//! Commands on keys, whatever they hold.

use bytes::Bytes;
use quorate_keys::{Condition, KeyCommand, KeyInfo, KeysCommand, KeysReply, Kind, Space};

use super::times::{self, Clock, MILLISECONDS, MILLISECONDS_AT, SECONDS, SECONDS_AT, time_of};
use crate::args::{Args, Planned};
use crate::connection::HELP;
use crate::error::Refusal;
use crate::frame::Frame;
use crate::limits::{CACHES_END, DATABASES};
use crate::number::integer;
use crate::replies;
use crate::table::{ALL, ONE, SECOND, Spec, TWO, read, sub, write};

/// The rows of commands on keys.
pub const COMMANDS: &[Spec] = &[
    read("exists", -2, ALL, "1.0.0", "Returns how many of the keys exist.", exists),
    read("touch", -2, ALL, "3.2.1", "Returns how many of the keys exist.", exists),
    read("type", 2, ONE, "1.0.0", "Returns what a key holds.", kind),
    read("ttl", 2, ONE, "1.0.0", "Returns in how many seconds a key expires.", |args| expires(args, SECONDS)),
    read("pttl", 2, ONE, "2.6.0", "Returns in how many milliseconds a key expires.", |args| {
        expires(args, MILLISECONDS)
    }),
    read("expiretime", 2, ONE, "7.0.0", "Returns when a key expires, in seconds since 1970.", |args| {
        expires(args, SECONDS_AT)
    }),
    read("pexpiretime", 2, ONE, "7.0.0", "Returns when a key expires, in milliseconds since 1970.", |args| {
        expires(args, MILLISECONDS_AT)
    }),
    sub("object", "2.2.3", "What there is to know of keys.", OBJECT),
    sub("memory", "4.0.0", "What keys take.", MEMORY),
    write("del", -2, ALL, "1.0.0", "Removes keys.", delete),
    write("unlink", -2, ALL, "4.0.0", "Removes keys.", delete),
    write("expire", -3, ONE, "1.0.0", "Has a key expire in seconds.", |args| expire(args, SECONDS)),
    write("pexpire", -3, ONE, "2.6.0", "Has a key expire in milliseconds.", |args| expire(args, MILLISECONDS)),
    write("expireat", -3, ONE, "1.2.0", "Has a key expire at a second.", |args| expire(args, SECONDS_AT)),
    write("pexpireat", -3, ONE, "2.6.0", "Has a key expire at a millisecond.", |args| expire(args, MILLISECONDS_AT)),
    write("persist", 2, ONE, "2.2.0", "Has a key never expire.", persist),
    write("rename", 3, TWO, "1.0.0", "Gives a key another name.", rename),
    write("renamenx", 3, TWO, "1.0.0", "Gives a key another name, if no key has it.", rename_missing),
    write("copy", -3, TWO, "6.2.0", "Copies a key.", copy),
    write("move", 3, ONE, "1.0.0", "Moves a key to another database.", move_to),
];

const OBJECT: &[Spec] = &[
    read("encoding", 3, SECOND, "2.2.3", "Returns how Redis would store a key.", encoding),
    read("refcount", 3, SECOND, "2.2.3", "Returns 1.", |args| object(args, |_| Frame::Integer(1))),
    read("idletime", 3, SECOND, "2.2.3", "Returns 0: times of access are not kept.", |args| {
        object(args, |_| Frame::Integer(0))
    }),
    read("freq", 3, SECOND, "4.0.0", "Is refused: frequencies of access are not kept.", frequency),
    HELP,
];

const MEMORY: &[Spec] = &[read("usage", -3, SECOND, "4.0.0", "Returns about how many bytes a key takes.", usage), HELP];

fn exists(args: &mut Args) -> Planned {
    let keys = args.rest();
    args.plan(KeysCommand::Key(KeyCommand::Exists { keys }), replies::count)
}

fn describe(args: &mut Args, finish: impl FnOnce(Option<KeyInfo>) -> Frame + Send + 'static) -> Planned {
    let key = args.next()?;
    args.plan(KeysCommand::Key(KeyCommand::Describe { key }), move |reply| match reply {
        KeysReply::Key(info) => finish(Some(info)),
        KeysReply::Missing => finish(None),
        other => replies::unexpected(&other),
    })
}

/// Returns the name of what a key holds.
pub fn name_of(kind: Kind) -> &'static str {
    match kind {
        Kind::String => "string",
        Kind::Hash => "hash",
        Kind::Set => "set",
        Kind::SortedSet => "zset",
        Kind::List => "list",
    }
}

fn kind(args: &mut Args) -> Planned {
    describe(args, |info| Frame::Simple(info.map_or("none", |info| name_of(info.kind))))
}

fn expires(args: &mut Args, clock: Clock) -> Planned {
    let now = args.moment.now;
    describe(args, move |info| {
        let Some(info) = info else { return Frame::Integer(-2) };
        Frame::Integer(info.expires_at.map_or(-1, |at| clock.to_reach(at, now)))
    })
}

fn object(args: &mut Args, finish: fn(KeyInfo) -> Frame) -> Planned {
    describe(args, move |info| info.map_or(Frame::Null, finish))
}

fn encoding(args: &mut Args) -> Planned {
    object(args, |info| {
        let encoding = match info.kind {
            Kind::String => "raw",
            Kind::Hash | Kind::Set => "hashtable",
            Kind::SortedSet => "skiplist",
            Kind::List => "quicklist",
        };
        Frame::bulk(encoding)
    })
}

fn frequency(args: &mut Args) -> Planned {
    object(args, |_| {
        Frame::error(
            "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when \
             switching between policies at runtime LRU and LFU data will take some time to adjust.",
        )
    })
}

fn usage(args: &mut Args) -> Planned {
    let key = args.next()?;
    while args.option("SAMPLES") {
        if args.integer()? < 0 {
            return Err(Refusal::Syntax);
        }
    }
    args.plan(KeysCommand::Key(KeyCommand::Measure { key }), |reply| match reply {
        KeysReply::Size(size) => Frame::count(size.bytes),
        KeysReply::Missing => Frame::Null,
        other => replies::unexpected(&other),
    })
}

fn delete(args: &mut Args) -> Planned {
    let keys = args.rest();
    args.plan(KeysCommand::Key(KeyCommand::Delete { keys, condition: Condition::Always }), replies::count)
}

fn expire(args: &mut Args, clock: Clock) -> Planned {
    let key = args.next()?;
    let word = args.next()?;
    let condition = times::condition(args)?;
    let (at, relative) = time_of(clock.time(&word, args)?);
    args.plan(KeysCommand::Key(KeyCommand::Expire { key, at, condition, relative }), replies::count)
}

fn persist(args: &mut Args) -> Planned {
    let key = args.next()?;
    let command = KeyCommand::Expire { key, at: None, condition: Default::default(), relative: false };
    args.plan(KeysCommand::Key(command), replies::count)
}

fn rename_to(args: &mut Args, replace: bool, finish: fn(KeysReply) -> Frame) -> Planned {
    let (key, to, to_space) = (args.next()?, args.next()?, args.moment.space);
    args.plan(KeysCommand::Key(KeyCommand::Rename { key, to_space, to, replace }), move |reply| match reply {
        KeysReply::Missing => Frame::error("ERR no such key"),
        reply => finish(reply),
    })
}

fn rename(args: &mut Args) -> Planned {
    rename_to(args, true, replies::ok)
}

fn rename_missing(args: &mut Args) -> Planned {
    rename_to(args, false, replies::count)
}

/// Reads the number of a database.
pub fn database(word: &Bytes) -> Result<Space, Refusal> {
    let number = integer(word).ok_or(Refusal::NotInteger)?;
    if i32::try_from(number).is_err() {
        return Err(Refusal::Text("ERR value is out of range, value must between -2147483648 and 2147483647"));
    }
    match Space::try_from(number) {
        Ok(space) if space < DATABASES => Ok(space),
        Ok(space) if space < CACHES_END => Err(Refusal::Text("ERR no cache is configured for this database")),
        _ => Err(Refusal::Text("ERR DB index is out of range")),
    }
}

fn copy(args: &mut Args) -> Planned {
    let (key, to) = (args.next()?, args.next()?);
    let (mut to_space, mut replace) = (args.moment.space, false);
    while !args.is_empty() {
        if args.option("REPLACE") {
            replace = true;
        } else if args.option("DB") {
            to_space = database(&args.next()?)?;
        } else {
            return Err(Refusal::Syntax);
        }
    }
    if to_space == args.moment.space && key == to {
        return Err(Refusal::Text("ERR source and destination objects are the same"));
    }
    args.plan(KeysCommand::Key(KeyCommand::Copy { key, to_space, to, replace }), replies::count)
}

fn move_to(args: &mut Args) -> Planned {
    let (key, to_space) = (args.next()?, database(&args.next()?)?);
    if to_space == args.moment.space {
        return Err(Refusal::Text("ERR source and destination objects are the same"));
    }
    let to = key.clone();
    args.plan(KeysCommand::Key(KeyCommand::Rename { key, to_space, to, replace: false }), replies::count)
}
