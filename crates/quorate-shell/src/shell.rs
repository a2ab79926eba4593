//! A session of the shell: its settings, its connection, and the transaction that was begun. It runs one [`Item`] after
//! the other, from scripts or from the prompt.
//!
//! Invariants:
//! - Text from the database never moves the cursor of a terminal or changes its colours ([`Output`], errors).
//! - Every item may be dropped while it runs. If a write was sent by then, `Shell::cancelled` says that it may have
//!   been done.

use std::path::PathBuf;
use std::time::Instant;

use futures_util::future::LocalBoxFuture;
use futures_util::{Stream, TryStreamExt as _};
use quorate::Value;

use crate::client::{Connection, Level};
use crate::command::{self, Command};
use crate::error::{Error, Result};
use crate::format::{Mode, Printer, Style, plural};
use crate::import;
use crate::keys::Action;
use crate::live::LiveTransaction;
use crate::locks;
use crate::output::Output;
use crate::parameters::Parameters;
use crate::script::{Item, Place, Script};
use crate::transaction::Transaction;

/// How deep scripts may `.read` each other.
const SCRIPTS_MAX: usize = 16;

/// A function that returns the text of `.status`: the state of the cluster's members.
pub type Status = Box<dyn Fn() -> LocalBoxFuture<'static, Result<String>>>;

/// The settings that a session begins with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// How results are printed.
    pub mode: Mode,
    /// The guarantee of reads.
    pub level: Level,
    /// Whether a script continues after a statement that fails.
    pub keep_going: bool,
}

/// A session of the shell.
pub struct Shell {
    pub(crate) client: Connection,
    status: Option<Status>,
    /// What the prompt says at its beginning.
    pub(crate) greeting: String,
    pub(crate) style: Style,
    /// The mode that `.expanded off` restores.
    compact: Mode,
    pub(crate) level: Level,
    /// Whether each statement's time is printed.
    timer: bool,
    /// Whether the plan is printed before each query.
    pub(crate) plans: bool,
    /// Whether a script continues after an error.
    keep_going: bool,
    /// Whether the number of changed rows is printed in every mode.
    pub(crate) changes: bool,
    pub(crate) parameters: Parameters,
    pub(crate) output: Output,
    /// Whether the shell has a prompt.
    pub(crate) is_prompt: bool,
    /// The transaction that a script has begun.
    pub(crate) transaction: Option<Transaction>,
    /// The transaction that was begun at the prompt.
    pub(crate) live: Option<LiveTransaction>,
    /// Whether a write was sent whose outcome has not arrived.
    pub(crate) is_writing: bool,
}

/// What to do after an item.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    GoOn,
    Read(PathBuf),
    Leave,
}

impl Shell {
    /// A session on this connection, which it does not close.
    pub fn new(client: Connection, options: Options) -> Self {
        Self {
            client,
            status: None,
            greeting: "Quorate".to_owned(),
            style: Style { mode: options.mode, ..Style::default() },
            compact: Mode::Table,
            level: options.level,
            timer: false,
            plans: false,
            keep_going: options.keep_going,
            changes: false,
            parameters: Parameters::default(),
            output: Output::default(),
            is_prompt: false,
            transaction: None,
            live: None,
            is_writing: false,
        }
    }

    /// The same session with the command `.status`. It fails without this.
    #[must_use]
    pub fn with_status(self, status: Status) -> Self {
        Self { status: Some(status), ..self }
    }

    /// The same session with a line that the prompt begins with: what it is connected to.
    #[must_use]
    pub fn with_greeting(self, greeting: String) -> Self {
        Self { greeting, ..self }
    }

    /// Runs scripts one after the other, up to the first error unless [`Options::keep_going`] is set.
    ///
    /// # Errors
    ///
    /// The first error; with `keep_going`, at the end, if a statement failed. An error of the connection ends the
    /// scripts in any case, since the next statement would fail too.
    pub async fn run_scripts(&mut self, scripts: Vec<Script>) -> Result<()> {
        let mut failed = 0;
        for script in scripts {
            if self.run_script(script, &mut failed).await? == Next::Leave {
                break;
            }
        }
        self.output.close()?;
        if let Some(transaction) = self.transaction.take() {
            let text = "a transaction was begun and not committed, so nothing was written; end it with COMMIT";
            return Err(placed(Error::new(text), transaction.begun()));
        }
        if failed > 0 { Err(Error::new(format!("{failed} {} failed", plural(failed, "statement")))) } else { Ok(()) }
    }

