//! `insert-stmt`, `upsert-clause`, `returning-clause`, `update-stmt`, `delete-stmt`.

use super::{DEPTH, Source, Walk};
use crate::hostile::run::schema::Table;

/// The clauses for conflicts of a constraint.
const CONFLICTS: [&str; 7] = ["", "", "OR REPLACE ", "OR IGNORE ", "OR ABORT ", "OR FAIL ", "OR ROLLBACK "];
/// How deep the expressions of rows nest.
const ROW_DEPTH: u64 = DEPTH - 1;

impl Walk<'_> {
    pub(super) fn insert(&mut self) -> String {
        let before = self.ctes.len();
        let with = self.maybe(10, |walk| walk.with(ROW_DEPTH));
        let table = self.writable();
        let sql = self.insert_into(table);
        self.ctes.truncate(before);
        format!("{with}{sql}")
    }

    fn insert_into(&mut self, table: &Table) -> String {
        let verb = if self.dice.chance(10) {
            "REPLACE INTO ".to_owned()
        } else {
            format!("INSERT {}INTO ", self.word(&CONFLICTS))
        };
        let alias = self.maybe(20, Self::alias);
        let called = if alias.is_empty() { table.name.to_owned() } else { alias.clone() };
        let as_alias = if alias.is_empty() { alias } else { format!(" AS {alias}") };
        let columns = self.columns(table);
        let width = columns.len() as u64;
        let list = format!(" ({})", columns.join(", "));
        let rows = match self.dice.below(10) {
            0..5 => format!("VALUES {}", self.some(3, |walk| format!("({})", walk.times(width, |walk| walk.expr(1))))),
            5..9 => self.select_of(ROW_DEPTH, width),
            _ => "DEFAULT VALUES".to_owned(),
        };
        let upsert = self.maybe(25, |walk| walk.upserts(table, &called));
        let returning = self.returning(table, &called);
        let list = if rows.starts_with("DEFAULT") { String::new() } else { list };
        format!("{verb}{}{}{as_alias}{list} {rows}{upsert}{returning}", self.schema(), table.name)
    }

    fn upserts(&mut self, table: &Table, called: &str) -> String {
        let count = 1 + self.dice.below(2);
        let mut sources = Source::rows(table, &["excluded"]);
        sources.push(Source::of(table, called));
        self.with_sources(sources, |walk| (0..count).map(|_| walk.upsert(table)).collect())
    }

    fn upsert(&mut self, table: &Table) -> String {
        let target = self.maybe(70, |walk| {
            let key = match table.name {
                "t1" => "(a)",
                "t2" => walk.word(&["(id)", "(a, b)", "(a, b COLLATE NOCASE)", "(n, id) WHERE n > 3"]),
                "t3" => "(k)",
                _ => "(id)",
            };
            key.to_owned()
        });
        if self.dice.chance(30) {
            return format!(" ON CONFLICT {target} DO NOTHING");
        }
        let (set, condition) = (self.assignments(table), self.maybe(40, |walk| format!(" WHERE {}", walk.expr(1))));
        format!(" ON CONFLICT {target} DO UPDATE SET {set}{condition}")
    }

    fn returning(&mut self, table: &Table, called: &str) -> String {
        self.maybe(20, |walk| {
            walk.with_sources(vec![Source::of(table, called)], |walk| {
                let star = walk.maybe(40, |_| "*, ".to_owned());
                format!(" RETURNING {star}{}", walk.some(3, |walk| walk.expr(1)))
            })
        })
    }

    pub(super) fn update(&mut self) -> String {
        let before = self.ctes.len();
        let with = self.maybe(10, |walk| walk.with(ROW_DEPTH));
        let table = self.writable();
        let conflict = self.word(&CONFLICTS);
        let mut sources = vec![Source::of(table, table.name)];
        let from = self.maybe(20, |walk| format!(" FROM {}", walk.join(ROW_DEPTH, &mut sources)));
        let schema = self.schema();
        let sql = self.with_sources(sources, |walk| {
            let set = walk.assignments(table);
            let condition = walk.maybe(80, |walk| format!(" WHERE {}", walk.expr(ROW_DEPTH)));
            let returning = walk.returning(table, table.name);
            let limit = walk.maybe(2, |walk| format!(" ORDER BY {}{}", walk.ordering(1), walk.limit(1)));
            format!("UPDATE {conflict}{schema}{} SET {set}{from}{condition}{returning}{limit}", table.name)
        });
        self.ctes.truncate(before);
        format!("{with}{sql}")
    }

    fn assignments(&mut self, table: &Table) -> String {
        if self.dice.chance(15) {
            let columns = self.columns(table);
            let width = columns.len() as u64;
            let values = match self.dice.below(2) {
                0 => self.times(width, |walk| walk.expr(1)),
                _ => self.select_of(1, width),
            };
            return format!("({}) = ({values})", columns.join(", "));
        }
        self.some(3, |walk| {
            let column = walk.dice.one(table.columns);
            format!("{column} = {}", walk.expr(ROW_DEPTH))
        })
    }

    pub(super) fn delete(&mut self) -> String {
        let before = self.ctes.len();
        let with = self.maybe(10, |walk| walk.with(ROW_DEPTH));
        let table = self.writable();
        let (schema, indexed) = (
            self.schema(),
            self.maybe(4, |walk| walk.word(&[" NOT INDEXED", " NOT INDEXED", " INDEXED BY i1"]).into()),
        );
        let sql = self.with_sources(vec![Source::of(table, table.name)], |walk| {
            let condition = walk.maybe(92, |walk| format!(" WHERE {}", walk.expr(DEPTH)));
            let returning = walk.returning(table, table.name);
            let limit = walk.maybe(2, |walk| walk.limit(1));
            format!("DELETE FROM {schema}{}{indexed}{condition}{returning}{limit}", table.name)
        });
        self.ctes.truncate(before);
        format!("{with}{sql}")
    }

    /// Returns some columns of a table, none twice.
    fn columns(&self, table: &Table) -> Vec<&'static str> {
        let all = self.dice.chance(60);
        let some: Vec<_> = table.columns.iter().copied().filter(|_| all || self.dice.chance(60)).collect();
        if some.is_empty() { table.columns.to_vec() } else { some }
    }

    /// Returns a statement of a trigger's program.
    pub(super) fn step(&mut self) -> String {
        match self.dice.below(8) {
            0..3 => self.insert(),
            3..5 => self.update(),
            5 | 6 => self.delete(),
            _ => self.select(1),
        }
    }
}
