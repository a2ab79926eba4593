//! One read-only connection: runs a statement within its limits and copies its result.
//!
//! Invariants: between two uses no statement runs and no transaction is open ([`Reader::reset`]). The guard is armed
//! whenever a caller's statement runs.

use std::borrow::Cow;
use std::sync::Arc;

use quorate_env::mutant::Mutant;
use quorate_model::{Failure, FailureKind, Stamp, Statement, Value};
use rusqlite::types::ValueRef;
use rusqlite::{InterruptHandle, StatementStatus};

use super::error::ReadError;
use super::guard::{Allowance, Guard, INLINE_TIME, TICK_STEPS, Trip};
use super::limits::{CHUNK_BYTES, CHUNK_ROWS, Cancel, ReadLimits};
use super::stamped::Stamped;
use super::suspicion::Suspicions;
use crate::authorizer::{self, Gate, Mode, rules};
use crate::cluster_time::ClusterTime;
use crate::connection;
use crate::determinism::random::Random;
use crate::ffi::database::{Database, Prepared};
use crate::ffi::hooks;
use crate::functions::{self, Meter};
use crate::generation::Generation;
use crate::query::Rows;
use crate::schema_check::{self, Schema};
use crate::slow::SlowLog;
use crate::stack;
use crate::usage::{self, Scope, Temp};
use crate::validate::near::check_bound;
use crate::validate::parameters::Parameters;
use crate::validate::text;
use crate::value::{Bound, owned};
use crate::vfs::clock;

mod stores;

/// The applied index, as [`AppliedRow`](quorate_apply::AppliedRow) stores it.
const APPLIED_INDEX: &str = "SELECT \"index\" FROM _quorate_applied WHERE id = 1";

pub(super) struct Reader {
    // Declared first, so that the connection closes before the generation is dropped.
    database: Database<Known>,
    generation: Arc<Generation>,
    suspicions: Arc<Suspicions>,
    time: Arc<ClusterTime>,
    temp: Arc<Temp>,
    cache_bytes: u32,
    guard: Arc<Guard>,
    interrupt: Arc<InterruptHandle>,
    gate: Arc<Gate>,
    random: Arc<Random>,
    slow: SlowLog,
    paused: Option<Paused>,
    /// Whether the reader holds a snapshot: its transaction stays open between queries.
    has_snapshot: bool,
    /// The number of streams that have begun.
    streams: u64,
}

/// The statement of a stream that is paused at a row. Any other statement ends it.
struct Paused {
    stream: u64,
    sql: Cow<'static, str>,
}

/// Facts cached per prepared statement.
struct Known {
    parameters: Arc<Parameters>,
    columns: Columns,
    /// Whether it must be prepared again for each run. It may be a PRAGMA, or it is an EXPLAIN, which SQLite runs
    /// without checking the schema, so it may refer to a schema that no longer exists.
    is_always_reprepared: bool,
    /// Whether it reads keys, and so sees the cluster's time.
    reads_keys: bool,
}

/// The columns of a statement's result.
#[derive(Clone, Default)]
struct Columns {
    names: Arc<[String]>,
    decltypes: Arc<[Option<String>]>,
    /// How often SQLite had prepared the statement again when these were read; `None` before that.
    of: Option<i32>,
}

impl Columns {
    fn rows(self, values: Vec<Value>) -> Rows {
        Rows::new(self.names, values).with_decltypes(self.decltypes)
    }
}

/// The query of a stream.
pub(super) struct StreamQuery {
    pub(super) statement: Statement,
    /// Replaces this node's clock and randomness.
    pub(super) stamp: Option<Stamp>,
    pub(super) limits: ReadLimits,
}

/// The progress of a stream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    rows: usize,
    bytes: usize,
    /// The number of the stream on its reader, after it has begun.
    stream: Option<u64>,
    /// The state of its random numbers.
    seed: Option<u64>,
}

/// The next piece of a stream.
pub(super) struct Chunk {
    /// `None` if no row was left, except for the first piece.
    pub(super) rows: Option<Rows>,
    pub(super) progress: Progress,
    /// Whether there may be more pieces.
    pub(super) more: bool,
}

