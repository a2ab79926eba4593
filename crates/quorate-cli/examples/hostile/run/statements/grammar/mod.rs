//! SQLite's syntax diagrams, walked at random. Names are mostly those of tables and columns that there are, so that
//! statements get past the resolution of names.
//!
//! Invariant: the depth of what is made is bounded, so that making it ends.

use super::{Draft, names};
use crate::harness::dice::Dice;
use crate::run::schema::{TABLES, Table};

mod ddl;
mod dml;
mod expr;
mod select;

/// How deep statements nest.
const DEPTH: u64 = 3;
/// Names of what statements create.
const MADE: u64 = 24;

/// What a walk carries with it.
struct Walk<'a> {
    dice: &'a Dice,
    /// What the names of columns may refer to, from the outermost on.
    sources: Vec<Source>,
    /// Tables of the `WITH` clauses around.
    ctes: Vec<Source>,
    /// Named windows of the `SELECT` around.
    windows: bool,
    /// Whether what is made belongs to a trigger.
    trigger: bool,
    parameters: usize,
    aliases: u64,
}

/// Something with columns.
#[derive(Clone)]
struct Source {
    name: String,
    columns: Vec<String>,
}

/// A statement.
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

    /// Something in so many of a hundred cases, else nowhere.
    fn maybe(&mut self, percent: u64, make: impl FnOnce(&mut Self) -> String) -> String {
        if self.dice.chance(percent) { make(self) } else { String::new() }
    }

    /// One of some texts.
    fn word(&self, words: &[&'static str]) -> &'static str {
        self.dice.one(words)
    }

    /// From one up to so many of something.
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

    /// A name for something new, which may have been made before.
    fn made(&self) -> String {
        if self.dice.chance(2) { names::name(self.dice) } else { format!("n{}", self.dice.below(MADE)) }
    }

    fn alias(&mut self) -> String {
        self.aliases += 1;
        format!("q{}", self.aliases)
    }

    /// Makes something with more sources of columns.
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

    /// A table as the row that a trigger or an upsert sees.
    fn rows(table: &Table, names: &[&str]) -> Vec<Self> {
        names.iter().map(|name| Self::of(table, name)).collect()
    }
}
