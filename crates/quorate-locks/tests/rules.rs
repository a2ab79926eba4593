//! What holds for locks, whatever commands come: shown on the state before and after each command.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests stop at the first surprise")]

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;
use quorate_locks::suite::{BUDGET, NOW, Step, resolve, steps};
use quorate_locks::{
    Claim, Context, Lease, LockInfo, Locks, LocksCommand, LocksError, LocksReply, Memory, Token, Wait, limits, sweep,
};
use quorate_model::keys::Span;

const SECOND: u64 = 1_000_000_000;

/// Tables, with the time and the number of entries.
struct World {
    tables: Memory,
    now: u64,
    index: u64,
}

impl World {
    fn new() -> Self {
        Self { tables: Memory::default(), now: NOW, index: 0 }
    }

    fn run(&mut self, command: &LocksCommand) -> Result<LocksReply, LocksError> {
        self.index += 1;
        Locks::new(&mut self.tables, &mut Context::new(self.now, self.index, BUDGET)).run(command)
    }

    /// Lets time pass as a tick does; returns whom it has touched.
    fn later(&mut self, nanos: u64) -> Vec<Bytes> {
        self.now += nanos;
        self.index += 1;
        let mut context = Context::new(self.now, self.index, 0);
        sweep(&mut self.tables, &mut context, usize::MAX).unwrap();
        context.take_touched().into_iter().map(|touched| touched.holder).collect()
    }

    fn acquire(&mut self, holder: &'static str, permits: u64, wait: Option<u64>) -> LocksReply {
        self.run(&acquire(holder, permits, wait)).unwrap()
    }

    fn release(&mut self, holder: &'static str) -> LocksReply {
        self.run(&LocksCommand::Release { name: "jobs".into(), holder: holder.into() }).unwrap()
    }

    fn expect(&mut self, token: Token) -> Result<LocksReply, LocksError> {
        self.run(&LocksCommand::Expect { name: "jobs".into(), token })
    }

    /// Returns all locks at the present time.
    fn locks(&mut self) -> BTreeMap<Bytes, LockInfo> {
        let list = LocksCommand::List { names: Span::ALL, limit: limits::LIST_MAX };
        let listed = Locks::new(&mut self.tables, &mut Context::new(self.now, 0, BUDGET)).run(&list);
        let Ok(LocksReply::Locks(page)) = listed else { panic!("no list: {listed:?}") };
        page.rows.into_iter().map(|lock| (lock.name.clone(), lock)).collect()
    }
}

fn acquire(holder: &'static str, permits: u64, wait: Option<u64>) -> LocksCommand {
    let (name, holder, note) = ("jobs".into(), holder.into(), Bytes::new());
    LocksCommand::Acquire { name, holder, ttl: SECOND, permits, wait, note }
}

fn token(reply: &LocksReply) -> Token {
    match reply {
        LocksReply::Held(lease) | LocksReply::Released(lease) | LocksReply::Busy(lease) => lease.token,
        other => panic!("no token: {other:?}"),
    }
}

#[test]
fn a_permit_goes_to_the_first_who_waits_and_lives() {
    let mut world = World::new();
    let first = token(&world.acquire("ann", 1, None));
    assert_eq!(world.acquire("bob", 1, Some(SECOND / 2)), LocksReply::Waiting(Wait { ahead: 0, left: SECOND / 2 }));
    assert_eq!(world.acquire("cid", 1, Some(SECOND)), LocksReply::Waiting(Wait { ahead: 1, left: SECOND }));
    assert_eq!(world.acquire("dan", 1, None), LocksReply::Busy(Lease { token: first, left: SECOND }));
    // Bob's wait ends, because he does not renew it.
    assert_eq!(world.later(SECOND / 2), ["bob"]);
    assert_eq!(world.release("ann"), LocksReply::Released(Lease { token: first, left: SECOND / 2 }));
    let second = token(&world.acquire("cid", 1, None));
    assert!(second > first);
    assert_eq!(world.acquire("bob", 1, None), LocksReply::Busy(Lease { token: second, left: SECOND }));
}

