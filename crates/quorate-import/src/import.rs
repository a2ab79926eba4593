//! The course of an import: what to read and where it goes, then all rows, then the record of the import.

use std::io::Write;
use std::pin::pin;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use quorate::Sql;
use serde::Serialize;

use crate::bad::BadFile;
use crate::bar::{Bar, State};
use crate::columns::{self, Column, Rule};
use crate::error::{Context as _, Error, Result};
use crate::identity::Identity;
use crate::load::Loader;
use crate::options::{Format, Options};
use crate::progress::{Begin, Progress};
use crate::source::{Rows, Source};
use crate::summary::Summary;
use crate::{chunk, sqlite};

/// How often the bar is drawn.
const DRAW_EVERY: Duration = Duration::from_millis(100);

/// Imports a file, and prints the summary to `out`; a dry run prints its statements instead. A bar on the standard
/// error shows the progress, if that is a terminal.
///
/// # Errors
///
/// See [`Error`]. Nothing that was written is undone: the same import, run again, continues.
pub async fn run(sql: &Sql, options: &Options, out: &mut (dyn Write + Send)) -> Result<Summary> {
    options.check()?;
    Import { sql, options, begun: Instant::now() }.run(out).await
}

/// An import that is running.
struct Import<'a> {
    sql: &'a Sql,
    options: &'a Options,
    begun: Instant,
}

/// Which fields are read and where they go.
struct Plan {
    columns: Vec<Column>,
    rows: Rows,
    total: Option<u64>,
    create: Option<String>,
    insert: String,
}

/// The options that determine where chunks end and what they hold, as the record of an import keeps them. An import
/// continues only with the same options, so the names of the formats and of the actions on conflicts must not change.
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
    async fn run(&self, out: &mut (dyn Write + Send)) -> Result<Summary> {
        let options = self.options;
        let format = format(options)?;
        let identity = Identity::of(options, format)?;
        if let (Some(identity), true, false) = (&identity, options.restart, options.dry_run) {
            Progress::discard(self.sql, &options.table, identity).await?;
        }
        let plan = self.plan(format, identity.as_ref()).await?;
        if options.dry_run {
            let create = plan.create.map_or(String::new(), |create| format!("{create};\n"));
            print(out, &format!("{create}{};\n", plan.insert))?;
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
                    self.sql.execute(create.clone(), ()).await.context(|| "cannot create the table")?;
                }
                None
            }
        };
        let summary = self.load(plan, progress.as_ref()).await?;
        // Printed while the record of the import still exists: without the record, running it again would insert the
        // rows a second time.
        print(out, &summary.to_string())?;
        if let Some(progress) = progress {
            progress.forget(self.sql).await?;
        }
        Ok(summary)
    }

    /// Decides which columns the file's fields go to.
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
            return Err(Error::File(format!("{} names no columns", self.options.file.display())));
        }
        let create = if there.is_none() { Some(columns::create(table, &columns)) } else { None };
        let insert = columns::insert(table, &columns, self.options.on_conflict);
        Ok(Plan { total: source.total, rows: source.bind(&columns, rules), columns, create, insert })
    }

    /// The column for each field; `None` for a field that is left out.
    fn fields(&self, source: &Source, there: Option<&[Column]>) -> Result<Vec<Option<Column>>> {
        let table = &self.options.table;
        match there {
            Some(there) if source.nameless => {
                if there.len() != source.fields.len() {
                    let (has, given) = (there.len(), source.fields.len());
                    let text =
                        format!("{table} has {has} columns, the lines have {given} fields; name them with --columns");
                    return Err(Error::Options(text));
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
        let Plan { columns, rows, total, insert, .. } = plan;
        let options = self.options;
        let mut bad = BadFile::new(options.bad_file(), if options.strict { 0 } else { options.max_bad })?;
        let chunks = chunk::start(columns.len(), options.batch_bytes(), move |chunker| rows.read(chunker))?;
        let loader = Loader { sql: self.sql, insert, progress };
        let mut written = pin!(loader.all(chunks));
        let mut bar = Bar::new(total);
        let mut ticks = tokio::time::interval(DRAW_EVERY);
        let (mut summary, mut state) = (Summary::of(options), State::default());
        let outcome = loop {
            tokio::select! {
                next = written.next() => match next {
                    None => break Ok(()),
                    Some(Err(error)) => break Err(error),
                    Some(Ok(chunk)) => {
                        summary.add(&chunk);
                        let reported = bad.report(&chunk.bad);
                        state = State { taken: chunk.taken, rows: summary.rows, bad: bad.count() };
                        if chunk.earlier {
                            bar.begin_at(state);
                        }
                        if let Err(error) = reported {
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
        serde_json::to_string(&kept).context(|| "cannot encode the options")
    }
}

fn print(out: &mut (dyn Write + Send), text: &str) -> Result<()> {
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context(|| "cannot write to standard output")
}

/// The format of the file: from the options, or else from its beginning or its name.
fn format(options: &Options) -> Result<Format> {
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
            Err(Error::Options("a SQLite database can't be read from the standard input; name its file".to_owned()))
        }
        Some(format) => Ok(format),
        None => {
            let text = format!(
                "the name of {} does not say what format it has; name the format with --format",
                options.file.display()
            );
            Err(Error::Options(text))
        }
    }
}
