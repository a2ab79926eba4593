//! Compares what clients did to a few hashes and sorted sets, and saw of them, with a model of them.
//!
//! Invariant: each entry that writes a collection also adds rows that say what it holds then, by the views on keys and
//! the time of the entry. So the rows are a history of all that took effect, in the order of the log.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use quorate::keys::Version;
use quorate_env::lock;

/// Times in rows are whole milliseconds. So close to its expiry, an element may be there or not.
const DOUBT_MILLIS: u64 = 2;

/// How many members fill a sorted set: more than one block of ranks has.
pub const FILLERS: u64 = 600;

/// The first letter of their names.
const FILLER: char = 'f';

/// How many members of a sorted set a read or an answer shows.
pub const SHOWN: usize = 8;

/// What a client does to an element of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Sets a field to the number of the write, to expire after so many milliseconds, or never.
    Set { expires_in: Option<i64> },
    /// Lets an element expire after so many milliseconds, if it is there.
    Expire { millis: i64 },
    /// Adds to a field, or to the score of a member. It keeps its expiry.
    Add(i64),
    /// Sets the score of a member, which keeps its expiry.
    Score(i64),
    /// Gives all fillers their first scores.
    Fill,
    /// Removes the element.
    Remove,
}

/// What a write was told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The sum, or how many elements are new, were removed or got an expiry.
    pub told: i64,
    /// The version of the key, if it is there.
    pub version: Option<Version>,
    /// All fields of a hash, or the first members of a sorted set in the order of their scores.
    pub shown: Vec<(String, i64)>,
    /// The rank of a member.
    pub rank: Option<u64>,
}

/// How a write ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CollectionEnd {
    /// It was done.
    Done(Answer),
    /// It may have been done.
    Unknown,
    /// It was not done.
    NotDone,
}

/// What a read has shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The fields of a hash that are there.
    Fields(Vec<(String, i64)>),
    /// The members of a sorted set from a rank on.
    Ranks(u64, Vec<(String, i64)>),
    /// The rank and the score of a member.
    Rank(String, Option<(u64, i64)>),
}

/// A row: the number of the write, an element with its value, version and expiry, and the time of the entry. A row
/// without an element has the number of elements and the version of the key.
pub type CollectionRow = (i64, Option<String>, i64, Option<i64>, Option<i64>, i64);

/// What clients did to collections and saw of them. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Collections(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    writes: BTreeMap<i64, Write>,
    /// For each collection the version that a linearizable read must show at least.
    floors: BTreeMap<i64, Version>,
    /// The reads of each collection, with the version that was there before.
    reads: Vec<(i64, Version, Seen)>,
}

#[derive(Clone, Debug)]
struct Write {
    collection: i64,
    is_hash: bool,
    element: String,
    action: Action,
    end: CollectionEnd,
}

/// What the model holds of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Element {
    value: i64,
    /// Only fields have one; they lack it until the rows of their write say it.
    version: Option<i64>,
    expires: Option<i64>,
}

impl Element {
    fn new(value: i64, expires: Option<i64>) -> Self {
        Self { value, version: None, expires }
    }
}

/// A collection after a write.
#[derive(Clone, Debug, Default)]
struct State {
    /// The highest version that the key has had.
    version: i64,
    elements: BTreeMap<String, Element>,
}

/// The rows of one write.
#[derive(Debug, Default)]
struct Told {
    count: i64,
    version: Option<i64>,
    now: i64,
    elements: BTreeMap<String, Element>,
}

/// The name of a member that fills a sorted set. Rows do not name these.
pub fn filler(number: u64) -> String {
    format!("{FILLER}{number:03}")
}

impl Collections {
    /// Records that a write of an element begins, and returns its number.
    pub fn begin(&self, collection: i64, is_hash: bool, element: &str, action: Action) -> i64 {
        let writes = &mut lock(&self.0).writes;
        let number = writes.last_key_value().map_or(1, |(number, _)| number + 1);
        let (element, end) = (element.to_owned(), CollectionEnd::Unknown);
        let write = Write { collection, is_hash, element, action, end };
        writes.insert(number, write);
        number
    }

