//! `create-table-stmt`, `column-def`, `column-constraint`, `table-constraint`, `foreign-key-clause`,
//! `create-index-stmt`, `create-view-stmt`, `create-trigger-stmt`, `create-virtual-table-stmt`, `alter-table-stmt`,
//! `drop-...-stmt`, `analyze-stmt`, `reindex-stmt`.

use super::{DEPTH, Source, Walk};
use crate::hostile::run::schema::COLLATIONS;
use crate::hostile::run::statements::names;

/// The clauses for conflicts of a constraint.
const CONFLICT: [&str; 8] =
    ["", "", "", "", " ON CONFLICT IGNORE", " ON CONFLICT REPLACE", " ON CONFLICT FAIL", " ON CONFLICT ROLLBACK"];

impl Walk<'_> {
    pub(super) fn create_table(&mut self) -> String {
        let temp = self.word(&["", "", "", "", "", "", "", "", "", "TEMP "]);
        let exists = self.word(&["", "IF NOT EXISTS "]);
        let name = self.made();
        let head = format!("CREATE {temp}TABLE {exists}{}{name}", self.schema());
        if self.dice.chance(15) {
            return format!("{head} AS {}", self.select(DEPTH));
        }
        let width = 1 + self.dice.below(5);
        let names: Vec<String> = (0..width)
            .map(|number| if self.dice.chance(3) { names::name(self.dice) } else { format!("c{number}") })
            .collect();
        let row = Source { name: name.clone(), columns: names.clone() };
        let parts = self.with_sources(vec![row], |walk| {
            let mut parts: Vec<String> = names.iter().map(|name| walk.column_definition(name)).collect();
            while walk.dice.chance(25) {
                parts.push(walk.table_constraint(&name));
            }
            parts.join(", ")
        });
        let options = self.word(&["", "", "", " WITHOUT ROWID", " STRICT", " STRICT, WITHOUT ROWID"]);
        format!("{head} ({parts}){options}")
    }

    fn column_definition(&mut self, name: &str) -> String {
        let kind = self.maybe(75, |walk| format!(" {}", walk.type_name()));
        let mut constraints = String::new();
        while self.dice.chance(40) {
            constraints.push_str(&self.column_constraint());
        }
        format!("{name}{kind}{constraints}")
    }

    fn column_constraint(&mut self) -> String {
        let named = self.maybe(8, |walk| format!(" CONSTRAINT {}", walk.made()));
        let conflict = self.word(&CONFLICT);
        let constraint = match self.dice.below(14) {
            0 | 1 => format!(
                "PRIMARY KEY{}{conflict}{}",
                self.word(&["", " ASC", " DESC"]),
                self.word(&["", " AUTOINCREMENT"])
            ),
            2 | 3 => format!("NOT NULL{conflict}"),
            4 => format!("UNIQUE{conflict}"),
            5 | 6 => format!("CHECK ({})", self.expr(2)),
            7 | 8 => format!(
                "DEFAULT {}",
                self.word(&["1", "-5", "'x'", "NULL", "CURRENT_TIMESTAMP", "(1 + abs(-2))", "(random())"])
            ),
            9 => format!("COLLATE {}", self.word(COLLATIONS)),
            10 | 11 => self.references(),
            _ => format!(
                "{}AS ({}){}",
                self.word(&["", "GENERATED ALWAYS "]),
                self.expr(2),
                self.word(&["", " STORED", " VIRTUAL"])
            ),
        };
        format!("{named} {constraint}")
    }

    fn references(&mut self) -> String {
        let mut sql =
            format!("REFERENCES {}", self.word(&["t1", "t1 (a)", "t2 (a, b)", "t3", "tree (id)", "n1", "n2 (c0)"]));
        while self.dice.chance(40) {
            sql.push_str(self.word(&[
                " ON DELETE CASCADE",
                " ON UPDATE CASCADE",
                " ON DELETE SET NULL",
                " ON UPDATE SET DEFAULT",
                " ON DELETE RESTRICT",
                " ON UPDATE NO ACTION",
                " MATCH FULL",
            ]));
        }
        let deferrable =
            ["", "", " DEFERRABLE", " NOT DEFERRABLE INITIALLY DEFERRED", " DEFERRABLE INITIALLY DEFERRED"];
        format!("{sql}{}", self.word(&deferrable))
    }

    fn table_constraint(&mut self, table: &str) -> String {
        let named = self.maybe(20, |walk| format!("CONSTRAINT {} ", walk.made()));
        let (first, second) = (self.word(&["c0", "c1", "c0 DESC"]), self.word(&["", ", c1", ", c2 COLLATE NOCASE"]));
        let conflict = self.word(&CONFLICT);
        let constraint = match self.dice.below(6) {
            0 => format!("PRIMARY KEY ({first}{second}){conflict}"),
            1 => format!("UNIQUE ({first}{second}){conflict}"),
            2 => format!("CHECK ({}){conflict}", self.expr(2)),
            3 => format!("FOREIGN KEY (c0) REFERENCES {table} (c1)"),
            _ => format!("FOREIGN KEY (c0) {}", self.references()),
        };
        format!("{named}{constraint}")
    }

    pub(super) fn create_index(&mut self) -> String {
        let table = self.table();
        let (unique, exists) = (self.word(&["", "", "UNIQUE "]), self.word(&["", "IF NOT EXISTS "]));
        let (schema, name) = (self.schema(), self.made());
        let bare = Source { name: table.name.to_owned(), columns: Source::of(table, "").columns };
        self.with_sources(vec![bare], |walk| {
            let columns = walk.some(3, |walk| {
                let column = if walk.dice.chance(70) { walk.dice.one(table.columns).into() } else { walk.expr(2) };
                let collate = walk.maybe(20, |walk| format!(" COLLATE {}", walk.word(COLLATIONS)));
                format!("{column}{collate}{}", walk.word(&["", " ASC", " DESC"]))
            });
            let condition = walk.maybe(25, |walk| format!(" WHERE {}", walk.expr(2)));
            format!("CREATE {unique}INDEX {exists}{schema}{name} ON {} ({columns}){condition}", table.name)
        })
    }

    pub(super) fn create_view(&mut self) -> String {
        let columns = self.maybe(30, |walk| format!(" ({})", walk.some(3, |walk| walk.made())));
        let (exists, schema, name) = (self.word(&["", "IF NOT EXISTS "]), self.schema(), self.made());
        format!("CREATE VIEW {exists}{schema}{name}{columns} AS {}", self.select(DEPTH))
    }

    pub(super) fn create_trigger(&mut self) -> String {
        let table = self.writable();
        let time = if table.writable { self.word(&["", "BEFORE ", "AFTER ", "AFTER "]) } else { "INSTEAD OF " };
        let event = match self.word(&["INSERT", "DELETE", "UPDATE", "UPDATE OF"]) {
            "UPDATE OF" => format!("UPDATE OF {}", self.dice.one(table.columns)),
            other => other.to_owned(),
        };
        let seen: &[&str] = match event.as_str() {
            "INSERT" => &["new"],
            "DELETE" => &["old"],
            _ => &["new", "old"],
        };
        let (exists, name, row) = (self.word(&["", "IF NOT EXISTS "]), self.made(), self.word(&["", " FOR EACH ROW"]));
        self.trigger = true;
        self.with_sources(Source::rows(table, seen), |walk| {
            let when = walk.maybe(30, |walk| format!(" WHEN {}", walk.expr(2)));
            let count = 1 + walk.dice.below(3);
            let steps: Vec<String> = (0..count).map(|_| format!("{};", walk.step())).collect();
            let steps = steps.join(" ");
            format!("CREATE TRIGGER {exists}{name} {time}{event} ON {}{row}{when} BEGIN {steps} END", table.name)
        })
    }

    pub(super) fn create_virtual(&mut self) -> String {
        let (exists, name) = (self.word(&["", "IF NOT EXISTS "]), self.made());
        let module = match self.dice.below(8) {
            0..4 => {
                let options = [
                    "content = ''",
                    "content = t1",
                    "content_rowid = a",
                    "prefix = '2 3'",
                    "tokenize = porter",
                    "tokenize = 'unicode61 remove_diacritics 2'",
                    "tokenize = 'trigram case_sensitive 1'",
                    "detail = none",
                    "detail = column",
                    "columnsize = 0",
                    "contentless_delete = 1",
                    "locale = 1",
                    "prefix = 99999",
                    "x = y",
                ];
                let columns = self.some(3, |walk| {
                    format!("{}{}", walk.word(&["a", "b", "c", "rank"]), walk.word(&["", " UNINDEXED"]))
                });
                let more = self.maybe(60, |walk| format!(", {}", walk.some(2, |walk| walk.word(&options).to_owned())));
                format!("fts5 ({columns}{more})")
            }
            4..6 => {
                let module = self.word(&["rtree", "rtree_i32", "geopoly"]);
                let columns = self.word(&["id, a, b", "id, a, b, c, d", "id", "id, a", "id, a, b, +extra", ""]);
                format!("{module} ({columns})")
            }
            6 => format!(
                "fts5vocab ({}, {})",
                self.word(&["ft", "nowhere", "main, ft"]),
                self.word(&["row", "col", "instance"])
            ),
            _ => self
                .word(&["dbstat", "json_each", "fts4 (a)", "sqlite_stmt", "bytecode", "nowhere (1)", "generate_series"])
                .to_owned(),
        };
        format!("CREATE VIRTUAL TABLE {exists}{}{name} USING {module}", self.schema())
    }

    pub(super) fn alter(&mut self) -> String {
        let table = if self.dice.chance(70) { self.table().name.to_owned() } else { self.made() };
        let column = self.word(&["a", "b", "n", "id", "c0", "k", "x", "rowid"]);
        let action = match self.dice.below(5) {
            0 => format!("RENAME TO {}", self.made()),
            1 => format!("RENAME {}{column} TO {}", self.word(&["", "COLUMN "]), self.made()),
            2 | 3 => {
                let name = self.made();
                let row = Source { name: table.clone(), columns: vec![column.to_owned()] };
                let definition = self.with_sources(vec![row], |walk| walk.column_definition(&name));
                format!("ADD {}{definition}", self.word(&["", "COLUMN "]))
            }
            _ => format!("DROP {}{column}", self.word(&["", "COLUMN "])),
        };
        format!("ALTER TABLE {}{table} {action}", self.schema())
    }

    pub(super) fn drop(&mut self) -> String {
        let name = if self.dice.chance(85) {
            self.made()
        } else {
            self.word(&["t4", "v3", "i2", "tr1", "ft", "rt", "chain", "v1", "tree"]).to_owned()
        };
        let exists = self.word(&["", "IF EXISTS "]);
        match self.dice.below(10) {
            0 => format!("REINDEX {}{name}", self.schema()),
            1 => format!("ANALYZE {}{name}", self.schema()),
            _ => format!("DROP {} {exists}{}{name}", self.word(&["TABLE", "INDEX", "VIEW", "TRIGGER"]), self.schema()),
        }
    }
}
