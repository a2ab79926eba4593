//! The ledger of what clients tried to write and which results they got. At the end it is compared with what the
//! cluster holds.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use quorate::events::EventId;
use quorate_env::{Instant, lock};
use quorate_model::locks::LockInfo;

use crate::history::History;

pub mod cells;
pub mod collections;
mod events;
pub mod items;
mod keys;
mod locks;

pub use cells::Noticed;
use cells::{CellRow, Cells};
use collections::{CollectionRow, Collections};
use events::Heard;
pub use events::{EVENTS_KEPT, Event};
use items::Items;
pub use keys::Keys;

/// The highest age of the reads of bounded age.
pub const AGE_MAX: Duration = Duration::from_secs(4);

/// Stands for all clients: all interactive transactions also increment its counter of moves.
pub const COMMON: i64 = 1_000;

/// The key of a write: its client, and its number among the writes of that client.
pub type Key = (i64, i64);

/// The kinds of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Inserts a row of `events`.
    Insert,
    /// Inserts a row of `events` by a request with a key, which may be sent again.
    Request,
    /// Inserts a row of `events`, copies the random number that was drawn for it to a row of `mirrors`, and increments
    /// the client's counter of batches, all in one batch.
    Batch,
    /// Does what a batch does, in a pipeline in which other statements fail.
    Pipeline,
    /// Inserts a row of `events`, and writes its number under keys, all in one batch.
    Keys,
    /// Inserts a row of `events`, and adds an event by a command and one by a trigger, all in one batch.
    Events,
    /// Increments the client's counter of moves.
    Move,
    /// Increments the same counter in a transaction, which reads the counter and writes the next number.
    Transact,
    /// Inserts a row of `events` and increments the same counter and that of [`COMMON`], in an interactive transaction.
    Interact,
    /// Inserts rows, at least one of which violates a constraint.
    Broken,
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Acknowledged, with the random number that the database drew for the row, if the client got one.
    Acknowledged(Option<i64>),
    /// In doubt: it may have been done.
    Unknown,
    /// It was not done.
    NotDone,
    /// It was sent again when its key may have been forgotten, so it may have been done more than once.
    Forgotten,
}

/// A handle of the ledger; see the module. Clones share the same ledger.
#[derive(Clone, Default)]
pub struct Ledger(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    writes: BTreeMap<Key, (Kind, End)>,
    positions: BTreeSet<u64>,
    /// The highest number of rows that a read has shown.
    shown: u64,
    /// From each time on, how many rows a linearizable read must show. Of the times at least [`AGE_MAX`] ago only the
    /// last is kept.
    milestones: VecDeque<(Instant, u64)>,
    /// How many migrations the longest list holds that a caller has begun to run, and the longest that a caller has
    /// seen succeed.
    migrations: (u64, u64),
    /// The results of statements that some nodes can't apply, by number.
    ails: BTreeMap<i64, End>,
    /// The tokens that were written under a lock, and acknowledged.
    granted: BTreeSet<i64>,
    /// The states of the lock that entries have shown, by their indexes.
    locks: BTreeMap<u64, LockInfo>,
    /// What clients did to cells.
    cells: Cells,
    /// What clients did to hashes and sorted sets, and saw of them.
    collections: Collections,
    /// The changes of cells that nodes have told of.
    noticed: Vec<Noticed>,
    /// The items of the group beside `main`.
    items: Items,
    /// What the listener heard.
    heard: Vec<Heard>,
    counts: Counts,
    happened: BTreeMap<&'static str, u64>,
}

/// How many writes ended in each way.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Acknowledged.
    pub acknowledged: u64,
    /// Of these, the writes that inserted a row.
    pub rows: u64,
    /// In doubt.
    pub unknown: u64,
    /// Not done.
    pub not_done: u64,
    /// Reads that were compared with what had been acknowledged before.
    pub reads: u64,
}