    /// Runs a script and those that it reads.
    pub(crate) async fn run_script(&mut self, script: Script, failed: &mut u64) -> Result<Next> {
        let mut scripts = vec![script];
        while let Some(script) = scripts.last_mut() {
            let Some((item, place)) = script.next()? else {
                scripts.pop();
                continue;
            };
            let outcome = match self.run(&item, place.as_ref()).await {
                Ok(Next::Read(file)) if scripts.len() >= SCRIPTS_MAX => {
                    let text = format!(".read: {}: scripts read each other {SCRIPTS_MAX} deep", file.display());
                    Err(Error::new(text))
                }
                Ok(Next::Read(file)) => Script::open(&file).map(|script| scripts.push(script)),
                Ok(Next::Leave) => return Ok(Next::Leave),
                outcome => outcome.map(drop),
            };
            match outcome.map_err(|error| placed(error, place.as_ref())) {
                Err(error) if self.keep_going && !error.is_connection() => {
                    *failed = failed.saturating_add(1);
                    eprintln!("quorate: {error}");
                }
                outcome => outcome?,
            }
        }
        Ok(Next::GoOn)
    }

    /// Runs an item. An error contains a place only if it is not the place of the item.
    pub(crate) async fn run(&mut self, item: &Item, place: Option<&Place>) -> Result<Next> {
        let is_once = matches!(item, Item::Command(line) if matches!(command::parse(line), Ok(Command::Once(_))));
        let ran = self.run_into(item, place).await;
        if !is_once {
            self.output.end_once()?;
        }
        ran
    }

    async fn run_into(&mut self, item: &Item, place: Option<&Place>) -> Result<Next> {
        match item {
            Item::Statement(statement) => {
                let begun = Instant::now();
                self.statement(statement, place).await?;
                if self.timer {
                    let time = format!("Time: {:.1} ms\n", begun.elapsed().as_secs_f64() * 1000.0);
                    self.output.say(&time)?;
                }
                Ok(Next::GoOn)
            }
            Item::Command(line) => self.command(command::parse(line).map_err(Error::new)?).await,
        }
    }