#[test]
fn the_end_of_a_lease_is_a_grant_for_the_next() {
    let mut world = World::new();
    let first = token(&world.acquire("ann", 1, None));
    world.acquire("bob", 1, Some(10 * SECOND));
    assert_eq!(world.later(SECOND - 1), [] as [&str; 0]);
    assert!(world.expect(first).is_ok());
    assert_eq!(world.later(1), ["ann", "bob"]);
    assert_eq!(world.expect(first), Err(LocksError::NotHeld(first)));
    let renew = LocksCommand::Renew { name: "jobs".into(), holder: "ann".into(), token: first, ttl: SECOND };
    assert_eq!(world.run(&renew), Ok(LocksReply::Missing));
    assert!(token(&world.acquire("bob", 1, None)) > first);
}

#[test]
fn who_acquires_again_keeps_the_token_and_who_waits_again_the_place() {
    let mut world = World::new();
    let first = token(&world.acquire("ann", 1, None));
    world.acquire("bob", 1, Some(SECOND));
    world.acquire("cid", 1, Some(SECOND));
    world.later(SECOND / 2);
    assert_eq!(world.acquire("ann", 1, None), LocksReply::Held(Lease { token: first, left: SECOND }));
    assert_eq!(world.acquire("bob", 1, Some(SECOND)), LocksReply::Waiting(Wait { ahead: 0, left: SECOND }));
    assert_eq!(world.acquire("cid", 1, Some(SECOND)), LocksReply::Waiting(Wait { ahead: 1, left: SECOND }));
    // Waiting is not lost by asking without waiting.
    assert_eq!(world.acquire("bob", 1, None), LocksReply::Waiting(Wait { ahead: 0, left: SECOND }));
}

#[test]
fn a_semaphore_has_its_permits_and_all_say_the_same_number() {
    let mut world = World::new();
    let tokens = ["ann", "bob"].map(|holder| token(&world.acquire(holder, 2, None)));
    assert_eq!(world.acquire("cid", 1, None), LocksReply::OtherPermits(2));
    assert!(matches!(world.acquire("cid", 2, None), LocksReply::Busy(lease) if lease.token == tokens[0]));
    let forced = world.run(&LocksCommand::Force { name: "jobs".into(), token: Some(tokens[0]) });
    assert_eq!(forced, Ok(LocksReply::Forced(vec![tokens[0]])));
    assert!(world.expect(tokens[0]).is_err() && world.expect(tokens[1]).is_ok());
    assert!(token(&world.acquire("cid", 2, None)) > tokens[1]);
    assert_eq!(
        world.run(&LocksCommand::Force { name: "jobs".into(), token: None }).map(|reply| match reply {
            LocksReply::Forced(tokens) => tokens.len(),
            _ => 0,
        }),
        Ok(2)
    );
    // Nobody holds it any more, so it may have another number.
    assert!(matches!(world.acquire("cid", 1, None), LocksReply::Held(_)));
}

#[test]
fn a_withdrawal_tells_of_a_grant_that_was_faster() {
    let mut world = World::new();
    let withdraw = LocksCommand::Withdraw { name: "jobs".into(), holder: "bob".into() };
    world.acquire("ann", 1, None);
    world.acquire("bob", 1, Some(SECOND));
    world.release("ann");
    assert!(matches!(world.run(&withdraw), Ok(LocksReply::Held(_))));
    world.release("bob");
    assert_eq!(world.run(&withdraw), Ok(LocksReply::Missing));
    world.acquire("ann", 1, None);
    world.acquire("bob", 1, Some(SECOND));
    assert_eq!(world.run(&withdraw), Ok(LocksReply::Withdrawn));
}

#[test]
fn only_so_many_wait() {
    let mut world = World::new();
    world.acquire("ann", 1, None);
    let wait = |holder: u64| LocksCommand::Acquire {
        name: "jobs".into(),
        holder: holder.to_string().into(),
        ttl: SECOND,
        permits: 1,
        wait: Some(SECOND),
        note: Bytes::new(),
    };
    for holder in 0..limits::WAITERS_MAX {
        assert!(matches!(world.run(&wait(holder)), Ok(LocksReply::Waiting(wait)) if wait.ahead == holder));
    }
    assert!(matches!(world.run(&wait(limits::WAITERS_MAX)), Ok(LocksReply::Full(_))));
}

