//! The store on a simulated disk: what the tests share. A program of entries is applied, and what a store holds is
//! compared with what an applier holds that was given the same entries one by one.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use std::pin::{Pin, pin};
use std::sync::PoisonError;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use quorate_env_sim::SimDisk;
use quorate_model::codec::encode_proposal;
use quorate_model::limits::FORMAT_LEVEL;
use quorate_model::{
    Command, ControlCommand, Epoch, GroupId, ItemsCommand, LogId, NodeId, Origin, Payload, Proposal, SessionId, Stamp,
    WholeImage,
};

use super::*;
use crate::memory::STATE_BYTES_MAX;

mod applying;
mod crashes;
mod images;

const SECOND: u64 = 1_000_000_000;

/// The entry that opens the session of the program.
const SESSION: u64 = 1;

const IDENTITY: StoreIdentity = StoreIdentity { cluster: 7, epoch: Epoch(1), group: GroupId(2) };

fn options() -> MemoryStoreOptions {
    MemoryStoreOptions { checkpoint_entries: 8, rest_asks: 3, piece_bytes: 100, waits: Waits::default() }
}

fn dir() -> &'static Path {
    Path::new("/second")
}

fn open_on(disk: &SimDisk) -> Result<Arc<MemoryStore>, StoreFault> {
    MemoryStore::open(Arc::new(disk.clone()), dir(), IDENTITY, FORMAT_LEVEL, options())
}

fn open() -> Arc<MemoryStore> {
    open_on(&SimDisk::new(1)).unwrap()
}

fn add(key: &[u8], value: &[u8], ttl: u64) -> Command {
    let (key, value) = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
    Command::Items(ItemsCommand::Add { key, value, ttl })
}

fn take(key: &[u8]) -> Command {
    Command::Items(ItemsCommand::Take(Bytes::copy_from_slice(key)))
}

fn entry(index: u64, payload: Payload) -> Entry {
    Entry { log_id: LogId { term: 1, node: NodeId(1), index }, payload }
}

fn proposal(index: u64, origin: Option<Origin>, commands: Vec<Command>) -> Entry {
    let bytes = encode_proposal(&Proposal::new(origin, commands)).unwrap();
    entry(index, Payload::Proposal(Stamp { now: index * SECOND, seed: index }, bytes))
}

/// Entries of every kind. Some of their outcomes are small and some are not, and items expire.
fn program(count: u64) -> Vec<Entry> {
    let of = |index: u64| {
        let key = [(index * 7 % 5) as u8];
        // The client gives outcomes up a while after it has got them.
        let origin = Origin { session: SessionId(SESSION), sequence: index, floor: index.saturating_sub(9) };
        match index {
            0 => entry(0, Payload::Membership(Bytes::from_static(b"members"))),
            SESSION => proposal(index, None, vec![ControlCommand::OpenSession.into()]),
            2 => proposal(index, None, vec![ControlCommand::Raise(FORMAT_LEVEL).into()]),
            _ if index % 11 == 10 => entry(index, Payload::Blank),
            _ if index % 13 == 12 => match proposal(index, None, vec![take(&key)]).payload {
                Payload::Proposal(stamp, bytes) => entry(index, Payload::Rejected(stamp, bytes)),
                other => entry(index, other),
            },
            _ if index.is_multiple_of(3) => proposal(index, Some(origin), vec![take(&key)]),
            _ => proposal(index, Some(origin), vec![add(&key, &[index as u8; 60], index % 4 * SECOND)]),
        }
    };
    (0..count).map(of).collect()
}

/// What must come of a program: the outcome of each entry, and the encoded state after it.
struct Expected {
    outcomes: Vec<Outcome>,
    states: Vec<Bytes>,
}

impl Expected {
    fn of(entries: &[Entry]) -> Self {
        let mut applier = Applier::new(Memory::new(IDENTITY), FORMAT_LEVEL).unwrap();
        let (mut outcomes, mut states) = (Vec::new(), Vec::new());
        for entry in entries {
            applier.apply_batch(std::slice::from_ref(entry), &mut outcomes).unwrap();
            states.push(applier.machine().encode().unwrap());
        }
        Self { outcomes, states }
    }
}

/// What a callback was called with.
type Calls = Vec<Result<Vec<Option<Outcome>>, StoreFault>>;

/// Hands entries over, and returns the calls of the callback.
fn hand_over(store: &MemoryStore, entries: &[Entry]) -> Calls {
    let calls = Arc::new(Mutex::new(Calls::new()));
    let called = Arc::clone(&calls);
    store.apply(entries.to_vec(), true, Box::new(move |result| lock(&called).push(result)));
    Arc::into_inner(calls).unwrap().into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Hands entries over that can be applied, and returns their outcomes.
fn apply(store: &MemoryStore, entries: &[Entry]) -> Vec<Option<Outcome>> {
    let calls = hand_over(store, entries);
    let outcomes: Vec<_> = calls.into_iter().flat_map(Result::unwrap).collect();
    assert_eq!(outcomes.len(), entries.len());
    outcomes
}

fn state(store: &MemoryStore) -> Bytes {
    store.read(|memory, _| memory.encode().unwrap())
}

fn applied(store: &MemoryStore) -> Option<u64> {
    index_of(&store.applied())
}

/// Polls a future once.
fn poll<T>(future: &mut Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// Copies the state of a store to another one.
fn copy(from: &MemoryStore, to: &MemoryStore) -> Result<Applied, StoreFault> {
    let (mut source, mut sink) = (from.send_image()?, to.receive_image()?);
    while let Some(piece) = source.next()? {
        sink.write(piece)?;
    }
    sink.finish()?.install()
}
