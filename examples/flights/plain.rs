//! The same files in plain SQLite, which every node must equal.

use std::path::Path;

use rusqlite::{Connection, params_from_iter};

use crate::Result;
use crate::multiset::Multiset;
use crate::source::Source;
use crate::tables::Table;

/// Loads the files into a new plain SQLite database.
pub fn load(path: &Path, source: &Source) -> Result<Connection> {
    let mut connection = Connection::open(path)?;
    let transaction = connection.transaction()?;
    for file in source.files() {
        transaction.execute(&file.table.create(), [])?;
        let mut insert = transaction.prepare(&file.table.insert())?;
        for row in file.rows()? {
            insert.execute(params_from_iter(row?))?;
        }
    }
    transaction.commit()?;
    Ok(connection)
}

/// Returns all rows of a table.
pub fn rows(connection: &Connection, table: &Table) -> Result<Multiset> {
    let mut select = connection.prepare(&table.select())?;
    let columns = select.column_count();
    let mut set = Multiset::default();
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        set.add(&(0..columns).map(|column| row.get(column)).collect::<rusqlite::Result<_>>()?);
    }
    Ok(set)
}