/// What the cluster holds at the end.
#[derive(Default)]
pub struct Held {
    /// The random numbers of each row, by key.
    pub rows: BTreeMap<Key, Vec<i64>>,
    /// The same numbers as later statements of the batches received them.
    pub mirrors: BTreeMap<Key, Vec<i64>>,
    /// The rows that migrations wrote, in their order: the number of the migration, and how many rows there were
    /// before.
    pub steps: Vec<(u64, u64)>,
    /// The numbers of the migrations that are on record, in ascending order.
    pub recorded: Vec<u64>,
    /// How often each statement that some nodes can't apply took effect, by number.
    pub ails: BTreeMap<i64, u64>,
    /// What is held under keys.
    pub keys: Keys,
    /// The rows about cells, in their order.
    pub cells: Vec<CellRow>,
    /// The rows about hashes and sorted sets, in their order.
    pub collections: Vec<CollectionRow>,
    /// The tokens that were written under a lock, in the order of their rows.
    pub grants: Vec<i64>,
    /// The events that are kept, in their order.
    pub events: Vec<Event>,
    /// The rows that were written with all events, in their order.
    pub signals: Vec<Key>,
    /// The counters of batches and of moves, by client.
    pub counters: BTreeMap<i64, (u64, u64)>,
}

impl Ledger {
    /// Records that a write begins. Until it ends it is in doubt.
    pub fn begin(&self, key: Key, kind: Kind) {
        self.inner().writes.insert(key, (kind, End::Unknown));
    }

    /// Records that a write was acknowledged at an index. Returns `false` if another write was acknowledged at the same
    /// index.
    #[must_use]
    pub fn acknowledged(&self, key: Key, kind: Kind, drawn: Option<i64>, index: u64) -> bool {
        let mut inner = self.inner();
        inner.writes.insert(key, (kind, End::Acknowledged(drawn)));
        inner.counts.acknowledged += 1;
        inner.counts.rows += u64::from(makes_row(kind));
        inner.note_rows();
        inner.positions.insert(index)
    }

    /// Records that a write ended without an acknowledgement.
    pub fn ended(&self, key: Key, end: End) {
        let mut inner = self.inner();
        match end {
            End::Unknown | End::Forgotten => inner.counts.unknown += 1,
            _ => inner.counts.not_done += 1,
        }
        if let Some((_, known)) = inner.writes.get_mut(&key) {
            *known = end;
        }
    }

    /// Counts a read that was compared with the ledger.
    pub fn read(&self) {
        self.inner().counts.reads += 1;
    }

    /// Counts something that a run of many seeds must have met.
    pub fn happened(&self, what: &'static str) {
        *self.inner().happened.entry(what).or_default() += 1;
    }

