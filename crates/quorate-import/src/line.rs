//! The result of reading a line of a source: a row, or a bad line.

/// Bytes of a bad line that the file of bad lines shows.
const SHOWN_BYTES_MAX: usize = 4 << 10;

/// The result of reading a row.
#[derive(Debug)]
pub enum Read {
    /// A row, from the line with this number.
    Row(u64),
    /// A bad line. The values that it left in the row must be dropped.
    Bad(BadLine),
    /// The end of the source.
    End,
}

/// A line that was not imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// Its number, from 1; for a SQLite file the number of the row.
    pub line: u64,
    /// Why it is bad.
    pub reason: String,
    /// Its beginning.
    pub text: Vec<u8>,
}

/// A bad line, its text cut to what is shown.
pub fn bad_line(line: u64, reason: String, text: &[u8]) -> BadLine {
    let text = text.get(..SHOWN_BYTES_MAX).unwrap_or(text).to_vec();
    BadLine { line, reason, text }
}
