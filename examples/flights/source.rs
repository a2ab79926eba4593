//! The CSV files, in memory.

use std::fs;
use std::path::Path;

use crate::Result;
use crate::tables::{FLIGHTS, Row, TABLES, Table};

/// All files; of the flights perhaps only the first ones.
pub struct Source {
    files: Vec<File>,
}

/// A file, and the table that it is loaded into.
pub struct File {
    pub table: &'static Table,
    text: String,
    rows_max: usize,
}

impl Source {
    /// Reads the files in a folder; at most `flights_max` flights are used.
    pub fn read(folder: &Path, flights_max: usize) -> Result<Self> {
        let read = |table: &'static Table| {
            let path = folder.join(format!("{}.csv", table.name));
            let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            let rows_max = if table.name == FLIGHTS.name { flights_max } else { usize::MAX };
            Ok(File { table, text, rows_max })
        };
        Ok(Self { files: TABLES.iter().copied().map(read).collect::<Result<_>>()? })
    }

    pub fn files(&self) -> impl Iterator<Item = &File> {
        self.files.iter()
    }
}

impl File {
    pub fn rows(&self) -> Result<impl Iterator<Item = Result<Row>>> {
        Ok(self.table.rows(&self.text)?.take(self.rows_max))
    }
}
