//! Commands on lists.

use bytes::Bytes;
use quorate_keys::{End, KeysCommand, KeysReply, Kind, ListCommand, Space};

use super::hashes::count;
use crate::args::{Args, Planned};
use crate::error::Refusal;
use crate::frame::Frame;
use crate::number::integer;
use crate::plan::Plan;
use crate::replies;
use crate::table::{ONE, Places, Spec, TWO, read, write};

/// The rows of commands on lists.
pub const COMMANDS: &[Spec] = &[
    read("llen", 2, ONE, "1.0.0", "Returns how many items there are.", |args| count(args, Kind::List)),
    read("lrange", 4, ONE, "1.0.0", "Returns the items of a range.", range),
    read("lindex", 3, ONE, "1.0.0", "Returns an item.", index),
    read("lpos", -3, ONE, "6.0.6", "Returns where items are that equal a value.", find),
    write("lpush", -3, ONE, "1.0.0", "Adds items at the left end.", |args| push(args, End::Left, false)),
    write("rpush", -3, ONE, "1.0.0", "Adds items at the right end.", |args| push(args, End::Right, false)),
    write("lpushx", -3, ONE, "2.2.0", "Adds items at the left end of a list that exists.", |args| {
        push(args, End::Left, true)
    }),
    write("rpushx", -3, ONE, "2.2.0", "Adds items at the right end of a list that exists.", |args| {
        push(args, End::Right, true)
    }),
    write("lpop", -2, ONE, "1.0.0", "Removes items at the left end, and returns them.", |args| pop(args, End::Left)),
    write("rpop", -2, ONE, "1.0.0", "Removes items at the right end, and returns them.", |args| pop(args, End::Right)),
    write("lset", 4, ONE, "1.0.0", "Replaces an item.", set),
    write("linsert", 5, ONE, "2.2.0", "Adds an item beside another one.", insert),
    write("lrem", 4, ONE, "1.0.0", "Removes items that equal a value.", remove),
    write("ltrim", 4, ONE, "1.0.0", "Removes the items outside of a range.", trim),
    write("lmove", 5, TWO, "6.2.0", "Moves an item to a list.", move_to),
    write("rpoplpush", 3, TWO, "1.2.0", "Moves the last item to the left end of a list.", rotate),
    write("lmpop", -4, Places::Counted(1), "7.0.0", "Removes items of the first list that has any.", pop_first),
];

/// The words for the ends of a list.
pub const ENDS: &[(&str, End)] = &[("LEFT", End::Left), ("RIGHT", End::Right)];

fn range(args: &mut Args) -> Planned {
    let (key, start, stop) = (args.next()?, args.integer()?, args.integer()?);
    args.plan(KeysCommand::List(ListCommand::Range { key, start, stop }), replies::values)
}

fn index(args: &mut Args) -> Planned {
    let (key, index) = (args.next()?, args.integer());
    let index = match index {
        Ok(index) => index,
        Err(refusal) => return args.refuse_after(key, Kind::List, Frame::Null, refusal),
    };
    args.plan(KeysCommand::List(ListCommand::Index { key, index }), replies::value)
}

fn push(args: &mut Args, end: End, existing: bool) -> Planned {
    let (key, values) = (args.next()?, args.rest());
    args.plan(KeysCommand::List(ListCommand::Push { key, values, end, existing }), replies::count)
}

fn pop(args: &mut Args, end: End) -> Planned {
    let key = args.next()?;
    if args.is_empty() {
        return args.plan(KeysCommand::List(ListCommand::Pop { key, count: 1, end }), replies::value);
    }
    if args.left() > 1 {
        return Err(args.arity());
    }
    let count = args.positive()?;
    args.plan(KeysCommand::List(ListCommand::Pop { key, count, end }), replies::values)
}

fn set(args: &mut Args) -> Planned {
    let (key, index, value) = (args.next()?, args.integer(), args.next()?);
    let index = match index {
        Ok(index) => index,
        Err(refusal) => return args.refuse_after(key, Kind::List, no_key(), refusal),
    };
    args.plan(KeysCommand::List(ListCommand::Set { key, index, value }), |reply| match reply {
        KeysReply::Missing => no_key(),
        reply => replies::ok(reply),
    })
}

fn no_key() -> Frame {
    Frame::error("ERR no such key")
}

fn insert(args: &mut Args) -> Planned {
    let key = args.next()?;
    let before = args.choice(&[("BEFORE", true), ("AFTER", false)]).ok_or(Refusal::Syntax)?;
    let (pivot, value) = (args.next()?, args.next()?);
    args.plan(KeysCommand::List(ListCommand::Insert { key, before, pivot, value }), |reply| match reply {
        KeysReply::NotApplied => Frame::Integer(-1),
        reply => replies::count(reply),
    })
}

fn remove(args: &mut Args) -> Planned {
    let (key, count, value) = (args.next()?, args.integer()?, args.next()?);
    args.plan(KeysCommand::List(ListCommand::Remove { key, count, value }), replies::count)
}

