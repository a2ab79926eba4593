//! Requests with keys: against a model, at their limits, and applied as entries.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use quorate_model::codec::encode_proposal;
use quorate_model::limits::{BASE_LEVEL, FORMAT_LEVEL};
use quorate_model::{
    Command, ControlCommand, Entry, ItemsCommand, LogId, Mode, NodeId, Origin, Payload, Proposal, SessionId, Stamp,
    StoreIdentity,
};

use super::*;
use crate::Applier;
use crate::memory::Memory;

const HOUR: u64 = 60 * 60 * 1_000_000_000;

fn key(key: &'static str, hash: u8) -> RequestKey {
    RequestKey::new(key, [hash; RequestKey::HASH_BYTES]).unwrap()
}

/// A node in memory that is given one entry after the other.
struct Node {
    applier: Applier<Memory>,
    index: u64,
    now: u64,
}

impl Node {
    fn new() -> Self {
        let machine = Memory::new(StoreIdentity::default());
        Self { applier: Applier::new(machine, FORMAT_LEVEL).unwrap(), index: 0, now: HOUR }
    }

    /// Restarts from what it has encoded, as another node that receives its image does.
    fn restart(&mut self) {
        let bytes = self.applier.machine().encode().unwrap();
        self.applier = Applier::new(Memory::decode(&bytes).unwrap(), FORMAT_LEVEL).unwrap();
    }

    fn payload(&mut self, payload: impl FnOnce(Stamp, Bytes) -> Payload, proposal: &Proposal) -> Outcome {
        self.index += 1;
        let stamp = Stamp { now: self.now, seed: self.index };
        let payload = payload(stamp, encode_proposal(proposal).unwrap());
        let entry = Entry { log_id: LogId { term: 1, node: NodeId(1), index: self.index }, payload };
        let mut outcomes = Vec::new();
        self.applier.apply_batch(&[entry], &mut outcomes).unwrap();
        outcomes.pop().unwrap()
    }

    fn propose(&mut self, proposal: &Proposal) -> Outcome {
        self.payload(Payload::Proposal, proposal)
    }

    /// The items that there are.
    fn items(&self) -> usize {
        self.applier.machine().rows().filter(|(table, ..)| *table == 1).count()
    }
}

fn add(item: &'static str) -> Command {
    ItemsCommand::Add { key: item.into(), value: "v".into(), ttl: 0 }.into()
}

fn take(item: &'static str) -> Command {
    ItemsCommand::Take(item.into()).into()
}

fn keyed(commands: Vec<Command>, key: RequestKey) -> Proposal {
    Proposal::new(None, commands).with_key(key)
}

fn kind(outcome: &Outcome) -> FailureKind {
    outcome.as_ref().unwrap_err().kind
}

#[test]
fn a_request_that_is_sent_again_changes_nothing_and_has_the_same_answer() {
    let mut node = Node::new();
    node.propose(&Proposal::new(None, vec![add("a")])).unwrap();
    let request = keyed(vec![take("a")], key("k", 1));
    let first = node.propose(&request);
    assert_eq!(first.as_ref().unwrap().first, Some(2));
    node.propose(&Proposal::new(None, vec![add("a")])).unwrap();
    for _ in 0..2 {
        assert_eq!(node.propose(&request), first);
        assert_eq!(node.items(), 1, "it was taken again");
        node.restart();
    }
    assert_eq!(kind(&node.propose(&keyed(vec![take("a")], key("k", 2)))), FailureKind::KeyReused);
    let other = node.propose(&keyed(vec![take("a")], key("l", 1)));
    assert_eq!((other.unwrap().first, node.items()), (Some(7), 0));
    assert_eq!(node.applier.requests().count(), 2);
}

/// A retry in the session has the answer of the key: the first entry, and not its own.
#[test]
fn sessions_come_first_and_say_the_same() {
    let mut node = Node::new();
    let open = Proposal::new(None, vec![ControlCommand::OpenSession.into()]);
    node.propose(&open).unwrap();
    node.propose(&open).unwrap();
    let origin = |session, sequence| Some(Origin { session: SessionId(session), sequence, floor: 0 });
    let request = |session, sequence, hash| {
        let proposal = keyed(vec![add("a")], key("k", hash));
        Proposal { origin: origin(session, sequence), ..proposal }
    };
    let first = node.propose(&request(1, 1, 1));
    assert_eq!(first.as_ref().unwrap().first, Some(3));
    assert_eq!(node.propose(&request(1, 1, 1)), first);
    assert_eq!(node.propose(&request(2, 1, 1)), first);
    let reused = node.propose(&request(2, 2, 9));
    assert_eq!(kind(&reused), FailureKind::KeyReused);
    // The session keeps also what the key has answered: a day later it is still the same.
    node.now += 20 * HOUR;
    node.propose(&request(1, 2, 1)).unwrap();
    node.propose(&request(2, 3, 1)).unwrap();
    node.now += 20 * HOUR;
    assert_eq!((node.propose(&request(2, 1, 1)), node.propose(&request(2, 2, 9))), (first, reused));
}

