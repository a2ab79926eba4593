//! `quorate import`: loads a file into a table. The loading itself is `quorate-import`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum, value_parser};
use quorate_import::{Options, delimiter};
use quorate_shell::{Connection, Stdout};

use crate::access::Access;
use crate::error::Result;
use crate::options::{AccessArgs, seconds};

/// What `quorate import --help` ends with.
const EXAMPLES: &str = "\
Examples:
  quorate import flights.csv flights                     types from the file, or from the table if it exists
  quorate import --dry-run flights.csv flights           show what would be done
  quorate import --no-header --columns id,,name a.csv t  name the fields; skip the second
  quorate import --null NA --on-conflict ignore a.tsv t  NA is NULL; existing rows stay
  quorate import events.ndjson events                    an object on each line
  quorate import old.db users                            a table of a SQLite file, with types and primary key
  zcat a.csv.gz | quorate import --format csv - t        standard input; can't continue after an interruption

Exit code: 0 all lines are in the table; 1 the import stopped, and continues when it is run again; 3 it finished, but
some lines were bad.";

/// The exit code of an import that finished, but skipped bad lines.
const BAD_LINES: u8 = 3;

/// Options of `quorate import`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ImportArgs {
    /// How to reach the cluster.
    #[command(flatten)]
    pub access: AccessArgs,
    /// The file to read: CSV, TSV, NDJSON or a SQLite database; - is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The table to load; created if it does not exist
    #[arg(value_name = "TABLE")]
    pub table: String,
    /// The format of the file [default: detected by its name and its beginning]
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// The delimiter of CSV: one ASCII character, or \t
    #[arg(long, value_name = "CHAR", value_parser = delimiter)]
    pub delimiter: Option<u8>,
    /// There is no header line: fields go to the columns of the table in order
    #[arg(long)]
    pub no_header: bool,
    /// CSV: the columns that the fields go to, in order, instead of the header line (an empty name skips a field).
    /// NDJSON and SQLite: the keys or columns to import; others are skipped
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub columns: Vec<String>,
    /// CSV: the unquoted field that stands for NULL
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub null: String,
    /// The table of a SQLite file, if its name differs from TABLE
    #[arg(long, value_name = "TABLE")]
    pub source_table: Option<String>,
    /// What to do with a row that violates a constraint of the table
    #[arg(long, value_enum, default_value_t = OnConflict::Report)]
    pub on_conflict: OnConflict,
    /// The file that lists bad lines [default: FILE.bad]
    #[arg(long, value_name = "FILE")]
    pub bad: Option<PathBuf>,
    /// Stop at the first bad line
    #[arg(long)]
    pub strict: bool,
    /// Stop when more than N lines are bad
    #[arg(long, value_name = "N", default_value_t = Options::BAD_MAX)]
    pub max_bad: u64,
    /// KiB of rows in each write
    #[arg(long, value_name = "KIB", default_value_t = Options::BATCH_KIB,
        value_parser = value_parser!(u32).range(1..=i64::from(Options::BATCH_KIB_MAX)))]
    pub batch_kib: u32,
    /// Start over instead of continuing an interrupted import of this file: a table that it created is dropped, rows
    /// that it added to an existing table stay
    #[arg(long)]
    pub restart: bool,
    /// Show the CREATE TABLE and the INSERT, and write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// How long each batch of rows may take, including changes of the leader [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<Duration>,
}

/// The format of a file.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Format {
    /// Comma-separated fields
    Csv,
    /// Tab-separated fields
    Tsv,
    /// A JSON object on each line
    Ndjson,
    /// A SQLite database
    Sqlite,
}

/// What to do with a row that violates a constraint.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum OnConflict {
    /// List it as a bad line and skip it
    Report,
    /// Skip it silently, as INSERT OR IGNORE does
    Ignore,
    /// Replace the existing row, as INSERT OR REPLACE does
    Replace,
}

impl From<Format> for quorate_import::Format {
    fn from(format: Format) -> Self {
        match format {
            Format::Csv => Self::Csv,
            Format::Tsv => Self::Tsv,
            Format::Ndjson => Self::Ndjson,
            Format::Sqlite => Self::Sqlite,
        }
    }
}

impl From<OnConflict> for quorate_import::OnConflict {
    fn from(on_conflict: OnConflict) -> Self {
        match on_conflict {
            OnConflict::Report => Self::Report,
            OnConflict::Ignore => Self::Ignore,
            OnConflict::Replace => Self::Replace,
        }
    }
}

impl From<&ImportArgs> for Options {
    fn from(args: &ImportArgs) -> Self {
        Self {
            file: args.file.clone(),
            table: args.table.clone(),
            format: args.format.map(Into::into),
            delimiter: args.delimiter,
            no_header: args.no_header,
            columns: args.columns.clone(),
            null: args.null.clone(),
            source_table: args.source_table.clone(),
            on_conflict: args.on_conflict.into(),
            bad: args.bad.clone(),
            strict: args.strict,
            max_bad: args.max_bad,
            batch_kib: args.batch_kib,
            restart: args.restart,
            dry_run: args.dry_run,
        }
    }
}

/// Runs the command.
pub async fn run(args: &ImportArgs) -> Result<ExitCode> {
    let client = Connection::connect(Access::find(&args.access)?.remote(), args.timeout).await?;
    let imported = quorate_import::run(client.sql(), &args.into(), &mut Stdout).await;
    client.close().await;
    Ok(if imported?.bad == 0 { ExitCode::SUCCESS } else { ExitCode::from(BAD_LINES) })
}
