//! What to import, and how.

use std::path::{Path, PathBuf};

use quorate::limits::VALUE_BYTES_MAX;

use crate::error::{Error, Result};

/// What to import, and how. [`Options::new`] has the defaults.
#[derive(Clone, Debug)]
pub struct Options {
    /// The file to read; `-` is the standard input.
    pub file: PathBuf,
    /// The table that its rows go to. It is created if it does not exist.
    pub table: String,
    /// The format of the file. Without it the file's name and beginning decide.
    pub format: Option<Format>,
    /// The ASCII character between the fields of CSV, not a quote or a line break. Without it a comma, or a tab for
    /// [`Format::Tsv`].
    pub delimiter: Option<u8>,
    /// Whether the first line of CSV is a row, and fields go to the columns of the table in their order.
    pub no_header: bool,
    /// For CSV, the columns that the fields go to, in their order, in place of the header line; a field whose name is
    /// empty is left out. For NDJSON and SQLite, the only keys or columns to take. Empty for all.
    pub columns: Vec<String>,
    /// The unquoted field of CSV that stands for NULL.
    pub null: String,
    /// The table of a SQLite file, if it has another name than [`Options::table`].
    pub source_table: Option<String>,
    /// What happens to a row that breaks a constraint of the table.
    pub on_conflict: OnConflict,
    /// The file that bad lines are reported in. Without it the name of the file that is read, with `.bad` appended.
    pub bad: Option<PathBuf>,
    /// Whether the import stops at the first bad line.
    pub strict: bool,
    /// The import stops when more lines than this are bad.
    pub max_bad: u64,
    /// KiB of packed rows that are written together, from 1 to [`Options::BATCH_KIB_MAX`].
    pub batch_kib: u32,
    /// Whether to start over instead of continuing an interrupted import of this file. A table that the earlier import
    /// created is dropped; rows that it added to an existing table stay.
    pub restart: bool,
    /// Whether to print the CREATE TABLE and the INSERT, and to write nothing.
    pub dry_run: bool,
}

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Fields between commas.
    Csv,
    /// Fields between tabs.
    Tsv,
    /// A JSON object on each line.
    Ndjson,
    /// A SQLite database.
    Sqlite,
}

/// What happens to a row that breaks a constraint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnConflict {
    /// It is reported as a bad line and left out.
    Report,
    /// It is left out silently, as INSERT OR IGNORE does.
    Ignore,
    /// It replaces the existing row, as INSERT OR REPLACE does.
    Replace,
}

impl Options {
    /// The default of [`Options::batch_kib`]: small enough that other writes wait only some milliseconds, large enough
    /// that the fixed cost of an entry does not count.
    pub const BATCH_KIB: u32 = 512;
    /// The largest [`Options::batch_kib`]: a batch and one more row, the largest there may be, fit into a proposal.
    pub const BATCH_KIB_MAX: u32 = (VALUE_BYTES_MAX >> 10) as u32 / 2;
    /// The default of [`Options::max_bad`].
    pub const BAD_MAX: u64 = 1_000;

    /// The defaults, for this file and this table.
    pub fn new(file: impl Into<PathBuf>, table: impl Into<String>) -> Self {
        Self {
            file: file.into(),
            table: table.into(),
            format: None,
            delimiter: None,
            no_header: false,
            columns: Vec::new(),
            null: String::new(),
            source_table: None,
            on_conflict: OnConflict::Report,
            bad: None,
            strict: false,
            max_bad: Self::BAD_MAX,
            batch_kib: Self::BATCH_KIB,
            restart: false,
            dry_run: false,
        }
    }

    /// Whether the standard input is read, which can't be read a second time.
    pub fn is_stdin(&self) -> bool {
        self.file == Path::new("-")
    }

    /// The file that bad lines are reported in.
    pub fn bad_file(&self) -> PathBuf {
        match &self.bad {
            Some(file) => file.clone(),
            None if self.is_stdin() => format!("{}.bad", self.table.replace(['/', '\\'], "_")).into(),
            None => {
                let mut name = self.file.clone().into_os_string();
                name.push(".bad");
                name.into()
            }
        }
    }

    /// Fails if a number or a character is out of its range.
    pub(crate) fn check(&self) -> Result<()> {
        let max = Self::BATCH_KIB_MAX;
        if !(1..=max).contains(&self.batch_kib) {
            return Err(Error::Options(format!("{} KiB in a batch: it takes 1 to {max}", self.batch_kib)));
        }
        match self.delimiter.map(char::from) {
            Some(c) => delimiter(&c.to_string()).map(drop).map_err(Error::Options),
            None => Ok(()),
        }
    }

    /// Bytes of packed rows that make a batch.
    pub(crate) fn batch_bytes(&self) -> usize {
        usize::try_from(self.batch_kib).unwrap_or(usize::MAX).saturating_mul(1 << 10)
    }
}

impl OnConflict {
    /// The words for it after INSERT.
    pub(crate) fn sql(self) -> &'static str {
        match self {
            Self::Report => "",
            Self::Ignore => " OR IGNORE",
            Self::Replace => " OR REPLACE",
        }
    }
}

/// The delimiter that a user typed: one ASCII character, or `\t`.
///
/// # Errors
///
/// A message for the user, if it can't be a delimiter.
pub fn delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"\\t" => Ok(b'\t'),
        [b'"' | b'\n' | b'\r'] => Err("a quote or a line break can't be a delimiter".to_owned()),
        [byte] if byte.is_ascii() => Ok(*byte),
        _ => Err("it takes one ASCII character, or \\t".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_out_of_range_are_refused() {
        let options = || Options::new("a.csv", "t");
        assert!(options().check().is_ok());
        assert!(Options { delimiter: Some(b'\t'), batch_kib: Options::BATCH_KIB_MAX, ..options() }.check().is_ok());
        for batch_kib in [0, Options::BATCH_KIB_MAX + 1] {
            assert!(Options { batch_kib, ..options() }.check().is_err());
        }
        for delimiter in [b'"', b'\n', 0xe9].map(Some) {
            assert!(Options { delimiter, ..options() }.check().is_err());
        }
        assert_eq!(delimiter("\\t"), Ok(b'\t'));
    }

    #[test]
    fn bad_lines_go_beside_the_file() {
        assert_eq!(Options::new("in/a.csv", "t").bad_file(), Path::new("in/a.csv.bad"));
        assert_eq!(Options::new("-", "a/b").bad_file(), Path::new("a_b.bad"));
        let named = Options { bad: Some("x".into()), ..Options::new("a.csv", "t") };
        assert_eq!(named.bad_file(), Path::new("x"));
    }
}
