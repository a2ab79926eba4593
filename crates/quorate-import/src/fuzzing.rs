//! Access for fuzzing: the rows that an import reads from a file.
//!
//! Invariant: this module has no logic of its own; it calls what an import calls.

use std::io::Cursor;

use quorate::sql::{PackedRows, RowPacker};

use crate::columns::{Column, Rule};
use crate::csv::Csv;
use crate::infer;
use crate::line::Read;
use crate::ndjson::Ndjson;
use crate::options::Options;
use crate::window::Window;

/// A file to import.
#[derive(Clone, Copy, Debug)]
pub struct File<'a> {
    /// Its content.
    pub bytes: &'a [u8],
    /// Whether it is NDJSON; else it is CSV.
    pub is_ndjson: bool,
    /// The delimiter of CSV.
    pub delimiter: u8,
    /// Whether its first line is a row, not a header.
    pub no_header: bool,
    /// The unquoted field that stands for NULL.
    pub null: &'a str,
    /// How many bytes are read at a time; at least 3, those of a byte order mark.
    pub block: usize,
}

/// The rows of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// The name and the type of each column.
    pub columns: Vec<(String, String)>,
    /// The rows.
    pub rows: PackedRows,
    /// The line of each row.
    pub lines: Vec<u64>,
    /// The bad lines, each with its reason.
    pub bad: Vec<(u64, String)>,
}

/// All rows of a file, in the columns that are inferred from it; `None` if none can be.
pub fn import(file: &File<'_>) -> Option<Imported> {
    let options = Options { no_header: file.no_header, null: file.null.to_owned(), ..Options::new("", "") };
    let columns = match file.is_ndjson {
        true => infer::of_ndjson(file.window(), &[]),
        false => infer::of_csv(file.csv()?, true, &options).ok()?.0,
    };
    let rule = |column: &Column| Rule::of(&column.declared, true);
    if file.is_ndjson {
        let names = columns.iter().map(|column| column.name.clone()).collect();
        let mut rows = Ndjson::new(file.window()).bind(names, columns.iter().map(rule).collect(), false);
        return gather(columns, |row| rows.next(row).ok());
    }
    let rules: Vec<Option<Rule>> = columns.iter().map(|column| Some(rule(column))).collect();
    let mut csv = file.csv()?;
    if !file.no_header {
        csv.texts("").ok()?;
    }
    gather(columns, |row| csv.next(&rules, file.null, row).ok())
}

fn gather(columns: Vec<Column>, mut next: impl FnMut(&mut RowPacker) -> Option<Read>) -> Option<Imported> {
    let (mut row, mut lines, mut bad) = (RowPacker::new(columns.len()), Vec::new(), Vec::new());
    loop {
        match next(&mut row)? {
            Read::Row(line) => {
                row.end_row().ok()?;
                lines.push(line);
            }
            Read::Bad(line) => {
                row.drop_row();
                bad.push((line.line, line.reason));
            }
            Read::End => break,
        }
    }
    let columns = columns.into_iter().map(|column| (column.name, column.declared)).collect();
    Some(Imported { columns, rows: row.finish(), lines, bad })
}

/// The records of CSV as texts, `None` for NULL; bad ones are left out.
pub fn records(file: &File<'_>) -> Option<Vec<Vec<Option<String>>>> {
    let (mut csv, mut records) = (file.csv()?, Vec::new());
    while let Some(record) = csv.texts(file.null).ok()? {
        records.extend(record.ok());
    }
    Some(records)
}

impl File<'_> {
    fn window(&self) -> Window {
        Window::new(Cursor::new(self.bytes.to_vec())).with_block(self.block)
    }

    fn csv(&self) -> Option<Csv> {
        Csv::new(self.window(), self.delimiter).ok()
    }
}