    /// Returns how often each of these things happened.
    pub fn happenings(&self) -> BTreeMap<&'static str, u64> {
        self.inner().happened.clone()
    }

    /// Records how a statement that some nodes can't apply ended.
    pub fn ailed(&self, number: i64, end: End) {
        self.inner().ails.insert(number, end);
    }

    /// Records that what a client wrote under a token was acknowledged.
    pub fn granted(&self, token: i64) {
        self.inner().granted.insert(token);
    }

    /// Records what an entry has shown of the lock.
    pub fn saw_lock(&self, index: u64, lock: LockInfo) {
        self.inner().locks.insert(index, lock);
    }

    /// Returns what clients did to cells and saw of them.
    pub fn cells(&self) -> Cells {
        self.inner().cells.clone()
    }

    /// Returns what clients did to hashes and sorted sets, and saw of them.
    pub fn collections(&self) -> Collections {
        self.inner().collections.clone()
    }

    /// Records which changes of cells a node has told of.
    pub fn noticed(&self, noticed: Noticed) {
        self.inner().noticed.push(noticed);
    }

    /// Records that a caller begins to run this many migrations.
    pub fn migrating(&self, count: u64) {
        let (begun, _) = &mut self.inner().migrations;
        *begun = count.max(*begun);
    }

    /// Records that a caller's run of this many migrations succeeded.
    pub fn migrated(&self, count: u64) {
        let (_, done) = &mut self.inner().migrations;
        *done = count.max(*done);
    }

    /// Returns the items of the group beside `main`.
    pub fn items(&self) -> Items {
        self.inner().items.clone()
    }

    /// Records that a read has shown this many rows. They are committed and never deleted, so later linearizable reads
    /// must show them too.
    pub fn shown(&self, rows: u64) {
        let mut inner = self.inner();
        inner.shown = inner.shown.max(rows);
        inner.note_rows();
    }

    /// Returns how many rows a linearizable read that begins now must show at least.
    pub fn rows(&self) -> u64 {
        self.inner().rows()
    }

    /// Returns how many rows a read of this age, at most [`AGE_MAX`], must show at least.
    pub fn rows_before(&self, age: Duration) -> u64 {
        let inner = self.inner();
        let then = inner.milestones.iter().rev().find(|(when, _)| when.elapsed() >= age);
        then.map_or(0, |(_, rows)| *rows)
    }

    /// Records what the listener hears next.
    pub fn heard(&self, event: Event) {
        self.inner().heard.push(Heard::Event(event));
    }

    /// Records that the listener was told that events which it did not hear are not kept any more.
    pub fn heard_of_gap(&self) {
        self.inner().heard.push(Heard::Gap);
    }

    /// Returns the number of the last event that the listener heard.
    pub fn last_heard(&self) -> EventId {
        let heard = &self.inner().heard;
        heard.iter().rev().find_map(Heard::id).unwrap_or(EventId::START)
    }

    /// Returns how many writes ended in each way.
    pub fn counts(&self) -> Counts {
        self.inner().counts
    }

    /// Compares the ledger with what the cluster holds, and records a violation for each write that is lost, doubled or
    /// made up.
    pub fn check(&self, mut held: Held, history: &History) {
        let inner = self.inner();
        let mut expected: BTreeMap<i64, [(u64, u64); 2]> = BTreeMap::new();
        let mut with_keys: BTreeMap<Key, u64> = BTreeMap::new();
        let mut with_events: BTreeMap<Key, u64> = BTreeMap::new();
        for (key, (kind, end)) in &inner.writes {
            let rows = held.rows.remove(key).unwrap_or_default();
            if let Some(wrong) = wrong_rows(*kind, *end, &rows) {
                history.violation(format!("{kind:?} {key:?} ended as {end:?}, but {wrong}"));
            }
            let mirrors = held.mirrors.remove(key).unwrap_or_default();
            if mirrors.as_slice() != if mirrors_rows(*kind) { rows.as_slice() } else { &[] } {
                history.violation(format!("{kind:?} {key:?} drew {rows:?}, but its next statement got {mirrors:?}"));
            }
            let rows_with = match kind {
                Kind::Keys => Some(&mut with_keys),
                Kind::Events => Some(&mut with_events),
                _ => None,
            };
            if let Some(rows_with) = rows_with.filter(|_| !rows.is_empty()) {
                rows_with.insert(*key, u64::try_from(rows.len()).unwrap_or(u64::MAX));
            }
            let [batches, moves] = expected.entry(key.0).or_default();
            match (kind, end) {
                // Each row comes with one increment of a counter, so the number of rows gives the value of the counter.
                (Kind::Batch | Kind::Pipeline, _) => {
                    let count = u64::try_from(rows.len()).unwrap_or(u64::MAX);
                    *batches = (batches.0 + count, batches.1 + count);
                }
                (Kind::Interact, _) => {
                    let count = u64::try_from(rows.len()).unwrap_or(u64::MAX);
                    *moves = (moves.0 + count, moves.1 + count);
                    let [_, common] = expected.entry(COMMON).or_default();
                    *common = (common.0 + count, common.1 + count);
                }
                (Kind::Move | Kind::Transact, End::Acknowledged(_)) => *moves = (moves.0 + 1, moves.1 + 1),
                (Kind::Move | Kind::Transact, End::Unknown) => moves.1 += 1,
                _ => {}
            }
        }
        let strange = held.rows.first_key_value().or(held.mirrors.first_key_value());
        if let Some((key, _)) = strange {
            history.violation(format!(
                "there are {} rows that no client wrote; {key:?} is one",
                held.rows.len() + held.mirrors.len()
            ));
        }
        inner.check_stores(&held, [&with_keys, &with_events], history);
        if let Some(wrong) = wrong_migrations(&held, inner.migrations) {
            history.violation(wrong);
        }
        check_ails(&inner.ails, &held.ails, history);
        for (client, [batches, moves]) in expected {
            let (found_batches, found_moves) = held.counters.get(&client).copied().unwrap_or_default();
            for (what, found, (least, most)) in [("batches", found_batches, batches), ("moves", found_moves, moves)] {
                if !(least..=most).contains(&found) {
                    history.violation(format!("client {client} has {found} {what}, not {least} to {most}"));
                }
            }
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        lock(&self.0)
    }
}

