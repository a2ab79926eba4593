//! Generates changes of the schema.

use super::schema::{Kind, Table};
use super::text::Text;
use super::{Call, Generator};

/// The maximum number of tables of all kinds.
const TABLES_MAX: usize = 12;
/// The maximum number of views, triggers and indexes.
const OTHERS_MAX: usize = 8;

const TYPES: [&str; 9] = ["INTEGER", "INT", "TEXT", "REAL", "BLOB", "NUMERIC", "VARCHAR(10)", "", "DOUBLE PRECISION"];
const STRICT_TYPES: [&str; 6] = ["INTEGER", "INT", "TEXT", "REAL", "BLOB", "ANY"];
const CONFLICTS: [&str; 5] =
    [" ON CONFLICT REPLACE", " ON CONFLICT IGNORE", " ON CONFLICT ROLLBACK", " ON CONFLICT FAIL", ""];
const ACTIONS: [&str; 5] = ["CASCADE", "SET NULL", "SET DEFAULT", "RESTRICT", "NO ACTION"];

impl Generator {
    /// Returns a random change of the schema.
    pub(super) fn change(&mut self) -> Call {
        let tables = self.schema.tables.len();
        let few = tables < TABLES_MAX / 2;
        let call = match self.dice.below(if few { 6 } else { 24 }) {
            0..4 if tables < TABLES_MAX => Some(self.create_table()),
            4 if tables < TABLES_MAX => Some(self.create_virtual()),
            5 | 6 => self.create_view(),
            7..10 => self.create_index(),
            10..14 => self.create_trigger(),
            14..19 => self.alter(),
            19 | 20 => self.drop_table(),
            21 => self.drop_other(),
            22 => Some(self.dice.one(&["REINDEX", "ANALYZE", "PRAGMA user_version = 7"]).to_owned()),
            _ => self.create_as(),
        };
        let sql = call.unwrap_or_else(|| self.create_table());
        call_of(sql)
    }