fn trim(args: &mut Args) -> Planned {
    let (key, start, stop) = (args.next()?, args.integer()?, args.integer()?);
    args.plan(KeysCommand::List(ListCommand::Trim { key, start, stop }), replies::ok)
}

fn move_to(args: &mut Args) -> Planned {
    let (from, to) = (args.next()?, args.next()?);
    let from_end = args.choice(ENDS).ok_or(Refusal::Syntax)?;
    let to_end = args.choice(ENDS).ok_or(Refusal::Syntax)?;
    args.plan(KeysCommand::List(ListCommand::Move { from, to, from_end, to_end }), replies::value)
}

fn rotate(args: &mut Args) -> Planned {
    let (from, to) = (args.next()?, args.next()?);
    let command = ListCommand::Move { from, to, from_end: End::Right, to_end: End::Left };
    args.plan(KeysCommand::List(command), replies::value)
}

fn pop_first(args: &mut Args) -> Planned {
    let pop = FirstPop::read(args)?;
    args.end()?;
    Ok(pop.plan(args.moment.space, nested))
}

/// Returns a key, and an array of its items.
pub fn nested(key: Bytes, items: Vec<Bytes>) -> Frame {
    Frame::Array(vec![Frame::Bulk(key), Frame::bulks(items)])
}

/// Removes items of the first list that has any.
#[derive(Clone, Debug)]
pub struct FirstPop {
    pub keys: Vec<Bytes>,
    pub end: End,
    pub count: u64,
}

impl FirstPop {
    /// Reads the words from the number of keys on.
    pub fn read(args: &mut Args) -> Result<Self, Refusal> {
        let keys = counted_keys(args)?;
        let end = args.choice(ENDS).ok_or(Refusal::Syntax)?;
        Ok(Self { keys, end, count: pop_count(args)? })
    }

    /// Returns the plan; `shape` makes the reply of the key and its items.
    pub fn plan(&self, space: Space, shape: fn(Bytes, Vec<Bytes>) -> Frame) -> Plan {
        let command = ListCommand::PopFirst { keys: self.keys.clone(), count: self.count, end: self.end };
        Plan::one(space, KeysCommand::List(command), move |reply| match reply {
            KeysReply::MembersOf(key, items) => shape(key, items),
            KeysReply::Missing => Frame::NullArray,
            other => replies::unexpected(&other),
        })
    }
}

/// Reads the number of keys, and the keys, of a command that takes from the first one that has anything.
pub fn counted_keys(args: &mut Args) -> Result<Vec<Bytes>, Refusal> {
    let count = integer(&args.next()?).filter(|count| *count > 0);
    let count = count.ok_or(Refusal::Text("ERR numkeys should be greater than 0"))?;
    args.take(usize::try_from(count).map_err(|_| Refusal::Syntax)?)
}

/// Reads how many are taken, if that is said.
pub fn pop_count(args: &mut Args) -> Result<u64, Refusal> {
    if !args.option("COUNT") {
        return Ok(1);
    }
    let count = integer(&args.next()?).and_then(|count| u64::try_from(count).ok()).filter(|count| *count > 0);
    count.ok_or(Refusal::Text("ERR count should be greater than 0"))
}

/// Finds items: all of them if COUNT is 0, and one by itself without COUNT.
fn find(args: &mut Args) -> Planned {
    let (key, value) = (args.next()?, args.next()?);
    let (mut rank, mut count, mut within) = (1, None, 0);
    while !args.is_empty() {
        if args.left() > 1 && args.option("RANK") {
            rank = search_rank(args)?;
        } else if args.left() > 1 && args.option("COUNT") {
            count = Some(args.positive().map_err(|_| Refusal::Text("ERR COUNT can't be negative"))?);
        } else if args.left() > 1 && args.option("MAXLEN") {
            within = args.positive().map_err(|_| Refusal::Text("ERR MAXLEN can't be negative"))?;
        } else {
            return Err(Refusal::Syntax);
        }
    }
    let all_if_0 = |number: u64| if number == 0 { u64::MAX } else { number };
    let command = ListCommand::Find {
        key,
        value,
        from: if rank < 0 { End::Right } else { End::Left },
        skip: rank.unsigned_abs() - 1,
        limit: count.map_or(1, all_if_0),
        within: all_if_0(within),
    };
    args.plan(KeysCommand::List(command), move |reply| match reply {
        KeysReply::Indexes(found) if count.is_some() => Frame::Array(found.into_iter().map(Frame::count).collect()),
        KeysReply::Indexes(found) => found.first().map_or(Frame::Null, |index| Frame::count(*index)),
        other => replies::unexpected(&other),
    })
}

/// Reads which match is the first one: from the end, if negative.
fn search_rank(args: &mut Args) -> Result<i64, Refusal> {
    match args.integer()? {
        i64::MIN => Err(Refusal::Text(
            "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
        )),
        0 => Err(Refusal::Text(
            "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to \
             start from the end of the list",
        )),
        rank => Ok(rank),
    }
}
