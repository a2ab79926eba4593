//! Whether a statement may be proposed: checked where it is asked for, so that what can never work costs no entry.
//!
//! A statement is prepared, on a connection that only reads and under the rules of apply, and never run. What it names
//! may be missing here: this node may be behind, or the same batch may create it. So only what no schema can mend is a
//! failure: its text, its size, its parameters, or what is never allowed; the rest apply decides.
//!
//! Invariant: what is kept of a text does not depend on the schema, so nothing has to be forgotten when that changes.

use std::sync::{Arc, Mutex};

use quorate_env::lock;
use quorate_model::{Bulk, Failure, FailureKind, Param, Statement};
use rusqlite::{Error, ffi};

use crate::authorizer::{Gate, Mode};
use crate::classify::{Context, Trouble, classify};
use crate::connection::{self, Attached};
use crate::error::OpenError;
use crate::generation::Generations;
use crate::schema_check::check_text;
use crate::stack;
use crate::usage::NoMemory;

mod cache;
pub mod near;
pub(crate) mod parameters;
mod paths;
pub mod text;
pub(crate) mod text_hash;

#[cfg(test)]
mod tests;

use cache::Cache;
use parameters::Parameters;
use text::Vacuum;

/// Bytes of the page cache of the connection that prepares: it reads the schema only.
const CACHE_BYTES: u32 = 1 << 20;

/// A statement that makes SQLite load the schema anew if it has changed.
const LOOK: &str = "SELECT 1 FROM sqlite_schema LIMIT 1";

/// What a statement does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementKind {
    /// It only reads.
    Read,
    /// It writes rows.
    Write,
    /// It changes the schema, or the statistics that plans rest on.
    Ddl,
    /// `VACUUM`, which is a command of its own: [`SqlCommand::Vacuum`](quorate_model::SqlCommand::Vacuum).
    Vacuum,
    /// Not to be said here and now: something that it names is missing. It may write.
    Unknown,
}

/// Whether a text is a `VACUUM` that may be proposed.
pub fn is_vacuum(sql: &str) -> bool {
    text::vacuum(sql) == Vacuum::Main
}

/// Checks statements against a store's schema. Shared by all who propose.
pub struct Validator {
    generations: Arc<Generations>,
    prober: Mutex<Option<Prober>>,
    known: Mutex<Cache<Known>>,
}

/// What is known of a text.
#[derive(Clone)]
struct Known {
    kind: StatementKind,
    parameters: Arc<Parameters>,
}

impl Validator {
    /// A validator for a store.
    pub fn new(generations: Arc<Generations>) -> Self {
        Self { generations, prober: Mutex::default(), known: Mutex::default() }
    }

    /// Fails if the statement can never be applied, on any node; says what it does otherwise.
    pub fn check(&self, statement: &Statement<Param>) -> Result<StatementKind, Failure> {
        statement.check_limits()?;
        let known = self.known(&statement.sql)?;
        if known.kind != StatementKind::Unknown {
            known.parameters.check(statement)?;
        }
        Ok(known.kind)
    }

    /// The same of a bulk statement.
    pub fn check_bulk(&self, bulk: &Bulk) -> Result<StatementKind, Failure> {
        bulk.check_limits()?;
        let known = self.known(&bulk.sql)?;
        if known.kind == StatementKind::Write {
            known.parameters.check_count(bulk.rows.width())?;
        }
        Ok(known.kind)
    }

    /// The extensions of this node that are not enabled as far as it knows. Blocks.
    pub fn not_enabled(&self) -> Result<Vec<String>, OpenError> {
        let generation = self.generations.current();
        if generation.extensions().names().next().is_none() {
            return Ok(Vec::new());
        }
        let reader = connection::open_bare_reader(&generation, CACHE_BYTES)?;
        let enabled = generation.extensions().enabled(&reader)?;
        let is_new = |name: &&str| enabled.iter().all(|known| known != name);
        Ok(generation.extensions().names().filter(is_new).map(str::to_owned).collect())
    }

    /// Whether a statement of this text can be checked without asking SQLite, which may take long to plan it.
    pub fn knows(&self, sql: &str) -> bool {
        lock(&self.known).get(sql).is_some()
    }

    fn known(&self, sql: &str) -> Result<Known, Failure> {
        let kept = lock(&self.known).get(sql);
        if let Some(known) = kept {
            return Ok(known);
        }
        let known = self.probe(sql)?;
        if known.kind != StatementKind::Unknown {
            lock(&self.known).insert(sql, known.clone());
        }
        Ok(known)
    }

    fn probe(&self, sql: &str) -> Result<Known, Failure> {
        text::check_single(sql)?;
        match text::vacuum(sql) {
            Vacuum::Main => return Ok(Known::of(StatementKind::Vacuum)),
            Vacuum::Other => {
                return Err(Failure::new(
                    FailureKind::Refused,
                    "only VACUUM of the whole store is allowed; for a copy of it take a backup",
                ));
            }
            Vacuum::No => {}
        }
        let mut prober = lock(&self.prober);
        if prober.as_ref().is_some_and(|prober| prober.generation() != self.generations.number()) {
            *prober = None;
        }
        if prober.is_none() {
            // A node that can't read now says nothing of the statement.
            *prober = stack::for_write(|| Prober::open(&self.generations)).ok();
        }
        let unknown = Ok(Known::of(StatementKind::Unknown));
        let probe = |prober: &mut Prober| stack::for_write(|| Ok::<_, NoMemory>(prober.probe(sql)));
        prober.as_mut().and_then(|prober| probe(prober).ok()).unwrap_or(unknown)
    }

