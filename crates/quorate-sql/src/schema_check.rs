//! Checks the schema, after statements that change it, for what the authorizer can't see: new names of tables, the
//! targets of foreign keys and virtual tables, and names of columns that SQLite chooses at random.
//!
//! Invariant: the verdict depends only on the schema, not on the caller or on what SQLite has loaded.

use std::collections::{BTreeMap, BTreeSet};

use quorate_model::limits::GENERATED_COLUMNS_MAX;
use quorate_model::{Failure, FailureKind};
use rusqlite::Connection;

use crate::authorizer::Effects;
use crate::authorizer::rules::{RESERVED, is_reserved};

mod shadows;

/// The most columns with the same name in a table, a view or a result: SQLite gives further ones a random suffix.
pub const EQUAL_COLUMNS_MAX: usize = 5;

const OBJECTS: &str = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name, type";
const TEXTS: &str = "SELECT type = 'table', name, rootpage, sql FROM sqlite_schema WHERE sql IS NOT NULL";
const KEYS: &str = "SELECT m.name, k.\"table\" FROM sqlite_schema m, pragma_foreign_key_list(m.name) k
    WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite!_%' ESCAPE '!'";
/// Returns the columns of a table, with those that are hidden or generated.
pub(crate) const COLUMNS: &str = "SELECT name FROM pragma_table_xinfo(?1)";
const GENERATED: &str = "SELECT count(*) FROM pragma_table_xinfo(?1) WHERE hidden IN (2, 3)";

/// Facts about the schema.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schema {
    /// Virtual tables.
    pub virtual_tables: Vec<String>,
    /// The names of shadow tables, in lower case.
    pub shadows: BTreeSet<String>,
    /// Whether all texts of the schema are plain ([`is_plain`]) and it has no virtual tables.
    pub is_plain: bool,
}

impl Schema {
    /// Reads the schema of a database.
    pub fn read(conn: &Connection) -> rusqlite::Result<Self> {
        let mut schema = Self { is_plain: true, ..Self::default() };
        let (mut owners, mut names) = (Vec::new(), BTreeSet::new());
        let mut statement = conn.prepare(TEXTS)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (is_table, name, root): (bool, String, u32) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let sql = row.get_ref(3)?.as_str()?;
            schema.is_plain &= is_plain(sql);
            match (is_table, root) {
                (true, 0) => owners.push((name, sql.to_owned())),
                (true, _) => drop(names.insert(name.to_ascii_lowercase())),
                (false, _) => {}
            }
        }
        for (owner, sql) in owners {
            schema.is_plain = false;
            schema.shadows.extend(shadows::of(&owner, &sql, &names));
            schema.virtual_tables.push(owner);
        }
        Ok(schema)
    }

    /// Makes SQLite connect every virtual table now. Otherwise it would connect a table while it prepares the first
    /// statement that uses it, and its own reads of shadow tables could not be distinguished from the user's. Fails
    /// only if SQLite has rolled back the open transaction, which is a fault of the node.
    pub fn connect(&self, conn: &Connection) -> rusqlite::Result<()> {
        self.each_virtual(conn, |table| conn.prepare(&format!("SELECT 1 FROM {table}")).map(drop))
    }

    /// Makes every virtual table read its current content; fails like [`Schema::connect`].
    pub(crate) fn open(&self, conn: &Connection) -> rusqlite::Result<()> {
        self.each_virtual(conn, |table| conn.query_row(&format!("SELECT 1 FROM {table} LIMIT 1"), [], |_| Ok(())))
    }

    /// Calls `f` with the quoted name of each virtual table. Errors of a table are ignored: they occur again, as an
    /// outcome, when a statement uses the table.
    fn each_virtual(&self, conn: &Connection, f: impl Fn(&str) -> rusqlite::Result<()>) -> rusqlite::Result<()> {
        let is_open = !conn.is_autocommit();
        for table in &self.virtual_tables {
            f(&quoted(table)).or_else(|error| if is_open && conn.is_autocommit() { Err(error) } else { Ok(()) })?;
        }
        Ok(())
    }
}

/// Returns whether a text of SQL neither calls `changes()` nor lets a statement fail half-way (`OR FAIL`,
/// `RAISE(FAIL)`). It only searches for these words, which have no other spelling in SQL, so it may return `false` for
/// a harmless text.
pub(crate) fn is_plain(sql: &str) -> bool {
    !holds(sql, "changes") && !holds(sql, "fail")
}

/// Returns whether a text contains a word, ignoring case. The whole schema is searched after each change, so first
/// letters are compared first, for speed.
pub(crate) fn holds(text: &str, word: &str) -> bool {
    let first = word.bytes().next().unwrap_or_default().to_ascii_lowercase();
    let begins = |window: &[u8]| window.first().is_some_and(|byte| byte.to_ascii_lowercase() == first);
    let mut windows = text.as_bytes().windows(word.len().max(1));
    windows.any(|window| begins(window) && window.eq_ignore_ascii_case(word.as_bytes()))
}

/// Refuses a statement that changes the schema and names a table of the store: a view or a trigger would read the table
/// for statements that may not. SQLite does not call the authorizer for the contents of a view or trigger when it is
/// created.
pub(crate) fn check_text(sql: &str, effects: Effects) -> Result<(), Failure> {
    if effects.schema && holds(sql, RESERVED) {
        return refuse(format!("names that begin with {RESERVED} belong to the store; leave them out of the schema"));
    }
    Ok(())
}