    /// Records how a write ended.
    pub fn ended(&self, number: i64, end: CollectionEnd) {
        let Known { writes, floors, .. } = &mut *lock(&self.0);
        let Some(write) = writes.get_mut(&number) else { return };
        if let CollectionEnd::Done(Answer { version: Some(version), .. }) = &end {
            let floor = floors.entry(write.collection).or_default();
            *floor = (*version).max(*floor);
        }
        write.end = end;
    }

    /// Returns the version that a linearizable read of a collection that begins now must show at least.
    pub fn floor(&self, collection: i64) -> Version {
        lock(&self.0).floors.get(&collection).copied().unwrap_or_default()
    }

    /// Records what a read has shown, which began when the collection had had the version `floor`.
    pub fn saw(&self, collection: i64, floor: Version, seen: Seen) {
        lock(&self.0).reads.push((collection, floor, seen));
    }

    /// Returns what is wrong with the rows and the reads, if something is. After a forced recovery, writes that were
    /// acknowledged may be missing.
    pub fn wrong(&self, rows: &[CollectionRow], is_forced: bool) -> Option<String> {
        let Known { writes, reads, .. } = &*lock(&self.0);
        let mut states: BTreeMap<i64, Vec<State>> = BTreeMap::new();
        let (mut done, none) = (BTreeSet::new(), vec![State::default()]);
        for rows in rows.chunk_by(|(one, ..), (other, ..)| one == other) {
            let number = rows.first().map_or(0, |(number, ..)| *number);
            let Some(write) = writes.get(&number).filter(|_| done.insert(number)) else {
                return Some(format!("no client has done once what {rows:?} say of a collection"));
            };
            let states = states.entry(write.collection).or_insert_with(|| none.clone());
            let before = states.last().cloned().unwrap_or_default();
            match after(number, write, before, &told(rows)) {
                Ok(state) => states.push(state),
                Err(wrong) => return Some(format!("{write:?} {number} gave {rows:?}: {wrong}")),
            }
        }
        let lost = writes.iter().find(|(number, write)| match write.end {
            CollectionEnd::Done(_) => !done.contains(number) && !is_forced,
            CollectionEnd::Unknown => false,
            CollectionEnd::NotDone => done.contains(number),
        });
        let strange = reads.iter().filter(|_| !is_forced).find(|(collection, floor, seen)| {
            let states = states.get(collection).unwrap_or(&none);
            let is_later = |state: &&State| state.version >= floor.0.cast_signed();
            !states.iter().filter(is_later).any(|state| shows(state, seen))
        });
        let lost = lost.map(|(number, write)| format!("{write:?} {number}; its rows: {}", done.contains(number)));
        lost.or_else(|| strange.map(|read| format!("no state of a collection is what {read:?} says")))
    }
}

fn told(rows: &[CollectionRow]) -> Told {
    let mut told = Told::default();
    for (_, element, value, version, expires, now) in rows {
        match element {
            Some(element) => {
                let held = Element { value: *value, version: *version, expires: *expires };
                told.elements.insert(element.clone(), held);
            }
            None => told = Told { count: *value, version: *version, now: *now, ..told },
        }
    }
    told
}

/// Returns a collection after a write, or what is wrong with what the rows say or the client was told.
fn after(number: i64, write: &Write, mut state: State, told: &Told) -> Result<State, String> {
    let now = told.now;
    let is_in_doubt = |element: &Element| element.expires.is_some_and(|at| at.abs_diff(now) <= DOUBT_MILLIS);
    let doubted = state.elements.get(&write.element).is_some_and(is_in_doubt);
    let is_any_in_doubt = state.elements.values().any(is_in_doubt);
    state.elements.retain(|name, element| {
        if is_in_doubt(element) { told.elements.contains_key(name) } else { element.expires.is_none_or(|at| at > now) }
    });
    let before = state.elements.clone();
    let answer = apply(number, write, &mut state.elements, now);
    if doubted {
        // Whether it was there decides what the write made of it.
        state.elements.remove(&write.element);
        state.elements.extend(told.elements.get(&write.element).map(|held| (write.element.clone(), *held)));
    }
    let last = state.version;
    let is_changed = before != state.elements;
    if told.version.is_some_and(|version| version < last || is_changed && version == last) {
        return Err(format!("the version of the key must follow {last}"));
    }
    state.version = told.version.map_or(last, |version| version.max(last));
    let named = state.elements.keys().filter(|name| !name.starts_with(FILLER));
    if !told.elements.keys().eq(named) || usize::try_from(told.count) != Ok(state.elements.len()) {
        let (count, names) = (state.elements.len(), state.elements.keys().take(8));
        return Err(format!("there must be {count} elements, {:?} and so on", names.collect::<Vec<_>>()));
    }
    for (name, held) in &told.elements {
        let Some(expected) = state.elements.get_mut(name) else { continue };
        let version = expected.version.or(told.version.filter(|_| write.is_hash));
        let is_close = held.expires.zip(expected.expires).is_some_and(|(at, due)| at.abs_diff(due) <= DOUBT_MILLIS);
        if held.value != expected.value || held.version != version || !is_close && held.expires != expected.expires {
            return Err(format!("{name} must be {expected:?}"));
        }
        *expected = *held;
    }
    if let CollectionEnd::Done(got) = &write.end
        && !is_any_in_doubt
    {
        let right = right_answer(write, answer, &state, told);
        if *got != right {
            return Err(format!("the client must be told {right:?}"));
        }
    }
    Ok(state)
}