#[test]
fn failures_are_remembered_too() {
    let mut node = Node::new();
    let expect = ItemsCommand::Expect { key: "a".into(), value: "v".into() };
    let request = keyed(vec![expect.into(), add("b")], key("k", 1));
    let first = node.propose(&request);
    assert_eq!(kind(&first), FailureKind::Conflict);
    node.propose(&Proposal::new(None, vec![add("a")])).unwrap();
    assert_eq!((node.propose(&request), node.items()), (first, 1), "it would succeed now");
    // What ends its transaction fails in another way.
    let abort = keyed(vec![add("c"), ItemsCommand::Abort.into()], key("l", 1));
    let ended = node.propose(&abort);
    assert_eq!((node.propose(&abort), node.items()), (ended, 1));
    // What the cluster rejects is not run when it is sent again.
    let poison = keyed(vec![add("d")], key("m", 1));
    let rejected = node.payload(Payload::Rejected, &poison);
    assert_eq!(kind(&rejected), FailureKind::Rejected);
    assert_eq!((node.propose(&poison), node.items()), (rejected, 1));
}

#[test]
fn a_key_is_forgotten_after_a_day() {
    let mut node = Node::new();
    let request = keyed(vec![add("a")], key("k", 1));
    let first = node.propose(&request);
    node.now += KEY_TIME;
    assert_eq!(node.propose(&request), first, "exactly a day");
    assert_eq!(node.applier.applied().due, Some(HOUR + KEY_TIME + 1));
    node.now += 1;
    let again = node.propose(&request);
    assert_eq!(again.as_ref().unwrap().first, Some(3), "a new request, also with another hash");
    assert_eq!(node.propose(&request), again);
    assert_eq!(node.applier.requests().count(), 1);
    // A tick removes what nobody asks for.
    node.now += KEY_TIME + 1;
    node.propose(&Proposal::new(None, vec![ControlCommand::Tick.into()])).unwrap();
    assert_eq!((node.applier.requests(), node.applier.applied().due), (Requests::default(), None));
    assert_eq!(kind(&node.propose(&keyed(vec![ControlCommand::Tick.into()], key("k", 1)))), FailureKind::Refused);
}

/// The old record of a key may still be there when the key is used again.
#[test]
fn records_whose_time_is_over_do_not_count() {
    let mut node = Node::new();
    let keys = ["a", "b", "c", "d", "e", "f", "g", "h"];
    for name in keys {
        node.propose(&keyed(vec![add(name)], key(name, 1))).unwrap();
    }
    node.now += KEY_TIME + 1;
    let last = node.propose(&keyed(vec![take("h")], key("h", 2)));
    assert_eq!(node.applier.requests().count(), 5, "{:?}", node.applier.requests());
    node.restart();
    assert_eq!(node.propose(&keyed(vec![take("h")], key("h", 2))), last);
    node.propose(&keyed(vec![take("g")], key("g", 2))).unwrap();
    assert_eq!(node.applier.requests().count(), 2);
    assert_eq!(node.propose(&keyed(vec![take("h")], key("h", 2))), last);
}

#[test]
fn an_outcome_that_can_not_be_remembered_has_no_effect() {
    let large = vec![7_u8; REQUEST_OUTCOME_BYTES_MAX];
    for mode in [Mode::Atomic, Mode::Pipeline] {
        let mut node = Node::new();
        let put = ItemsCommand::Add { key: "a".into(), value: large.clone().into(), ttl: 0 };
        node.propose(&Proposal::new(None, vec![put.into()])).unwrap();
        let request = Proposal { mode, ..keyed(vec![take("a")], key("k", 1)) };
        let outcome = node.propose(&request);
        assert_eq!((kind(&outcome), node.items()), (FailureKind::TooBig, 1), "{outcome:?}");
        assert_eq!((node.propose(&request), node.items()), (outcome, 1));
        node.propose(&Proposal { key: None, level: 2, ..request }).unwrap();
        assert_eq!(node.items(), 0, "without a key it is not too large");
    }
}

