//! Commands on hashes.

use bytes::Bytes;
use quorate_keys::{
    Collection, Condition, ElementCommand, Expiry, HashCommand, KeyCommand, KeysCommand, KeysReply, Kind,
};

use super::scans::whole;
use crate::args::{Args, Planned};
use crate::error::Refusal;
use crate::frame::Frame;
use crate::replies;
use crate::table::{ONE, Spec, read, write};

/// The rows of commands on hashes.
pub const COMMANDS: &[Spec] = &[
    read("hget", 3, ONE, "2.0.0", "Returns the value of a field.", get),
    read("hmget", -3, ONE, "2.0.0", "Returns the values of fields.", get_many),
    read("hgetall", 2, ONE, "2.0.0", "Returns all fields with their values.", |args| {
        whole(args, Collection::Hash, map)
    }),
    read("hkeys", 2, ONE, "2.0.0", "Returns all fields.", |args| whole(args, Collection::Hash, fields)),
    read("hvals", 2, ONE, "2.0.0", "Returns the values of all fields.", |args| whole(args, Collection::Hash, values)),
    read("hlen", 2, ONE, "2.0.0", "Returns how many fields there are.", |args| count(args, Kind::Hash)),
    read("hstrlen", 3, ONE, "3.2.0", "Returns how many bytes the value of a field has.", value_length),
    read("hexists", 3, ONE, "2.0.0", "Returns whether there is a field.", exists),
    read("hrandfield", -2, ONE, "6.2.0", "Returns fields at random.", random),
    write("hset", -4, ONE, "2.0.0", "Sets fields.", |args| set(args, replies::count)),
    write("hmset", -4, ONE, "2.0.0", "Sets fields.", |args| set(args, replies::ok)),
    write("hsetnx", 4, ONE, "2.0.0", "Sets a field, if it is missing.", set_missing),
    write("hdel", -3, ONE, "2.0.0", "Removes fields.", |args| remove(args, Collection::Hash)),
    write("hincrby", 4, ONE, "2.0.0", "Adds to an integer.", add),
    write("hincrbyfloat", 4, ONE, "2.6.0", "Adds to a decimal number.", add_float),
];

fn map(rows: Vec<(Bytes, Bytes)>) -> Frame {
    Frame::Map(rows.into_iter().map(|(field, value)| (Frame::Bulk(field), Frame::Bulk(value))).collect())
}

fn fields(rows: Vec<(Bytes, Bytes)>) -> Frame {
    Frame::bulks(rows.into_iter().map(|(field, _)| field))
}

fn values(rows: Vec<(Bytes, Bytes)>) -> Frame {
    Frame::bulks(rows.into_iter().map(|(_, value)| value))
}

/// Counts what a key of this kind has.
pub fn count(args: &mut Args, kind: Kind) -> Planned {
    let key = args.next()?;
    args.plan(KeysCommand::Key(KeyCommand::Count { key, kind }), replies::count)
}

/// Removes elements.
pub fn remove(args: &mut Args, of: Collection) -> Planned {
    let (key, fields) = (args.next()?, args.rest());
    args.plan(KeysCommand::Element(ElementCommand::Remove { of, key, fields }), replies::count)
}

fn get(args: &mut Args) -> Planned {
    let (key, fields) = (args.next()?, vec![args.next()?]);
    args.plan(KeysCommand::Hash(HashCommand::Get { key, fields }), replies::value)
}

fn get_many(args: &mut Args) -> Planned {
    let (key, fields) = (args.next()?, args.rest());
    args.plan(KeysCommand::Hash(HashCommand::Get { key, fields }), replies::values)
}

fn value_length(args: &mut Args) -> Planned {
    let (key, fields) = (args.next()?, vec![args.next()?]);
    args.plan(KeysCommand::Hash(HashCommand::Get { key, fields }), |reply| match replies::value(reply) {
        Frame::Bulk(value) => Frame::count(value.len() as u64),
        Frame::Null => Frame::Integer(0),
        other => other,
    })
}

fn exists(args: &mut Args) -> Planned {
    let (key, fields) = (args.next()?, vec![args.next()?]);
    let command = ElementCommand::Contains { of: Collection::Hash, key, fields };
    args.plan(KeysCommand::Element(command), replies::flag)
}

fn set(args: &mut Args, finish: fn(KeysReply) -> Frame) -> Planned {
    let (key, fields) = (args.next()?, args.pairs()?);
    let command = HashCommand::Set { key, fields, condition: Condition::Always, expiry: Expiry::Never };
    args.plan(KeysCommand::Hash(command), finish)
}

fn set_missing(args: &mut Args) -> Planned {
    let (key, fields) = (args.next()?, args.pairs()?);
    let command = HashCommand::Set { key, fields, condition: Condition::Missing, expiry: Expiry::Never };
    args.plan(KeysCommand::Hash(command), replies::count)
}

fn add(args: &mut Args) -> Planned {
    let (key, field, by) = (args.next()?, args.next()?, args.integer()?);
    args.plan(KeysCommand::Hash(HashCommand::Add { key, field, by }), replies::count)
}

fn add_float(args: &mut Args) -> Planned {
    let (key, field, by) = (args.next()?, args.next()?, args.next()?);
    args.plan(KeysCommand::Hash(HashCommand::AddFloat { key, field, by }), replies::value)
}

/// Reads how many are drawn, and returns whether one may be drawn more than once: if the number is negative.
pub fn draws(args: &mut Args) -> Result<(u64, bool), Refusal> {
    let count = args.integer()?;
    if count == i64::MIN { Err(Refusal::OutOfRange) } else { Ok((count.unsigned_abs(), count < 0)) }
}

/// Reads the word that asks for more than what is drawn; there is room for half as many then.
pub fn draws_with(args: &mut Args, word: &str, count: u64) -> Result<bool, Refusal> {
    let has = args.option(word);
    args.end()?;
    if has && count > i64::MAX as u64 / 2 { Err(Refusal::OutOfRange) } else { Ok(has) }
}

/// Returns the command that draws elements.
pub fn draw(args: &Args, of: Collection, key: Bytes, count: u64, repeats: bool) -> KeysCommand {
    KeysCommand::Element(ElementCommand::Draw { of, key, count, repeats, seed: args.moment.seed })
}

fn random(args: &mut Args) -> Planned {
    let key = args.next()?;
    if args.is_empty() {
        return args.plan(draw(args, Collection::Hash, key, 1, false), replies::value);
    }
    let (count, repeats) = draws(args)?;
    let with_values = draws_with(args, "WITHVALUES", count)?;
    args.plan(draw(args, Collection::Hash, key, count, repeats), move |reply| match reply {
        KeysReply::Elements(page) if with_values => {
            let pair = |(field, value)| (Frame::Bulk(field), Frame::Bulk(value));
            Frame::Pairs(page.rows.into_iter().map(pair).collect())
        }
        reply => replies::values(reply),
    })
}