/// Returns what the client of a write must be told.
fn right_answer(write: &Write, answer: i64, state: &State, told: &Told) -> Answer {
    let version = told.version.map(|version| Version(version.cast_unsigned()));
    if write.is_hash {
        let shown = state.elements.iter().map(|(name, element)| (name.clone(), element.value)).collect();
        return Answer { told: answer, version, shown, rank: None };
    }
    let order = ranked(state);
    let rank = order.iter().position(|(name, _)| *name == write.element).map(|rank| rank as u64);
    Answer { told: answer, version, shown: order.into_iter().take(SHOWN).collect(), rank }
}

/// Applies a write to the elements of a collection, and returns what the cluster must tell the client.
fn apply(number: i64, write: &Write, elements: &mut BTreeMap<String, Element>, now: i64) -> i64 {
    let name = &write.element;
    let old = elements.get(name).copied();
    let (value, expires) = match write.action {
        Action::Set { expires_in } => (number, expires_in.map(|millis| now + millis)),
        Action::Expire { millis } => {
            let Some(old) = old else { return 0 };
            (old.value, Some(now + millis))
        }
        Action::Add(by) => (old.map_or(0, |old| old.value) + by, old.and_then(|old| old.expires)),
        Action::Score(score) => (score, old.and_then(|old| old.expires)),
        Action::Fill => {
            let before = elements.len();
            elements.extend((0..FILLERS).map(|place| (filler(place), Element::new(place.cast_signed(), None))));
            return i64::try_from(elements.len() - before).unwrap_or(-1);
        }
        Action::Remove => return elements.remove(name).is_some().into(),
    };
    elements.insert(name.clone(), Element::new(value, expires));
    match write.action {
        Action::Add(_) => value,
        Action::Expire { .. } => 1,
        _ => old.is_none().into(),
    }
}

/// Returns the members in the order of their scores, and those with equal scores in that of their bytes.
fn ranked(state: &State) -> Vec<(String, i64)> {
    let mut order: Vec<_> = state.elements.iter().map(|(name, element)| (name.clone(), element.value)).collect();
    order.sort_by_key(|(_, score)| *score);
    order
}

/// Returns the orders that reads may show until the next write: without the members that have expired by then.
fn orders(state: &State) -> impl Iterator<Item = Vec<(String, i64)>> {
    let mut ends: Vec<i64> = state.elements.values().filter_map(|element| element.expires).collect();
    ends.sort_unstable();
    let all = ranked(state);
    let lasts = |name: &str, from: i64| {
        state.elements.get(name).and_then(|element| element.expires).is_none_or(|expires| expires > from)
    };
    let after = move |end: i64| all.iter().filter(|(name, _)| lasts(name, end)).cloned().collect();
    std::iter::once(i64::MIN).chain(ends).map(after)
}