#[test]
fn tokens_rise_over_a_restore() {
    let mut world = World::new();
    world.acquire("ann", 1, None);
    let mut backup = World { tables: world.tables.clone(), ..World::new() };
    let lost: Vec<Token> = (0..5).map(|_| (world.release("ann"), token(&world.acquire("ann", 1, None))).1).collect();
    // A restored history goes on with an index above all that the lost one has had.
    backup.index = 1_000;
    backup.release("ann");
    assert!(lost.into_iter().max().unwrap() < token(&backup.acquire("ann", 1, None)));
}

#[test]
fn a_command_without_budget_writes_nothing() {
    let mut world = World::new();
    world.acquire("ann", 1, None);
    let before = world.tables.clone();
    let mut context = Context::new(world.now, 9, 100);
    let done = Locks::new(&mut world.tables, &mut context).run(&acquire("bob", 1, Some(SECOND)));
    assert_eq!((done, context.budget_left()), (Err(LocksError::OutOfBudget), 0));
    assert_eq!(world.tables, before);
}

/// The state of a lock before a command, and what the command may end.
struct Before<'a> {
    lock: &'a LockInfo,
    now: u64,
    ends: Box<dyn Fn(&Claim) -> bool + 'a>,
}

impl Before<'_> {
    fn lives(&self, claim: &Claim, now: u64) -> bool {
        self.now + claim.left > now && !(self.ends)(claim)
    }

    /// Checks what has become of the lock.
    fn check(&self, after: &LockInfo, now: u64, highest: Token) {
        let find = |all: &[Claim], claim: &Claim| all.iter().find(|found| found.holder == claim.holder).cloned();
        for holder in self.lock.holders.iter().filter(|holder| self.lives(holder, now)) {
            let kept = find(&after.holders, holder).unwrap_or_else(|| panic!("a lease ended early: {holder:?}"));
            assert_eq!(kept.token, holder.token, "a lease has another token");
        }
        // Those who wait are served in their order.
        let waited: Vec<_> = self.lock.waiters.iter().filter(|waiter| self.lives(waiter, now)).collect();
        let served = |waiter: &&&Claim| find(&after.holders, waiter).is_some();
        let first_unserved = waited.iter().position(|waiter| !served(&waiter)).unwrap_or(waited.len());
        assert_eq!(waited.iter().filter(served).count(), first_unserved, "not first come, first served");
        for waiter in waited.iter().skip(first_unserved) {
            assert!(find(&after.waiters, waiter).is_some(), "a wait ended early: {waiter:?}");
        }
        for holder in &after.holders {
            let is_new = find(&self.lock.holders, holder).is_none_or(|before| before.token != holder.token);
            assert!(!is_new || holder.token > highest, "a new token is not the highest");
        }
    }
}

fn check(before: &BTreeMap<Bytes, LockInfo>, then: u64, step: &Step, world: &mut World, highest: Token) {
    let now = world.now;
    for (name, after) in world.locks() {
        assert!(after.holders.len() as u64 <= after.permits, "more hold the lock than it has permits");
        if step.command.name() == Some(&name) && !step.command.only_reads() {
            let all_held = after.holders.len() as u64 == after.permits;
            assert!(all_held || after.waiters.is_empty(), "somebody waits although a permit is free");
        }
        let Some(lock) = before.get(&name) else { continue };
        let ends = |claim: &Claim| match &step.command {
            LocksCommand::Release { name: of, holder } | LocksCommand::Withdraw { name: of, holder } => {
                *of == name && claim.holder == holder
            }
            LocksCommand::Force { name: of, token } => *of == name && token.is_none_or(|token| token == claim.token),
            _ => false,
        };
        Before { lock, now: then, ends: Box::new(ends) }.check(&after, now, highest);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_rules_hold(steps in steps(60)) {
        let (mut world, mut highest) = (World::new(), Token(0));
        for mut step in steps {
            let (before, then) = (world.locks(), world.now);
            world.now += step.later;
            resolve(&mut step.command, &mut world.tables);
            let _ = world.run(&step.command);
            if step.sweep > 0 {
                world.later(0);
            }
            check(&before, then, &step, &mut world, highest);
            let tokens = world.locks().into_values().flat_map(|lock| lock.holders);
            highest = tokens.map(|holder| holder.token).max().unwrap_or_default().max(highest);
        }
    }
}
