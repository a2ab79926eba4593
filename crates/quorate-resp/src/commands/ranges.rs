//! Commands on ranges of sorted sets.

use std::ops::Bound;

use bytes::Bytes;
use quorate_keys::{KeysCommand, Range, SortedSetCommand};

use crate::args::{Args, Planned};
use crate::error::Refusal;
use crate::number::{double, integer};
use crate::replies;
use crate::table::{ONE, Spec, TWO, read, write};

/// The rows of commands on ranges.
pub const COMMANDS: &[Spec] = &[
    read("zrange", -4, ONE, "1.2.0", "Returns the members of a range.", |args| range(args, None, None)),
    read("zrevrange", -4, ONE, "1.2.0", "Returns the members between ranks, the last one first.", |args| {
        range(args, Some(By::Rank), Some(true))
    }),
    read("zrangebyscore", -4, ONE, "1.0.5", "Returns the members between scores.", |args| {
        range(args, Some(By::Score), Some(false))
    }),
    read("zrevrangebyscore", -4, ONE, "2.2.0", "Returns the members between scores, the last one first.", |args| {
        range(args, Some(By::Score), Some(true))
    }),
    read("zrangebylex", -4, ONE, "2.8.9", "Returns the members between names.", |args| {
        range(args, Some(By::Member), Some(false))
    }),
    read("zrevrangebylex", -4, ONE, "2.8.9", "Returns the members between names, the last one first.", |args| {
        range(args, Some(By::Member), Some(true))
    }),
    read("zcount", 4, ONE, "2.0.0", "Returns how many members are between scores.", |args| count(args, By::Score)),
    read("zlexcount", 4, ONE, "2.8.9", "Returns how many members are between names.", |args| count(args, By::Member)),
    write("zrangestore", -5, TWO, "6.2.0", "Stores the members of a range.", store),
    write("zremrangebyrank", 4, ONE, "2.0.0", "Removes the members between ranks.", |args| remove(args, By::Rank)),
    write("zremrangebyscore", 4, ONE, "1.2.0", "Removes the members between scores.", |args| remove(args, By::Score)),
    write("zremrangebylex", 4, ONE, "2.8.9", "Removes the members between names.", |args| remove(args, By::Member)),
];

/// What bounds a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Member,
}

impl By {
    fn range(self, min: &Bytes, max: &Bytes) -> Result<Range, Refusal> {
        let rank = |word: &Bytes| integer(word).ok_or(Refusal::NotInteger);
        match self {
            Self::Rank => Ok(Range::Rank(rank(min)?, rank(max)?)),
            Self::Score => Ok(Range::Score(score(min)?, score(max)?)),
            Self::Member => {
                let (min, max) = (member(min)?, member(max)?);
                Ok(match (min, max) {
                    (Edge::Last, _) | (_, Edge::First) => NOTHING,
                    (min, max) => Range::Member(min.bound(), max.bound()),
                })
            }
        }
    }
}

/// A range without members.
const NOTHING: Range = Range::Score(Bound::Included(f64::NAN), Bound::Included(f64::NAN));

/// A bound of a range of names.
enum Edge {
    First,
    Last,
    At(Bound<Bytes>),
}

impl Edge {
    fn bound(self) -> Bound<Bytes> {
        if let Self::At(bound) = self { bound } else { Bound::Unbounded }
    }
}

/// Reads a bound of scores. As in Redis, a zero ends the number, and no number is 0.
fn score(word: &[u8]) -> Result<Bound<f64>, Refusal> {
    let number = |word: &[u8]| if word.is_empty() { Some(0.0) } else { double(word) };
    let word = word.split(|byte| *byte == 0).next().unwrap_or_default();
    let bound = match word.strip_prefix(b"(") {
        Some(word) => number(word).map(Bound::Excluded),
        None => number(word).map(Bound::Included),
    };
    bound.ok_or(Refusal::Text("ERR min or max is not a float"))
}

