//! The engine in memory with the store for tests: the suite, and what the store does, against a model.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use quorate_model::codec::encode_proposal;
use quorate_model::limits::FORMAT_LEVEL;
use quorate_model::{ControlCommand, Entry, LogId, NodeId, Payload, Results};

use super::*;
use crate::suite::{self, Act, Fixture};
use crate::{Applier, SWEPT_PER_ENTRY};

const SECOND: u64 = 1_000_000_000;

struct InMemory;

fn command(act: Act) -> Command {
    let bytes = |number: u8| Bytes::copy_from_slice(&[number]);
    Command::Items(match act {
        Act::Add(key, value, ttl) => {
            ItemsCommand::Add { key: bytes(key), value: bytes(value), ttl: u64::from(ttl) * SECOND }
        }
        Act::Take(key) => ItemsCommand::Take(bytes(key)),
        Act::Expect(key, value) => ItemsCommand::Expect { key: bytes(key), value: bytes(value) },
        Act::Abort => ItemsCommand::Abort,
    })
}

impl Fixture for InMemory {
    type Machine = Memory;

    fn new() -> (Self, Memory) {
        (Self, Memory::new(quorate_model::StoreIdentity::default()))
    }

    /// Restarts the engine by decoding what it has encoded. Both must hold the same data.
    fn restart(&mut self, mut machine: Memory) -> Memory {
        let decoded = Memory::decode(&machine.encode().unwrap()).unwrap();
        assert_eq!(decoded.dump(), machine.restarted().dump());
        decoded
    }

    fn setup(&self) -> Vec<Command> {
        Vec::new()
    }

    fn command(&self, act: Act) -> Command {
        command(act)
    }

    fn contents(&self, machine: &mut Memory) -> String {
        machine.dump()
    }

    fn set_room(&self, machine: &mut Memory, changes: Option<u64>) {
        machine.set_room(changes);
    }
}

#[test]
fn nothing_depends_on_where_batches_end() {
    suite::nothing_depends_on_where_batches_end::<InMemory>();
}

#[test]
fn a_fault_is_never_an_outcome() {
    suite::a_fault_is_never_an_outcome::<InMemory>();
}

/// Returns an applier for an empty machine.
fn applier() -> Applier<Memory> {
    Applier::new(Memory::new(quorate_model::StoreIdentity::default()), FORMAT_LEVEL).unwrap()
}

fn entry(index: u64, now: u64, commands: Vec<Command>) -> Entry {
    let bytes = encode_proposal(&Proposal::new(None, commands)).unwrap();
    let stamp = Stamp { now, seed: 0 };
    Entry { log_id: LogId { term: 1, node: NodeId(1), index }, payload: Payload::Proposal(stamp, bytes) }
}

fn apply(applier: &mut Applier<Memory>, now: u64, commands: Vec<Command>) -> Result<Results, Failure> {
    let index = applier.applied().index() + 1;
    let mut outcomes = Vec::new();
    applier.apply_batch(&[entry(index, now, commands)], &mut outcomes).unwrap();
    outcomes.remove(0).map(|reply| reply.results)
}

/// Returns the result of an act on a plain map, or `None` if the act fails.
fn expected(map: &mut BTreeMap<u8, (u8, u64)>, now: u64, act: Act) -> Option<ItemsReply> {
    map.retain(|_, (_, due)| *due == 0 || *due > now);
    match act {
        Act::Add(key, ..) if map.contains_key(&key) => Some(ItemsReply::Exists),
        Act::Add(key, value, ttl) => {
            map.insert(key, (value, if ttl == 0 { 0 } else { now + u64::from(ttl) * SECOND }));
            Some(ItemsReply::Done)
        }
        Act::Take(key) => Some(match map.remove(&key) {
            Some((value, _)) => ItemsReply::Taken(Bytes::copy_from_slice(&[value])),
            None => ItemsReply::Missing,
        }),
        Act::Expect(key, value) => map.get(&key).is_some_and(|item| item.0 == value).then_some(ItemsReply::Done),
        Act::Abort => None,
    }
}

proptest! {
    #[test]
    fn items_behave_as_a_map(acts in prop::collection::vec((suite::an_act(), 0..3_u64), 1..60)) {
        let mut applier = applier();
        let (mut map, mut now) = (BTreeMap::new(), SECOND);
        for (act, pause) in acts {
            now += pause * SECOND;
            let result = apply(&mut applier, now, vec![command(act)]);
            let expected = expected(&mut map, now, act).map(CommandResult::Items);
            prop_assert_eq!(result.ok().map(|mut results| results.remove(0)), expected);
        }
    }
}

