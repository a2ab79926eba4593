//! Random streams of commands for tests: of the logic beside what must hold, and of each engine beside [`Memory`].

use std::ops::ControlFlow;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use quorate_model::keys::Span;

use crate::*;

/// The time at which streams begin.
pub const NOW: u64 = 1_700_000_000_000_000_000;

/// The steps of a budget that always suffices.
pub const BUDGET: u64 = 1 << 40;

/// The locks of the streams.
pub const NAMES: [&str; 2] = ["jobs", "jobs/2"];

/// The unit of the times of the streams.
const TICK: u64 = 100_000_000;

/// A step of a stream: time moves on, a command runs, and a few locks are swept.
#[derive(Clone, Debug)]
pub struct Step {
    /// How much later it is than at the step before.
    pub later: u64,
    /// The command.
    pub command: LocksCommand,
    /// How many locks are swept.
    pub sweep: usize,
}

/// Draws a stream of at most `most` commands.
pub fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let later = prop_oneof![2 => Just(0), 3 => (0..4_u64).prop_map(|ticks| ticks * TICK / 2)];
    let step = (later, command(), prop_oneof![2 => Just(0), 1 => 0..3_usize])
        .prop_map(|(later, command, sweep)| Step { later, command, sweep });
    vec(step, 1..most)
}

fn command() -> impl Strategy<Value = LocksCommand> {
    let name = || select(NAMES.to_vec()).prop_map(Bytes::from);
    let holder = || select(vec!["ann", "bob", "cid", "dan", "eve"]).prop_map(Bytes::from);
    let lasts = || (1..6_u64).prop_map(|ticks| ticks * TICK);
    let permits = prop_oneof![12 => Just(1), 6 => Just(2), 1 => Just(3)];
    let acquire = (name(), holder(), lasts(), permits, proptest::option::weighted(0.7, lasts()));
    let token = || prop_oneof![4 => Just(CURRENT), 1 => (0..1_000_u64).prop_map(Token)];
    prop_oneof![
        10 => acquire.prop_map(|(name, holder, ttl, permits, wait)| {
            LocksCommand::Acquire { name, note: holder.clone(), holder, ttl, permits, wait }
        }),
        3 => (name(), holder(), token(), lasts())
            .prop_map(|(name, holder, token, ttl)| LocksCommand::Renew { name, holder, token, ttl }),
        4 => (name(), holder()).prop_map(|(name, holder)| LocksCommand::Release { name, holder }),
        1 => (name(), holder()).prop_map(|(name, holder)| LocksCommand::Withdraw { name, holder }),
        1 => (name(), proptest::option::of(token())).prop_map(|(name, token)| LocksCommand::Force { name, token }),
        2 => (name(), token()).prop_map(|(name, token)| LocksCommand::Expect { name, token }),
        1 => name().prop_map(|name| LocksCommand::Inspect { name }),
        1 => (1..3_u64).prop_map(|limit| LocksCommand::List { names: Span::ALL, limit }),
    ]
}

/// Stands in a stream for the token of the holder, or of the first one.
const CURRENT: Token = Token(u64::MAX);

/// Puts the token that is in force where a command names the current one.
pub fn resolve(command: &mut LocksCommand, memory: &mut Memory) {
    let mut of = |name: &Bytes, holder: Option<&Bytes>| {
        let mut found = None;
        let visited = memory.claims(name, true, &mut |claim| {
            if holder.is_none_or(|holder| *holder == claim.holder) {
                found = found.or(Some(claim.number));
            }
            ControlFlow::Continue(())
        });
        visited.ok().and(found).unwrap_or_default()
    };
    match command {
        LocksCommand::Renew { name, holder, token, .. } if *token == CURRENT => *token = of(name, Some(holder)),
        LocksCommand::Expect { name, token } | LocksCommand::Force { name, token: Some(token) }
            if *token == CURRENT =>
        {
            *token = of(name, None);
        }
        _ => {}
    }
}

/// Runs a stream on empty tables and beside it in memory: replies, whom they touch, budgets and what the sweep does
/// must be equal. `failed` returns the error of a command, and stops at any other error.
pub fn same_as_memory<T: Tables>(tables: &mut T, steps: Vec<Step>, failed: impl Fn(T::Error) -> LocksError) {
    let mut memory = Memory::default();
    let mut now = NOW;
    for (index, mut step) in (1..).zip(steps) {
        now += step.later;
        resolve(&mut step.command, &mut memory);
        let mut expected = Context::new(now, index, BUDGET);
        let mut actual = expected.clone();
        let reply = Locks::new(&mut memory, &mut expected).run(&step.command);
        let found = Locks::new(tables, &mut actual).run(&step.command).map_err(&failed);
        assert_eq!(found, reply, "{step:?}");
        let swept = sweep(&mut memory, &mut expected, step.sweep);
        assert_eq!(sweep(tables, &mut actual, step.sweep).map_err(&failed), swept, "{step:?}");
        assert_eq!(actual, expected, "{step:?}");
        assert_eq!(next_due(tables).map_err(&failed), next_due(&mut memory), "{step:?}");
        let list = LocksCommand::List { names: Span::ALL, limit: limits::LIST_MAX };
        let held = Locks::new(&mut memory, &mut expected).run(&list);
        assert_eq!(Locks::new(tables, &mut actual).run(&list).map_err(&failed), held, "{step:?}");
    }
}
