//! Commands on strings.

use bytes::Bytes;
use quorate_keys::limits::ARGUMENTS_MAX as KEYS_MAX;
use quorate_keys::{Condition, Expiry, KeyCommand, KeysCommand, KeysReply, StringCommand};
use quorate_model::FailureKind;

use super::times::{Clock, MILLISECONDS, SECONDS, When, time_of};
use crate::args::{Args, Planned};
use crate::error::Refusal;
use crate::frame::Frame;
use crate::number::integer;
use crate::plan::all;
use crate::replies;
use crate::table::{ALL, ONE, PAIRS, Places, Spec, read, write};

/// The rows of commands on strings.
pub const COMMANDS: &[Spec] = &[
    read("get", 2, ONE, "1.0.0", "Returns a string.", get),
    read("mget", -2, ALL, "1.0.0", "Returns strings.", mget),
    read("strlen", 2, ONE, "2.2.0", "Returns how many bytes a string has.", length),
    read("getrange", 4, ONE, "2.4.0", "Returns a part of a string.", get_range),
    read("substr", 4, ONE, "1.0.0", "Returns a part of a string.", get_range),
    write("set", -3, ONE, "1.0.0", "Sets a key to a string.", set),
    write("setnx", 3, ONE, "1.0.0", "Sets a key to a string, if it is missing.", set_missing),
    write("setex", 4, ONE, "2.0.0", "Sets a key to a string that expires in seconds.", |args| set_for(args, SECONDS)),
    write("psetex", 4, ONE, "2.6.0", "Sets a key to a string that expires in milliseconds.", |args| {
        set_for(args, MILLISECONDS)
    }),
    write("getset", 3, ONE, "1.0.0", "Sets a key to a string, and returns the one before.", get_set),
    write("getdel", 2, ONE, "6.2.0", "Returns a string, and removes it.", get_delete),
    write("getex", -2, ONE, "6.2.0", "Returns a string, and sets its expiry.", get_expire),
    write("mset", -3, PAIRS, "1.0.1", "Sets keys to strings.", |args| set_all(args, Condition::Always, replies::ok)),
    write("msetnx", -3, PAIRS, "1.0.1", "Sets keys to strings, if all are missing.", |args| {
        set_all(args, Condition::Missing, replies::count)
    }),
    write(
        "msetex",
        -4,
        Places::CountedPairs,
        "9.1.0",
        "Sets keys to strings that expire, on a condition.",
        set_all_for,
    ),
    write("delifeq", 3, ONE, "9.0.0", "Removes a string if it is this one.", delete_equal),
    write("append", 3, ONE, "2.0.0", "Adds bytes at the end of a string.", append),
    write("setrange", 4, ONE, "2.2.0", "Replaces a part of a string.", set_range),
    write("incr", 2, ONE, "1.0.0", "Adds 1 to an integer.", |args| add(args, 1)),
    write("decr", 2, ONE, "1.0.0", "Subtracts 1 from an integer.", |args| add(args, -1)),
    write("incrby", 3, ONE, "1.0.0", "Adds to an integer.", increase),
    write("decrby", 3, ONE, "1.0.0", "Subtracts from an integer.", decrease),
    write("incrbyfloat", 3, ONE, "2.6.0", "Adds to a decimal number.", add_float),
];

fn get(args: &mut Args) -> Planned {
    let key = args.next()?;
    args.plan(KeysCommand::String(StringCommand::Get { key }), replies::value)
}

fn mget(args: &mut Args) -> Planned {
    let get = |key| KeysCommand::String(StringCommand::Get { key });
    let commands = args.rest().into_iter().map(get).collect();
    args.plan_all(commands, |answers| {
        let values = answers.into_iter().map(|answer| match answer {
            Err(failure) if failure.kind == FailureKind::WrongType => Ok(Frame::Null),
            answer => answer.map(replies::value),
        });
        values.collect::<Result<Vec<_>, _>>().map_or_else(Frame::from, Frame::Array)
    })
}

fn length(args: &mut Args) -> Planned {
    let key = args.next()?;
    args.plan(KeysCommand::String(StringCommand::Length { key }), replies::count)
}

fn get_range(args: &mut Args) -> Planned {
    let (key, start, end) = (args.next()?, args.integer()?, args.integer()?);
    args.plan(KeysCommand::String(StringCommand::GetRange { key, start, end }), replies::value)
}

/// Reads a condition on keys.
fn exists(args: &mut Args) -> Option<Condition> {
    args.choice(&[("NX", false), ("XX", true)])
        .map(|exists| if exists { Condition::Exists } else { Condition::Missing })
}

fn set_to(key: Bytes, value: Bytes, condition: Condition, expiry: Expiry, get: bool) -> KeysCommand {
    KeysCommand::String(StringCommand::Set { key, value, condition, expiry, get })
}

fn set(args: &mut Args) -> Planned {
    let (key, value) = (args.next()?, args.next()?);
    let (mut condition, mut expiry, mut get) = (None, None, false);
    while !args.is_empty() {
        if let Some(exists) = exists(args).filter(|_| condition.is_none()) {
            condition = Some(exists);
        } else if condition.is_none() && args.option("IFEQ") {
            condition = Some(Condition::Value(args.next()?));
        } else if args.option("GET") {
            get = true;
        } else if expiry.is_none() && args.option("KEEPTTL") {
            expiry = Some(When::Keep);
        } else {
            expiry = Some(When::read(args)?.filter(|_| expiry.is_none()).ok_or(Refusal::Syntax)?);
        }
    }
    let expiry = expiry.map(|when| when.expiry(args, Clock::later)).transpose()?;
    let command = set_to(key, value, condition.unwrap_or_default(), expiry.unwrap_or_default(), get);
    args.plan(command, move |reply| match reply {
        KeysReply::Set { previous, .. } if get => Frame::bulk_or_null(previous),
        KeysReply::Set { applied: true, .. } => Frame::OK,
        KeysReply::Set { applied: false, .. } => Frame::Null,
        other => replies::unexpected(&other),
    })
}

