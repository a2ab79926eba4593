//! Commands on sets.

use quorate_keys::{Collection, ElementCommand, Expiry, KeysCommand, KeysReply, Kind, SetCommand, SetOperation};

use super::hashes::{count, draw, draws, remove};
use super::scans::whole;
use crate::args::{Args, Planned};
use crate::error::Refusal;
use crate::frame::Frame;
use crate::number::integer;
use crate::replies;
use crate::table::{ALL, ONE, Places, Spec, TWO, read, write};

/// The rows of commands on sets.
pub const COMMANDS: &[Spec] = &[
    read("sismember", 3, ONE, "1.0.0", "Returns whether a set has a member.", is_member),
    read("smismember", -3, ONE, "6.2.0", "Returns which members a set has.", are_members),
    read("smembers", 2, ONE, "1.0.0", "Returns all members.", members),
    read("scard", 2, ONE, "1.0.0", "Returns how many members there are.", |args| count(args, Kind::Set)),
    read("srandmember", -2, ONE, "1.0.0", "Returns members at random.", random),
    read("sinter", -2, ALL, "1.0.0", "Returns what is in all of some sets.", |args| {
        combine(args, SetOperation::Intersection)
    }),
    read("sunion", -2, ALL, "1.0.0", "Returns what is in any of some sets.", |args| combine(args, SetOperation::Union)),
    read("sdiff", -2, ALL, "1.0.0", "Returns what is in the first set only.", |args| {
        combine(args, SetOperation::Difference)
    }),
    read("sintercard", -3, Places::Counted(1), "7.0.0", "Returns how many members are in all of some sets.", shared),
    write("sadd", -3, ONE, "1.0.0", "Adds members.", add),
    write("srem", -3, ONE, "1.0.0", "Removes members.", |args| remove(args, Collection::Set)),
    write("spop", -2, ONE, "1.0.0", "Removes members at random, and returns them.", pop),
    write("smove", 4, TWO, "1.0.0", "Moves a member to another set.", move_to),
    write("sinterstore", -3, ALL, "1.0.0", "Stores what is in all of some sets.", |args| {
        store(args, SetOperation::Intersection)
    }),
    write("sunionstore", -3, ALL, "1.0.0", "Stores what is in any of some sets.", |args| {
        store(args, SetOperation::Union)
    }),
    write("sdiffstore", -3, ALL, "1.0.0", "Stores what is in the first set only.", |args| {
        store(args, SetOperation::Difference)
    }),
];

fn is_member(args: &mut Args) -> Planned {
    let (key, fields) = (args.next()?, vec![args.next()?]);
    let command = ElementCommand::Contains { of: Collection::Set, key, fields };
    args.plan(KeysCommand::Element(command), replies::flag)
}

fn are_members(args: &mut Args) -> Planned {
    let (key, fields) = (args.next()?, args.rest());
    let command = ElementCommand::Contains { of: Collection::Set, key, fields };
    args.plan(KeysCommand::Element(command), replies::flags)
}

fn members(args: &mut Args) -> Planned {
    whole(args, Collection::Set, |rows| Frame::Set(rows.into_iter().map(|(member, _)| Frame::Bulk(member)).collect()))
}

fn add(args: &mut Args) -> Planned {
    let (key, members) = (args.next()?, args.rest());
    args.plan(KeysCommand::Set(SetCommand::Add { key, members, expiry: Expiry::Never }), replies::count)
}

fn pop(args: &mut Args) -> Planned {
    let (key, seed) = (args.next()?, args.moment.seed);
    if args.is_empty() {
        return args.plan(KeysCommand::Set(SetCommand::Pop { key, count: 1, seed }), replies::value);
    }
    let count = args.positive()?;
    args.plan(KeysCommand::Set(SetCommand::Pop { key, count, seed }), replies::set)
}

fn random(args: &mut Args) -> Planned {
    let key = args.next()?;
    if args.is_empty() {
        return args.plan(draw(args, Collection::Set, key, 1, false), replies::value);
    }
    if args.left() > 1 {
        return Err(Refusal::Syntax);
    }
    let (count, repeats) = draws(args)?;
    args.plan(draw(args, Collection::Set, key, count, repeats), replies::values)
}

fn move_to(args: &mut Args) -> Planned {
    let command = SetCommand::Move { from: args.next()?, to: args.next()?, member: args.next()? };
    args.plan(KeysCommand::Set(command), replies::count)
}

fn combine(args: &mut Args, operation: SetOperation) -> Planned {
    let keys = args.rest();
    args.plan(KeysCommand::Set(SetCommand::Combine { operation, keys, store: None }), replies::set)
}

fn store(args: &mut Args, operation: SetOperation) -> Planned {
    let (store, keys) = (Some(args.next()?), args.rest());
    args.plan(KeysCommand::Set(SetCommand::Combine { operation, keys, store }), replies::count)
}

/// Reads how many members are counted at most, to the end of the arguments.
pub fn limit(args: &mut Args) -> Result<u64, Refusal> {
    let mut limit = 0;
    while args.left() > 1 && args.option("LIMIT") {
        let number = integer(&args.next()?).and_then(|number| u64::try_from(number).ok());
        limit = number.ok_or(Refusal::Text("ERR LIMIT can't be negative"))?;
    }
    args.end()?;
    Ok(if limit == 0 { u64::MAX } else { limit })
}

fn shared(args: &mut Args) -> Planned {
    let count = integer(&args.next()?).filter(|count| *count > 0);
    let count = count.ok_or(Refusal::Text("ERR numkeys should be greater than 0"))?;
    let count = usize::try_from(count).ok().filter(|count| *count <= args.left());
    let keys = args.take(count.ok_or(Refusal::Text("ERR Number of keys can't be greater than number of args"))?)?;
    let limit = limit(args)?;
    let command = SetCommand::Combine { operation: SetOperation::Intersection, keys, store: None };
    args.plan(KeysCommand::Set(command), move |reply| match reply {
        KeysReply::Members(members) => Frame::count(limit.min(members.len() as u64)),
        other => replies::unexpected(&other),
    })
}