/// The store's own part of the schema, which must never change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserved(Vec<Object>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Object {
    kind: String,
    name: String,
    table: String,
    sql: Option<String>,
}

impl Reserved {
    /// Reads the store's objects.
    pub fn read(conn: &Connection) -> rusqlite::Result<Self> {
        Ok(Self(objects(conn)?.into_iter().filter(Object::is_reserved).collect()))
    }
}

impl Object {
    fn is_reserved(&self) -> bool {
        is_reserved(&self.name) || is_reserved(&self.table)
    }
}

/// Checks the schema after a statement has changed it. The outer error is one of SQLite.
pub fn check(conn: &Connection, reserved: &Reserved, schema: &Schema) -> rusqlite::Result<Result<(), Failure>> {
    let objects = objects(conn)?;
    if !objects.iter().filter(|object| object.is_reserved()).eq(&reserved.0) {
        return Ok(refuse(format!("names that begin with {RESERVED} belong to the store; choose another")));
    }
    for object in &objects {
        if let Err(failure) = check_object(conn, object, schema)? {
            return Ok(Err(failure));
        }
    }
    let mut statement = conn.prepare(KEYS)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (table, parent): (String, String) = (row.get(0)?, row.get(1)?);
        if is_reserved(&parent) || schema.shadows.contains(&parent.to_ascii_lowercase()) {
            return Ok(refuse(format!(
                "a foreign key of {table} refers to {parent}, which commands may not read; refer to a table of your own"
            )));
        }
    }
    Ok(Ok(()))
}

fn check_object(conn: &Connection, object: &Object, schema: &Schema) -> rusqlite::Result<Result<(), Failure>> {
    let sql = object.sql.as_deref().unwrap_or_default();
    let is_virtual =
        sql.get(.."CREATE VIRTUAL".len()).is_some_and(|start| start.eq_ignore_ascii_case("CREATE VIRTUAL"));
    if is_virtual && names_unreadable_table(&sql.to_ascii_lowercase(), schema) {
        let text = "a virtual table can't refer to tables of SQLite or of the store, or to shadow tables; copy what \
                    it needs into a table of your own";
        return Ok(refuse(format!("{}: {text}", object.name)));
    }
    if object.kind != "table" && object.kind != "view" || is_virtual {
        return Ok(Ok(()));
    }
    let names = match column_names(conn, &object.name) {
        Ok(names) => names,
        // The columns of a view over a missing table are not known yet; the view is checked again when that is created.
        Err(_) if object.kind == "view" && !conn.is_autocommit() => return Ok(Ok(())),
        Err(error) => return Err(error),
    };
    let count = || conn.query_row(GENERATED, [&object.name], |row| row.get::<_, u32>(0));
    let generated = if names.len() > GENERATED_COLUMNS_MAX { count()? } else { 0 };
    if generated as usize > GENERATED_COLUMNS_MAX {
        let text =
            format!("{}: {generated} generated columns; at most {GENERATED_COLUMNS_MAX} are allowed", object.name);
        return Ok(Err(Failure::new(FailureKind::TooBig, text)));
    }
    Ok(check_columns(names.iter().map(String::as_str)))
}

/// Returns whether the text of a virtual table names a table that commands may not read: FTS5 reads its content table
/// with statements of its own, which the authorizer can't distinguish from others.
fn names_unreadable_table(sql: &str, schema: &Schema) -> bool {
    sql.contains("sqlite_")
        || sql.contains(RESERVED)
        || schema.shadows.iter().any(|shadow| sql.contains(shadow.as_str()))
}

/// Refuses columns if SQLite may have chosen the name of one at random: more than [`EQUAL_COLUMNS_MAX`] with the same
/// name, ignoring the suffixes (`:1`) that it adds to make names unique.
pub fn check_columns<'a>(names: impl Iterator<Item = &'a str>) -> Result<(), Failure> {
    let mut counts = BTreeMap::new();
    let mut numbered = BTreeSet::new();
    for name in names {
        let base = base(name);
        *counts.entry(base.to_ascii_lowercase()).or_insert(0_usize) += 1;
        if base.len() < name.len() {
            numbered.insert(base.to_ascii_lowercase());
        }
    }
    match counts.iter().find(|(base, count)| **count > EQUAL_COLUMNS_MAX && numbered.contains(*base)) {
        None => Ok(()),
        Some((name, count)) => refuse(format!("{count} columns are called {name}; give them names of their own (AS)")),
    }
}

/// Returns a name without a suffix like `:1`.
fn base(name: &str) -> &str {
    match name.rsplit_once(':') {
        Some((base, digits)) if !base.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => base,
        _ => name,
    }
}

fn column_names(conn: &Connection, table: &str) -> rusqlite::Result<Vec<String>> {
    conn.prepare(COLUMNS)?.query_map([table], |row| row.get(0))?.collect()
}

fn objects(conn: &Connection) -> rusqlite::Result<Vec<Object>> {
    let read = |row: &rusqlite::Row<'_>| {
        Ok(Object { kind: row.get(0)?, name: row.get(1)?, table: row.get(2)?, sql: row.get(3)? })
    };
    conn.prepare(OBJECTS)?.query_map([], read)?.collect()
}

/// Returns a name quoted for SQL.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn refuse(text: String) -> Result<(), Failure> {
    Err(Failure::new(FailureKind::Refused, text))
}
