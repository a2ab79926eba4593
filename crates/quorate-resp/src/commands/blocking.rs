//! Commands that wait until there is something.

use bytes::Bytes;
use quorate_keys::{End, KeysCommand, ListCommand};

use super::lists::{self, ENDS};
use super::sorted_sets;
use crate::args::{Args, Planned};
use crate::error::Refusal;
use crate::frame::Frame;
use crate::number::double;
use crate::plan::{Awaited, Plan, Wait};
use crate::replies;
use crate::table::{Places, Spec, TWO, write};

/// All words but the last one are keys.
const BUT_LAST: Places = Places::Words(1, -2, 1);

/// The rows of commands that wait for items of lists.
pub const LIST_COMMANDS: &[Spec] = &[
    write("blpop", -3, BUT_LAST, "2.0.0", "Waits for an item, and removes it at the left end.", |args| {
        pop_item(args, End::Left)
    })
    .alone(),
    write("brpop", -3, BUT_LAST, "2.0.0", "Waits for an item, and removes it at the right end.", |args| {
        pop_item(args, End::Right)
    })
    .alone(),
    write("blmove", 6, TWO, "6.2.0", "Waits for an item, and moves it to a list.", move_item).alone(),
    write("brpoplpush", 4, TWO, "2.2.0", "Waits for an item, and moves it to the left end of a list.", rotate).alone(),
    write("blmpop", -5, Places::Counted(2), "7.0.0", "Waits for items, and removes them.", pop_items).alone(),
];

/// The rows of commands that wait for members of sorted sets.
pub const SORTED_SET_COMMANDS: &[Spec] = &[
    write("bzpopmin", -3, BUT_LAST, "5.0.0", "Waits for a member, and removes that of the lowest score.", |args| {
        pop_member(args, false)
    })
    .alone(),
    write("bzpopmax", -3, BUT_LAST, "5.0.0", "Waits for a member, and removes that of the highest score.", |args| {
        pop_member(args, true)
    })
    .alone(),
    write("bzmpop", -5, Places::Counted(2), "7.0.0", "Waits for members, and removes them.", pop_members).alone(),
];

const NANOSECONDS: f64 = 1e9;

/// Reads until when to wait: 0 is for ever.
fn until(word: &[u8], args: &Args) -> Result<Option<u64>, Refusal> {
    let seconds = double(word).filter(|seconds| seconds.is_finite() && *seconds < i64::MAX as f64 / 1_000.0);
    let seconds = seconds.ok_or(Refusal::Text("ERR timeout is not a float or out of range"))?;
    if seconds < 0.0 {
        return Err(Refusal::Text("ERR timeout is negative"));
    }
    Ok((seconds > 0.0).then(|| args.moment.now.saturating_add((seconds * NANOSECONDS) as u64)))
}

/// Returns a plan that waits for a change of keys.
fn waiting(
    args: &Args,
    keys: Vec<Bytes>,
    until: Option<u64>,
    otherwise: Frame,
    make: impl Fn() -> Plan + Send + 'static,
) -> Planned {
    args.end()?;
    let awaited = Awaited::Keys { space: args.moment.space, keys };
    Ok(Plan::or_wait(make, Wait { awaited, until, otherwise }))
}

/// Reads keys, and until when to wait.
fn keys_until(args: &mut Args) -> Result<(Vec<Bytes>, Option<u64>), Refusal> {
    let keys = args.take(args.left().saturating_sub(1))?;
    let word = args.next()?;
    Ok((keys, until(&word, args)?))
}

fn pop_item(args: &mut Args, end: End) -> Planned {
    let ((keys, until), space) = (keys_until(args)?, args.moment.space);
    let pop = lists::FirstPop { keys: keys.clone(), end, count: 1 };
    waiting(args, keys, until, Frame::NullArray, move || {
        pop.plan(space, |key, items| Frame::bulks(std::iter::once(key).chain(items)))
    })
}

fn pop_items(args: &mut Args) -> Planned {
    let word = args.next()?;
    let (until, space) = (until(&word, args)?, args.moment.space);
    let pop = lists::FirstPop::read(args)?;
    waiting(args, pop.keys.clone(), until, Frame::NullArray, move || pop.plan(space, lists::nested))
}

fn move_item(args: &mut Args) -> Planned {
    let (from, to) = (args.next()?, args.next()?);
    let from_end = args.choice(ENDS).ok_or(Refusal::Syntax)?;
    let to_end = args.choice(ENDS).ok_or(Refusal::Syntax)?;
    moving(args, ListCommand::Move { from: from.clone(), to, from_end, to_end }, from)
}

fn rotate(args: &mut Args) -> Planned {
    let (from, to) = (args.next()?, args.next()?);
    moving(args, ListCommand::Move { from: from.clone(), to, from_end: End::Right, to_end: End::Left }, from)
}

fn moving(args: &mut Args, command: ListCommand, from: Bytes) -> Planned {
    let word = args.next()?;
    let (until, space) = (until(&word, args)?, args.moment.space);
    let make = move || Plan::one(space, KeysCommand::List(command.clone()), replies::value);
    waiting(args, vec![from], until, Frame::Null, make)
}

fn pop_member(args: &mut Args, reverse: bool) -> Planned {
    let ((keys, until), space) = (keys_until(args)?, args.moment.space);
    let pop = sorted_sets::FirstPop { keys: keys.clone(), reverse, count: 1 };
    waiting(args, keys, until, Frame::NullArray, move || {
        pop.plan(space, |key, members| {
            let parts = replies::pairs(members).flat_map(|(member, score)| [member, score]);
            Frame::Array(std::iter::once(Frame::Bulk(key)).chain(parts).collect())
        })
    })
}

fn pop_members(args: &mut Args) -> Planned {
    let word = args.next()?;
    let (until, space) = (until(&word, args)?, args.moment.space);
    let pop = sorted_sets::FirstPop::read(args)?;
    waiting(args, pop.keys.clone(), until, Frame::NullArray, move || pop.plan(space, sorted_sets::nested))
}