/// Whether a read may have shown this state, at any time until the next write.
fn shows(state: &State, seen: &Seen) -> bool {
    match seen {
        Seen::Fields(fields) => {
            let is_held =
                |(name, value): &(String, i64)| state.elements.get(name).is_some_and(|held| held.value == *value);
            let is_shown = |name: &String| fields.iter().any(|(field, _)| field == name);
            let mut lasting = state.elements.iter().filter(|(_, element)| element.expires.is_none());
            fields.iter().all(is_held) && lasting.all(|(name, _)| is_shown(name))
        }
        Seen::Ranks(start, members) => {
            let start = usize::try_from(*start).unwrap_or(usize::MAX);
            orders(state).any(|order| order.iter().skip(start).take(SHOWN).eq(members))
        }
        Seen::Rank(name, rank) => orders(state).any(|order| {
            let mut found = order.iter().zip(0..).filter(|((member, _), _)| member == name);
            found.next().map(|((_, score), rank)| (rank, *score)) == *rank
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: i64 = 0;
    const SORTED: i64 = 1;

    /// A write that was done: its element, what it does, the index and the time of its entry, what the client was told,
    /// and what the collection holds then: names, values, the indexes of the fields' entries, and expiries.
    type Done<'a> = (&'a str, Action, (i64, i64), i64, &'a [(&'a str, i64, i64, Option<i64>)]);

    /// Returns what is wrong with the writes of a collection.
    fn wrong(collection: i64, writes: &[Done<'_>]) -> Option<String> {
        let (collections, mut rows) = (Collections::default(), Vec::new());
        for (element, action, (index, now), told, held) in writes {
            let number = collections.begin(collection, collection == HASH, element, *action);
            let version = (!held.is_empty()).then_some(index << 16);
            rows.push((number, None, i64::try_from(held.len()).unwrap(), version, None, *now));
            for (name, value, index, expires) in *held {
                let version = (collection == HASH).then_some(index << 16);
                rows.push((number, Some((*name).to_owned()), *value, version, *expires, *now));
            }
            let mut shown: Vec<_> = held.iter().map(|(name, value, ..)| ((*name).to_owned(), *value)).collect();
            if collection == SORTED {
                shown.sort_by_key(|(_, score)| *score);
            }
            let rank = shown.iter().position(|(name, _)| name == element).filter(|_| collection == SORTED);
            let version = version.map(|version| Version(version.cast_unsigned()));
            let answer = Answer { told: *told, version, shown, rank: rank.map(|rank| rank as u64) };
            collections.ended(number, CollectionEnd::Done(answer));
        }
        collections.wrong(&rows, false)
    }

    const SET: Action = Action::Set { expires_in: None };
    const EXPIRE: Action = Action::Expire { millis: 500 };

    #[test]
    fn fields_that_expire_in_time_are_right() {
        let writes: [Done<'_>; 5] = [
            ("e1", SET, (10, 1_000), 1, &[("e1", 1, 10, None)]),
            ("e1", EXPIRE, (11, 1_100), 1, &[("e1", 1, 11, Some(1_600))]),
            ("e1", Action::Add(1), (12, 1_500), 2, &[("e1", 2, 12, Some(1_600))]),
            ("e2", SET, (13, 1_700), 1, &[("e2", 4, 13, None)]),
            ("e1", Action::Add(1), (14, 1_800), 1, &[("e1", 1, 14, None), ("e2", 4, 13, None)]),
        ];
        assert_eq!(wrong(HASH, &writes), None);
    }

    #[test]
    fn fields_that_no_model_allows_are_wrong() {
        let brief: Done<'_> =
            ("e1", Action::Set { expires_in: Some(500) }, (10, 1_000), 1, &[("e1", 1, 10, Some(1_500))]);
        let add = Action::Add(1);
        let gone_early: Done<'_> = ("e1", add, (11, 1_400), 1, &[("e1", 1, 11, None)]);
        let expiry_lost: Done<'_> = ("e1", add, (11, 1_400), 2, &[("e1", 2, 11, None)]);
        let is_back: Done<'_> = ("e1", add, (11, 1_600), 2, &[("e1", 2, 11, None)]);
        let still_there: Done<'_> = ("e2", add, (11, 1_600), 1, &[("e1", 1, 10, Some(1_500)), ("e2", 1, 11, None)]);
        let old_version: Done<'_> = ("e1", SET, (11, 1_400), 0, &[("e1", 2, 10, None)]);
        let other_answer: Done<'_> = ("e1", SET, (11, 1_400), 1, &[("e1", 2, 11, None)]);
        for second in [gone_early, expiry_lost, is_back, still_there, old_version, other_answer] {
            assert!(wrong(HASH, &[brief, second]).is_some(), "{second:?}");
        }
    }

    #[test]
    fn members_that_expire_in_time_are_right_and_others_are_not() {
        let first: Done<'_> = ("e1", Action::Score(5), (10, 1_000), 1, &[("e1", 5, 0, None)]);
        let brief: Done<'_> = ("e1", EXPIRE, (11, 1_100), 1, &[("e1", 5, 0, Some(1_600))]);
        let moved: Done<'_> = ("e1", Action::Score(7), (12, 1_200), 0, &[("e1", 7, 0, Some(1_600))]);
        let next: Done<'_> = ("e2", Action::Score(9), (13, 1_700), 1, &[("e2", 9, 0, None)]);
        assert_eq!(wrong(SORTED, &[first, brief, moved, next]), None);
        let expiry_lost: Done<'_> = ("e1", Action::Score(7), (12, 1_200), 0, &[("e1", 7, 0, None)]);
        assert!(wrong(SORTED, &[first, brief, expiry_lost]).is_some());
        let still_there: Done<'_> =
            ("e2", Action::Score(9), (13, 1_700), 1, &[("e1", 7, 0, Some(1_600)), ("e2", 9, 0, None)]);
        assert!(wrong(SORTED, &[first, brief, moved, still_there]).is_some());
    }

    #[test]
    fn ranks_and_reads_follow_from_the_members() {
        let first: Done<'_> = ("e1", Action::Score(5), (10, 1_000), 1, &[("e1", 5, 0, None)]);
        let second: Done<'_> = ("e0", Action::Add(5), (11, 1_100), 5, &[("e0", 5, 0, None), ("e1", 5, 0, None)]);
        assert_eq!(wrong(SORTED, &[first, second]), None);
        let removed: Done<'_> = ("e1", Action::Remove, (12, 1_200), 1, &[("e0", 5, 0, None), ("e1", 5, 0, None)]);
        assert!(wrong(SORTED, &[first, second, removed]).is_some());

        let state = State { version: 1, elements: [("e0", 5), ("e1", 4)].map(member).into() };
        let name = |name: &str, score| (name.to_owned(), score);
        assert!(shows(&state, &Seen::Ranks(0, vec![name("e1", 4), name("e0", 5)])));
        assert!(!shows(&state, &Seen::Ranks(0, vec![name("e0", 5), name("e1", 4)])));
        assert!(shows(&state, &Seen::Rank("e0".to_owned(), Some((1, 5)))));
        assert!(!shows(&state, &Seen::Rank("e0".to_owned(), Some((2, 5)))));
        assert!(shows(&state, &Seen::Rank("e2".to_owned(), None)));
        let brief = ("e2".to_owned(), Element::new(3, Some(2_000)));
        let state = State { version: 1, elements: [brief, member(("e1", 4))].into() };
        assert!(shows(&state, &Seen::Rank("e1".to_owned(), Some((1, 4)))));
        assert!(shows(&state, &Seen::Rank("e1".to_owned(), Some((0, 4)))));
        assert!(shows(&state, &Seen::Rank("e2".to_owned(), None)));
        assert!(!shows(&state, &Seen::Ranks(0, vec![name("e2", 3)])));
    }

    #[test]
    fn a_read_shows_no_state_before_what_was_acknowledged() {
        let collections = Collections::default();
        let number = collections.begin(HASH, true, "e1", SET);
        collections.saw(HASH, collections.floor(HASH), Seen::Fields(Vec::new()));
        let version = Some(5 << 16);
        let rows = [(number, None, 1, version, None, 1), (number, Some("e1".to_owned()), number, version, None, 1)];
        assert_eq!(collections.wrong(&rows, false), None);
        let shown = vec![("e1".to_owned(), number)];
        let answer = Answer { told: 1, version: Some(Version::new(5, 0)), shown, rank: None };
        collections.ended(number, CollectionEnd::Done(answer));
        assert_eq!(collections.wrong(&rows, false), None);
        assert!(collections.wrong(&[], false).is_some());
        collections.saw(HASH, collections.floor(HASH), Seen::Fields(Vec::new()));
        assert!(collections.wrong(&rows, false).is_some());
    }

    fn member((name, score): (&str, i64)) -> (String, Element) {
        (name.to_owned(), Element::new(score, None))
    }
}
