//! Walks SQLite's syntax diagrams at random. Most names are those of existing tables and columns, so that statements
//! get past the resolution of names.
//!
//! Invariant: the depth of a statement is bounded, so every walk ends.

use super::{Draft, names};
use crate::harness::dice::Dice;
use crate::hostile::run::schema::{TABLES, Table};

mod ddl;
mod dml;
mod expr;
mod select;

/// How deep statements nest.
const DEPTH: u64 = 3;
/// How many names there are for what statements create.
const MADE: u64 = 24;

/// The state of a walk.
struct Walk<'a> {
    dice: &'a Dice,
    /// The sources that the names of columns may refer to, from the outermost on.
    sources: Vec<Source>,
    /// The tables of the enclosing `WITH` clauses.
    ctes: Vec<Source>,
    /// Whether the enclosing `SELECT` has named windows.
    windows: bool,
    /// Whether the walk is inside a trigger.
    trigger: bool,
    parameters: usize,
    aliases: u64,
}

/// A source of columns.
#[derive(Clone)]
struct Source {
    name: String,
    columns: Vec<String>,
}

/// Returns a statement.
pub fn statement(dice: &Dice) -> Draft {
    let walk =
        Walk { dice, sources: Vec::new(), ctes: Vec::new(), windows: false, trigger: false, parameters: 0, aliases: 0 };
    walk.statement()
}

impl Walk<'_> {
    fn statement(mut self) -> Draft {
        let (mut writes, sql) = match self.dice.below(100) {
            0..32 => (false, self.select(DEPTH)),
            32..40 => (true, format!("INSERT INTO pad(b) {}", self.select_of(DEPTH, 1))),
            40..54 => (true, self.insert()),
            54..64 => (true, self.update()),
            64..70 => (true, self.delete()),
            70..77 => (true, self.create_table()),
            77..81 => (true, self.create_index()),
            81..85 => (true, self.create_view()),
            85..90 => (true, self.create_trigger()),
            90..93 => (true, self.create_virtual()),
            93..97 => (true, self.alter()),
            _ => (true, self.drop()),
        };
        let prefix = self.maybe(2, |walk| walk.dice.one(&["EXPLAIN ", "EXPLAIN QUERY PLAN "]).to_owned());
        writes &= prefix.is_empty();
        Draft { writes, sql: format!("{prefix}{sql}"), parameters: self.parameters }
    }

    /// Returns the text of `make` in `percent` of 100 cases, otherwise an empty text.
    fn maybe(&mut self, percent: u64, make: impl FnOnce(&mut Self) -> String) -> String {
        if self.dice.chance(percent) { make(self) } else { String::new() }
    }

    /// Returns one of the texts.
    fn word(&self, words: &[&'static str]) -> &'static str {
        self.dice.one(words)
    }

    /// Returns from one up to `max` parts, separated by commas.
    fn some(&mut self, max: u64, make: impl FnMut(&mut Self) -> String) -> String {
        let count = 1 + self.dice.below(max);
        self.times(count, make)
    }

    fn times(&mut self, count: u64, mut make: impl FnMut(&mut Self) -> String) -> String {
        (0..count).map(|_| make(self)).collect::<Vec<_>>().join(", ")
    }

    fn table(&self) -> &'static Table {
        self.dice.pick(TABLES).unwrap_or(&TABLES[0])
    }

    fn writable(&self) -> &'static Table {
        let tables: Vec<&Table> = TABLES.iter().filter(|table| table.writable || self.dice.chance(20)).collect();
        self.dice.one(&tables)
    }

    /// Returns a name for a new object, which may exist already.
    fn made(&self) -> String {
        if self.dice.chance(2) { names::name(self.dice) } else { format!("n{}", self.dice.below(MADE)) }
    }

    fn alias(&mut self) -> String {
        self.aliases += 1;
        format!("q{}", self.aliases)
    }

    /// Calls `make` with more sources of columns.
    fn with_sources<T>(&mut self, sources: Vec<Source>, make: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.sources.len();
        self.sources.extend(sources);
        let made = make(self);
        self.sources.truncate(before);
        made
    }

    fn schema(&self) -> &'static str {
        if self.dice.chance(8) {
            self.word(&["main.", "main.", "main.", "main.", "main.", "temp.", "nowhere."])
        } else {
            ""
        }
    }
}

impl Source {
    fn of(table: &Table, name: &str) -> Self {
        Self { name: name.to_owned(), columns: table.columns.iter().map(|&column| column.to_owned()).collect() }
    }

    /// A table, as the row that a trigger or an upsert sees.
    fn rows(table: &Table, names: &[&str]) -> Vec<Self> {
        names.iter().map(|name| Self::of(table, name)).collect()
    }
}
