//! What reading a line of a source comes to: a row, or a bad line.

/// How many bytes of a bad line the report of bad lines shows.
const SHOWN_BYTES_MAX: usize = 4 << 10;

/// What reading a row came to.
#[derive(Debug)]
pub enum Read {
    /// A row, of the line with this number.
    Row(u64),
    /// A line that is no row. What it left in the row is to be dropped.
    Bad(BadLine),
    /// There are no more.
    End,
}

/// A line that was not imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// Its number, from 1; of a SQLite file that of the row.
    pub line: u64,
    /// What is wrong with it.
    pub reason: String,
    /// How it begins.
    pub text: Vec<u8>,
}

/// A line that is no row.
pub fn bad_line(line: u64, reason: String, text: &[u8]) -> BadLine {
    let text = text.get(..SHOWN_BYTES_MAX).unwrap_or(text).to_vec();
    BadLine { line, reason, text }
}
