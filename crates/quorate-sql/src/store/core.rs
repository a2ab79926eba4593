//! The write side of one generation: the applier with its connection, and the generation itself.

use std::sync::Arc;
use std::time::Duration;

use quorate_apply::Users;
use quorate_model::keys::EventClasses;
use quorate_model::{Applied, Archiver, Entry, Outcome, StoreFault, StoreIdentity};

use crate::connection::{self, BUSY_TIMEOUT};
use crate::error::OpenError;
use crate::ffi::control::{self, Checkpointed};
use crate::generation::Generation;
use crate::machine::{Applier, SqlMachine};
use crate::metrics::StoreMetrics;
use crate::options::StoreOptions;
use crate::records::applied_row;
use crate::supervision::Supervision;
use crate::usage::{Scope, Temp};

/// The part of the store that only one thread at a time may use.
pub(crate) struct Core {
    // Declared before the generation: the connection must be closed before the main file's handle.
    applier: Applier,
    temp: Arc<Temp>,
    cache_bytes: u32,
    generation: Arc<Generation>,
}

impl Core {
    /// Opens the write side of a generation. The data must have the identity in `options`.
    ///
    /// Other threads use `supervision` to observe the statement that is running, and to interrupt it.
    pub(crate) fn open(
        generation: Arc<Generation>,
        options: &StoreOptions,
        supervision: &Arc<Supervision>,
    ) -> Result<Self, OpenError> {
        let conn = connection::open_writer(&generation, options.writer_cache_bytes)?;
        if let Some(row) = applied_row::read(&conn)? {
            check_identity(options, row.identity)?;
        }
        let machine = SqlMachine::open(conn, &options.identity, &options.extensions)?;
        let machine = machine
            .with_slow_log(options.slow.clone())
            .supervised(Arc::clone(supervision))
            .keeping_events(options.events);
        let applier = Applier::new(machine, options.level)?;
        let temp = Temp::of_writer(generation.temp(), generation.main());
        Ok(Self { applier, temp, cache_bytes: options.writer_cache_bytes, generation })
    }

    pub(crate) fn applied(&self) -> &Applied {
        self.applier.applied()
    }

    /// The latest stamp of the entries that were applied.
    pub(crate) fn now(&self) -> u64 {
        self.applier.row().now
    }

    /// The applier, for dry runs and comparisons.
    pub(crate) fn applier(&mut self) -> &mut Applier {
        &mut self.applier
    }

    /// The latest entries that the cluster decided not to run.
    pub(crate) fn rejected(&self) -> &[u64] {
        self.applier.rejected()
    }

    /// The archiver as of the last entry, if there is one.
    pub(crate) fn archiver(&self) -> Option<Archiver> {
        self.applier.archiver()
    }

    /// The users as of the last entry.
    pub(crate) fn users(&self) -> &Arc<Users> {
        self.applier.users()
    }

    /// Gives this thread the resource limits of an entry's statements. Must be held while statements run.
    pub(crate) fn scope(&self) -> Scope {
        Scope::write(self.cache_bytes, &self.temp)
    }

    /// Sets the metrics of how much the database holds for retries.
    pub(crate) fn note_sizes(&self, metrics: &StoreMetrics) {
        let requests = self.applier.requests();
        metrics.sessions.set(self.applier.sessions().count());
        metrics.requests.set(requests.count());
        metrics.request_bytes.set(requests.bytes());
    }

    pub(crate) fn generation(&self) -> &Arc<Generation> {
        &self.generation
    }

    /// Applies consecutive entries, and adds their outcomes: `None` for those that were applied before. It may stop
    /// before the last entry, as [`Applier::apply_batch`] does; the caller then hands over the rest again. `is_awaited`
    /// says whether callers of this node wait for some of them.
    pub(crate) fn apply(
        &mut self,
        entries: &[Entry],
        is_awaited: bool,
        outcomes: &mut Vec<Option<Outcome>>,
    ) -> Result<(), StoreFault> {
        let last = self.applied().log_id.map(|id| id.index);
        let is_old = |entry: &&Entry| last.is_some_and(|last| entry.log_id.index <= last);
        let old = entries.iter().take_while(is_old).count();
        let new = entries.get(old..).unwrap_or_default();
        outcomes.extend(entries.iter().take(old).map(|_| None));
        if let (Some(last), Some(next)) = (last, new.first().map(|entry| entry.log_id.index))
            && next != last.saturating_add(1)
        {
            return Err(StoreFault::Io(format!("entry {next} was handed over after entry {last}; restart the node")));
        }
        if new.is_empty() {
            return Ok(());
        }
        let _scope = self.scope();
        let mut applied = Vec::with_capacity(new.len());
        self.applier.machine().set_awaited(is_awaited);
        let done = self.applier.apply_batch(new, &mut applied);
        // Callers wait for any other work on this connection.
        self.applier.machine().set_awaited(true);
        outcomes.extend(applied.into_iter().map(Some));
        done
    }

    /// Sets which changes of keys the entries that follow note.
    pub(crate) fn note_changes(&mut self, wanted: EventClasses) {
        self.applier.machine_mut().note_changes(wanted);
    }

    /// Runs entries that will probably be applied next.
    pub(crate) fn prefetch(&mut self, entries: &[Entry]) {
        let _scope = self.scope();
        self.applier.prefetch(entries);
    }

    /// Returns the index of the entry that asks for a verification of the present state, and forgets it.
    pub(crate) fn take_verification(&mut self) -> Option<u64> {
        self.applier.take_verification()
    }

    /// Runs a checkpoint between transactions. A mode that waits for readers waits at most `wait`.
    pub(crate) fn checkpoint(&mut self, mode: i32, wait: Duration) -> Result<Checkpointed, StoreFault> {
        self.applier.give_way();
        let conn = self.applier.machine().connection();
        let failed = |error: rusqlite::Error| StoreFault::Io(error.to_string());
        conn.busy_timeout(wait).map_err(failed)?;
        let result = control::checkpoint(conn, mode);
        conn.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
        Ok(result)
    }
}

/// Compares the identity of a database with the expected one.
pub(crate) fn check_identity(options: &StoreOptions, found: StoreIdentity) -> Result<(), OpenError> {
    let expected = options.identity;
    if found == expected { Ok(()) } else { Err(OpenError::Identity { expected, found }) }
}
