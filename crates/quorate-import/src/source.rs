//! The source of the rows, whatever its format.
//!
//! The beginning of a source is sampled for names and types. Then a thread of its own reads the source from its start,
//! a row at a time.

use std::fs::File;
use std::io::{self, Cursor, Read as _};

use crate::chunk::Chunker;
use crate::columns::{Column, Rule};
use crate::csv::Csv;
use crate::error::{Context as _, Error, Result};
use crate::ndjson::{Bound, Ndjson};
use crate::options::{Format, Options};
use crate::sqlite::Sqlite;
use crate::window::Window;
use crate::{infer, sqlite};

/// Bytes at the beginning of a file that types are inferred from.
const SAMPLE_BYTES: u64 = 4 << 20;

/// A source whose beginning was sampled.
pub struct Source {
    /// Its fields in their order, with the inferred types; the names of CSV without a header are invented.
    pub fields: Vec<Column>,
    /// Whether the names of the fields are invented.
    pub nameless: bool,
    /// Bytes or rows of the source, if that is known.
    pub total: Option<u64>,
    body: Body,
}

enum Body {
    Csv { csv: Csv, null: String },
    Ndjson { ndjson: Ndjson, only_these: bool },
    Sqlite(Sqlite),
}

impl Source {
    /// Opens the file that the options name, and samples it.
    pub fn open(options: &Options, format: Format) -> Result<Self> {
        if format == Format::Sqlite {
            let (sqlite, fields) = sqlite::open(options)?;
            return Ok(Self { fields, nameless: false, total: Some(sqlite.rows()), body: Body::Sqlite(sqlite) });
        }
        let reading = || format!("cannot read {}", options.file.display());
        let mut input: Box<dyn io::Read + Send> = if options.is_stdin() {
            Box::new(io::stdin())
        } else {
            Box::new(File::open(&options.file).context(reading)?)
        };
        let total = if options.is_stdin() { None } else { options.file.metadata().ok().map(|meta| meta.len()) };
        let mut sample = Vec::new();
        input.by_ref().take(SAMPLE_BYTES).read_to_end(&mut sample).context(reading)?;
        if let [0xff, 0xfe, ..] | [0xfe, 0xff, ..] = sample.as_slice() {
            let text = format!("{} is UTF-16; convert it to UTF-8 first, as iconv does", options.file.display());
            return Err(Error::File(text));
        }
        let whole = sample.len() < usize::try_from(SAMPLE_BYTES).unwrap_or(usize::MAX);
        let lines = sample.iter().rposition(|byte| *byte == b'\n').filter(|_| !whole);
        let lines = lines.and_then(|end| sample.get(..=end)).unwrap_or(&sample);
        let look = Window::new(Cursor::new(lines.to_vec()));
        let (fields, nameless) = match format {
            Format::Ndjson => (infer::of_ndjson(look, &options.columns), false),
            _ => infer::of_csv(Csv::new(look, delimiter(options, format)).context(reading)?, whole, options)?,
        };
        let window = Window::new(Cursor::new(sample).chain(input));
        let body = match format {
            Format::Ndjson => Body::Ndjson { ndjson: Ndjson::new(window), only_these: !options.columns.is_empty() },
            _ => {
                let mut csv = Csv::new(window, delimiter(options, format)).context(reading)?;
                if !options.no_header {
                    csv.texts("").context(reading)?;
                }
                Body::Csv { csv, null: options.null.clone() }
            }
        };
        Ok(Self { fields, nameless, total, body })
    }

    /// The rows, for these columns and with a rule for each field; the rule of a field that is left out is `None`.
    pub fn bind(self, columns: &[Column], rules: Vec<Option<Rule>>) -> Rows {
        match self.body {
            Body::Csv { csv, null } => Rows::Csv { csv, null, rules },
            Body::Ndjson { ndjson, only_these } => {
                let names = columns.iter().map(|column| column.name.clone()).collect();
                Rows::Ndjson(ndjson.bind(names, rules.into_iter().flatten().collect(), only_these))
            }
            Body::Sqlite(sqlite) => Rows::Sqlite(sqlite, self.fields.into_iter().map(|field| field.name).collect()),
        }
    }
}

fn delimiter(options: &Options, format: Format) -> u8 {
    options.delimiter.unwrap_or(if format == Format::Tsv { b'\t' } else { b',' })
}

/// The rows of a source.
pub enum Rows {
    /// Of CSV.
    Csv {
        /// The reader.
        csv: Csv,
        /// The unquoted field that stands for NULL.
        null: String,
        /// The rule for each field.
        rules: Vec<Option<Rule>>,
    },
    /// Of NDJSON.
    Ndjson(Bound),
    /// Of a SQLite file, with the names of the columns to read.
    Sqlite(Sqlite, Vec<String>),
}

impl Rows {
    /// Reads all rows into chunks, unless the import stops before.
    pub fn read(self, chunker: &mut Chunker) -> Result<()> {
        let reading = || "cannot read the file";
        match self {
            Self::Csv { mut csv, null, rules } => loop {
                let read = csv.next(&rules, &null, chunker.row()).context(reading)?;
                if chunker.take(read, csv.taken()).is_break() {
                    return Ok(());
                }
            },
            Self::Ndjson(mut ndjson) => loop {
                let read = ndjson.next(chunker.row()).context(reading)?;
                if chunker.take(read, ndjson.taken()).is_break() {
                    return Ok(());
                }
            },
            Self::Sqlite(sqlite, names) => sqlite.read(&names, chunker),
        }
    }
}
