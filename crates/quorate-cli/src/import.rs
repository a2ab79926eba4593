//! `quorate import`: loads a file of CSV, TSV, NDJSON or SQLite into a table.
//!
//! A thread reads and packs rows into chunks ([`chunk`]), which are written several at a time, each as one atomic entry
//! ([`load`]) that says itself that it is written ([`progress`]). `docs/import.md` is for those who use it.
//!
//! Invariant: however often an import is interrupted and run again, each row of the file is inserted once.

mod bad;
mod bar;
mod chunk;
mod columns;
mod csv;
pub(crate) mod fuzzing;
mod identity;
mod infer;
mod line;
mod load;
mod ndjson;
mod number;
mod options;
mod progress;
mod source;
mod sqlite;
mod summary;
mod window;

use std::pin::pin;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use futures_util::StreamExt as _;
use quorate::Sql;
use serde::Serialize;

use self::bad::BadFile;
use self::bar::{Bar, State};
use self::columns::{Column, Rule};
use self::identity::Identity;
use self::load::Loader;
use self::options::Format;
use self::progress::{Begin, Progress};
use self::source::{Rows, Source};
use crate::access::Access;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::options::{AccessArgs, seconds};
use crate::output;

pub use self::options::ImportOptions;
pub use self::summary::Summary;

/// What `quorate import --help` ends with.
pub const IMPORT_EXAMPLES: &str = "\
Examples:
  quorate import flights.csv flights                     types from the file, or from the table if there is one
  quorate import --dry-run flights.csv flights           show what would be done
  quorate import --no-header --columns id,,name a.csv t  name the fields; leave the second out
  quorate import --null NA --on-conflict ignore a.tsv t  NA is NULL; rows that are there already stay
  quorate import events.ndjson events                    an object on each line
  quorate import old.db users                            a table of a SQLite file, with types and primary key
  zcat a.csv.gz | quorate import --format csv - t        the standard input; can't go on after an interruption

Exit code: 0 all lines are in the table; 1 it stopped, and goes on when it is run again; 3 it came to its end, but some
lines were bad.";

/// Options of `quorate import`.
#[derive(Args, Debug)]
pub struct ImportArgs {
    /// How to reach the cluster.
    #[command(flatten)]
    pub access: AccessArgs,
    /// What to import.
    #[command(flatten)]
    pub options: ImportOptions,
    /// How long each batch of rows may take, changes of the leader included [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<Duration>,
}

/// The exit code of an import that came to its end, but left lines out.
const BAD_LINES: u8 = 3;

/// How often the bar is drawn.
const DRAW_EVERY: Duration = Duration::from_millis(100);

/// Runs the command.
pub async fn command(args: &ImportArgs) -> Result<ExitCode> {
    let summary = run(&Access::find(&args.access)?, &args.options, args.timeout).await?;
    Ok(if summary.bad == 0 { ExitCode::SUCCESS } else { ExitCode::from(BAD_LINES) })
}

/// Imports a file, and prints what came of it. A bar shows how far it is where the standard error is a terminal.
///
/// # Errors
///
/// Nothing that was written is undone: the same import, run again, goes on.
pub async fn run(access: &Access, options: &ImportOptions, timeout: Option<Duration>) -> Result<Summary> {
    let client = Client::connect(access, timeout).await?;
    let done = Import { sql: client.sql(), options, begun: Instant::now() }.run().await;
    client.close().await;
    done
}

/// An import with all that it goes by.
struct Import<'a> {
    sql: &'a Sql,
    options: &'a ImportOptions,
    begun: Instant,
}

/// What goes where.
struct Plan {
    columns: Vec<Column>,
    rows: Rows,
    total: Option<u64>,
    create: Option<String>,
    insert: String,
}

/// The options that decide what the chunks are, as they are kept with an import.
#[derive(Serialize)]
struct Kept<'a> {
    format: String,
    delimiter: Option<char>,
    no_header: bool,
    null: &'a str,
    source_table: Option<&'a str>,
    on_conflict: String,
    batch_kib: u32,
    columns: Vec<&'a str>,
}