fn set_missing(args: &mut Args) -> Planned {
    let command = set_to(args.next()?, args.next()?, Condition::Missing, Expiry::Never, false);
    args.plan(command, replies::count)
}

fn set_for(args: &mut Args, clock: Clock) -> Planned {
    let (key, word, value) = (args.next()?, args.next()?, args.next()?);
    let expiry = clock.later(&word, args)?;
    args.plan(set_to(key, value, Condition::Always, expiry, false), replies::ok)
}

fn get_set(args: &mut Args) -> Planned {
    let command = set_to(args.next()?, args.next()?, Condition::Always, Expiry::Never, true);
    args.plan(command, replies::value)
}

fn get_delete(args: &mut Args) -> Planned {
    let key = args.next()?;
    args.plan(KeysCommand::String(StringCommand::Take { key }), replies::value)
}

fn get_expire(args: &mut Args) -> Planned {
    let key = args.next()?;
    let when = if args.option("PERSIST") { Some(When::Never) } else { When::read(args)? };
    args.end()?;
    let command = match when {
        Some(when) => {
            let (at, relative) = time_of(when.expiry(args, Clock::later)?);
            StringCommand::GetExpire { key, at, relative }
        }
        None => StringCommand::Get { key },
    };
    args.plan(KeysCommand::String(command), replies::value)
}

fn set_all(args: &mut Args, condition: Condition, finish: fn(KeysReply) -> Frame) -> Planned {
    let command = StringCommand::SetAll { strings: args.pairs()?, condition, expiry: Expiry::Never };
    args.plan(KeysCommand::String(command), finish)
}

/// Sets keys, the number of which is in front, to strings that may expire, if all keys exist, or are missing.
fn set_all_for(args: &mut Args) -> Planned {
    let count = integer(&args.next()?).and_then(|count| usize::try_from(count).ok());
    let count = count.filter(|count| (1..=KEYS_MAX).contains(count));
    let count = count.ok_or(Refusal::Text("ERR invalid numkeys value or out of range"))?;
    let words = args.take(2 * count)?;
    let (strings, _) = words.as_chunks::<2>();
    let strings = strings.iter().map(|[key, value]| (key.clone(), value.clone())).collect();
    let (mut condition, mut expiry) = (None, None);
    while !args.is_empty() {
        if let Some(exists) = exists(args).filter(|_| condition.is_none()) {
            condition = Some(exists);
        } else if expiry.is_none() && args.option("KEEPTTL") {
            expiry = Some(When::Keep);
        } else {
            expiry = Some(When::read(args)?.filter(|_| expiry.is_none()).ok_or(Refusal::Syntax)?);
        }
    }
    let expiry = expiry.map(|when| when.expiry(args, Clock::later)).transpose()?.unwrap_or_default();
    let command = StringCommand::SetAll { strings, condition: condition.unwrap_or_default(), expiry };
    args.plan(KeysCommand::String(command), replies::count)
}

/// Removes a string if it is this one. The first command fails on a key of another kind.
fn delete_equal(args: &mut Args) -> Planned {
    let (key, value) = (args.next()?, args.next()?);
    let keys = vec![key.clone()];
    let commands = vec![
        KeysCommand::String(StringCommand::Length { key }),
        KeysCommand::Key(KeyCommand::Delete { keys, condition: Condition::Value(value) }),
    ];
    args.plan_all(commands, |answers| match all(answers) {
        Ok(replies) => replies.into_iter().next_back().map_or(Frame::Integer(0), replies::count),
        Err(failure) => failure.into(),
    })
}

fn append(args: &mut Args) -> Planned {
    let (key, value) = (args.next()?, args.next()?);
    args.plan(KeysCommand::String(StringCommand::Append { key, value }), replies::count)
}

fn set_range(args: &mut Args) -> Planned {
    let (key, offset, value) = (args.next()?, args.integer()?, args.next()?);
    let offset = u64::try_from(offset).map_err(|_| Refusal::Text("ERR offset is out of range"))?;
    args.plan(KeysCommand::String(StringCommand::SetRange { key, offset, value }), replies::count)
}

fn add(args: &mut Args, by: i64) -> Planned {
    let key = args.next()?;
    args.plan(KeysCommand::String(StringCommand::Add { key, by }), replies::count)
}

fn increase(args: &mut Args) -> Planned {
    let (key, by) = (args.next()?, args.integer()?);
    args.plan(KeysCommand::String(StringCommand::Add { key, by }), replies::count)
}

fn decrease(args: &mut Args) -> Planned {
    let (key, by) = (args.next()?, args.integer()?);
    let by = by.checked_neg().ok_or(Refusal::Text("ERR decrement would overflow"))?;
    args.plan(KeysCommand::String(StringCommand::Add { key, by }), replies::count)
}

fn add_float(args: &mut Args) -> Planned {
    let (key, by) = (args.next()?, args.next()?);
    args.plan(KeysCommand::String(StringCommand::AddFloat { key, by }), replies::value)
}