impl Reader {
    pub(super) fn open(
        generation: &Arc<Generation>,
        cache_bytes: u32,
        slow: SlowLog,
        suspicions: &Arc<Suspicions>,
        time: &Arc<ClusterTime>,
        closing: &Cancel,
    ) -> Result<Self, ReadError> {
        let (connection, generation) = connection::open_reader(generation, cache_bytes)?.into_parts();
        let guard = Arc::new(Guard::new(closing.clone()));
        let ticked = Arc::clone(&guard);
        hooks::set_progress_handler(&connection, TICK_STEPS, move || ticked.tick())?;
        let meter: Arc<dyn Meter> = Arc::<Guard>::clone(&guard);
        functions::install(&connection, &meter)?;
        let seed = connection.query_row("SELECT random()", [], |row| row.get::<_, i64>(0))?;
        let random = Random::install(&connection, &meter)?;
        random.seed(seed.cast_unsigned());
        let gate = authorizer::install_reader(&connection)?;
        let interrupt = Arc::new(connection.get_interrupt_handle());
        let database = Database::new(connection);
        let (suspicions, time) = (Arc::clone(suspicions), Arc::clone(time));
        let temp = Temp::of_reader(generation.temp());
        let (paused, has_snapshot, streams) = (None, false, 0);
        Ok(Self {
            database,
            generation,
            suspicions,
            time,
            temp,
            cache_bytes,
            guard,
            interrupt,
            gate,
            random,
            slow,
            paused,
            has_snapshot,
            streams,
        })
    }

    pub(super) fn guard(&self) -> &Arc<Guard> {
        &self.guard
    }

    /// Runs a query to its end, under `stamp` if there is one. Returns `None` if a first try reached its limit.
    pub(super) fn query(
        &mut self,
        statement: &Statement,
        stamp: Option<Stamp>,
        limits: &ReadLimits,
        allowance: Allowance,
    ) -> Result<Option<Rows>, ReadError> {
        let _stamped = stamp.map(|stamp| Stamped::enter(stamp, &self.random));
        let rows = self.guarded(&statement.sql, allowance, |reader| {
            let mut prepared = reader.start(statement)?;
            let mut sink = Sink::new(limits, Progress::default());
            let filled = sink.fill(&mut prepared.rows(), usize::MAX);
            prepared.clear_bindings();
            filled?;
            Ok(columns(&mut prepared).rows(sink.values))
        });
        rows.inspect_err(|error| self.suspicions.note(&self.generation, error, Some((statement, stamp))))
    }

    /// Runs the query of a stream to the end of its next piece.
    pub(super) fn next_chunk(
        &mut self,
        StreamQuery { statement, stamp: from, limits }: &StreamQuery,
        allowance: Allowance,
        progress: Progress,
    ) -> Result<Chunk, ReadError> {
        let stamp = from.map(|stamp| Stamp { seed: progress.seed.unwrap_or(stamp.seed), ..stamp });
        let stamped = stamp.map(|stamp| Stamped::enter(stamp, &self.random));
        let random = Arc::clone(&self.random);
        let chunk = self.guarded(&statement.sql, allowance, |reader| {
            let is_first = progress.stream.is_none();
            let stream = progress.stream.unwrap_or(reader.streams);
            let mut prepared = if is_first {
                reader.streams = reader.streams.wrapping_add(1);
                reader.start(statement)?
            } else {
                reader.resume(stream)?
            };
            let mut sink = Sink::new(limits, progress);
            let mut rows = prepared.rows();
            let ended = sink.fill(&mut rows, CHUNK_ROWS)?;
            if ended {
                drop(rows);
                prepared.clear_bindings();
            } else {
                // Dropping the rows would reset the statement. It stays at its row, which `paused` records.
                std::mem::forget(rows);
            }
            let progress = Progress { stream: Some(stream), seed: Some(random.state()), ..sink.progress };
            let rows = columns(&mut prepared).rows(sink.values);
            reader.paused = (!ended).then(|| Paused { stream, sql: statement.sql.clone() });
            Ok(Chunk { rows: (is_first || !rows.is_empty()).then_some(rows), progress, more: !ended })
        });
        drop(stamped);
        let query = Some((statement, *from));
        let chunk = chunk.inspect_err(|error| self.suspicions.note(&self.generation, error, query))?;
        // `None` is only returned for a first try.
        chunk.ok_or(ReadError::Busy)
    }

    /// Opens a read transaction, fixes its snapshot, and returns the applied index in it.
    pub(super) fn begin(&mut self) -> Result<u64, ReadError> {
        let index = self.own(|database| {
            if !Mutant::SnapshotNotKept.is_on() {
                database.execute("BEGIN", [])?;
            }
            database.first_row(APPLIED_INDEX, [], |row| row.get::<_, Option<i64>>(0))
        });
        let index = index.inspect_err(|error| self.suspicions.note(&self.generation, error, None))?;
        self.has_snapshot = !self.database.connection().is_autocommit();
        Ok(index.flatten().map_or(0, i64::cast_unsigned))
    }

