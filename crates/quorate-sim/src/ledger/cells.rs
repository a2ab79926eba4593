//! Compares what clients did to the cells, keys that several clients write, with a model of them.
//!
//! Invariant: each entry that writes a cell also adds a row that says what the cell holds then, by the view on keys and
//! the time of the entry. So the rows are a history of all that took effect, in the order of the log.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use quorate::keys::Version;
use quorate_env::lock;

/// Times in rows are whole milliseconds. So close to its expiry, a cell may be there or not.
const DOUBT_MILLIS: i64 = 2;

/// The partner of a cell has its number and this.
pub const PARTNER: i64 = 100;

/// What a client does to a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Sets it to the number of the write, to expire after so many milliseconds.
    Set { expires_in: Option<i64> },
    /// Adds 1 to it.
    Add,
    /// Deletes it.
    Delete,
    /// Sets it and its partner to the number of the write, if the cell has this version, or is missing.
    SetBoth { premise: Option<Version> },
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellEnd {
    /// It was done, and the client got this version of the cell, if the cell is there, and this number: the sum, or
    /// whether the cell was set or deleted.
    Done { version: Option<Version>, told: i64 },
    /// It may have been done.
    Unknown,
    /// It was not done.
    NotDone,
}

/// A row about a cell: the number of the write and of the cell, what the cell holds after the write, with its version
/// and its expiry, and the time of the entry.
pub type CellRow = (i64, i64, Option<i64>, Option<i64>, Option<i64>, i64);

/// The changes of cells that a life of a node has told of, between two entries.
#[derive(Clone, Debug)]
pub struct Noticed {
    /// The life.
    pub who: String,
    /// The indexes of the two entries.
    pub from: u64,
    pub to: u64,
    /// The keys and the names of their events, in their order; none if the node has not told of each of the two entries
    /// once.
    pub heard: Option<Vec<(String, &'static str)>>,
}

/// What clients did to cells and saw of them. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Cells(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    writes: BTreeMap<i64, (i64, Action, CellEnd)>,
    /// For each cell the version that a linearizable read must show at least, if it shows one.
    floors: BTreeMap<i64, Version>,
}

/// What the model holds under a cell.
#[derive(Clone, Copy, Debug)]
struct Cell {
    value: i64,
    version: i64,
    expires: Option<i64>,
}

impl Cells {
    /// Records that a write of a cell begins, and returns its number.
    pub fn begin(&self, cell: i64, action: Action) -> i64 {
        let writes = &mut lock(&self.0).writes;
        let number = writes.last_key_value().map_or(1, |(number, _)| number + 1);
        writes.insert(number, (cell, action, CellEnd::Unknown));
        number
    }

    /// Records how a write ended.
    pub fn ended(&self, cell: i64, number: i64, end: CellEnd) {
        if let Some((_, _, known)) = lock(&self.0).writes.get_mut(&number) {
            *known = end;
        }
        if let CellEnd::Done { version: Some(version), .. } = end {
            self.saw(cell, version);
        }
    }

    /// Records that a version was shown, or given by a write that was acknowledged.
    pub fn saw(&self, cell: i64, version: Version) {
        let floors = &mut lock(&self.0).floors;
        let floor = floors.entry(cell).or_default();
        *floor = version.max(*floor);
    }

    /// Returns the version that a linearizable read of a cell that begins now must show at least.
    pub fn floor(&self, cell: i64) -> Version {
        lock(&self.0).floors.get(&cell).copied().unwrap_or_default()
    }

