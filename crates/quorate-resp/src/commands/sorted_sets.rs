//! Commands on sorted sets.

use bytes::Bytes;
use quorate_keys::{AddOptions, Compare, KeysCommand, KeysReply, Kind, SortedSetCommand, Space, Which};

use super::hashes::{count, draws, draws_with};
use super::lists::{counted_keys, pop_count};
use crate::args::{Args, Planned};
use crate::error::Refusal;
use crate::frame::Frame;
use crate::number::double;
use crate::plan::Plan;
use crate::replies;
use crate::table::{ONE, Places, Spec, read, write};

/// The rows of commands on sorted sets, but for those on ranges.
pub const COMMANDS: &[Spec] = &[
    read("zscore", 3, ONE, "1.2.0", "Returns the score of a member.", score),
    read("zmscore", -3, ONE, "6.2.0", "Returns the scores of members.", scores),
    read("zcard", 2, ONE, "1.2.0", "Returns how many members there are.", |args| count(args, Kind::SortedSet)),
    read("zrank", -3, ONE, "2.0.0", "Returns how many members are before one.", |args| rank(args, false)),
    read("zrevrank", -3, ONE, "2.0.0", "Returns how many members are after one.", |args| rank(args, true)),
    read("zrandmember", -2, ONE, "6.2.0", "Returns members at random.", random),
    write("zadd", -4, ONE, "1.2.0", "Adds members, or changes their scores.", add),
    write("zincrby", 4, ONE, "1.2.0", "Adds to the score of a member.", increase),
    write("zrem", -3, ONE, "1.2.0", "Removes members.", remove),
    write("zpopmin", -2, ONE, "5.0.0", "Removes the members of the lowest scores.", |args| pop(args, false)),
    write("zpopmax", -2, ONE, "5.0.0", "Removes the members of the highest scores.", |args| pop(args, true)),
    write("zmpop", -4, Places::Counted(1), "7.0.0", "Removes members of the first set that has any.", pop_first),
];

fn score(args: &mut Args) -> Planned {
    let (key, members) = (args.next()?, vec![args.next()?]);
    args.plan(KeysCommand::SortedSet(SortedSetCommand::Scores { key, members }), replies::score)
}

fn scores(args: &mut Args) -> Planned {
    let (key, members) = (args.next()?, args.rest());
    args.plan(KeysCommand::SortedSet(SortedSetCommand::Scores { key, members }), replies::scores)
}

fn rank(args: &mut Args, reverse: bool) -> Planned {
    let (key, member) = (args.next()?, args.next()?);
    if args.left() > 1 {
        return Err(args.arity());
    }
    let with_score = args.option("WITHSCORE");
    let command = SortedSetCommand::Rank { key, member, reverse };
    args.plan(KeysCommand::SortedSet(command), move |reply| match reply {
        KeysReply::Rank(rank, score) if with_score => Frame::Array(vec![Frame::count(rank), Frame::Double(score)]),
        KeysReply::Rank(rank, _) => Frame::count(rank),
        KeysReply::Missing if with_score => Frame::NullArray,
        KeysReply::Missing => Frame::Null,
        other => replies::unexpected(&other),
    })
}

fn add(args: &mut Args) -> Planned {
    const WHICH: &[(&str, Which)] = &[("NX", Which::Missing), ("XX", Which::Exists)];
    const COMPARE: &[(&str, Compare)] = &[("GT", Compare::Greater), ("LT", Compare::Less)];
    let key = args.next()?;
    let (mut missing, mut exists, mut greater, mut less) = (false, false, false, false);
    let (mut count_changed, mut increments) = (false, false);
    loop {
        if let Some(which) = args.choice(WHICH) {
            missing |= which == Which::Missing;
            exists |= which == Which::Exists;
        } else if let Some(compare) = args.choice(COMPARE) {
            greater |= compare == Compare::Greater;
            less |= compare == Compare::Less;
        } else if args.option("CH") {
            count_changed = true;
        } else if args.option("INCR") {
            increments = true;
        } else {
            break;
        }
    }
    if args.is_empty() || !args.left().is_multiple_of(2) {
        return Err(Refusal::Syntax);
    }
    if missing && exists {
        return Err(Refusal::Text("ERR XX and NX options at the same time are not compatible"));
    }
    if (greater && less) || (missing && (greater || less)) {
        return Err(Refusal::Text("ERR GT, LT, and/or NX options at the same time are not compatible"));
    }
    if increments && args.left() > 2 {
        return Err(Refusal::Text("ERR INCR option supports a single increment-element pair"));
    }
    let which = if missing {
        Which::Missing
    } else if exists {
        Which::Exists
    } else {
        Which::Any
    };
    let compare = if greater {
        Compare::Greater
    } else if less {
        Compare::Less
    } else {
        Compare::Any
    };
    let options = AddOptions { which, compare };
    if increments {
        let (by, member) = (args.double()?, args.next()?);
        let command = SortedSetCommand::Increment { key, member, by, options };
        return args.plan(KeysCommand::SortedSet(command), replies::score);
    }
    let scored = |(score, member): (Bytes, Bytes)| Ok((double(&score).ok_or(Refusal::NotFloat)?, member));
    let members = args.pairs()?.into_iter().map(scored).collect::<Result<_, Refusal>>()?;
    let command = SortedSetCommand::Add { key, members, options, count_changed };
    args.plan(KeysCommand::SortedSet(command), replies::count)
}

