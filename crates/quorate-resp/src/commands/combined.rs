//! Commands that combine sorted sets, or store a part of one.

use bytes::Bytes;
use quorate_keys::{Aggregate, KeysCommand, KeysReply, SetOperation, SortedSetCommand};

use crate::args::{Args, Planned};
use crate::error::Refusal;
use crate::frame::Frame;
use crate::number::double;
use crate::replies;
use crate::table::{Places, Spec, read, write};

const COUNTED: Places = Places::Counted(1);

/// The rows of commands that combine sorted sets.
pub const COMMANDS: &[Spec] = &[
    read("zunion", -3, COUNTED, "6.2.0", "Returns what is in any of some sets.", |args| {
        combine(args, SetOperation::Union)
    }),
    read("zinter", -3, COUNTED, "6.2.0", "Returns what is in all of some sets.", |args| {
        combine(args, SetOperation::Intersection)
    }),
    read("zdiff", -3, COUNTED, "6.2.0", "Returns what is in the first set only.", |args| {
        combine(args, SetOperation::Difference)
    }),
    read("zintercard", -3, COUNTED, "7.0.0", "Returns how many members are in all of some sets.", shared),
    write("zunionstore", -4, Places::Stored, "2.0.0", "Stores what is in any of some sets.", |args| {
        store(args, SetOperation::Union)
    }),
    write("zinterstore", -4, Places::Stored, "2.0.0", "Stores what is in all of some sets.", |args| {
        store(args, SetOperation::Intersection)
    }),
    write("zdiffstore", -4, Places::Stored, "6.2.0", "Stores what is in the first set only.", |args| {
        store(args, SetOperation::Difference)
    }),
];

fn combine(args: &mut Args, operation: SetOperation) -> Planned {
    let keys = keys(args)?;
    match options(args, operation, keys.clone(), None) {
        Ok((command, with_scores)) => args.plan(KeysCommand::SortedSet(command), replies::scored(with_scores)),
        Err(refusal) => refuse(args, keys, refusal),
    }
}

fn store(args: &mut Args, operation: SetOperation) -> Planned {
    let (store, keys) = (args.next()?, keys(args)?);
    match options(args, operation, keys.clone(), Some(store)) {
        Ok((command, _)) => args.plan(KeysCommand::SortedSet(command), replies::count),
        Err(refusal) => refuse(args, keys, refusal),
    }
}

/// Returns the plan of a command that is refused, but only if no key is of the wrong type.
fn refuse(args: &mut Args, keys: Vec<Bytes>, refusal: Refusal) -> Planned {
    args.rest();
    args.plan(KeysCommand::SortedSet(combination(SetOperation::Union, keys)), move |_| Frame::error(refusal))
}

/// Returns the command that combines sets without options.
fn combination(operation: SetOperation, keys: Vec<Bytes>) -> SortedSetCommand {
    let sources = keys.into_iter().map(|key| (key, 1.0)).collect();
    SortedSetCommand::Combine { operation, sources, aggregate: Aggregate::Sum, store: None }
}

/// Reads the number of keys, and the keys.
fn keys(args: &mut Args) -> Result<Vec<Bytes>, Refusal> {
    let count = args.integer()?;
    if count < 1 {
        return Err(Refusal::NoKeys(args.name));
    }
    args.take(usize::try_from(count).map_err(|_| Refusal::Syntax)?)
}

/// Reads the options, and returns the command, and whether scores are asked for.
fn options(
    args: &mut Args,
    operation: SetOperation,
    keys: Vec<Bytes>,
    store: Option<Bytes>,
) -> Result<(SortedSetCommand, bool), Refusal> {
    const AGGREGATES: &[(&str, Aggregate)] =
        &[("SUM", Aggregate::Sum), ("MIN", Aggregate::Lowest), ("MAX", Aggregate::Highest)];
    let (mut weights, mut aggregate, mut with_scores) = (vec![1.0; keys.len()], Aggregate::Sum, false);
    let is_difference = operation == SetOperation::Difference;
    while !args.is_empty() {
        if !is_difference && args.left() > keys.len() && args.option("WEIGHTS") {
            for weight in &mut weights {
                *weight = double(&args.next()?).ok_or(Refusal::Text("ERR weight value is not a float"))?;
            }
        } else if !is_difference && args.left() > 1 && args.option("AGGREGATE") {
            aggregate = args.choice(AGGREGATES).ok_or(Refusal::Syntax)?;
        } else if store.is_none() && args.option("WITHSCORES") {
            with_scores = true;
        } else {
            return Err(Refusal::Syntax);
        }
    }
    let sources = keys.into_iter().zip(weights).collect();
    Ok((SortedSetCommand::Combine { operation, sources, aggregate, store }, with_scores))
}

fn shared(args: &mut Args) -> Planned {
    let keys = keys(args)?;
    let limit = match super::sets::limit(args) {
        Ok(limit) => limit,
        Err(refusal) => return refuse(args, keys, refusal),
    };
    let command = combination(SetOperation::Intersection, keys);
    args.plan(KeysCommand::SortedSet(command), move |reply| match reply {
        KeysReply::Scored(members) => Frame::count(limit.min(members.len() as u64)),
        other => replies::unexpected(&other),
    })
}
