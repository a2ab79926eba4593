//! Commands on the expiry of fields of hashes.

use bytes::Bytes;
use quorate_keys::{
    Collection, Condition, ElementCommand, Expiry, ExpiryCondition, HashCommand, KeysCommand, KeysReply,
};

use super::times::{self, Clock, MILLISECONDS, MILLISECONDS_AT, SECONDS, SECONDS_AT};
use crate::args::{Args, Planned};
use crate::error::Refusal;
use crate::frame::Frame;
use crate::number::integer;
use crate::plan::{Until, all};
use crate::replies;
use crate::table::{ONE, Spec, read, write};

/// The rows of commands on the expiry of fields.
pub const COMMANDS: &[Spec] = &[
    read("httl", -5, ONE, "7.4.0", "Returns in how many seconds fields expire.", |args| expires(args, SECONDS)),
    read("hpttl", -5, ONE, "7.4.0", "Returns in how many milliseconds fields expire.", |args| {
        expires(args, MILLISECONDS)
    }),
    read("hexpiretime", -5, ONE, "7.4.0", "Returns when fields expire, in seconds since 1970.", |args| {
        expires(args, SECONDS_AT)
    }),
    read("hpexpiretime", -5, ONE, "7.4.0", "Returns when fields expire, in milliseconds since 1970.", |args| {
        expires(args, MILLISECONDS_AT)
    }),
    write("hexpire", -6, ONE, "7.4.0", "Has fields expire in seconds.", |args| expire(args, SECONDS)),
    write("hpexpire", -6, ONE, "7.4.0", "Has fields expire in milliseconds.", |args| expire(args, MILLISECONDS)),
    write("hexpireat", -6, ONE, "7.4.0", "Has fields expire at a second.", |args| expire(args, SECONDS_AT)),
    write("hpexpireat", -6, ONE, "7.4.0", "Has fields expire at a millisecond.", |args| expire(args, MILLISECONDS_AT)),
    write("hpersist", -5, ONE, "7.4.0", "Has fields never expire.", persist),
    write("hgetdel", -5, ONE, "8.0.0", "Returns the values of fields, and removes them.", get_delete),
    write("hgetex", -5, ONE, "8.0.0", "Returns the values of fields, and sets their expiry.", get_expire),
    write("hsetex", -6, ONE, "8.0.0", "Sets fields that expire.", set_expire),
];

const NUMBER: Refusal = Refusal::Text("ERR Parameter `numFields` should be greater than 0");
const MISMATCH: Refusal = Refusal::Text("ERR The `numfields` parameter must match the number of arguments");

/// Reads the number of fields after the word FIELDS, where each takes so many arguments, and checks it.
fn count(args: &mut Args, each: usize) -> Result<usize, Refusal> {
    if !args.option("FIELDS") {
        return Err(Refusal::Text("ERR Mandatory argument FIELDS is missing or not at the right position"));
    }
    let count = integer(&args.next()?).filter(|count| *count > 0).ok_or(NUMBER)?;
    let count = usize::try_from(count).map_err(|_| NUMBER)?;
    if count.checked_mul(each) == Some(args.left()) { Ok(count) } else { Err(MISMATCH) }
}

fn fields(args: &mut Args) -> Result<Vec<Bytes>, Refusal> {
    count(args, 1)?;
    Ok(args.rest())
}

fn expires(args: &mut Args, clock: Clock) -> Planned {
    let (key, fields, now) = (args.next()?, fields(args)?, args.moment.now);
    let command = ElementCommand::Describe { of: Collection::Hash, key, fields };
    args.plan(KeysCommand::Element(command), move |reply| {
        let KeysReply::Described(elements) = reply else { return replies::unexpected(&reply) };
        let number = |element: Option<(_, Option<u64>)>| match element {
            None => -2,
            Some((_, None)) => -1,
            Some((_, Some(at))) => clock.from_now(at, now),
        };
        Frame::Array(elements.into_iter().map(|element| Frame::Integer(number(element))).collect())
    })
}

fn change(key: Bytes, fields: Vec<Bytes>, at: Option<u64>, condition: ExpiryCondition) -> KeysCommand {
    KeysCommand::Element(ElementCommand::Expire { of: Collection::Hash, key, fields, at, condition })
}

fn expire(args: &mut Args, clock: Clock) -> Planned {
    let (key, word) = (args.next()?, args.next()?);
    let at = Some(clock.time(&word, args)?);
    let (condition, fields) = (times::condition(args)?, fields(args)?);
    args.plan(change(key, fields, at, condition), replies::changes(0))
}

fn persist(args: &mut Args) -> Planned {
    let (key, fields) = (args.next()?, fields(args)?);
    args.plan(change(key, fields, None, ExpiryCondition::Always), replies::changes(-1))
}

/// Returns the plan that reads fields, and then does something else to them.
fn get_and(args: &Args, key: Bytes, fields: Vec<Bytes>, then: Option<KeysCommand>) -> Planned {
    let mut commands = vec![KeysCommand::Hash(HashCommand::Get { key, fields })];
    commands.extend(then);
    args.plan_all(commands, Until::Failure, |answers| match all(answers) {
        Ok(answers) => answers.into_iter().next().map_or(Frame::Null, replies::values),
        Err(error) => Frame::error(error),
    })
}

fn get_delete(args: &mut Args) -> Planned {
    let (key, fields) = (args.next()?, fields(args)?);
    let remove = ElementCommand::Remove { of: Collection::Hash, key: key.clone(), fields: fields.clone() };
    get_and(args, key, fields, Some(KeysCommand::Element(remove)))
}

fn get_expire(args: &mut Args) -> Planned {
    let key = args.next()?;
    let expiry = if args.option("PERSIST") { Some(Expiry::Never) } else { times::expiry(args)? };
    let fields = fields(args)?;
    let then = expiry.map(|expiry| {
        let at = if let Expiry::At(at) = expiry { Some(at) } else { None };
        change(key.clone(), fields.clone(), at, ExpiryCondition::Always)
    });
    get_and(args, key, fields, then)
}

fn set_expire(args: &mut Args) -> Planned {
    let key = args.next()?;
    let (mut condition, mut expiry) = (None, None);
    while args.peek().is_some_and(|word| !word.eq_ignore_ascii_case(b"FIELDS")) {
        if let Some(exists) = args.choice(&[("FNX", false), ("FXX", true)]).filter(|_| condition.is_none()) {
            condition = Some(if exists { Condition::Exists } else { Condition::Missing });
        } else if expiry.is_none() && args.option("KEEPTTL") {
            expiry = Some(Expiry::Keep);
        } else {
            expiry = Some(times::expiry(args)?.filter(|_| expiry.is_none()).ok_or(Refusal::Syntax)?);
        }
    }
    count(args, 2)?;
    let fields = args.pairs()?;
    let (condition, expiry) = (condition.unwrap_or_default(), expiry.unwrap_or_default());
    args.plan(KeysCommand::Hash(HashCommand::Set { key, fields, condition, expiry }), |reply| match reply {
        KeysReply::Count(_) => Frame::Integer(1),
        reply => replies::count(reply),
    })
}
