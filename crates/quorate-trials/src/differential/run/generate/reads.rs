//! Generates queries whose result has only one possible order.

use quorate::Value;

use super::ddl::call_of;
use super::schema::{Kind, Table};
use super::text::Text;
use super::{Call, Generator};

const AGGREGATES: [&str; 9] = [
    "count(*)",
    "count({})",
    "min({})",
    "max({})",
    "total(typeof({}) = 'text')",
    "group_concat({}, '/' ORDER BY {}, typeof({}), quote({}))",
    "count(DISTINCT typeof({}))",
    "json_group_array(typeof({}) ORDER BY typeof({}))",
    "sum(length({}))",
];

impl Generator {
    /// Returns a random query.
    pub(super) fn read(&self) -> Call {
        let read = match self.dice.below(24) {
            0..8 => self.select(),
            8..11 => self.aggregate(),
            11..13 => self.window(),
            13..16 => self.join(),
            16 | 17 => self.compound(),
            18 | 19 => self.read_virtual(),
            20 => self.pragma(),
            21 => self.recursive(),
            22 => self.view(),
            _ => None,
        };
        read.unwrap_or_else(|| call_of("SELECT what, value, typeof(value) FROM log ORDER BY n".to_owned()))
    }

    fn select(&self) -> Option<Call> {
        let table = self.pick_table()?;
        let names = table.names();
        let mut text = Text::new(&self.dice);
        if self.dice.chance(20) {
            text.add("WITH s AS (SELECT 1 AS one, ").value(self.dice.value()).add(" AS two) ");
            text.add("SELECT s.two, t.* FROM ").add(format!("{} t, s", table.name));
        } else {
            text.add("SELECT *, ").expression(&names, 3).add(" AS e FROM ").add(&table.name);
        }
        if self.dice.chance(70) {
            text.add(" WHERE ").predicate(&names, 2);
        }
        text.add(" ORDER BY ");
        if self.dice.chance(40) {
            text.expression(&names, 1).add(self.dice.one(&[" DESC NULLS LAST, ", " COLLATE NOCASE, ", ", "]));
        }
        text.add(table.key.join(", "));
        if self.dice.chance(40) {
            text.add(format!(" LIMIT {} OFFSET {}", self.dice.below(20), self.dice.below(10)));
        }
        Some(text.call())
    }

    fn aggregate(&self) -> Option<Call> {
        let table = self.pick_table()?;
        let by = &self.dice.pick(&table.columns)?.name;
        let mut text = Text::new(&self.dice);
        text.add(format!("SELECT typeof({by}) || quote({by}) AS g, "));
        text.list(0..2, |text, _| {
            let column = self.dice.pick(&table.columns).map_or("1", |column| column.name.as_str());
            text.add(self.dice.one(&AGGREGATES).replace("{}", column));
        });
        text.add(format!(" FROM {}", table.name));
        if self.dice.chance(40) {
            text.add(" WHERE ").predicate(&table.names(), 1);
        }
        text.add(" GROUP BY 1");
        if self.dice.chance(30) {
            text.add(" HAVING count(*) > ").value(Value::Integer(self.dice.number(3)));
        }
        text.add(" ORDER BY 1");
        Some(text.call())
    }

    fn window(&self) -> Option<Call> {
        let table = self.pick_table()?;
        let (column, key) = (&self.dice.pick(&table.columns)?.name, table.key.join(", "));
        let function = self.dice.one(&[
            "row_number()",
            "rank()",
            "ntile(3)",
            "lag({})",
            "lead({}, 2, 'none')",
            "first_value({})",
            "count({})",
            "max({})",
        ]);
        let function = function.replace("{}", column);
        let frame = self.dice.one(&["", " ROWS BETWEEN 2 PRECEDING AND CURRENT ROW", " GROUPS 1 PRECEDING"]);
        // These functions take no frame.
        let framed = function.starts_with("count") || function.starts_with("max") || function.starts_with("first");
        let frame = if framed { frame } else { "" };
        let mut text = Text::new(&self.dice);
        text.add(format!("SELECT {key}, {function} OVER (PARTITION BY typeof({column}) ORDER BY {key}{frame}) AS w, "));
        text.expression(&table.names(), 1).add(format!(" FROM {}", table.name));
        text.add(format!(" ORDER BY {key}"));
        Some(text.call())
    }

