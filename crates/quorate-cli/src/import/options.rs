//! What may be asked of an import.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use quorate::limits::VALUE_BYTES_MAX;

/// KiB of packed rows that make a batch unless told otherwise: few enough that other writes wait for some milliseconds
/// only, enough that what a batch costs does not count.
const BATCH_KIB: u32 = 512;
/// A batch and one more row, the largest there may be, fit into a proposal.
const BATCH_KIB_MAX: i64 = (VALUE_BYTES_MAX as i64 >> 10) / 2;
/// Bad lines with which an import goes on unless told otherwise.
const BAD_MAX: u64 = 1_000;

/// What to import, and how.
#[derive(Args, Clone, Debug)]
pub struct ImportOptions {
    /// What to read: CSV, TSV, NDJSON or a SQLite database; - is the standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Where its rows go; made if it does not exist
    #[arg(value_name = "TABLE")]
    pub table: String,
    /// What the file is; without it its name and its beginning tell
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// What stands between the fields of CSV: one ASCII character, or \t
    #[arg(long, value_name = "CHAR", value_parser = delimiter)]
    pub delimiter: Option<u8>,
    /// The first line is a row already: fields go to the columns of the table in their order
    #[arg(long)]
    pub no_header: bool,
    /// CSV: the columns that the fields go to, in their order, in place of the header line (an empty name leaves a
    /// field out). NDJSON and SQLite: the only keys or columns to take
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub columns: Vec<String>,
    /// CSV: the unquoted field that stands for NULL
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub null: String,
    /// The table of a SQLite file, if its name is another
    #[arg(long, value_name = "TABLE")]
    pub source_table: Option<String>,
    /// What becomes of a row that breaks a constraint of the table
    #[arg(long, value_enum, default_value_t = OnConflict::Report)]
    pub on_conflict: OnConflict,
    /// Where bad lines are told [default: FILE.bad]
    #[arg(long, value_name = "FILE")]
    pub bad: Option<PathBuf>,
    /// Stop at the first bad line
    #[arg(long)]
    pub strict: bool,
    /// Stop when more lines than this are bad
    #[arg(long, value_name = "N", default_value_t = BAD_MAX)]
    pub max_bad: u64,
    /// KiB of rows that are written together
    #[arg(long, value_name = "KIB", default_value_t = BATCH_KIB,
        value_parser = clap::value_parser!(u32).range(1..=BATCH_KIB_MAX))]
    pub batch_kib: u32,
    /// Forget that an earlier import of this file was interrupted, and begin anew: a table that it made is dropped,
    /// rows that it put into a table that was there before stay
    #[arg(long)]
    pub restart: bool,
    /// Show the CREATE TABLE and the INSERT, and write nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Fields between commas
    Csv,
    /// Fields between tabs
    Tsv,
    /// An object of JSON on each line
    Ndjson,
    /// A SQLite database
    Sqlite,
}

/// What becomes of a row that breaks a constraint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnConflict {
    /// It is told as a bad line, and left out
    Report,
    /// It is left out in silence, as INSERT OR IGNORE does
    Ignore,
    /// It takes the place of the row that was there, as INSERT OR REPLACE does
    Replace,
}

impl Default for ImportOptions {
    /// What holds where nothing is said; the file and the table are to be named.
    fn default() -> Self {
        Self {
            file: PathBuf::new(),
            table: String::new(),
            format: None,
            delimiter: None,
            no_header: false,
            columns: Vec::new(),
            null: String::new(),
            source_table: None,
            on_conflict: OnConflict::Report,
            bad: None,
            strict: false,
            max_bad: BAD_MAX,
            batch_kib: BATCH_KIB,
            restart: false,
            dry_run: false,
        }
    }
}

impl ImportOptions {
    /// Whether the standard input is read, which can't be read again.
    pub fn is_stdin(&self) -> bool {
        self.file == Path::new("-")
    }

    /// Where bad lines are told.
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

    /// Bytes of packed rows that make a batch.
    pub fn batch_bytes(&self) -> usize {
        usize::try_from(self.batch_kib).unwrap_or(usize::MAX).saturating_mul(1 << 10)
    }
}

impl OnConflict {
    /// The words for it after INSERT.
    pub fn sql(self) -> &'static str {
        match self {
            Self::Report => "",
            Self::Ignore => " OR IGNORE",
            Self::Replace => " OR REPLACE",
        }
    }
}

fn delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"\\t" => Ok(b'\t'),
        [b'"' | b'\n' | b'\r'] => Err("a quote or a line break can't stand between fields".to_owned()),
        [byte] if byte.is_ascii() => Ok(*byte),
        _ => Err("it takes one ASCII character, or \\t".to_owned()),
    }
}