    /// Whether SQLite has rolled back the transaction of the snapshot. The next query would see another state.
    pub(super) fn has_lost_snapshot(&self) -> bool {
        self.has_snapshot && self.database.connection().is_autocommit()
    }

    /// Ends any statement and transaction. Returns `false` if that failed and the reader can't be used again.
    pub(super) fn reset(&mut self) -> bool {
        self.end_paused();
        self.has_snapshot = false;
        self.database.connection().is_autocommit() || self.own(|database| database.execute("ROLLBACK", [])).is_ok()
    }

    fn end_paused(&mut self) {
        if let Some(mut prepared) = self.paused.take().and_then(|paused| self.database.get(&paused.sql)) {
            drop(prepared.rows());
            prepared.clear_bindings();
        }
    }

    /// The statement of a stream, paused at its row.
    fn resume(&mut self, stream: u64) -> Result<Prepared<'_, Known>, ReadError> {
        let paused = self.paused.take_if(|paused| paused.stream == stream);
        let prepared = paused.and_then(|paused| self.database.get(&paused.sql)).ok_or(ReadError::Cancelled)?;
        let time = &self.time;
        clock::set_of_query(prepared.note().reads_keys.then(|| time.now()));
        Ok(prepared)
    }

    /// Runs `f`, which runs a statement, under the guard and the gate, and translates the errors that these two cause.
    fn guarded<T>(
        &mut self,
        sql: &str,
        allowance: Allowance,
        f: impl FnOnce(&mut Self) -> Result<T, ReadError>,
    ) -> Result<Option<T>, ReadError> {
        let is_inline = allowance.inline;
        let limit = allowance.timeout.min(allowance.transaction);
        let time_max = if is_inline { INLINE_TIME } else { limit };
        self.guard.arm(allowance)?;
        let scope = if self.has_snapshot {
            let scope = Scope::read(self.cache_bytes, &self.temp, limit.saturating_mul(2));
            usage::interrupt_after(time_max, &self.interrupt);
            scope
        } else {
            Scope::read(self.cache_bytes, &self.temp, time_max)
        };
        let result = stack::for_query(|| usage::contain(|| f(self))).map_err(usage::explain);
        let result = result.and_then(|value| usage::check().map(|()| value));
        drop(scope);
        clock::set_of_query(None);
        let (trip, took) = self.guard.disarm();
        if trip != Some(Trip::Inline) {
            self.slow.query(took, sql);
        }
        match (result, trip) {
            (Ok(result), _) => Ok(Some(result)),
            (Err(_), Some(Trip::Inline)) => Ok(None),
            // The guard can't interrupt a single long step; the time limit of the allocator did.
            (Err(ReadError::Timeout(_)), None) if is_inline => Ok(None),
            (Err(_), Some(trip)) => Err(trip.error()),
            (Err(error), None) => Err(self.gate.take_refusal().map_or(error, refused)),
        }
    }

    /// Prepares and binds a caller's statement.
    fn start(&mut self, statement: &Statement) -> Result<Prepared<'_, Known>, ReadError> {
        self.end_paused();
        let sql = statement.sql.as_ref();
        let kept = self.database.get(sql).map(|prepared| prepared.note().is_always_reprepared);
        if kept.unwrap_or_else(|| is_pragma(sql)) {
            self.reload_schema()?;
            self.database.forget(sql);
        }
        if !self.database.holds(sql) {
            text::check_single(sql)?;
            self.prepare(sql)?;
        }
        let mut prepared = self.database.get(sql).ok_or(ReadError::Cancelled)?;
        let time = &self.time;
        clock::set_of_query(prepared.note().reads_keys.then(|| time.now()));
        let parameters = Arc::clone(&prepared.note().parameters);
        parameters.check(statement)?;
        for (number, value) in parameters.numbers(statement).zip(&statement.params) {
            check_bound(&Bound(value))?;
            prepared.bind(number, Bound(value))?;
        }
        Ok(prepared)
    }

    /// Prepares a statement. If that fails, prepares it again under the present schema, in the transaction in which it
    /// will run. SQLite compares its loaded schema with that of the database only if a name is missing. Any other error
    /// of its parser may come from a schema that has changed since.
    fn prepare(&mut self, sql: &str) -> Result<(), ReadError> {
        self.gate.enter(Mode::Query);
        let gate = Arc::clone(&self.gate);
        let known = |prepared: &rusqlite::Statement<'_>| known(prepared, sql, &gate);
        let prepared = self.database.prepare(sql, known);
        // An open transaction has already loaded the schema that it sees.
        if !matches!(prepared, Err(ReadError::Failed(_))) || !self.database.connection().is_autocommit() {
            return prepared;
        }
        self.own(|database| {
            database.execute("BEGIN", [])?;
            database.first_row(APPLIED_INDEX, [], |_| -> rusqlite::Result<()> { Ok(()) })
        })?;
        self.database.prepare(sql, known)
    }

    /// Makes SQLite and virtual tables load the present schema and state, in a transaction that lasts as long as this
    /// use. A SELECT makes them do so, but a PRAGMA does not: it would report the schema that was loaded before, and
    /// during a check FTS5 would use its cached index structure and report itself as corrupt.
    fn reload_schema(&mut self) -> Result<(), ReadError> {
        self.own(|database| {
            if database.connection().is_autocommit() {
                database.execute("BEGIN", [])?;
            }
            database.first_row(APPLIED_INDEX, [], |_| -> rusqlite::Result<()> { Ok(()) })?;
            let conn = database.connection();
            Schema::read(conn)?.open(conn)
        })
    }

    /// Runs the reader's own statements.
    fn own<T, E>(&mut self, f: impl FnOnce(&mut Database<Known>) -> Result<T, E>) -> Result<T, ReadError>
    where
        ReadError: From<E>,
    {
        self.gate.enter(Mode::Own);
        let result = stack::for_query(|| Ok(f(&mut self.database)?));
        self.gate.enter(Mode::Query);
        result
    }
}