/// Compares how the statements ended that some nodes can't apply with how often each took effect.
fn check_ails(ails: &BTreeMap<i64, End>, held: &BTreeMap<i64, u64>, history: &History) {
    for (number, end) in ails {
        let found = held.get(number).copied().unwrap_or_default();
        let is_right = match end {
            End::Acknowledged(_) => found == 1 || history.is_forced() && found == 0,
            End::Unknown | End::Forgotten => found <= 1,
            End::NotDone => found == 0,
        };
        if !is_right {
            history.violation(format!(
                "statement {number}, which some nodes can't apply, ended as {end:?}, but took effect {found} times"
            ));
        }
    }
}

impl Inner {
    /// Compares the ledger with what the cluster holds of keys, locks and events, given the rows that were written with
    /// keys and those with events.
    fn check_stores(&self, held: &Held, [with_keys, with_events]: [&BTreeMap<Key, u64>; 2], history: &History) {
        let is_forced = history.is_forced();
        let noticed = self.cells.wrong_noticed(&held.cells, &self.noticed).filter(|_| !is_forced);
        let of_cells = self.cells.wrong(&held.cells, is_forced).into_iter().chain(noticed);
        let of_collections = self.collections.wrong(&held.collections, is_forced);
        let of_keys = held.keys.wrong(with_keys).into_iter().chain(of_cells).chain(of_collections);
        let grants = locks::wrong_grants(&held.grants, &self.granted, is_forced);
        let of_locks = grants.into_iter().chain(locks::wrong_states(&self.locks));
        // A forced recovery may lose events that listeners have heard.
        let heard = events::wrong_heard(&self.heard, held).filter(|_| !is_forced);
        let of_events = events::wrong_held(held, with_events).into_iter().chain(heard);
        of_keys.chain(of_locks).chain(of_events).for_each(|wrong| history.violation(wrong));
    }

    fn rows(&self) -> u64 {
        self.counts.rows.max(self.shown)
    }

    fn note_rows(&mut self) {
        self.milestones.push_back((Instant::now(), self.rows()));
        while self.milestones.get(1).is_some_and(|(when, _)| when.elapsed() >= AGE_MAX) {
            self.milestones.pop_front();
        }
    }
}

/// Whether a write of this kind inserts a row of `events`.
pub fn makes_row(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Insert | Kind::Request | Kind::Batch | Kind::Pipeline | Kind::Keys | Kind::Events | Kind::Interact
    )
}

/// Whether a write of this kind gives its next statement what was drawn for its row.
fn mirrors_rows(kind: Kind) -> bool {
    matches!(kind, Kind::Batch | Kind::Pipeline)
}

/// Returns what is wrong with the rows of a write, if anything.
fn wrong_rows(kind: Kind, end: End, rows: &[i64]) -> Option<String> {
    let (least, most) = match (makes_row(kind), end) {
        (false, _) | (true, End::NotDone) => (0, 0),
        (true, End::Unknown) => (0, 1),
        (true, End::Acknowledged(_)) => (1, 1),
        (true, End::Forgotten) => (0, usize::MAX),
    };
    if !(least..=most).contains(&rows.len()) {
        return Some(format!("it is present {} times", rows.len()));
    }
    match (end, rows.first()) {
        (End::Acknowledged(Some(returned)), Some(held)) if returned != *held => {
            Some(format!("its row holds {held}, but the client got {returned}"))
        }
        _ => None,
    }
}

/// Returns what is wrong with the migrations, if anything; `begun` of them were begun and `done` acknowledged.
fn wrong_migrations(held: &Held, (begun, done): (u64, u64)) -> Option<String> {
    let count = u64::try_from(held.steps.len()).unwrap_or(u64::MAX);
    let is_once_in_order = held.steps.iter().copied().eq((1..=count).map(|number| (number, number - 1)));
    let is_recorded = held.recorded.iter().copied().eq(1..=count);
    let is_right = is_once_in_order && is_recorded && (done..=begun).contains(&count);
    (!is_right).then(|| {
        let Held { steps, recorded, .. } = held;
        format!("of {begun} migrations {done} were acknowledged; {steps:?} were run, {recorded:?} are on record")
    })
}
