//! The rows of a table of another SQLite file, each value by its storage class.
//!
//! Invariant: everything is read in one transaction, so it is one state of the file.

use std::path::Path;

use quorate::limits::VALUE_BYTES_MAX;
use quorate::types::ValueRef;
use rusqlite::types::ValueRef as Held;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};

use crate::chunk::Chunker;
use crate::columns::{Column, matching, quoted};
use crate::error::{Context as _, Error, Result};
use crate::line::{Read, bad_line};
use crate::options::Options;

/// A table of a SQLite file.
pub struct Sqlite {
    connection: Connection,
    table: String,
    /// The ORDER BY clause that makes a second read return the rows in the same order.
    order: &'static str,
    rows: u64,
}

/// Opens the file and finds the table. Returns its columns too, or only those that the options name.
pub fn open(options: &Options) -> Result<(Sqlite, Vec<Column>)> {
    let reading = || format!("cannot read {} as a SQLite database", options.file.display());
    // This can't be the file of a running node: this process runs none.
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(&options.file, flags).context(reading)?;
    connection.execute_batch("BEGIN").context(reading)?;
    let (table, order) = find(&connection, options).context(reading)??;
    let columns = columns(&connection, &table).context(reading)?;
    let columns = if options.columns.is_empty() { columns } else { matching(&table, &columns, &options.columns)? };
    let count = format!("SELECT count(*) FROM {}", quoted(&table));
    let rows: i64 = connection.query_row(&count, (), |row| row.get(0)).context(reading)?;
    Ok((Sqlite { connection, table, order, rows: rows.unsigned_abs() }, columns))
}

/// The name of the table to read, and how its rows are ordered.
fn find(connection: &Connection, options: &Options) -> rusqlite::Result<Result<(String, &'static str)>> {
    let wanted = options.source_table.as_ref().unwrap_or(&options.table);
    let named = "SELECT name, type, wr FROM pragma_table_list WHERE schema = 'main' AND name = ? COLLATE NOCASE";
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get::<_, String>(1)?, row.get::<_, bool>(2)?));
    let found = connection.query_row(named, (wanted,), read).optional()?;
    let found = match found {
        None if options.source_table.is_none() => {
            let only = "SELECT name, type, wr FROM pragma_table_list WHERE schema = 'main' AND type = 'table' \
                AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' LIMIT 2";
            let mut tables: Vec<(String, String, bool)> =
                connection.prepare(only)?.query_map((), read)?.collect::<rusqlite::Result<_>>()?;
            tables.pop().filter(|_| tables.is_empty())
        }
        found => found,
    };
    let Some((name, kind, without_rowid)) = found else {
        let text = format!("{} has no table {wanted}; name one with --source-table", options.file.display());
        return Ok(Err(Error::Options(text)));
    };
    // Tables without rowids are read in the order of their keys, views in the order that their query gives.
    Ok(Ok((name, if kind == "table" && !without_rowid { " ORDER BY rowid" } else { "" })))
}

fn columns(connection: &Connection, table: &str) -> rusqlite::Result<Vec<Column>> {
    let mut statement =
        connection.prepare("SELECT name, type, pk FROM pragma_table_xinfo(?) WHERE hidden = 0 ORDER BY cid")?;
    let columns = statement
        .query_map((table,), |row| Ok(Column { name: row.get(0)?, declared: row.get(1)?, key: row.get(2)? }))?;
    columns.collect()
}

/// Whether a file begins like a SQLite database.
pub fn is_sqlite(path: &Path) -> bool {
    use std::io::Read as _;
    let mut magic = [0; 16];
    std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && &magic == b"SQLite format 3\0"
}

impl Sqlite {
    /// How many rows the table has.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Reads all rows into chunks, unless the import stops before.
    pub fn read(&self, names: &[String], chunker: &mut Chunker) -> Result<()> {
        let reading = || format!("cannot read the table {}", self.table);
        let columns: Vec<String> = names.iter().map(|name| quoted(name)).collect();
        let query = format!("SELECT {} FROM {}{}", columns.join(", "), quoted(&self.table), self.order);
        let mut statement = self.connection.prepare(&query).context(reading)?;
        let mut rows = statement.query(()).context(reading)?;
        let mut number = 0;
        while let Some(row) = rows.next().context(reading)? {
            number += 1;
            let read = match pack(row, names, chunker) {
                Ok(()) => Read::Row(number),
                Err(reason) => Read::Bad(bad_line(number, reason, b"")),
            };
            if chunker.take(read, number).is_break() {
                return Ok(());
            }
        }
        // Nothing is read after the end, so the result does not matter.
        let _ = chunker.take(Read::End, number);
        Ok(())
    }
}

fn pack(row: &rusqlite::Row<'_>, names: &[String], chunker: &mut Chunker) -> Result<(), String> {
    let mut bytes = 0_usize;
    for (column, name) in names.iter().enumerate() {
        let value = match row.get_ref(column).map_err(|error| error.to_string())? {
            Held::Null => ValueRef::Null,
            Held::Integer(value) => ValueRef::Integer(value),
            Held::Real(value) => ValueRef::Real(value),
            Held::Text(text) => {
                ValueRef::Text(std::str::from_utf8(text).map_err(|_| format!("the text of {name:?} is not UTF-8"))?)
            }
            Held::Blob(bytes) => ValueRef::Blob(bytes),
        };
        bytes = bytes.saturating_add(match value {
            ValueRef::Text(text) => text.len(),
            ValueRef::Blob(blob) => blob.len(),
            ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => 0,
        });
        if bytes > VALUE_BYTES_MAX {
            return Err("larger than a row may be, 16 MiB".to_owned());
        }
        chunker.row().push(value);
    }
    Ok(())
}
