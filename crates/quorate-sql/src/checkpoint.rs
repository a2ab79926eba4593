//! Checkpoints: when the `-wal` is copied into the main file, and by whom.
//!
//! For space, the checkpointer copies beside the writer and syncs the main file; what came meanwhile is copied in a
//! short turn on the write connection, so that no write waits long. When nothing was applied for a while the `-wal` is
//! emptied. Every checkpoint first syncs the whole `-wal`: what was applied before is then durable without the log.
//!
//! Both files are synced every few MiB: a disk does one thing after another, and a sync of much would stand in the way
//! of every log on the same disk.
//!
//! Invariants:
//! - Who runs a checkpoint, or relies on none being run, has the pass of the [`Gate`]; there is one.
//! - Nobody waits for readers but for a bounded time, and nothing blocks new ones.
//! - Once the disk has failed nothing is copied or called durable any more, whoever asks: main file pages whose `-wal`
//!   frames a failed sync has lost would make a database of two times.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quorate_env::Instant;
use quorate_env::mutant::Mutant;
use quorate_env::signal::Signal;
use quorate_env::worker::{Step, Worker};
use quorate_model::{Applied, StoreFault};
use rusqlite::ffi;

use crate::connection::{self, Attached};
use crate::ffi::control::{self, Checkpointed};
use crate::generation::Generation;
use crate::store::shared::{Shared, Stop};

/// How often the checkpointer looks around unasked.
const TICK: Duration = Duration::from_secs(1);

/// How soon a checkpoint is tried again that readers or an image kept from coming to its end.
const RETRY: Duration = Duration::from_millis(50);

/// How long a checkpoint in the writer's turn waits for readers.
pub(crate) const FULL_WAIT: Duration = Duration::from_millis(20);

/// What may be left of the `-wal` for the writer's turn; more is copied beside the writer first.
const TURN_BYTES: u64 = 4 << 20;

/// How often the `-wal` is copied beside the writer before its turn, however much is left.
const ROUNDS_MAX: usize = 3;

/// Lets one at a time run checkpoints, or keep them from running.
#[derive(Debug)]
pub(crate) struct Gate {
    taken: AtomicBool,
    checkpointer: Signal,
}

/// The right to run checkpoints. Whoever has it knows that nobody else runs one.
#[derive(Debug)]
pub(crate) struct Pass {
    gate: Arc<Gate>,
    /// Whether the checkpointer is told when it is given back.
    tells: bool,
}

impl Gate {
    pub(crate) fn new(checkpointer: Signal) -> Self {
        Self { taken: AtomicBool::new(false), checkpointer }
    }

    /// The pass, unless somebody has it.
    pub(crate) fn try_enter(self: &Arc<Self>) -> Option<Pass> {
        self.enter(true)
    }

    /// The same for the checkpointer itself: told of its own end it would never pause, not even where it can do
    /// nothing.
    fn try_enter_untold(self: &Arc<Self>) -> Option<Pass> {
        self.enter(false)
    }

    fn enter(self: &Arc<Self>, tells: bool) -> Option<Pass> {
        let is_taken = self.taken.swap(true, Ordering::AcqRel);
        (!is_taken || Mutant::CheckpointDuringHold.is_on()).then(|| Pass { gate: Arc::clone(self), tells })
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.gate.taken.store(false, Ordering::Release);
        if self.tells {
            self.gate.checkpointer.wake();
        }
    }
}

impl Checkpointed {
    /// Whether the main file is now the database at its last commit.
    pub(crate) fn is_complete(self) -> bool {
        self.frames >= 0 && self.frames == self.copied
    }

    /// Tells waiting, which is normal, from trouble.
    pub(crate) fn verdict(self) -> Result<(), StoreFault> {
        let text = || rusqlite::ffi::code_to_str(self.code).to_owned();
        match self.code & 0xff {
            ffi::SQLITE_OK | ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED => Ok(()),
            ffi::SQLITE_FULL => Err(StoreFault::Full(text())),
            ffi::SQLITE_NOMEM => Err(StoreFault::Memory(text())),
            ffi::SQLITE_CORRUPT | ffi::SQLITE_NOTADB => Err(StoreFault::Damaged(text())),
            _ => Err(StoreFault::Io(text())),
        }
    }
}

