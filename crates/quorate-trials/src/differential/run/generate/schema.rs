//! The schema that the generator knows, as plain SQLite reports it.

use rusqlite::{Connection, Row};

/// Tables and what belongs to them, in a fixed order.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    pub tables: Vec<Table>,
    pub views: Vec<Table>,
    pub indexes: Vec<String>,
    pub triggers: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Rows,
    Fts,
    Rtree,
}

/// A table or a view.
#[derive(Clone, Debug)]
pub struct Table {
    pub name: String,
    pub kind: Kind,
    pub strict: bool,
    pub columns: Vec<Column>,
    /// The columns that identify a row: the rowid, or the primary key; none for a view.
    pub key: Vec<String>,
    pub parents: Vec<Parent>,
    pub rows: i64,
}

#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    /// The declared type, in capitals.
    pub declared: String,
    pub is_key: bool,
    pub is_generated: bool,
    pub not_null: bool,
}

/// A column that refers to a column of another table.
#[derive(Clone, Debug)]
pub struct Parent {
    pub column: String,
    pub table: String,
    pub key: String,
}

const TABLES: &str = "SELECT l.name, l.type, l.wr, l.strict, coalesce(s.sql, '') FROM pragma_table_list l
    JOIN sqlite_schema s ON s.name = l.name
    WHERE l.schema = 'main' AND l.type IN ('table', 'virtual', 'view') AND l.name NOT LIKE 'sqlite!_%' ESCAPE '!'
    ORDER BY s.rowid";
const COLUMNS: &str = "SELECT name, upper(type), pk, hidden, \"notnull\" FROM pragma_table_xinfo(?1)";
const PARENTS: &str = "SELECT \"from\", \"table\", \"to\" FROM pragma_foreign_key_list(?1)
    WHERE \"to\" IS NOT NULL ORDER BY id, seq";
const NAMES: &str = "SELECT name FROM sqlite_schema WHERE type = ?1 AND sql IS NOT NULL ORDER BY rowid";

impl Schema {
    /// Reads the schema.
    pub fn read(conn: &Connection) -> rusqlite::Result<Self> {
        let mut schema = Self { indexes: names(conn, "index")?, triggers: names(conn, "trigger")?, ..Self::default() };
        let mut statement = conn.prepare(TABLES)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let table = Table::read(conn, row)?;
            match (row.get::<_, String>(1)?.as_str(), table) {
                // A view over a dropped table has no columns.
                (_, None) => {}
                ("view", Some(view)) => schema.views.push(view),
                (_, Some(table)) => schema.tables.push(table),
            }
        }
        Ok(schema)
    }

    /// Returns the ordinary tables.
    pub fn ordinary(&self) -> Vec<&Table> {
        self.tables.iter().filter(|table| table.kind == Kind::Rows).collect()
    }

    /// Returns the tables of a kind.
    pub fn of(&self, kind: Kind) -> Vec<&Table> {
        self.tables.iter().filter(|table| table.kind == kind).collect()
    }
}

impl Table {
    fn read(conn: &Connection, row: &Row<'_>) -> rusqlite::Result<Option<Self>> {
        let (name, kind, without_rowid, strict, sql): (String, String, bool, bool, String) =
            (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?);
        let columns = conn.prepare(COLUMNS).and_then(|mut columns| {
            columns.query_map([&name], Column::read)?.collect::<rusqlite::Result<Vec<(Column, i64, i64)>>>()
        });
        let Ok(mut columns) = columns else { return Ok(None) };
        // An FTS5 table has hidden columns that stand for the table itself.
        columns.retain(|(_, _, hidden)| *hidden != 1);
        let mut key: Vec<_> = columns.iter().filter(|(_, place, _)| *place > 0).collect();
        key.sort_by_key(|(_, place, _)| *place);
        let key = match (kind.as_str(), without_rowid) {
            ("view", _) => Vec::new(),
            (_, true) => key.into_iter().map(|(column, _, _)| column.name.clone()).collect(),
            (_, false) => vec!["rowid".to_owned()],
        };
        let kind = match kind.as_str() {
            "virtual" if sql.contains("rtree") => Kind::Rtree,
            "virtual" => Kind::Fts,
            _ => Kind::Rows,
        };
        let mut parents = conn.prepare(PARENTS)?;
        let parents = parents
            .query_map([&name], |row| Ok(Parent { column: row.get(0)?, table: row.get(1)?, key: row.get(2)? }))?
            .collect::<rusqlite::Result<_>>()?;
        let count = format!("SELECT count(*) FROM \"{name}\"");
        let rows = if key.is_empty() { 0 } else { conn.query_row(&count, [], |row| row.get(0))? };
        let columns = columns.into_iter().map(|(column, _, _)| column).collect();
        Ok(Some(Self { name, kind, strict, columns, key, parents, rows }))
    }

    /// Returns the columns that can be written.
    pub fn writable(&self) -> Vec<&Column> {
        self.columns.iter().filter(|column| !column.is_generated).collect()
    }

    /// Returns the column that is the rowid, if there is one.
    pub fn alias(&self) -> Option<&Column> {
        self.columns.iter().find(|column| self.is_alias(column))
    }

    /// Returns whether a column is the rowid, whose values must not become too large.
    pub fn is_alias(&self, column: &Column) -> bool {
        let by_rowid = self.key.first().is_some_and(|key| key == "rowid");
        by_rowid && column.is_key && (column.declared == "INTEGER" || self.kind != Kind::Rows)
            || self.kind == Kind::Rtree && self.columns.first().is_some_and(|first| first.name == column.name)
    }

    pub fn names(&self) -> Vec<String> {
        self.columns.iter().map(|column| column.name.clone()).collect()
    }

    /// Returns the foreign key of this column, if it has one.
    pub fn parent(&self, column: &Column) -> Option<&Parent> {
        self.parents.iter().find(|parent| parent.column == column.name)
    }
}

impl Column {
    fn read(row: &Row<'_>) -> rusqlite::Result<(Self, i64, i64)> {
        let (place, hidden): (i64, i64) = (row.get(2)?, row.get(3)?);
        let (name, declared, not_null) = (row.get(0)?, row.get(1)?, row.get(4)?);
        Ok((Self { name, declared, is_key: place > 0, is_generated: hidden > 1, not_null }, place, hidden))
    }
}

fn names(conn: &Connection, kind: &str) -> rusqlite::Result<Vec<String>> {
    conn.prepare(NAMES)?.query_map([kind], |row| row.get(0))?.collect()
}
