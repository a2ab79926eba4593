//! Applying entries: outcomes, faults, what readers and waiters see, and when.

use std::task::{Wake, Waker};

use quorate_model::keys::{ExpiryCondition, SortedSetCommand};
use quorate_model::{Command, SpaceCommand};

use super::*;
use crate::Engine;
use crate::items::topic;
use crate::waits::{Waiter, Woken};

#[test]
fn entries_have_the_outcomes_that_they_have_one_by_one() {
    let entries = program(60);
    let expected = Expected::of(&entries);
    for size in [1, 3, 60] {
        let store = open();
        let outcomes: Vec<_> = entries.chunks(size).flat_map(|batch| apply(&store, batch)).collect();
        assert_eq!(outcomes.into_iter().map(Option::unwrap).collect::<Vec<_>>(), expected.outcomes);
        assert_eq!(state(&store), expected.states[59]);
        assert_eq!(store.applied().membership.unwrap().1, "members");
        assert_eq!(store.rejections(), [12, 25, 38, 51]);
    }
}

#[test]
fn entries_that_were_applied_before_have_no_outcome_here() {
    let (store, entries) = (open(), program(20));
    apply(&store, &entries[..10]);
    let before = state(&store);
    assert_eq!(apply(&store, &entries[2..7]), vec![None; 5]);
    assert_eq!(state(&store), before);
    let outcomes = apply(&store, &entries[7..]);
    assert_eq!(outcomes.iter().map(Option::is_none).collect::<Vec<_>>(), [[true; 3].as_slice(), &[false; 10]].concat());
    assert_eq!(hand_over(&store, &[]), [Ok(Vec::new())]);
}

#[test]
fn a_gap_between_entries_is_a_fault() {
    let (store, entries) = (open(), program(20));
    apply(&store, &entries[..5]);
    let calls = hand_over(&store, &entries[6..8]);
    assert!(matches!(calls[..], [Err(StoreFault::Io(_))]), "{calls:?}");
    assert_eq!(applied(&store), Some(4));
    apply(&store, &entries[5..]);
}

#[test]
fn a_verification_ends_a_batch_but_not_the_entries() {
    let (store, mut entries) = (open(), program(8));
    entries[3] = proposal(3, None, vec![ControlCommand::Verify.into()]);
    let calls = hand_over(&store, &entries);
    assert!(calls.len() > 1);
    let outcomes: Vec<_> = calls.into_iter().flat_map(Result::unwrap).map(Option::unwrap).collect();
    assert_eq!(outcomes, Expected::of(&entries).outcomes);
}

#[test]
fn an_entry_without_room_can_be_handed_over_again() {
    let (store, entries) = (open(), program(20));
    let expected = Expected::of(&entries);
    let set_room = |changes| lock(&store.core).machine_mut().set_room(changes);
    set_room(Some(20));
    let calls = hand_over(&store, &entries);
    assert!(matches!(calls[..], [Err(StoreFault::Full(_))]), "all of them are one transaction: {calls:?}");
    assert_eq!((applied(&store), store.fault()), (None, None));
    set_room(Some(20));
    let calls: Calls = entries.iter().flat_map(|entry| hand_over(&store, std::slice::from_ref(entry))).collect();
    let done: Vec<_> = calls.iter().map_while(|call| call.clone().ok()).flatten().map(Option::unwrap).collect();
    assert!((3..15).contains(&done.len()), "{}", done.len());
    assert!(matches!(calls[done.len()], Err(StoreFault::Full(_))));
    // Those after it came while it was missing.
    assert_eq!((applied(&store), store.fault()), (Some(done.len() as u64 - 1), None));
    assert_eq!(state(&store), expected.states[done.len() - 1]);
    assert_eq!(done, expected.outcomes[..done.len()]);
    set_room(None);
    apply(&store, &entries[done.len()..]);
    assert_eq!(state(&store), expected.states[19]);
}

#[test]
fn an_entry_of_a_newer_version_stops_the_store_after_the_entries_before_it() {
    let disk = Arc::new(SimDisk::new(1));
    let store = MemoryStore::open(disk, dir(), IDENTITY, FORMAT_LEVEL - 1, options()).unwrap();
    let session = |index| proposal(index, None, vec![ControlCommand::OpenSession.into()]);
    let (at, condition) = (Some(1), ExpiryCondition::Always);
    let (key, members) = ("key".into(), vec!["member".into()]);
    let command = SortedSetCommand::Expire { key, members, at, condition, relative: true }.into();
    let newest = Command::Keys(SpaceCommand { space: 0, command });
    assert_eq!(newest.level(), FORMAT_LEVEL);
    let entries = [session(0), session(1), proposal(2, None, vec![newest]), session(3)];
    let calls = hand_over(&store, &entries);
    let counts: Vec<_> = calls.iter().map(|call| call.as_ref().ok().map(Vec::len)).collect();
    assert_eq!(counts, [Some(2), None], "{calls:?}");
    assert!(matches!(calls[1], Err(StoreFault::Unsupported(_))));
    assert_eq!((applied(&store), store.fault()), (Some(1), calls[1].clone().err()));
}

