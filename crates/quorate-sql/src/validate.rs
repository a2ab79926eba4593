//! Checks a statement before it is proposed, on the caller's node, so that one that can never work costs no entry.
//!
//! The statement is prepared, on a read-only connection and under the rules of apply, but never run. Tables that it
//! names may be missing here: this node may be behind, or the same batch may create them. Therefore only errors that
//! occur under every schema are failures: errors in its text, size or parameters, or something that is never allowed.
//! Apply decides the rest.
//!
//! Invariant: the cached facts about a text do not depend on the schema, so they stay valid when the schema changes.

use std::sync::{Arc, Mutex};

use quorate_apply::Trouble;
use quorate_env::lock;
use quorate_model::{Bulk, Failure, FailureKind, Param, Statement};
use rusqlite::{Error, ffi};

use crate::authorizer::{Gate, Mode};
use crate::classify::{Context, classify};
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

/// The size of the page cache, in bytes, of the connection that prepares statements. It reads only the schema.
const CACHE_BYTES: u32 = 1 << 20;

/// A query that makes SQLite reload the schema if it has changed.
const LOOK: &str = "SELECT 1 FROM sqlite_schema LIMIT 1";

/// The kind of a statement, by its effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementKind {
    /// It only reads.
    Read,
    /// It writes rows.
    Write,
    /// It changes the schema, or the statistics that query plans depend on.
    Ddl,
    /// `VACUUM`, for which there is a separate command: [`SqlCommand::Vacuum`](quorate_model::SqlCommand::Vacuum).
    Vacuum,
    /// Not known on this node now, because something that it names is missing. It may write.
    Unknown,
}

/// Returns whether a text is a `VACUUM` that may be proposed.
pub fn is_vacuum(sql: &str) -> bool {
    text::vacuum(sql) == Vacuum::Main
}

/// Checks statements against a store's schema. All proposers share one.
pub struct Validator {
    generations: Arc<Generations>,
    prober: Mutex<Option<Prober>>,
    known: Mutex<Cache<Known>>,
}

/// The cached facts about a text.
#[derive(Clone)]
struct Known {
    kind: StatementKind,
    parameters: Arc<Parameters>,
}

impl Validator {
    /// Returns a validator for a store.
    pub fn new(generations: Arc<Generations>) -> Self {
        Self { generations, prober: Mutex::default(), known: Mutex::default() }
    }

    /// Returns what the statement does, or fails if no node can ever apply it.
    pub fn check(&self, statement: &Statement<Param>) -> Result<StatementKind, Failure> {
        statement.check_limits()?;
        let known = self.known(&statement.sql)?;
        if known.kind != StatementKind::Unknown {
            known.parameters.check(statement)?;
        }
        Ok(known.kind)
    }

    /// As [`Validator::check`], for a bulk statement.
    pub fn check_bulk(&self, bulk: &Bulk) -> Result<StatementKind, Failure> {
        bulk.check_limits()?;
        let known = self.known(&bulk.sql)?;
        if known.kind == StatementKind::Write {
            known.parameters.check_count(bulk.rows.width())?;
        }
        Ok(known.kind)
    }

    /// Returns the extensions of this node that are not enabled in its database. Blocks.
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

    /// Returns whether a statement with this text can be checked without SQLite, which may take long to plan it.
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
            // If the node can't read now, the kind of the statement stays unknown.
            *prober = stack::for_write(|| Prober::open(&self.generations)).ok();
        }
        let unknown = Ok(Known::of(StatementKind::Unknown));
        let probe = |prober: &mut Prober| stack::for_write(|| Ok::<_, NoMemory>(prober.probe(sql)));
        prober.as_mut().and_then(|prober| probe(prober).ok()).unwrap_or(unknown)
    }

    /// Releases an old generation at once. Otherwise the next statement that is not cached would release it.
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
    /// The enabled extensions that are registered on the connection.
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

    /// Registers extensions that were enabled since the last call; returns whether there are any.
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

    /// Examines a statement. If it needs an extension that was not enabled, checks whether that is enabled by now, and
    /// examines the statement again.
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
            true if !effects.notifies => StatementKind::Read,
            _ => StatementKind::Write,
        };
        Ok(Ok(Known { kind, parameters: Arc::new(Parameters::of(&statement)) }))
    }

    /// Prepares a statement again, in one transaction with loading the current schema. The first attempt may have
    /// failed because the schema has changed since it was loaded, which SQLite checks only if a name is missing.
    fn prepare_again(&self, sql: &str, error: Error) -> rusqlite::Result<rusqlite::Statement<'_>> {
        self.gate.enter(Mode::Own);
        let Ok(transaction) = self.connection.unchecked_transaction() else { return Err(error) };
        if self.connection.query_row(LOOK, [], |_| Ok(())).is_err() {
            return Err(error);
        }
        self.gate.enter(Mode::Command);
        let prepared = self.connection.prepare(sql);
        // In the mode for commands, the gate would refuse to end the transaction.
        self.gate.enter(Mode::Own);
        drop(transaction);
        prepared
    }
}

/// A statement needs an extension that this node has, but that is not known to be enabled.
struct Missed(String);

fn not_enabled(name: &str) -> Failure {
    let text =
        format!("{name} can't be used in writes yet: not every voter has announced it; start every node with it");
    Failure::new(FailureKind::Refused, text)
}

/// Returns the failure if the statement fails under every schema, or `Unknown` if it may work later or on another node.
fn explain(error: &Error, refusal: Option<String>) -> Result<Known, Failure> {
    let refused = refusal.is_some();
    match classify(error, Context { write_failed: false, refusal }) {
        Trouble::Failure(failure) if refused || is_hopeless(error, &failure) => Err(failure),
        Trouble::Failure(_) | Trouble::Fault(_) => Ok(Known::of(StatementKind::Unknown)),
    }
}

/// Returns whether a text is wrong under every schema. SQLite has one code for all errors in a text, so the message
/// decides. If a later version changes a message, the statement fails at apply instead.
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