    fn join(&self) -> Option<Call> {
        let (left, right) = (self.pick_table()?, self.pick_table()?);
        let pick = |table: &Table| self.dice.pick(&table.columns).map(|column| column.name.clone());
        let (a, b) = (pick(&left)?, pick(&right)?);
        let kind = self.dice.one(&["JOIN", "LEFT JOIN", "FULL JOIN", "RIGHT JOIN"]);
        let mut text = Text::new(&self.dice);
        text.add(format!("SELECT a.{a}, b.{b}, typeof(a.{a}), ")).value(self.dice.value());
        text.add(format!(" FROM {} a {kind} {} b ON a.{a} = b.{b}", left.name, right.name));
        if self.dice.chance(40) {
            text.add(" WHERE ").predicate(&[format!("a.{a}"), format!("b.{b}")], 1);
        }
        let keys = |alias: &str, table: &Table| {
            table.key.iter().map(|key| format!("{alias}.{key}")).collect::<Vec<_>>().join(", ")
        };
        text.add(format!(" ORDER BY {}, {} LIMIT 50", keys("a", &left), keys("b", &right)));
        Some(text.call())
    }

    fn compound(&self) -> Option<Call> {
        let (left, right) = (self.pick_table()?, self.pick_table()?);
        let operator = self.dice.one(&["UNION", "UNION ALL", "EXCEPT", "INTERSECT"]);
        let mut text = Text::new(&self.dice);
        // Quoted, so that 1 and 1.0 differ.
        text.add("SELECT quote(").expression(&left.names(), 1).add(format!(") FROM {} {operator} ", left.name));
        text.add("SELECT quote(").expression(&right.names(), 1).add(format!(") FROM {}", right.name));
        if self.dice.chance(50) {
            let column = &self.dice.pick(&right.columns)?.name;
            text.add(format!(" WHERE EXISTS (SELECT 1 FROM log WHERE value IS NOT {column})"));
        }
        text.add(" ORDER BY 1");
        Some(text.call())
    }

    fn read_virtual(&self) -> Option<Call> {
        let (full, trees) = (self.schema.of(Kind::Fts), self.schema.of(Kind::Rtree));
        let mut text = Text::new(&self.dice);
        if let Some(table) = self.dice.pick(&full).filter(|_| self.dice.chance(60)) {
            let name = &table.name;
            let (word, other) = (self.dice.word(), self.dice.word());
            let query =
                self.dice.one(&["{}", "\"{}\" OR {1}", "title : {}", "NEAR({} {1}, 2)", "{} NOT {1}", "\"", "t*"]);
            let query = query.replace("{1}", other).replace("{}", word);
            text.add(format!("SELECT rowid, title, highlight({name}, 0, '<', '>'), bm25({name}) < 0 FROM {name}"));
            text.add(format!(" WHERE {name} MATCH ")).value(query.into()).add(" ORDER BY rowid");
        } else {
            let name = &self.dice.pick(&trees)?.name;
            text.add(format!("SELECT * FROM {name} WHERE x0 <= ")).value(Value::Integer(self.dice.number(100)));
            text.add(" AND x1 >= ").value(self.dice.integer()).add(" ORDER BY id");
        }
        Some(text.call())
    }

    fn pragma(&self) -> Option<Call> {
        let name = self.pick_table()?.name;
        Some(call_of(match self.dice.below(5) {
            0 => format!("PRAGMA table_xinfo({name})"),
            1 => format!("PRAGMA foreign_key_list({name})"),
            2 => format!("SELECT * FROM pragma_index_list('{name}')"),
            3 => "PRAGMA user_version".to_owned(),
            _ => SCHEMA.to_owned(),
        }))
    }

    fn recursive(&self) -> Option<Call> {
        let table = self.pick_table()?;
        let mut text = Text::new(&self.dice);
        text.add("WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ");
        text.value(Value::Integer(self.dice.number(30)));
        text.add(format!(") SELECT i, (SELECT count(*) FROM {} WHERE ", table.name));
        text.predicate(&table.names(), 1).add(") FROM n ORDER BY i");
        Some(text.call())
    }

    fn view(&self) -> Option<Call> {
        let view = &self.dice.pick(&self.schema.views)?.name;
        let row = "typeof(c0) || quote(c0) AS a, typeof(c1) || quote(c1) AS b";
        Some(call_of(format!("SELECT {row} FROM {view} ORDER BY a, b")))
    }
}

/// Selects the schema without what the store adds, which plain SQLite does not have.
pub const SCHEMA: &str = "SELECT type, name, tbl_name, sql FROM sqlite_schema
    WHERE tbl_name NOT LIKE '!_quorate!_%' ESCAPE '!' AND tbl_name NOT LIKE 'quorate!_%' ESCAPE '!'
    ORDER BY type, name";