impl Import<'_> {
    async fn run(&self) -> Result<Summary> {
        let options = self.options;
        let format = format(options)?;
        let identity = Identity::of(options, format)?;
        if let (Some(identity), true, false) = (&identity, options.restart, options.dry_run) {
            Progress::discard(self.sql, &options.table, identity).await?;
        }
        let plan = self.plan(format, identity.as_ref()).await?;
        if options.dry_run {
            let create = plan.create.map_or(String::new(), |create| format!("{create};\n"));
            output::print(&format!("{create}{};\n", plan.insert))?;
            return Ok(Summary::default());
        }
        let progress = match &identity {
            Some(identity) => {
                let kept = self.kept(format, &plan.columns)?;
                let create = plan.create.as_deref();
                let begin = Begin { target: &options.table, identity, plan: &kept, create };
                Some(Progress::begin(self.sql, &begin).await?)
            }
            None => {
                if let Some(create) = &plan.create {
                    let made = self.sql.execute(create.as_str(), ()).await;
                    made.map_err(|error| Error::new(format!("cannot make the table: {error}")))?;
                }
                None
            }
        };
        let summary = self.load(plan, progress.as_ref()).await?;
        // Before the last trace of the import goes: from here on it would be another one.
        output::print(&summary.to_string())?;
        if let Some(progress) = progress {
            progress.forget(self.sql).await?;
        }
        Ok(summary)
    }

    /// Finds out which columns the file's fields go to.
    async fn plan(&self, format: Format, identity: Option<&Identity>) -> Result<Plan> {
        let table = &self.options.table;
        let there = columns::of_table(self.sql, table).await?;
        let earlier = match identity {
            Some(identity) => Progress::find(self.sql, table, identity).await?,
            None => None,
        };
        let guessed = format != Format::Sqlite && earlier.map_or(there.is_none(), |earlier| earlier.made_table);
        let source = Source::open(self.options, format)?;
        let fields = self.fields(&source, there.as_deref())?;
        let rules =
            fields.iter().map(|field| field.as_ref().map(|column| Rule::of(&column.declared, guessed))).collect();
        let columns: Vec<Column> = fields.into_iter().flatten().collect();
        if columns.is_empty() {
            return Err(Error::new(format!("{} names no columns", self.options.file.display())));
        }
        let create = if there.is_none() { Some(columns::create(table, &columns)) } else { None };
        let insert = columns::insert(table, &columns, self.options.on_conflict);
        Ok(Plan { total: source.total, rows: source.bind(&columns, rules), columns, create, insert })
    }

    /// The column for each field, but for those that are left out.
    fn fields(&self, source: &Source, there: Option<&[Column]>) -> Result<Vec<Option<Column>>> {
        let table = &self.options.table;
        match there {
            Some(there) if source.nameless => {
                if there.len() != source.fields.len() {
                    let (has, given) = (there.len(), source.fields.len());
                    let text =
                        format!("{table} has {has} columns, the lines have {given} fields; name them by --columns");
                    return Err(Error::new(text));
                }
                Ok(there.iter().cloned().map(Some).collect())
            }
            there => {
                let column = |field: &Column| match there {
                    _ if field.name.is_empty() => Ok(None),
                    Some(there) => columns::find(table, there, &field.name).cloned().map(Some),
                    None => Ok(Some(field.clone())),
                };
                source.fields.iter().map(column).collect()
            }
        }
    }

    /// Writes all rows.
    async fn load(&self, plan: Plan, progress: Option<&Progress>) -> Result<Summary> {
        let options = self.options;
        let mut bad = BadFile::new(options.bad_file(), if options.strict { 0 } else { options.max_bad })?;
        let chunks = chunk::start(plan.rows, plan.columns.len(), options.batch_bytes())?;
        let loader = Loader { sql: self.sql, insert: plan.insert, progress };
        let mut written = pin!(loader.all(chunks));
        let mut bar = Bar::new(plan.total);
        let mut ticks = tokio::time::interval(DRAW_EVERY);
        let (mut summary, mut state) = (Summary::of(options), State::default());
        let outcome = loop {
            tokio::select! {
                next = written.next() => match next {
                    None => break Ok(()),
                    Some(Err(error)) => break Err(error),
                    Some(Ok(chunk)) => {
                        summary.add(&chunk);
                        let told = bad.tell(&chunk.bad);
                        state = State { taken: chunk.taken, rows: summary.rows, bad: bad.count() };
                        if chunk.earlier {
                            bar.begin_at(state);
                        }
                        if let Err(error) = told {
                            break Err(error);
                        }
                    }
                },
                _ = ticks.tick() => bar.draw(state),
            }
        };
        bar.clear();
        summary.seconds = self.begun.elapsed().as_secs_f64();
        outcome.map(|()| summary)
    }

    fn kept(&self, format: Format, columns: &[Column]) -> Result<String> {
        let options = self.options;
        let is_csv = matches!(format, Format::Csv | Format::Tsv);
        let kept = Kept {
            format: format!("{format:?}").to_lowercase(),
            delimiter: options.delimiter.filter(|_| is_csv).map(char::from),
            no_header: options.no_header,
            null: &options.null,
            source_table: options.source_table.as_deref(),
            on_conflict: format!("{:?}", options.on_conflict).to_lowercase(),
            batch_kib: options.batch_kib,
            columns: columns.iter().map(|column| column.name.as_str()).collect(),
        };
        serde_json::to_string(&kept).map_err(|error| Error::new(error.to_string()))
    }
}

/// What the file is: what the options say, or else its name or its beginning.
fn format(options: &ImportOptions) -> Result<Format> {
    let format = options.format.or_else(|| {
        if !options.is_stdin() && sqlite::is_sqlite(&options.file) {
            return Some(Format::Sqlite);
        }
        match options.file.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "csv" => Some(Format::Csv),
            "tsv" | "tab" => Some(Format::Tsv),
            "ndjson" | "jsonl" => Some(Format::Ndjson),
            _ => None,
        }
    });
    match format {
        Some(Format::Sqlite) if options.is_stdin() => {
            Err(Error::new("a SQLite database can't be read from the standard input; name its file"))
        }
        Some(format) => Ok(format),
        None => {
            let text = format!("what {} is can't be told from its name; say so by --format", options.file.display());
            Err(Error::new(text))
        }
    }
}