fn member(word: &Bytes) -> Result<Edge, Refusal> {
    match word.as_ref() {
        b"-" => Ok(Edge::First),
        b"+" => Ok(Edge::Last),
        [b'[', ..] => Ok(Edge::At(Bound::Included(word.slice(1..)))),
        [b'(', ..] => Ok(Edge::At(Bound::Excluded(word.slice(1..)))),
        _ => Err(Refusal::Text("ERR min or max not valid string range item")),
    }
}

/// What members are asked for.
struct Wanted {
    key: Bytes,
    range: Range,
    reverse: bool,
    offset: u64,
    limit: u64,
    with_scores: bool,
}

/// Reads a range. What bounds it, and the direction, are options of commands whose names do not say it.
fn wanted(args: &mut Args, by: Option<By>, reverse: Option<bool>, is_stored: bool) -> Result<Wanted, Refusal> {
    let (key, first, last) = (args.next()?, args.next()?, args.next()?);
    let (mut given, mut backwards, mut limit, mut with_scores) = (by, reverse, None, false);
    // Each of them may be given once.
    while !args.is_empty() {
        if !is_stored && args.option("WITHSCORES") {
            with_scores = true;
        } else if args.left() > 2 && args.option("LIMIT") {
            limit = Some((args.integer()?, args.integer()?));
        } else if backwards.is_none() && args.option("REV") {
            backwards = Some(true);
        } else {
            let word = args.choice(&[("BYSCORE", By::Score), ("BYLEX", By::Member)]);
            given = Some(word.filter(|_| given.is_none()).ok_or(Refusal::Syntax)?);
        }
    }
    let (by, reverse) = (given.unwrap_or(By::Rank), backwards.unwrap_or(false));
    if limit.is_some_and(|limit| limit != (0, -1)) && by == By::Rank {
        return Err(Refusal::Text(
            "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
        ));
    }
    if with_scores && by == By::Member {
        return Err(Refusal::Text("ERR syntax error, WITHSCORES not supported in combination with BYLEX"));
    }
    let range = if reverse && by != By::Rank { by.range(&last, &first) } else { by.range(&first, &last) }?;
    let (offset, limit) = match limit {
        // Redis skips all members then.
        Some((offset, _)) if offset < 0 => (0, 0),
        Some((offset, limit)) => (offset.unsigned_abs(), u64::try_from(limit).unwrap_or(u64::MAX)),
        None => (0, u64::MAX),
    };
    Ok(Wanted { key, range, reverse, offset, limit, with_scores })
}

fn range(args: &mut Args, by: Option<By>, reverse: Option<bool>) -> Planned {
    let Wanted { key, range, reverse, offset, limit, with_scores } = wanted(args, by, reverse, false)?;
    let command = SortedSetCommand::Range { key, range, reverse, offset, limit };
    args.plan(KeysCommand::SortedSet(command), replies::scored(with_scores))
}

fn store(args: &mut Args) -> Planned {
    let to = args.next()?;
    let Wanted { key, range, reverse, offset, limit, .. } = wanted(args, None, None, true)?;
    let command = SortedSetCommand::StoreRange { key, to, range, reverse, offset, limit };
    args.plan(KeysCommand::SortedSet(command), replies::count)
}

fn key_and_range(args: &mut Args, by: By) -> Result<(Bytes, Range), Refusal> {
    let (key, min, max) = (args.next()?, args.next()?, args.next()?);
    Ok((key, by.range(&min, &max)?))
}

fn count(args: &mut Args, by: By) -> Planned {
    let (key, range) = key_and_range(args, by)?;
    args.plan(KeysCommand::SortedSet(SortedSetCommand::CountRange { key, range }), replies::count)
}

fn remove(args: &mut Args, by: By) -> Planned {
    let (key, range) = key_and_range(args, by)?;
    args.plan(KeysCommand::SortedSet(SortedSetCommand::RemoveRange { key, range }), replies::count)
}