    /// Lets go of an old generation at once. Without this the next statement that is new does it.
    pub fn switch(&self) {
        let mut prober = lock(&self.prober);
        prober.take_if(|prober| prober.generation() != self.generations.number());
    }
}

impl Known {
    fn of(kind: StatementKind) -> Self {
        Self { kind, parameters: Arc::default() }
    }
}

/// A connection that prepares statements as apply would.
struct Prober {
    connection: Attached,
    gate: Arc<Gate>,
    /// The extensions that it knows to be enabled.
    enabled: Vec<String>,
}

impl Prober {
    fn open(generations: &Generations) -> Result<Self, OpenError> {
        let generation = generations.current();
        let connection = connection::open_bare_reader(&generation, CACHE_BYTES)?;
        let gate = Gate::install(&connection).map_err(OpenError::sqlite(&generation.path()))?;
        let mut prober = Self { connection, gate, enabled: Vec::new() };
        prober.learn()?;
        Ok(prober)
    }

    /// Registers what was enabled since; returns whether there is more than before.
    fn learn(&mut self) -> Result<bool, OpenError> {
        self.gate.enter(Mode::Own);
        let generation = self.connection.generation();
        let enabled = generation.extensions().enabled(&self.connection)?;
        let has_more = enabled.len() > self.enabled.len();
        if has_more {
            let new = enabled.iter().filter(|name| !self.enabled.contains(name)).map(String::as_str);
            let registered = generation.extensions().register(&self.connection, new);
            registered.map_err(OpenError::sqlite(&generation.path()))?;
            self.enabled = enabled;
        }
        Ok(has_more)
    }

    fn generation(&self) -> u64 {
        self.connection.generation().number()
    }

    /// Looks at a statement; once more, if it misses what may be enabled by now.
    fn probe(&mut self, sql: &str) -> Result<Known, Failure> {
        match self.look(sql) {
            Err(Missed(_)) if self.learn().unwrap_or(false) => {
                self.look(sql).unwrap_or_else(|Missed(still)| Err(not_enabled(&still)))
            }
            Err(Missed(name)) => Err(not_enabled(&name)),
            Ok(known) => known,
        }
    }

    fn look(&self, sql: &str) -> Result<Result<Known, Failure>, Missed> {
        self.gate.enter(Mode::Command);
        let statement = match self.connection.prepare(sql).or_else(|error| self.prepare_again(sql, error)) {
            Ok(statement) => statement,
            Err(error) => {
                let refusal = self.gate.take_refusal();
                let missed = self.connection.generation().extensions().missed(&error, &self.enabled);
                return match missed {
                    Some(name) if refusal.is_none() => Err(Missed(name.to_owned())),
                    _ => Ok(explain(&error, refusal)),
                };
            }
        };
        let effects = self.gate.effects();
        if let Err(failure) = check_text(sql, effects) {
            return Ok(Err(failure));
        }
        let kind = match statement.readonly() {
            _ if effects.schema || effects.statistics => StatementKind::Ddl,
            true => StatementKind::Read,
            false => StatementKind::Write,
        };
        Ok(Ok(Known { kind, parameters: Arc::new(Parameters::of(&statement)) }))
    }

    /// Prepares a statement under the present schema, in one transaction with loading it: it may have failed because
    /// the schema has changed since it was loaded, which SQLite looks at only where a name is missing.
    fn prepare_again(&self, sql: &str, error: Error) -> rusqlite::Result<rusqlite::Statement<'_>> {
        self.gate.enter(Mode::Own);
        let Ok(transaction) = self.connection.unchecked_transaction() else { return Err(error) };
        if self.connection.query_row(LOOK, [], |_| Ok(())).is_err() {
            return Err(error);
        }
        self.gate.enter(Mode::Command);
        let prepared = self.connection.prepare(sql);
        // The gate refuses the end of a transaction as a command.
        self.gate.enter(Mode::Own);
        drop(transaction);
        prepared
    }
}

/// A statement needs an extension that is here, and not enabled as far as is known.
struct Missed(String);

fn not_enabled(name: &str) -> Failure {
    let text = format!("{name} can't be used in writes yet: not every voter has announced it; start all with it");
    Failure::new(FailureKind::Refused, text)
}

/// Tells what no schema can mend from what may work later or elsewhere.
fn explain(error: &Error, refusal: Option<String>) -> Result<Known, Failure> {
    let refused = refusal.is_some();
    match classify(error, Context { write_failed: false, refusal }) {
        Trouble::Failure(failure) if refused || is_hopeless(error, &failure) => Err(failure),
        Trouble::Failure(_) | Trouble::Fault(_) => Ok(Known::of(StatementKind::Unknown)),
    }
}

/// Whether a text is wrong whatever the schema. SQLite has one code for all errors of a text, so its words decide:
/// words that a later version changes make the statement fail at apply instead.
fn is_hopeless(error: &Error, failure: &Failure) -> bool {
    const BEGINNINGS: [&str; 4] =
        ["unrecognized token", "variable number must be", "too many SQL variables", "Expression tree is too large"];
    let words = failure.message.as_str();
    matches!(error, Error::MultipleStatement)
        || failure.sqlite_code & 0xff == ffi::SQLITE_TOOBIG
        || words == "incomplete input"
        || words.ends_with(": syntax error")
        || BEGINNINGS.iter().any(|beginning| words.starts_with(beginning))
}
