//! What clients tried to write and what they were told: checked against what the cluster holds in the end.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use quorate_env::{Instant, lock};

use crate::history::History;

/// How old a read of bounded age may be.
pub const AGE_MAX: Duration = Duration::from_secs(4);

/// A write: its client and its number there.
pub type Key = (i64, i64);

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A row of `events`.
    Insert,
    /// A row of `events`, one of `mirrors` that is given what was drawn for it, and a step of the client's counter, in
    /// one batch.
    Batch,
    /// What a batch does, by a pipeline of which other statements fail.
    Pipeline,
    /// A step of the client's other counter.
    Move,
    /// The same step by a transaction: it reads the counter, and writes the next number.
    Transact,
    /// A row of `events` and that step, by an interactive transaction.
    Interact,
    /// A row that breaks a rule, together with one that does not.
    Broken,
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Acknowledged; with the random number that the database drew for the row, if it made one.
    Acknowledged(Option<i64>),
    /// It may have been done.
    Unknown,
    /// It was not done.
    NotDone,
}

/// Clones are the same ledger.
#[derive(Clone, Default)]
pub struct Ledger(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    writes: BTreeMap<Key, (Kind, End)>,
    positions: BTreeSet<u64>,
    /// The most rows that a read has shown.
    shown: u64,
    /// How many rows a linearizable read had to show from a time on, the last so long ago and later.
    milestones: VecDeque<(Instant, u64)>,
    /// Migrations that anybody was told to run, and those that were run as somebody was told.
    migrations: (u64, u64),
    /// The results of statements that some nodes can't apply, by number.
    ails: BTreeMap<i64, End>,
    counts: Counts,
    happened: BTreeMap<&'static str, u64>,
}

/// How many writes ended how.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Acknowledged.
    pub acknowledged: u64,
    /// Of these, those that made a row.
    pub rows: u64,
    /// In doubt.
    pub unknown: u64,
    /// Not done.
    pub not_done: u64,
    /// Reads that were compared with what had been acknowledged before.
    pub reads: u64,
}

/// What the cluster holds.
#[derive(Default)]
pub struct Held {
    /// The random numbers of each row, by key.
    pub rows: BTreeMap<Key, Vec<i64>>,
    /// The same numbers as later statements of batches were given them.
    pub mirrors: BTreeMap<Key, Vec<i64>>,
    /// Steps of migrations in their order: the number, and how many there were before.
    pub steps: Vec<(u64, u64)>,
    /// Migrations that are on record, in the order of their numbers.
    pub recorded: Vec<u64>,
    /// How often the statements of these numbers, which some nodes can't apply, took effect.
    pub ails: BTreeMap<i64, u64>,
    /// By client: batches, moves.
    pub counters: BTreeMap<i64, (u64, u64)>,
}

impl Ledger {
    /// A write begins. Until it ends it is in doubt.
    pub fn begin(&self, key: Key, kind: Kind) {
        self.inner().writes.insert(key, (kind, End::Unknown));
    }

    /// A write was acknowledged at an index; `false` if another was at the same.
    #[must_use]
    pub fn acknowledged(&self, key: Key, kind: Kind, drawn: Option<i64>, index: u64) -> bool {
        let mut inner = self.inner();
        inner.writes.insert(key, (kind, End::Acknowledged(drawn)));
        inner.counts.acknowledged += 1;
        inner.counts.rows += u64::from(makes_row(kind));
        inner.note_rows();
        inner.positions.insert(index)
    }

    /// A write ended otherwise.
    pub fn ended(&self, key: Key, end: End) {
        let mut inner = self.inner();
        match end {
            End::Unknown => inner.counts.unknown += 1,
            _ => inner.counts.not_done += 1,
        }
        if let Some((_, known)) = inner.writes.get_mut(&key) {
            *known = end;
        }
    }

    /// A read was compared.
    pub fn read(&self) {
        self.inner().counts.reads += 1;
    }

    /// Something happened that a run of many seeds should have met.
    pub fn happened(&self, what: &'static str) {
        *self.inner().happened.entry(what).or_default() += 1;
    }