/// Records what the store has published when a waiter is woken.
struct Witness(Arc<MemoryStore>, Mutex<Vec<Option<u64>>>);

impl Wake for Witness {
    fn wake(self: Arc<Self>) {
        lock(&self.1).push(applied(&self.0));
    }
}

/// Waits for a key, and lets the witness see the wake.
fn wait(waiter: &mut Waiter, witness: &Arc<Witness>) -> Poll<Woken> {
    let waker = Waker::from(Arc::clone(witness));
    pin!(waiter.woken()).poll(&mut Context::from_waker(&waker))
}

#[test]
fn waiters_are_woken_after_the_commit_and_before_the_outcome() {
    let (store, entries) = (open(), program(3));
    apply(&store, &entries);
    let witness = Arc::new(Witness(Arc::clone(&store), Mutex::default()));
    let keys: [&[u8]; 3] = [b"a", b"b", b"c"];
    let mut waiters = keys.map(|key| store.waits().register(topic(key)).unwrap());
    let polls = |waiters: &mut [Waiter]| waiters.iter_mut().map(|waiter| wait(waiter, &witness)).collect::<Vec<_>>();
    assert_eq!(polls(&mut waiters), [Poll::Pending; 3]);
    // Nothing is woken by what is not committed.
    let entries = [proposal(3, None, vec![add(b"b", b"1", 0)]), proposal(4, None, vec![add(b"a", b"2", 0)])];
    lock(&store.core).machine_mut().set_room(Some(2));
    assert!(matches!(hand_over(&store, &entries)[..], [Err(StoreFault::Full(_))]));
    assert_eq!((polls(&mut waiters), applied(&store)), (vec![Poll::Pending; 3], Some(2)));
    lock(&store.core).machine_mut().set_room(None);
    let (seen, inside) = (Arc::new(Mutex::new(None)), Arc::clone(&store));
    let called = Arc::clone(&seen);
    let on_applied = move |_| {
        let value = inside.read(|memory, applied| (memory.item(&Bytes::from_static(b"a"), 0), index_of(applied)));
        *lock(&called) = Some((value, inside.waits().count()));
    };
    store.apply(entries.to_vec(), true, Box::new(on_applied));
    assert_eq!(lock(&seen).take(), Some(((Some(Bytes::from_static(b"2")), Some(4)), 1)));
    assert_eq!(*lock(&witness.1), [Some(4), Some(4)], "what they look at is published");
    let woken = [Poll::Ready(Woken::By(4)), Poll::Ready(Woken::By(3)), Poll::Pending];
    assert_eq!(polls(&mut waiters), woken);
}

#[test]
fn a_reader_waits_for_an_entry() {
    let (store, entries) = (open(), program(6));
    let mut waits = [0, 2, 4].map(|index| Box::pin(store.applied_to(index)));
    assert_eq!(waits.each_mut().map(|wait| poll(&mut wait.as_mut()).is_ready()), [false; 3]);
    drop(waits);
    apply(&store, &entries[..3]);
    let mut waits = [0, 2, 4].map(|index| Box::pin(store.applied_to(index)));
    assert_eq!(waits.each_mut().map(|wait| poll(&mut wait.as_mut()).is_ready()), [true, true, false]);
    apply(&store, &entries[3..]);
    assert!(poll(&mut waits[2].as_mut()).is_ready(), "it is woken by a later entry");
}

#[test]
fn readers_see_committed_data_and_hashes_tell_states_apart() {
    let (store, entries) = (open(), program(20));
    let mut seen = Vec::new();
    for entry in &entries {
        apply(&store, std::slice::from_ref(entry));
        let hashes = store.hashes();
        assert_eq!(store.outcome_hash_at(hashes.index), Some(hashes.outcomes));
        assert_eq!(store.read(|memory, applied| (memory.is_open(), applied.index())), (false, entry.log_id.index));
        seen.push(hashes);
    }
    assert_eq!(store.outcome_hash_at(7), Some(seen[7].outcomes));
    assert_eq!(store.outcome_hash_at(20), None);
    let outcomes: std::collections::BTreeSet<_> = seen.iter().map(|hashes| hashes.outcomes).collect();
    assert_eq!(outcomes.len(), 20);
    // Neither a session nor a blank entry changes a row.
    assert_eq!((seen[0].rows, seen[9].rows), (seen[2].rows, seen[10].rows));
    assert!(seen[3].rows != seen[4].rows);
    let stamp = store.read(|memory, _| memory.applied_record().map(|row| row.now));
    assert_eq!(stamp, Some(19 * SECOND));
}