fn increase(args: &mut Args) -> Planned {
    let (key, by, member) = (args.next()?, args.double()?, args.next()?);
    let command = SortedSetCommand::Increment { key, member, by, options: AddOptions::default() };
    args.plan(KeysCommand::SortedSet(command), replies::score)
}

fn remove(args: &mut Args) -> Planned {
    let (key, members) = (args.next()?, args.rest());
    args.plan(KeysCommand::SortedSet(SortedSetCommand::Remove { key, members }), replies::count)
}

fn pop(args: &mut Args, reverse: bool) -> Planned {
    let key = args.next()?;
    if args.left() > 1 {
        return Err(Refusal::Syntax);
    }
    let is_one = args.is_empty();
    let count = if is_one { 1 } else { args.positive()? };
    args.plan(KeysCommand::SortedSet(SortedSetCommand::Pop { key, count, reverse }), move |reply| match reply {
        // One that was not asked for by a number is no pair in an array.
        KeysReply::Scored(members) if is_one => {
            Frame::Array(replies::pairs(members).flat_map(|(member, score)| [member, score]).collect())
        }
        reply => replies::scored(true)(reply),
    })
}

fn pop_first(args: &mut Args) -> Planned {
    let pop = FirstPop::read(args)?;
    args.end()?;
    Ok(pop.plan(args.moment.space, nested))
}

/// Returns a key, and an array of its members with their scores.
pub fn nested(key: Bytes, members: Vec<(Bytes, f64)>) -> Frame {
    let pairs = replies::pairs(members).map(|(member, score)| Frame::Array(vec![member, score]));
    Frame::Array(vec![Frame::Bulk(key), Frame::Array(pairs.collect())])
}

/// Removes members of the first set that has any.
#[derive(Clone, Debug)]
pub struct FirstPop {
    pub keys: Vec<Bytes>,
    pub reverse: bool,
    pub count: u64,
}

impl FirstPop {
    /// Reads the words from the number of keys on.
    pub fn read(args: &mut Args) -> Result<Self, Refusal> {
        let keys = counted_keys(args)?;
        let reverse = args.choice(&[("MIN", false), ("MAX", true)]).ok_or(Refusal::Syntax)?;
        Ok(Self { keys, reverse, count: pop_count(args)? })
    }

    /// Returns the plan; `shape` makes the reply of the key and its members.
    pub fn plan(&self, space: Space, shape: fn(Bytes, Vec<(Bytes, f64)>) -> Frame) -> Plan {
        let (keys, count, reverse) = (self.keys.clone(), self.count, self.reverse);
        let command = SortedSetCommand::PopFirst { keys, count, reverse };
        Plan::one(space, KeysCommand::SortedSet(command), move |reply| match reply {
            KeysReply::ScoredOf(key, members) => shape(key, members),
            KeysReply::Missing => Frame::NullArray,
            other => replies::unexpected(&other),
        })
    }
}

fn random(args: &mut Args) -> Planned {
    let key = args.next()?;
    let is_one = args.is_empty();
    let (count, repeats) = if is_one { (1, false) } else { draws(args)? };
    let with_scores = !is_one && draws_with(args, "WITHSCORES", count)?;
    let command = SortedSetCommand::Draw { key, count, repeats, seed: args.moment.seed };
    args.plan(KeysCommand::SortedSet(command), move |reply| match reply {
        KeysReply::Scored(members) if is_one => {
            Frame::bulk_or_null(members.into_iter().next().map(|(member, _)| member))
        }
        reply => replies::scored(with_scores)(reply),
    })
}