    /// Returns what is wrong with the rows, if something is. After a forced recovery, writes that were acknowledged may
    /// be missing.
    pub fn wrong(&self, rows: &[CellRow], is_forced: bool) -> Option<String> {
        let writes = &lock(&self.0).writes;
        let mut model: BTreeMap<i64, Cell> = BTreeMap::new();
        let (mut found, mut last) = (BTreeMap::<i64, usize>::new(), (0, 0));
        for row in rows {
            let (number, cell, value, version, expires, _) = *row;
            let Some((of, action, end)) = writes.get(&number) else {
                return Some(format!("no client has done what {row:?} says of a cell"));
            };
            *found.entry(number).or_default() += 1;
            let before = model.get(&cell).copied();
            let is_right = is_right(*row, before, *action, *end, cell - of);
            let index = version.map(index_of);
            let follows = index.is_none_or(|index| number == last.0 || index > last.1);
            if !is_right || !follows {
                let (number, index) = last;
                return Some(format!(
                    "{action:?} of a cell that was {before:?}, after write {number} at {index}, ended as {end:?} with \
                     {row:?}"
                ));
            }
            last = (number, index.unwrap_or(last.1));
            match value.zip(version) {
                Some((value, version)) => model.insert(cell, Cell { value, version, expires }),
                None => model.remove(&cell),
            };
        }
        writes.iter().find_map(|(number, (_, action, end))| {
            let all = if matches!(action, Action::SetBoth { .. }) { 2 } else { 1 };
            let found = found.get(number).copied().unwrap_or_default();
            let is_right = match end {
                CellEnd::Done { .. } => found == all || is_forced && found == 0,
                CellEnd::Unknown => found == 0 || found == all,
                CellEnd::NotDone => found == 0,
            };
            (!is_right).then(|| format!("{action:?} {number} of a cell ended as {end:?}, but there are {found} rows"))
        })
    }
}

impl Cells {
    /// Returns what is wrong with the changes that nodes have told of, if something is: each must be there once, in the
    /// order of the rows.
    pub fn wrong_noticed(&self, rows: &[CellRow], noticed: &[Noticed]) -> Option<String> {
        let writes = &lock(&self.0).writes;
        let told = |(number, cell, _, version, ..): &CellRow| {
            let event = match writes.get(number)?.1 {
                Action::Set { .. } | Action::SetBoth { .. } => "set",
                Action::Add => "incrby",
                Action::Delete => return None,
            };
            Some((index_of((*version)?).cast_unsigned(), (format!("cell:{cell}"), event)))
        };
        let told: Vec<_> = rows.iter().filter_map(told).collect();
        noticed.iter().find_map(|noticed| {
            let is_between = |index: &u64| noticed.from < *index && *index < noticed.to;
            let expected = told.iter().filter(|(index, _)| is_between(index)).map(|(_, change)| change.clone());
            let expected: Vec<_> = expected.collect();
            let is_wrong = noticed.heard.as_ref() != Some(&expected);
            let Noticed { who, from, to, heard } = noticed;
            is_wrong.then(|| format!("{who} told of {heard:?} from {from} to {to}, and there was {expected:?}"))
        })
    }
}

/// Whether a row says what a write must have made of a cell, or, at `place` [`PARTNER`], of the partner of its cell.
fn is_right(row: CellRow, before: Option<Cell>, action: Action, end: CellEnd, place: i64) -> bool {
    let (number, _, value, version, expires, now) = row;
    let doubt = |at: i64| at.abs_diff(now) <= DOUBT_MILLIS.unsigned_abs();
    if before.and_then(|cell| cell.expires).is_some_and(doubt) {
        return true;
    }
    let before = before.filter(|cell| cell.expires.is_none_or(|at| at > now));
    let (due, expected) = match action {
        Action::Set { expires_in } => (expires_in.map(|millis| now + millis), Some(number)),
        Action::Add => (before.and_then(|cell| cell.expires), Some(before.map_or(1, |cell| cell.value + 1))),
        Action::Delete => (None, None),
        Action::SetBoth { .. } => (None, Some(number)),
    };
    let has_premise = match action {
        Action::SetBoth { premise } if place != PARTNER => {
            premise.map(|version| version.0.cast_signed()) == before.map(|cell| cell.version)
        }
        _ => true,
    };
    let told = match action {
        Action::Add => expected.unwrap_or_default(),
        Action::Delete => before.is_some().into(),
        Action::Set { .. } | Action::SetBoth { .. } => 1,
    };
    let is_told = match end {
        CellEnd::Done { .. } if place == PARTNER => true,
        CellEnd::Done { version: got, told: number } => {
            number == told && version == got.map(|version| version.0.cast_signed())
        }
        CellEnd::Unknown | CellEnd::NotDone => true,
    };
    let is_due = match (expires, due) {
        (Some(at), Some(due)) => at.abs_diff(due) <= DOUBT_MILLIS.unsigned_abs(),
        (at, due) => at == due,
    };
    has_premise && is_told && is_due && value == expected
}

