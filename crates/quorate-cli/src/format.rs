//! How the answer to a statement is printed.
//!
//! Invariant: what is printed to a terminal holds no control character from the database.

mod csv;
mod json;
mod table;

use quorate::Value;

use crate::args::Format;

/// What a statement gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Names of the columns; none if it returns no rows.
    pub columns: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<Value>>,
    /// What it changed, if it may change anything.
    pub written: Option<Written>,
}

/// What a write did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Rows inserted, updated or deleted.
    pub changes: u64,
    /// The rowid of the last row that was inserted; 0 if none.
    pub last_insert_rowid: i64,
    /// Where it stands in the history.
    pub position: String,
}

/// The text of an answer, with the line break at its end. Tables are cut to `width` columns, if there is one.
pub fn text(answer: &Answer, format: Format, width: Option<usize>) -> String {
    match format {
        Format::Table => table::text(answer, width),
        Format::Json => json::text(answer),
        Format::Csv => csv::text(answer),
    }
}

/// As [`table::plain`], for tables that are not answers.
pub fn aligned(header: &[&str], rows: &[Vec<String>]) -> String {
    table::aligned(header, rows)
}

/// A text on one line, fit for a terminal.
pub fn one_line(text: &str) -> String {
    table::visible(text)
}

/// Bytes for people.
pub fn size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match UNITS.into_iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => {
            let tenths = bytes.saturating_mul(10) / unit;
            format!("{}.{} {name}", tenths / 10, tenths % 10)
        }
        None => format!("{bytes} B"),
    }
}

/// How many columns the terminal has that is the standard output; `None` if it is none.
pub fn terminal_width() -> Option<usize> {
    rustix::termios::tcgetwinsize(std::io::stdout())
        .ok()
        .map(|size| usize::from(size.ws_col))
        .filter(|&width| width > 0)
}

#[cfg(test)]
mod tests;