    fn number(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    /// Returns a new name.
    fn name(&mut self, prefix: &str) -> String {
        format!("{prefix}{}", self.number())
    }

    pub(super) fn create_table(&mut self) -> String {
        let name = self.name("t");
        let strict = self.dice.chance(20);
        let without_rowid = self.dice.chance(25);
        let types: &[&str] = if strict { &STRICT_TYPES } else { &TYPES };
        let mut parts = Vec::new();
        if without_rowid {
            let kind = self.dice.one(if strict { &["INTEGER", "TEXT", "ANY"] } else { &["INTEGER", "TEXT", ""] });
            parts.push(format!("k {kind} NOT NULL"));
        } else if self.dice.chance(75) {
            let autoincrement = if self.dice.chance(30) { " AUTOINCREMENT" } else { "" };
            parts.push(format!("id INTEGER PRIMARY KEY{autoincrement}"));
        }
        let columns: Vec<String> = (0..2 + self.dice.below(4)).map(|number| format!("c{number}")).collect();
        for column in &columns {
            let kind = self.dice.one(types);
            parts.push(format!("{column} {kind}{}", self.rules(column)));
        }
        if let Some(parent) = self.reference(&name, without_rowid) {
            parts.push(format!("p INTEGER {parent}"));
        }
        if self.dice.chance(25) {
            let mut text = Text::bare(&self.dice);
            text.expression(&columns, 2);
            let stored = self.dice.one(&["VIRTUAL", "STORED"]);
            let kind = if strict { "ANY" } else { "" };
            parts.push(format!("g {kind} GENERATED ALWAYS AS ({}) {stored}", text.text()));
        }
        if without_rowid {
            parts.push(
                self.dice.one(&["PRIMARY KEY (k)", "PRIMARY KEY (k, c0)", "PRIMARY KEY (c1, k DESC)"]).to_owned(),
            );
        } else if self.dice.chance(12) {
            parts.push(format!("UNIQUE (c0, c1){}", self.dice.one(&CONFLICTS)));
        }
        if self.dice.chance(15) {
            parts.push("CONSTRAINT small CHECK (length(c0) < 40 OR c1 IS NULL)".to_owned());
        }
        let options = match (strict, without_rowid) {
            (true, true) => " STRICT, WITHOUT ROWID",
            (true, false) => " STRICT",
            (false, true) => " WITHOUT ROWID",
            (false, false) => "",
        };
        format!("CREATE TABLE {name} ({}){options}", parts.join(", "))
    }

    /// Returns the constraints of a column.
    fn rules(&self, column: &str) -> String {
        let mut rules = String::new();
        if self.dice.chance(12) {
            rules += self.dice.one(&[" NOT NULL", " NOT NULL ON CONFLICT REPLACE", " NOT NULL ON CONFLICT IGNORE"]);
        }
        if self.dice.chance(25) {
            rules += self.dice.one(&[" DEFAULT 5", " DEFAULT 'five'", " DEFAULT (1 + 2.5)", " DEFAULT x'05'"]);
        }
        if self.dice.chance(10) {
            rules += " UNIQUE";
            rules += self.dice.one(&CONFLICTS);
        }
        if self.dice.chance(15) {
            rules += self.dice.one(&[" COLLATE NOCASE", " COLLATE RTRIM", " COLLATE BINARY"]);
        }
        if self.dice.chance(15) {
            let checks = ["{} IS NOT 13", "typeof({}) <> 'blob'", "{} <> 'tea'", "{} IS NULL OR {} > -1000"];
            rules += &format!(" CHECK ({})", self.dice.one(&checks).replace("{}", column));
        }
        rules
    }

    /// Returns a reference to a table whose rowid has a name, or to the table itself.
    fn reference(&self, name: &str, without_rowid: bool) -> Option<String> {
        if !self.dice.chance(35) {
            return None;
        }
        let parents = self.schema.ordinary();
        let parents = parents.into_iter().filter_map(|table| Some((table.name.as_str(), table.alias()?.name.as_str())));
        let parents: Vec<_> = parents.chain((!without_rowid).then_some((name, "id"))).collect();
        let (table, key) = *self.dice.pick(&parents)?;
        let mut text = format!("REFERENCES {table} ({key})");
        for event in ["DELETE", "UPDATE"] {
            if self.dice.chance(60) {
                text += &format!(" ON {event} {}", self.dice.one(&ACTIONS));
            }
        }
        if self.dice.chance(50) {
            text += " DEFERRABLE INITIALLY DEFERRED";
        }
        Some(text)
    }

    fn create_virtual(&mut self) -> String {
        let name = self.name("v");
        match self.dice.below(4) {
            0 => format!("CREATE VIRTUAL TABLE {name} USING rtree(id, x0, x1, y0, y1)"),
            1 => format!("CREATE VIRTUAL TABLE {name} USING rtree_i32(id, x0, x1, +note)"),
            2 => format!("CREATE VIRTUAL TABLE {name} USING fts5(title, body, tokenize = 'porter', prefix = '2')"),
            _ => format!("CREATE VIRTUAL TABLE {name} USING fts5(title, body UNINDEXED)"),
        }
    }

    fn create_as(&mut self) -> Option<String> {
        let name = self.name("t");
        let table = self.pick_table()?;
        let mut text = Text::bare(&self.dice);
        text.add(format!("CREATE TABLE {name} AS SELECT "));
        text.list(0..2, |text, number| {
            text.expression(&table.names(), 2).add(format!(" AS c{number}"));
        });
        text.add(format!(" FROM {} ORDER BY {} LIMIT 8", table.name, table.key.join(", ")));
        Some(text.text())
    }

    fn create_index(&mut self) -> Option<String> {
        if self.schema.indexes.len() >= OTHERS_MAX {
            return self.drop_other();
        }
        let name = self.name("i");
        let table = self.pick_table()?;
        let columns = table.names();
        let unique = if self.dice.chance(15) { "UNIQUE " } else { "" };
        let mut text = Text::bare(&self.dice);
        text.add(format!("CREATE {unique}INDEX {name} ON {} (", table.name));
        let parts = 1 + self.dice.below(2);
        text.list(0..parts, |text, _| {
            if self.dice.chance(35) {
                text.add("(").expression(&columns, 2).add(")");
            } else {
                text.add(self.dice.pick(&columns).map_or("1", String::as_str));
            }
            text.add(self.dice.one(&["", " DESC", " COLLATE NOCASE"]));
        });
        text.add(")");
        if self.dice.chance(35) {
            text.add(" WHERE ").predicate(&columns, 1);
        }
        Some(text.text())
    }

    fn create_view(&mut self) -> Option<String> {
        if self.schema.views.len() >= OTHERS_MAX / 2 {
            return self.drop_other();
        }
        let name = self.name("w");
        let table = self.pick_table()?;
        let mut text = Text::bare(&self.dice);
        if self.dice.chance(25) {
            let column = self.dice.pick(&table.columns)?;
            let columns = format!("CREATE VIEW {name} (c0, c1) AS SELECT {0}, count(*)", column.name);
            return Some(format!("{columns} FROM {} GROUP BY {}", table.name, column.name));
        }
        text.add(format!("CREATE VIEW {name} AS SELECT "));
        let first = self.dice.pick(&table.columns)?;
        text.add(format!("{} AS c0, ", first.name)).expression(&table.names(), 2).add(" AS c1");
        text.add(format!(" FROM {}", table.name));
        if self.dice.chance(50) {
            text.add(" WHERE ").predicate(&table.names(), 1);
        }
        Some(text.text())
    }

    fn create_trigger(&mut self) -> Option<String> {
        if self.schema.triggers.len() >= OTHERS_MAX {
            return self.drop_other();
        }
        let name = self.name("r");
        if let Some(view) = self.dice.pick(&self.schema.views).filter(|_| self.dice.chance(40)).cloned() {
            return self.instead_trigger(&name, &view);
        }
        let table = self.pick_table()?;
        let column = self.dice.pick(&table.columns)?.name.clone();
        let event = self.dice.one(&["INSERT", "UPDATE", "DELETE", "UPDATE OF"]);
        let event = if event == "UPDATE OF" { format!("UPDATE OF {column}") } else { event.to_owned() };
        let row = if event == "DELETE" { "OLD" } else { "NEW" };
        let when = self.dice.one(&["BEFORE", "AFTER", "AFTER"]);
        let columns: Vec<String> = table.columns.iter().map(|column| format!("{row}.{}", column.name)).collect();
        let mut text = Text::bare(&self.dice);
        text.add(format!("CREATE TRIGGER {name} {when} {event} ON {} ", table.name));
        if self.dice.chance(40) {
            text.add("WHEN ").predicate(&columns, 1).add(" ");
        }
        text.add("BEGIN ");
        match self.dice.below(10) {
            0..3 => {
                let raise = self.dice.one(&["ABORT, 'no'", "FAIL, 'no'", "ROLLBACK, 'no'", "IGNORE"]);
                let value = self.dice.small();
                text.add(format!("SELECT RAISE({raise}) WHERE {row}.{column} IN ({value}, 'tea');"));
            }
            3..5 => {
                let other = self.pick_table()?;
                let to = self.dice.pick(&other.columns).filter(|column| !column.is_key && !column.is_generated);
                let to = to.map_or("c0", |column| column.name.as_str());
                let value = self.dice.small();
                text.add(format!("UPDATE {} SET {to} = {value} WHERE {to} = {row}.{column};", other.name));
            }
            _ => drop(text.add(log(&event, row, &column))),
        }
        text.add(" END");
        Some(text.text())
    }

    fn instead_trigger(&self, name: &str, view: &Table) -> Option<String> {
        let table = self.pick_table()?;
        let column = self.dice.pick(&table.columns)?.name.clone();
        let begin = |event: &str| format!("CREATE TRIGGER {name} INSTEAD OF {event} ON {} BEGIN ", view.name);
        let table = &table.name;
        Some(match self.dice.below(4) {
            0 => format!("{}INSERT INTO {table} ({column}) VALUES (NEW.c0); END", begin("INSERT")),
            1 => format!("{}UPDATE {table} SET {column} = NEW.c0 WHERE {column} IS OLD.c0; END", begin("UPDATE")),
            2 => format!("{}DELETE FROM {table} WHERE {column} IS OLD.c0; END", begin("DELETE")),
            _ => format!("{}{} END", begin("INSERT"), log("instead", "NEW", "c1")),
        })
    }

    fn alter(&mut self) -> Option<String> {
        let number = self.number();
        let table = self.pick_table()?;
        let (name, column) = (&table.name, &self.dice.pick(&table.columns)?.name);
        let kind = self.dice.one(if table.strict { &STRICT_TYPES[..] } else { &TYPES[..] });
        let added = format!("ALTER TABLE {name} ADD COLUMN a{number} {kind}");
        Some(match self.dice.below(12) {
            0..3 => format!("ALTER TABLE {name} RENAME TO t{number}"),
            3..5 => format!("ALTER TABLE {name} RENAME COLUMN {column} TO n{number}"),
            5..8 if table.columns.len() > 3 => format!("ALTER TABLE {name} DROP COLUMN {column}"),
            8 => format!("{added} NOT NULL DEFAULT 'n'"),
            9 => format!("{added} CHECK (a{number} IS NULL OR {column} IS NOT 3)"),
            10 => format!("{added} AS ({column} || 'x')"),
            _ => format!("{added} DEFAULT 9"),
        })
    }

    fn drop_table(&mut self) -> Option<String> {
        let tables: Vec<&Table> = self.schema.tables.iter().filter(|table| table.name != "log").collect();
        (tables.len() > TABLES_MAX / 2).then_some(())?;
        let table = self.dice.pick(&tables)?;
        Some(format!("DROP TABLE {}", table.name))
    }

    fn drop_other(&mut self) -> Option<String> {
        match self.dice.below(3) {
            0 => Some(format!("DROP VIEW {}", self.dice.pick(&self.schema.views)?.name)),
            1 => Some(format!("DROP TRIGGER {}", self.dice.pick(&self.schema.triggers)?)),
            _ => Some(format!("DROP INDEX {}", self.dice.pick(&self.schema.indexes)?)),
        }
    }

    /// Returns an ordinary table other than the log.
    pub(super) fn pick_table(&self) -> Option<Table> {
        let tables = self.schema.of(Kind::Rows);
        let tables: Vec<&Table> = tables.into_iter().filter(|table| table.name != "log").collect();
        self.dice.pick(&tables).map(|table| (*table).clone())
    }
}

/// Returns the statement by which triggers write to the log.
fn log(event: &str, row: &str, column: &str) -> String {
    format!("INSERT INTO log (what, value) VALUES ('{event} {column}', {row}.{column});")
}

/// Returns a statement without parameters.
pub fn call_of(sql: String) -> Call {
    Call { sql: sql.into(), params: Vec::new(), names: Vec::new() }
}