    /// What happened, and how often.
    pub fn happenings(&self) -> BTreeMap<&'static str, u64> {
        self.inner().happened.clone()
    }

    /// A statement that some nodes can't apply ended so.
    pub fn ailed(&self, number: i64, end: End) {
        self.inner().ails.insert(number, end);
    }

    /// Somebody is told to run this many migrations.
    pub fn migrating(&self, count: u64) {
        let (begun, _) = &mut self.inner().migrations;
        *begun = count.max(*begun);
    }

    /// Somebody was told that this many migrations were run.
    pub fn migrated(&self, count: u64) {
        let (_, done) = &mut self.inner().migrations;
        *done = count.max(*done);
    }

    /// A read has shown so many rows, which were committed. None is ever deleted.
    pub fn shown(&self, rows: u64) {
        let mut inner = self.inner();
        inner.shown = inner.shown.max(rows);
        inner.note_rows();
    }

    /// How many rows a linearizable read that begins now must show at least.
    pub fn rows(&self) -> u64 {
        self.inner().rows()
    }

    /// The same of one that began so long ago, at most [`AGE_MAX`].
    pub fn rows_before(&self, age: Duration) -> u64 {
        let inner = self.inner();
        let then = inner.milestones.iter().rev().find(|(when, _)| when.elapsed() >= age);
        then.map_or(0, |(_, rows)| *rows)
    }

    /// How many writes ended how.
    pub fn counts(&self) -> Counts {
        self.inner().counts
    }

    /// Compares with what the cluster holds, and tells what is lost, doubled or made up.
    pub fn check(&self, mut held: Held, history: &History) {
        let inner = self.inner();
        let mut expected: BTreeMap<i64, [(u64, u64); 2]> = BTreeMap::new();
        for (key, (kind, end)) in &inner.writes {
            let rows = held.rows.remove(key).unwrap_or_default();
            if let Some(wrong) = wrong_rows(*kind, *end, &rows) {
                history.violation(format!("{kind:?} {key:?} ended as {end:?}, but {wrong}"));
            }
            let mirrors = held.mirrors.remove(key).unwrap_or_default();
            if mirrors.as_slice() != if mirrors_rows(*kind) { rows.as_slice() } else { &[] } {
                history.violation(format!("{kind:?} {key:?} drew {rows:?}, and told its next statement {mirrors:?}"));
            }
            let [batches, moves] = expected.entry(key.0).or_default();
            match (kind, end) {
                // What a counter must be follows from the rows that come with it: both or none.
                (Kind::Batch | Kind::Pipeline, _) => {
                    let count = u64::try_from(rows.len()).unwrap_or(u64::MAX);
                    *batches = (batches.0 + count, batches.1 + count);
                }
                (Kind::Interact, _) => {
                    let count = u64::try_from(rows.len()).unwrap_or(u64::MAX);
                    *moves = (moves.0 + count, moves.1 + count);
                }
                (Kind::Move | Kind::Transact, End::Acknowledged(_)) => *moves = (moves.0 + 1, moves.1 + 1),
                (Kind::Move | Kind::Transact, End::Unknown) => moves.1 += 1,
                _ => {}
            }
        }
        let strange = held.rows.first_key_value().or(held.mirrors.first_key_value());
        if let Some((key, _)) = strange {
            history.violation(format!(
                "there are {} rows that nobody wrote; {key:?} is one",
                held.rows.len() + held.mirrors.len()
            ));
        }
        if let Some(wrong) = wrong_migrations(&held, inner.migrations) {
            history.violation(wrong);
        }
        for (number, end) in &inner.ails {
            let found = held.ails.remove(number).unwrap_or_default();
            let is_right = match end {
                End::Acknowledged(_) => found == 1 || history.is_forced() && found == 0,
                End::Unknown => found <= 1,
                End::NotDone => found == 0,
            };
            if !is_right {
                history.violation(format!("statement {number} that ails ended as {end:?}, and is there {found} times"));
            }
        }
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

impl Inner {
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

/// Whether a write makes a row of `events`.
pub fn makes_row(kind: Kind) -> bool {
    matches!(kind, Kind::Insert | Kind::Batch | Kind::Pipeline | Kind::Interact)
}

/// Whether a write tells its next statement what it drew for its row.
fn mirrors_rows(kind: Kind) -> bool {
    matches!(kind, Kind::Batch | Kind::Pipeline)
}

/// What is wrong with the rows of a write.
fn wrong_rows(kind: Kind, end: End, rows: &[i64]) -> Option<String> {
    let (least, most) = match (makes_row(kind), end) {
        (false, _) | (true, End::NotDone) => (0, 0),
        (true, End::Unknown) => (0, 1),
        (true, End::Acknowledged(_)) => (1, 1),
    };
    if !(least..=most).contains(&rows.len()) {
        return Some(format!("it is there {} times", rows.len()));
    }
    match (end, rows.first()) {
        (End::Acknowledged(Some(told)), Some(held)) if told != *held => {
            Some(format!("its row holds {held} where the client was told {told}"))
        }
        _ => None,
    }
}

/// What is wrong with the migrations, of which so many were begun and so many acknowledged.
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