/// The index of the entry that gave a version.
fn index_of(version: i64) -> i64 {
    version >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    const SET: Action = Action::Set { expires_in: None };
    const BRIEF: Action = Action::Set { expires_in: Some(500) };

    /// A write that was done: what it does, what the client got, the index and the time of its entry, and the value and
    /// the expiry in its row.
    type Write = (Action, i64, (i64, i64), Option<i64>, Option<i64>);

    /// Returns what is wrong with the rows of writes of one cell.
    fn wrong(writes: &[Write]) -> Option<String> {
        let cells = Cells::default();
        let row = |(action, told, (index, now), value, expires): &Write| {
            let (number, version) = (cells.begin(7, *action), value.map(|_| index << 16));
            let given = version.map(|version| Version(version.cast_unsigned()));
            cells.ended(7, number, CellEnd::Done { version: given, told: *told });
            (number, 7, *value, version, *expires, *now)
        };
        let rows: Vec<CellRow> = writes.iter().map(row).collect();
        cells.wrong(&rows, false)
    }

    #[test]
    fn writes_that_follow_each_other_are_right() {
        let add = |told, at, value, expires| (Action::Add, told, at, Some(value), expires);
        let history = [
            (BRIEF, 1, (10, 1_000), Some(1), Some(1_500)),
            add(2, (11, 1_400), 2, Some(1_500)),
            add(1, (12, 1_600), 1, None),
            (SET, 1, (14, 1_700), Some(4), None),
            (Action::Delete, 1, (15, 1_800), None, None),
            (Action::Delete, 0, (16, 1_900), None, None),
            (Action::SetBoth { premise: None }, 1, (17, 2_000), Some(7), None),
        ];
        assert_eq!(wrong(history.get(..6).unwrap()), None);
        let partner = wrong(&history).unwrap();
        assert!(partner.contains("but there are 1 rows"), "{partner}");
    }

    #[test]
    fn what_no_model_allows_is_wrong() {
        let brief = (BRIEF, 1, (10, 1_000), Some(1), Some(1_500));
        let early = (Action::Add, 1, (11, 1_400), Some(1), None);
        let resurrected = (Action::Add, 2, (11, 1_600), Some(2), Some(1_500));
        let kept = (SET, 1, (11, 1_400), Some(2), Some(1_500));
        let old_version = (SET, 1, (10, 1_400), Some(2), None);
        let other_answer = (SET, 0, (11, 1_400), Some(2), None);
        let premise = (Action::SetBoth { premise: None }, 1, (11, 1_400), Some(2), None);
        for second in [early, resurrected, kept, old_version, other_answer, premise] {
            assert!(wrong(&[brief, second]).is_some(), "{second:?}");
        }
    }

    #[test]
    fn a_node_tells_of_each_change_once_and_in_order() {
        let cells = Cells::default();
        let rows = [SET, Action::Add, Action::Delete, SET].map(|action| {
            let number = cells.begin(7, action);
            let version = (action != Action::Delete).then_some((10 + number) << 16);
            (number, 7, version.map(|_| 1), version, None, 1_000)
        });
        let wrong = |heard: Option<&[&'static str]>| {
            let heard = heard.map(|events| events.iter().map(|event| ("cell:7".to_owned(), *event)).collect());
            cells.wrong_noticed(&rows, &[Noticed { who: "node-1".to_owned(), from: 11, to: 20, heard }])
        };
        assert_eq!(wrong(Some(&["incrby", "set"])), None);
        for heard in [&["set"][..], &["set", "incrby"], &["incrby", "set", "set"]].map(Some).into_iter().chain([None]) {
            assert!(wrong(heard).is_some(), "{heard:?}");
        }
    }

    #[test]
    fn a_write_takes_effect_as_a_whole_and_once() {
        let cells = Cells::default();
        let number = cells.begin(7, SET);
        let row = (number, 7, Some(number), Some(5 << 16), None, 1_000);
        assert_eq!(cells.wrong(&[], false), None);
        assert_eq!(cells.wrong(&[row], false), None);
        assert!(cells.wrong(&[row, row], false).is_some());
        cells.ended(7, number, CellEnd::NotDone);
        assert!(cells.wrong(&[row], false).is_some());
        cells.ended(7, number, CellEnd::Done { version: Some(Version::new(5, 0)), told: 1 });
        assert!(cells.wrong(&[], false).is_some());
        assert_eq!(cells.wrong(&[], true), None);
    }
}