    /// The message for an item that was dropped while it ran.
    pub(crate) fn cancelled(&mut self) -> &'static str {
        if std::mem::take(&mut self.is_writing) {
            "cancelled; the write may have been done, or may still be: check before you write it again"
        } else {
            "cancelled"
        }
    }

    async fn command(&mut self, command: Command) -> Result<Next> {
        match command {
            Command::Exit => return Ok(Next::Leave),
            Command::Read(file) => return Ok(Next::Read(file)),
            Command::Edit => return Err(Error::new(".edit needs a prompt")),
            Command::Dump(tables) => self.dump(&tables).await?,
            Command::Explain(query) => self.explain(&query).await?,
            Command::Help(of) => self.output.write(&command::help(of))?,
            Command::Import { file, table } => import::run(&self.client, &file, &table).await?,
            Command::Param(change) => {
                let list = self.parameters.change(change).map_err(|why| Error::new(format!(".param: {why}")))?;
                self.output.write(&list)?;
            }
            Command::Print(text) => self.output.write(&format!("{text}\n"))?,
            Command::Once(file) => self.output.send_once_to(&file)?,
            Command::Indexes(table) => self.indexes(table.as_deref()).await?,
            Command::Keys(prefix) => {
                let list = Action::List { prefix: prefix.into(), kind: None };
                self.keys(0, list).await?;
            }
            Command::Locks(prefix) => self.locks(locks::Action::List { prefix: prefix.into() }).await?,
            Command::Schema(table) => self.schema(table.as_deref()).await?,
            Command::Status => {
                let status = self.status.as_ref().ok_or_else(|| Error::new(".status is not available here"))?;
                let text = status().await?;
                self.output.write(&text)?;
            }
            Command::Tables(pattern) => self.tables(pattern.as_deref()).await?,
            setting => self.set(setting)?,
        }
        Ok(Next::GoOn)
    }

    /// Changes a setting, or prints it.
    fn set(&mut self, setting: Command) -> Result<()> {
        match setting {
            Command::Changes(Some(on)) => self.changes = on,
            Command::Eqp(Some(on)) => self.plans = on,
            Command::Expanded(on) => self.expand(on.unwrap_or(self.style.mode != Mode::Line)),
            Command::Headers(Some(on)) => self.style.headers = on,
            Command::Level(Some(level)) => self.level = level,
            Command::Mode(Some(mode)) => self.style.mode = mode,
            Command::NullValue(text) => self.style.null = text,
            Command::Pager(Some(to)) => self.output.pager.set(&to),
            Command::Timer(Some(on)) => self.timer = on,
            Command::Width(widths) => self.style.widths = widths,
            Command::Output(file) => return self.output.send_to(file.as_deref()),
            asked => {
                let only = match asked {
                    Command::Changes(_) => "changes",
                    Command::Eqp(_) => "eqp",
                    Command::Headers(_) => "headers",
                    Command::Level(_) => "level",
                    Command::Mode(_) => "mode",
                    Command::Pager(_) => "pager",
                    Command::Timer(_) => "timer",
                    _ => "",
                };
                return self.output.write(&self.settings(only));
            }
        }
        Ok(())
    }

    /// Prints each row as lines from now on, or as it was before.
    fn expand(&mut self, on: bool) {
        let is_on = self.style.mode == Mode::Line;
        if on && !is_on {
            self.compact = std::mem::replace(&mut self.style.mode, Mode::Line);
        } else if is_on && !on {
            self.style.mode = self.compact.clone();
        }
    }

    /// The settings, or only one.
    fn settings(&self, only: &str) -> String {
        let switch = |on| if on { "on" } else { "off" }.to_owned();
        let level = match self.level {
            Level::Local => "local",
            Level::Linearizable => "linearizable",
        };
        let widths = self.style.widths.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let settings = [
            ("changes", switch(self.changes)),
            ("eqp", switch(self.plans)),
            ("headers", switch(self.style.headers)),
            ("level", level.to_owned()),
            ("mode", self.style.mode.to_string()),
            ("nullvalue", self.style.null.clone().unwrap_or_else(|| "the mode's default".to_owned())),
            ("output", self.output.file().map_or("the terminal".to_owned(), |file| file.display().to_string())),
            ("pager", self.output.pager.to_string()),
            ("timer", switch(self.timer)),
            ("width", if widths.is_empty() { "as needed".to_owned() } else { widths }),
        ];
        let settings = settings.into_iter().filter(|(name, _)| only.is_empty() || *name == only);
        settings.map(|(name, value)| format!("{name}: {value}\n")).collect()
    }
}

/// For what is no statement.
impl Shell {
    /// Waits for a write. If it is dropped, the shell says that it may have been done.
    pub(crate) async fn sending<T>(&mut self, write: impl Future<Output = Result<T, quorate::Error>>) -> Result<T> {
        self.is_writing = true;
        let done = write.await;
        self.is_writing = false;
        Ok(done?)
    }

    /// Prints rows as they arrive.
    pub(crate) async fn stream_rows(
        &mut self,
        columns: &[&str],
        mut pages: impl Stream<Item = Result<Vec<Vec<Value>>, quorate::Error>> + Unpin,
    ) -> Result<()> {
        let (mut printer, head) = self.printer(columns);
        self.output.write(&head)?;
        while let Some(rows) = pages.try_next().await? {
            self.output.write(&printer.rows(rows.iter().map(Vec::as_slice)))?;
            if self.output.drain().await?.is_break() {
                return Ok(());
            }
        }
        self.output.write(&printer.end())
    }

    pub(crate) fn print(&mut self, columns: &[&str], rows: [Vec<Value>; 1]) -> Result<()> {
        let (mut printer, head) = self.printer(columns);
        let body = printer.rows(rows.iter().map(Vec::as_slice));
        self.output.write(&format!("{head}{body}{}", printer.end()))
    }

    fn printer(&self, columns: &[&str]) -> (Printer, String) {
        let columns: Vec<String> = columns.iter().map(|&column| column.to_owned()).collect();
        Printer::new(&self.style, self.output.width(), &columns)
    }
}

/// An error with its place, if it has one.
pub(crate) fn placed(error: Error, place: Option<&Place>) -> Error {
    match place {
        Some(place) => error.within(place),
        None => error,
    }
}
