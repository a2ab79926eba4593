//! Random streams of commands for tests: of the logic beside a model, and of each engine beside [`Memory`].

use std::fmt::Debug;
use std::ops::ControlFlow;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::*;

pub mod generate;

use generate::{CURRENT, NOW};

/// The steps of a budget that always suffices.
pub const BUDGET: u64 = 1 << 40;

/// The spaces of the streams.
pub const SPACES: [Space; 2] = [0, 1];

/// A step of a stream: time moves on, a command runs, and a few rows are swept.
#[derive(Clone, Debug)]
pub struct Step {
    /// How much later it is than at the step before.
    pub later: u64,
    /// The space of the command.
    pub space: Space,
    /// The command.
    pub command: KeysCommand,
    /// How many rows are swept.
    pub sweep: usize,
}

/// Draws a stream of at most `most` commands.
pub fn steps(command: impl Strategy<Value = KeysCommand>, most: usize) -> impl Strategy<Value = Vec<Step>> {
    let [usual, other] = SPACES;
    let space = prop_oneof![9 => Just(usual), 1 => Just(other)];
    let sweep = prop_oneof![2 => Just(0), 1 => 0..3_usize];
    let step = (prop_oneof![Just(0), 0..4_u64], space, command, sweep)
        .prop_map(|(later, space, command, sweep)| Step { later, space, command, sweep });
    vec(step, 1..most)
}

/// Puts the version that a key has where a command names the current one.
pub fn resolve(command: &mut KeysCommand, mut version_of: impl FnMut(&Bytes) -> Option<Version>) {
    let mut put = |condition: &mut Condition, key: &Bytes| {
        if *condition == Condition::Version(CURRENT)
            && let Some(version) = version_of(key)
        {
            *condition = Condition::Version(version);
        }
    };
    match command {
        KeysCommand::Key(KeyCommand::Expect { key, version }) if *version == Some(CURRENT) => {
            *version = version_of(key)
        }
        KeysCommand::Key(KeyCommand::Delete { keys, condition }) => keys.iter().for_each(|key| put(condition, key)),
        KeysCommand::String(StringCommand::SetAll { strings, condition, .. }) => {
            strings.iter().for_each(|(key, _)| put(condition, key))
        }
        KeysCommand::String(StringCommand::Set { key, condition, .. })
        | KeysCommand::Hash(HashCommand::Set { key, condition, .. }) => put(condition, key),
        _ => {}
    }
}

/// Runs a stream on empty tables and beside it in memory: replies, touched keys, budgets and what the sweep does must
/// be equal, and in the end all rows. Only in memory events are noted, which changes nothing else. `budgets` are those
/// of the commands in turn. `failed` returns the error of a command, and stops at any other error.
pub fn same_as_memory<T: Tables>(
    tables: &mut T,
    steps: Vec<Step>,
    budgets: &[u64],
    failed: impl Fn(T::Error) -> KeysError,
) {
    let mut memory = Memory::default();
    let mut now = NOW - 20;
    for ((number, mut step), budget) in (1..).zip(steps).zip(budgets.iter().cycle()) {
        now += step.later;
        let find = |key: &Bytes| memory.find_key(step.space, key).ok().flatten().map(|row| row.version);
        resolve(&mut step.command, find);
        let mut actual = Context::new(now, Version::new(number, 0), *budget);
        let mut expected = actual.clone().noting(EventClasses::ALL);
        let reply = Keys::new(&mut memory, &mut expected, step.space).run(&step.command);
        let found = Keys::new(tables, &mut actual, step.space).run(&step.command).map_err(&failed);
        assert_eq!(found, reply, "{step:?}");
        let swept = sweep(&mut memory, &mut expected, step.sweep);
        assert_eq!(sweep(tables, &mut actual, step.sweep).map_err(&failed), swept, "{step:?}");
        drop(expected.take_changes());
        assert_eq!(actual.noting(EventClasses::ALL), expected, "{step:?}");
        assert_eq!(next_due(tables).map_err(&failed), next_due(&mut memory), "{step:?}");
    }
    assert_eq!(rows(tables).map_err(&failed), rows(&mut memory));
}

/// Returns the rows of all keys of the streams, from the last one to the first, and with them all that is theirs.
fn rows<T: Tables>(tables: &mut T) -> Result<Vec<String>, T::Error> {
    let (mut all, mut ids) = (Vec::new(), Vec::new());
    for space in SPACES {
        tables.keys(space, &Span::ALL, Order::Down, &mut |(key, row)| {
            ids.push(row.id);
            push(&mut all, (space, key, row))
        })?;
    }
    for id in ids {
        all.push(format!("{:?}", tables.key(id)?));
        for order in [Order::Down, Order::Up] {
            tables.elements(id, &Span::ALL, order, &mut |row| push(&mut all, row))?;
            tables.expiries(id, order, &mut |row| push(&mut all, row))?;
            tables.members(id, &Span { from: FIRST_PLACE, to: None }, order, &mut |row| push(&mut all, row))?;
            tables.items(id, &Span { from: i64::MIN, to: None }, order, &mut |row| push(&mut all, row))?;
        }
    }
    all.push(format!("{:?}", (tables.first_due()?, tables.first_trash()?)));
    Ok(all)
}

fn push(rows: &mut Vec<String>, row: impl Debug) -> ControlFlow<()> {
    rows.push(format!("{row:?}"));
    ControlFlow::Continue(())
}