/// Tells the disk something, unless the store has stopped; that the disk fails stops it at once, whoever asked.
fn on_disk<T>(shared: &Shared, tell: impl FnOnce() -> Result<T, StoreFault>) -> Result<T, StoreFault> {
    match shared.final_fault() {
        _ if Mutant::SyncBelievedAgain.is_on() => tell(),
        Some(fault) => Err(fault),
        None => tell().inspect_err(|fault| shared.report_unless_passing(fault)),
    }
}

/// Makes everything applied so far durable by a sync of the `-wal`.
pub(crate) fn sync(shared: &Shared) -> Result<(), StoreFault> {
    let applied = shared.applied();
    if !Mutant::CheckpointWithoutSync.is_on() {
        on_disk(shared, || shared.generations.current().sync_wal().map_err(io_fault))?;
    }
    shared.is_durable(applied);
    Ok(())
}

/// A checkpoint for space: beside the writer, then a short one in its turn. Says whether it came to the end.
pub(crate) fn space(shared: &Shared, _pass: &Pass, beside: &Attached) -> Result<bool, StoreFault> {
    let begun = Instant::now();
    let generation = beside.generation();
    for _ in 0..ROUNDS_MAX {
        if shared.stop() != Stop::Running {
            return Ok(false);
        }
        let before = generation.wal_bytes();
        sync(shared)?;
        on_disk(shared, || {
            control::checkpoint(beside, ffi::SQLITE_CHECKPOINT_PASSIVE).verdict()?;
            generation.sync_main().map_err(io_fault)
        })?;
        if generation.wal_bytes().saturating_sub(before) < TURN_BYTES {
            break;
        }
    }
    // Waiting for readers a little gives them less room to starve checkpoints for ever. An old snapshot will not go.
    let is_behind = generation.wal_bytes() >= shared.options.checkpoint_bytes.saturating_mul(2);
    let is_behind = is_behind && !shared.readers.keeps_old();
    let mode = if is_behind { ffi::SQLITE_CHECKPOINT_FULL } else { ffi::SQLITE_CHECKPOINT_PASSIVE };
    let result = in_turn(shared, generation, mode, FULL_WAIT)?;
    shared.metrics.checkpoints.observe(begun.elapsed());
    Ok(result.is_some_and(|(done, _)| done.is_complete()))
}

/// Empties the `-wal` if nobody reads from it, without waiting for anyone.
pub(crate) fn empty_wal(shared: &Shared, _pass: &Pass) -> Result<(), StoreFault> {
    in_turn(shared, &shared.generations.current(), ffi::SQLITE_CHECKPOINT_TRUNCATE, Duration::ZERO).map(drop)
}

/// A checkpoint in the writer's turn, between transactions, and where the store stands there; `None` when this
/// generation is no longer the one that is written.
pub(crate) fn in_turn(
    shared: &Shared,
    generation: &Generation,
    mode: i32,
    wait: Duration,
) -> Result<Option<(Checkpointed, Applied)>, StoreFault> {
    let visited = shared.turn.visit(|core| {
        let core = core.as_mut().filter(|core| core.generation().number() == generation.number())?;
        let begun = Instant::now();
        let done = on_disk(shared, || {
            let done = core.checkpoint(mode, wait)?;
            done.verdict().map(|()| done)
        });
        shared.metrics.checkpoint_turns.observe(begun.elapsed());
        Some(done.map(|done| (done, core.applied().clone())))
    });
    let Some((done, applied)) = visited.transpose()? else { return Ok(None) };
    if done.is_complete() {
        shared.is_durable(applied.clone());
    }
    Ok(Some((done, applied)))
}

fn io_fault(error: std::io::Error) -> StoreFault {
    StoreFault::Io(error.to_string())
}

/// Runs checkpoints for space, and when idle.
pub(crate) struct Checkpointer {
    shared: Arc<Shared>,
    beside: Option<Attached>,
    /// The `-wal`'s length after a complete checkpoint: nothing is to be done while it stays.
    done_at: Option<(u64, u64)>,
    synced_once: bool,
    seen: u64,
    quiet_since: Instant,
}