fn refused(reason: String) -> ReadError {
    if reason == rules::WRITE_IN_QUERY {
        return ReadError::Writes;
    }
    Failure::new(FailureKind::Refused, reason).into()
}

fn known(statement: &rusqlite::Statement<'_>, sql: &str, gate: &Gate) -> Result<Known, ReadError> {
    if !statement.readonly() && statement.is_explain() == 0 {
        return Err(ReadError::Writes);
    }
    let parameters = Arc::new(Parameters::of(statement));
    Ok(Known {
        parameters,
        columns: Columns::default(),
        is_always_reprepared: is_pragma(sql) || statement.is_explain() != 0,
        reads_keys: gate.reads_keys(),
    })
}

/// Whether a text may be a PRAGMA, or may use one as a table function. It may return `true` for a text that does
/// neither.
fn is_pragma(sql: &str) -> bool {
    schema_check::holds(sql, "pragma")
}

/// The columns. Uses those of the last run, unless SQLite has prepared the statement again because the schema changed.
fn columns(prepared: &mut Prepared<'_, Known>) -> Columns {
    let statement = prepared.statement();
    let of = Some(statement.get_status(StatementStatus::RePrepare));
    if prepared.note().columns.of == of {
        return prepared.note().columns.clone();
    }
    let names = statement.columns().map(|column| column.name().to_owned()).collect();
    let decltypes = statement.columns().map(|column| column.decl_type().map(str::to_owned)).collect();
    let columns = Columns { names, decltypes, of };
    prepared.note_mut().columns = columns.clone();
    columns
}

/// Collects rows up to a limit.
struct Sink<'a> {
    limits: &'a ReadLimits,
    progress: Progress,
    values: Vec<Value>,
}

impl<'a> Sink<'a> {
    fn new(limits: &'a ReadLimits, progress: Progress) -> Self {
        Self { limits, progress, values: Vec::new() }
    }

    /// Collects up to `max` rows, or up to the row that completes a piece of a stream. Returns whether these were all.
    fn fill(&mut self, rows: &mut rusqlite::Rows<'_>, max: usize) -> Result<bool, ReadError> {
        let (end, full) = (self.progress.rows.saturating_add(max), self.progress.bytes.saturating_add(CHUNK_BYTES));
        while let Some(row) = rows.next()? {
            self.take(row)?;
            if max < usize::MAX && (self.progress.rows >= end || self.progress.bytes >= full) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn take(&mut self, row: &rusqlite::Row<'_>) -> Result<(), ReadError> {
        if self.progress.rows >= self.limits.rows {
            return Err(ReadError::TooManyRows(self.limits.rows));
        }
        self.progress.rows += 1;
        let statement: &rusqlite::Statement<'_> = row.as_ref();
        for column in 0..statement.column_count() {
            let value = row.get_ref(column)?;
            self.progress.bytes = self.progress.bytes.saturating_add(bytes(value));
            if self.progress.bytes > self.limits.bytes {
                return Err(ReadError::TooManyBytes(self.limits.bytes));
            }
            usage::push(&mut self.values, owned(value, row, column)?)?;
        }
        Ok(())
    }
}

fn bytes(value: ValueRef<'_>) -> usize {
    match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.len(),
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => 8,
    }
}