#[test]
fn due_items_are_swept_and_the_next_due_time_is_kept() {
    let mut applier = applier();
    assert_eq!(applier.applied().due, None);
    let adds = (0..10).map(|key| command(Act::Add(key, 0, 1 + key / 5))).collect();
    apply(&mut applier, SECOND, adds).unwrap();
    assert_eq!(applier.applied().due, Some(2 * SECOND));
    // What an ordinary entry sweeps is bounded, and an expired item is gone whether or not it was swept.
    let (last, missing) = (command(Act::Take(4)), CommandResult::Items(ItemsReply::Missing));
    assert_eq!(apply(&mut applier, 2 * SECOND, vec![last]).unwrap().as_slice(), [missing]);
    assert_eq!(applier.machine().rows().filter(|(table, ..)| *table == ITEMS).count(), 10 - SWEPT_PER_ENTRY);
    assert_eq!(applier.applied().due, Some(0), "one of the first five is left");
    apply(&mut applier, 9 * SECOND, vec![ControlCommand::Tick.into()]).unwrap();
    assert_eq!((applier.machine().rows().count(), applier.applied().due), (0, None));
}

#[test]
fn entries_above_the_known_level_are_faults() {
    let mut applier = Applier::new(Memory::new(quorate_model::StoreIdentity::default()), 1).unwrap();
    for command in [ControlCommand::Tick, ControlCommand::Raise(2)] {
        let fault = applier.apply_batch(&[entry(1, SECOND, vec![command.into()])], &mut Vec::new()).unwrap_err();
        assert!(matches!(fault, StoreFault::Unsupported(_)), "{fault}");
        assert_eq!((applier.applied().index(), applier.applied().level), (0, 1));
    }
    // The program is upgraded, and later replaced by the older one again.
    let mut applier = Applier::new(applier.into_machine(), 2).unwrap();
    apply(&mut applier, SECOND, vec![ControlCommand::Raise(2).into()]).unwrap();
    apply(&mut applier, SECOND, vec![ControlCommand::Raise(1).into(), ControlCommand::Tick.into()]).unwrap();
    assert_eq!(applier.applied().level, 2, "it never falls");
    let fault = Applier::new(applier.into_machine(), 1).unwrap_err();
    assert!(fault.to_string().contains("format level 2"), "{fault}");
}

#[test]
fn a_time_that_has_come_is_due_at_once() {
    let mut applier = applier();
    let adds = (0..20).map(|key| command(Act::Add(key, 0, 1))).collect();
    apply(&mut applier, SECOND, adds).unwrap();
    // An entry at a later time sweeps only some. The clock of a leader may be behind that time.
    apply(&mut applier, 9 * SECOND, vec![command(Act::Take(99))]).unwrap();
    assert_eq!(applier.applied().due, Some(0));
}

#[test]
fn entries_before_one_that_cannot_be_read_are_applied() {
    let mut applier = Applier::new(Memory::new(quorate_model::StoreIdentity::default()), 1).unwrap();
    let session = || vec![ControlCommand::OpenSession.into()];
    let entries =
        [entry(1, SECOND, session()), entry(2, SECOND, session()), entry(3, SECOND, vec![command(Act::Take(1))])];
    let mut outcomes = Vec::new();
    let fault = loop {
        if let Err(fault) = applier.apply_batch(&entries[outcomes.len()..], &mut outcomes) {
            break fault;
        }
    };
    assert!(matches!(fault, StoreFault::Unsupported(_)), "{fault}");
    assert_eq!((applier.applied().index(), outcomes.len()), (2, 2));
}

#[test]
fn topics_are_published_with_their_entry_at_commit() {
    let mut applier = applier();
    let adds = |key| vec![command(Act::Add(key, 0, 0))];
    let entries = [entry(1, SECOND, adds(1)), entry(2, SECOND, adds(2)), entry(3, SECOND, adds(1))];
    applier.prefetch(&entries);
    assert_eq!(applier.take_touched().topics, [], "nothing is committed");
    applier.apply_batch(&entries, &mut Vec::new()).unwrap();
    // The third entry did not apply, so it touches nothing.
    assert_eq!(applier.take_touched().topics, [(1, topic(&[1])), (2, topic(&[2]))]);
    assert_eq!(applier.take_touched().topics, []);
    for fails in [Act::Abort, Act::Expect(3, 1)] {
        apply(&mut applier, SECOND, vec![command(Act::Add(3, 0, 0)), command(fails)]).unwrap_err();
        assert_eq!(applier.take_touched().topics, [], "an undone command touches no topic");
    }
}