impl Checkpointer {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let seen = shared.applied().index();
        Self { shared, beside: None, done_at: None, synced_once: false, seen, quiet_since: Instant::now() }
    }

    fn look(&mut self) -> Result<Step, StoreFault> {
        self.shared.readers.expire();
        if !self.synced_once {
            sync(&self.shared)?;
            self.synced_once = true;
        }
        let generation = self.shared.generations.current();
        if generation.wal_bytes() >= self.shared.options.hold_bytes_max {
            self.shared.readers.end_old();
        }
        self.beside = self.beside.take().filter(|conn| conn.generation().number() == generation.number());
        if self.is_due(&generation) {
            return self.space(&generation);
        }
        if generation.wal_unsynced_bytes() >= self.shared.options.sync_bytes() {
            sync(&self.shared)?;
            return Ok(Step::Again);
        }
        let shared = Arc::clone(&self.shared);
        if self.is_idle()
            && generation.wal_file_bytes().is_ok_and(|bytes| bytes > 0)
            && let Some(pass) = shared.gate.try_enter_untold()
        {
            space(&shared, &pass, self.beside(&generation)?)?;
            empty_wal(&shared, &pass)?;
        }
        Ok(Step::WaitFor(TICK.min(self.shared.options.idle_after)))
    }

    fn is_due(&self, generation: &Generation) -> bool {
        let bytes = generation.wal_bytes();
        let is_done = self.done_at == Some((generation.number(), bytes));
        !is_done && bytes > 0 && (bytes >= self.shared.options.checkpoint_bytes || self.shared.is_full())
    }

    /// Whether nothing was applied for a while.
    fn is_idle(&mut self) -> bool {
        let (now, applied) = (Instant::now(), self.shared.applied().index());
        if applied != self.seen {
            self.seen = applied;
            self.quiet_since = now;
        }
        now.saturating_duration_since(self.quiet_since) >= self.shared.options.idle_after
    }

    fn space(&mut self, generation: &Arc<Generation>) -> Result<Step, StoreFault> {
        let shared = Arc::clone(&self.shared);
        let Some(pass) = shared.gate.try_enter_untold() else { return Ok(Step::WaitFor(RETRY)) };
        let beside = self.beside(generation)?;
        let is_complete = space(&shared, &pass, beside)?;
        self.done_at = is_complete.then(|| (generation.number(), generation.wal_bytes()));
        Ok(Step::WaitFor(if !is_complete && shared.readers.keeps_old() { TICK } else { RETRY }))
    }

    /// The connection beside the writer, to the generation in force; one to an earlier is gone already.
    fn beside(&mut self, generation: &Arc<Generation>) -> Result<&Attached, StoreFault> {
        let beside = match self.beside.take() {
            Some(beside) => beside,
            None => on_disk(&self.shared, || {
                connection::open_checkpointer(generation).map_err(|error| StoreFault::Io(error.to_string()))
            })?,
        };
        Ok(self.beside.insert(beside))
    }
}

impl Worker for Checkpointer {
    fn run_once(&mut self) -> Step {
        if self.shared.stop() != Stop::Running {
            return Step::Done;
        }
        if self.shared.final_fault().is_some() {
            return Step::WaitFor(TICK);
        }
        if let Some(fault) = self.shared.readers.look_again() {
            self.shared.report(&fault);
            return Step::WaitFor(TICK);
        }
        let due = self.shared.readers.suspicions().due_in();
        // What went wrong was reported where it did.
        match (self.look().unwrap_or(Step::WaitFor(TICK)), due) {
            (Step::WaitFor(time), Some(due)) => Step::WaitFor(time.min(due)),
            (step, _) => step,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn the_checkpointer_is_woken_by_others_and_not_by_itself() {
        let bell = Signal::new();
        let gate = Arc::new(Gate::new(bell.clone()));
        let is_rung = || bell.poll_wait(&Context::from_waker(Waker::noop())).is_ready();
        let pass = gate.try_enter_untold();
        assert!(pass.is_some() && gate.try_enter().is_none());
        drop(pass);
        assert!(!is_rung());
        drop(gate.try_enter());
        assert!(is_rung());
    }
}