/// Records the ends of as many requests as a limit permits.
fn full(number: u64, bytes: u64) -> Node {
    let mut memory = Memory::new(StoreIdentity::default());
    let record = |number, low, high, key| RequestRecord {
        place: RequestPlace { number, low, high, used: HOUR },
        entry: number,
        key,
        hash: [1; 32],
        outcome: encode_outcome(&Ok(Reply::default())),
    };
    crate::Engine::begin(&mut memory).unwrap();
    memory.write_request(&record(1, 0, 100, "old".into())).unwrap();
    memory.write_request(&record(number, bytes - 100, bytes, "young".into())).unwrap();
    crate::Engine::commit(&mut memory).unwrap();
    Node { applier: Applier::new(memory, FORMAT_LEVEL).unwrap(), index: number, now: HOUR }
}

#[test]
fn where_there_is_no_room_a_new_key_is_refused_and_no_old_one_forgotten() {
    let largest = REQUEST_BYTES + 1 + REQUEST_OUTCOME_BYTES_MAX as u64;
    let cases = [
        (REQUEST_KEYS_MAX, 1_000, false),
        (REQUEST_KEYS_MAX - 1, 1_000, true),
        (9, REQUEST_KEYS_BYTES_MAX - largest, true),
        (9, REQUEST_KEYS_BYTES_MAX - largest + 1, false),
    ];
    for (number, bytes, has_room) in cases {
        let mut node = full(number, bytes);
        let request = keyed(vec![add("a")], key("k", 1));
        let outcome = node.propose(&request);
        assert_eq!((outcome.is_ok(), node.items()), (has_room, usize::from(has_room)), "{number} {bytes}");
        for known in ["old", "young"] {
            assert!(node.propose(&keyed(vec![add("a")], key(known, 1))).is_ok(), "{known}");
        }
        if !has_room {
            assert_eq!(kind(&outcome), FailureKind::KeysFull);
            assert!(outcome.unwrap_err().is_retryable());
            assert_eq!(kind(&node.propose(&request)), FailureKind::KeysFull);
            node.propose(&Proposal::new(None, vec![add("b")])).unwrap();
            // The refused request removes what is over, and may then be sent again.
            node.now += KEY_TIME + 1;
            assert_eq!(kind(&node.propose(&request)), FailureKind::KeysFull);
            node.propose(&request).unwrap();
        }
    }
}

#[test]
fn entries_without_keys_cost_no_record() {
    let mut node = Node::new();
    node.propose(&Proposal::new(None, vec![add("a")])).unwrap();
    assert_eq!(node.applier.requests(), Requests::default());
    assert_eq!(Proposal::new(None, vec![ControlCommand::OpenSession.into()]).level, BASE_LEVEL);
}

/// What is known of a key: when it was used, the hash and the answer.
type Model = BTreeMap<u8, (u64, u8, Outcome)>;

proptest! {
    #[test]
    fn requests_behave_as_a_map(
        steps in vec((0..4_u8, 0..2_u8, 0..4_u8, prop_oneof![4 => 0..2_u64, 1 => 20..30_u64], any::<bool>()), 1..60),
    ) {
        let (mut node, mut model) = (Node::new(), Model::new());
        for (name, hash, item, hours, restarts) in steps {
            node.now += hours * HOUR;
            let names = ["a", "b", "c", "d"];
            let request = keyed(vec![add(names[usize::from(item)])], key(names[usize::from(name)], hash));
            let before = node.items();
            let outcome = node.propose(&request);
            match model.get(&name).filter(|(used, ..)| node.now - used <= KEY_TIME) {
                Some((_, of, known)) if *of == hash => prop_assert_eq!(&outcome, known),
                Some(_) => prop_assert_eq!(kind(&outcome), FailureKind::KeyReused),
                None => {
                    prop_assert_eq!(outcome.as_ref().unwrap().first, Some(node.index));
                    model.insert(name, (node.now, hash, outcome));
                    prop_assert!(node.items() <= before + 1);
                    continue;
                }
            }
            prop_assert_eq!(node.items(), before);
            if restarts {
                let requests = node.applier.requests();
                node.restart();
                prop_assert_eq!(node.applier.requests(), requests);
            }
        }
        let known = model.values().filter(|(used, ..)| node.now - used <= KEY_TIME).count();
        prop_assert!(node.applier.requests().count() >= known as u64);
    }
}
