//! Tables as multisets of rows: the order of rows does not matter, but how often a row occurs does.

use std::collections::HashMap;
use std::fmt::Write as _;

use crate::tables::Row;

/// The maximum number of differing rows that are shown.
const SHOWN_ROWS_MAX: usize = 5;

/// The number of occurrences of each row. Values of different types differ, and reals are compared exactly.
#[derive(Debug, Default)]
pub struct Multiset(HashMap<String, i64>);

impl Multiset {
    pub fn add(&mut self, row: &Row) {
        *self.0.entry(format!("{row:?}")).or_default() += 1;
    }

    /// Returns the number of rows, in which a repeated row counts each time.
    pub fn len(&self) -> i64 {
        self.0.values().sum()
    }

    /// Describes how `self` differs from `expected`, or returns `None` if they are equal.
    pub fn difference(&self, expected: &Self) -> Option<String> {
        let count = |set: &Self, row: &String| set.0.get(row).copied().unwrap_or(0);
        let new = self.0.keys().filter(|row| !expected.0.contains_key(*row));
        let differing: Vec<&String> =
            expected.0.keys().chain(new).filter(|row| count(self, row) != count(expected, row)).collect();
        let mut text = format!("{} rows differ", differing.len());
        for row in differing.iter().take(SHOWN_ROWS_MAX) {
            // Writing to a string can't fail.
            let _ = write!(text, "\n  {} times instead of {}: {row}", count(self, row), count(expected, row));
        }
        (!differing.is_empty()).then_some(text)
    }
}

impl Extend<Row> for Multiset {
    fn extend<I: IntoIterator<Item = Row>>(&mut self, rows: I) {
        rows.into_iter().for_each(|row| self.add(&row));
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::types::Value::{Integer, Null, Real, Text};

    use super::*;

    fn set(rows: &[Row]) -> Multiset {
        let mut set = Multiset::default();
        set.extend(rows.iter().cloned());
        set
    }

    #[test]
    fn order_does_not_count() {
        let (a, b) = (vec![Integer(1), Null], vec![Real(0.1), Text("x".to_owned())]);
        assert_eq!(set(&[a.clone(), b.clone(), a.clone()]).difference(&set(&[b, a.clone(), a])), None);
    }

    #[test]
    fn doubled_lost_and_retyped_rows_are_found() {
        let row = |value: i64| vec![Integer(value)];
        let expected = set(&[row(1), row(2)]);
        assert_eq!(expected.len(), 2);
        for rows in
            [vec![row(1), row(2), row(2)], vec![row(1)], vec![row(1), vec![Real(2.0)]], vec![row(1), vec![Null]]]
        {
            assert!(set(&rows).difference(&expected).is_some(), "{rows:?}");
        }
        let doubled = set(&[row(1), row(2), row(2)]).difference(&expected);
        assert_eq!(doubled.as_deref(), Some("1 rows differ\n  2 times instead of 1: [Integer(2)]"));
    }
}
