//! Checkpoints: when the `-wal` is copied into the main file, and by which thread.
//!
//! To bound the `-wal`, the checkpointer copies it in parallel with the writer and syncs the main file. Frames that
//! were added in the meantime are copied under the writer lock, for a short time, so that no write waits long. If
//! writes add too many of them for that, the checkpointer repeats its copy and slows the writer, until few are left.
//! When nothing was applied for a while, the `-wal` is emptied. Every checkpoint first syncs the whole `-wal`, which
//! makes everything applied before durable without the log.
//!
//! Both files are synced every few MiB, because one long sync would hold up every log on the same disk.
//!
//! Invariants:
//! - A thread that runs a checkpoint, or relies on none being run, holds the pass of the [`Gate`]. There is only one
//!   pass.
//! - Waits for readers are bounded, and nothing blocks new readers.
//! - After a disk error, nothing is copied or called durable any more. A failed sync may have lost frames of the
//!   `-wal`; pages copied from them would leave a main file that mixes two states of the database.

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

/// How often the checkpointer checks without being woken.
const TICK: Duration = Duration::from_secs(1);

/// How soon a checkpoint is tried again that readers or an image kept from completing.
const RETRY: Duration = Duration::from_millis(50);

/// How long a checkpoint under the writer lock waits for readers.
pub(crate) const FULL_WAIT: Duration = Duration::from_millis(20);

/// Bytes of the `-wal` that may be copied under the writer lock. More is copied in parallel with the writer first.
const LOCKED_BYTES_MAX: u64 = 1 << 20;

/// How many times the `-wal` is copied in parallel with the writer before the writer lock is taken, however much is
/// left.
const ROUNDS_MAX: usize = 12;

/// How many of these rounds let the writer run at full speed. In the next it rests as long as it works, and twice as
/// long in each that follows, so that less is added than in the one before, however fast entries arrive.
const FREE_ROUNDS: usize = 1;

/// Lets one thread at a time run checkpoints, or keep them from running.
#[derive(Debug)]
pub(crate) struct Gate {
    taken: AtomicBool,
    checkpointer: Signal,
}

/// The right to run checkpoints. While a thread holds it, no other thread runs one.
#[derive(Debug)]
pub(crate) struct Pass {
    gate: Arc<Gate>,
    /// Whether dropping it wakes the checkpointer.
    wakes: bool,
}

impl Gate {
    pub(crate) fn new(checkpointer: Signal) -> Self {
        Self { taken: AtomicBool::new(false), checkpointer }
    }

    /// Takes the pass if it is free.
    pub(crate) fn try_enter(self: &Arc<Self>) -> Option<Pass> {
        self.enter(true)
    }

    /// Takes the pass for the checkpointer itself. Waking itself when it drops the pass would make it spin, even while
    /// it can do nothing.
    fn try_enter_without_wake(self: &Arc<Self>) -> Option<Pass> {
        self.enter(false)
    }

    fn enter(self: &Arc<Self>, wakes: bool) -> Option<Pass> {
        let is_taken = self.taken.swap(true, Ordering::AcqRel);
        (!is_taken || Mutant::CheckpointDuringHold.is_on()).then(|| Pass { gate: Arc::clone(self), wakes })
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.gate.taken.store(false, Ordering::Release);
        if self.wakes {
            self.gate.checkpointer.wake();
        }
    }
}

impl Checkpointed {
    /// Whether the checkpoint has copied the whole `-wal`, so that the main file holds the last commit.
    pub(crate) fn is_complete(self) -> bool {
        self.frames >= 0 && self.frames == self.copied
    }

    /// Turns the result code into a fault. A checkpoint that has to wait for readers is normal.
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

/// Runs a disk operation unless the store has stopped. A disk error stops the store at once, whatever the operation was
/// for.
fn on_disk<T>(shared: &Shared, operation: impl FnOnce() -> Result<T, StoreFault>) -> Result<T, StoreFault> {
    match shared.final_fault() {
        _ if Mutant::SyncBelievedAgain.is_on() => operation(),
        Some(fault) => Err(fault),
        None => operation().inspect_err(|fault| shared.report_unless_passing(fault)),
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

/// Runs a checkpoint to bound the `-wal`: in parallel with the writer, then for a short time under the writer lock.
/// Returns whether it is complete.
pub(crate) fn bound_wal(shared: &Shared, _pass: &Pass, conn: &Attached) -> Result<bool, StoreFault> {
    let begun = Instant::now();
    let generation = conn.generation();
    let mut slowed = None;
    for round in 0..ROUNDS_MAX {
        match &slowed {
            None if round == FREE_ROUNDS => slowed = Some(shared.writer_lock.slow_writer()),
            None => {}
            Some(slowed) => slowed.increase(),
        }
        if shared.stop() != Stop::Running {
            return Ok(false);
        }
        let before = generation.wal_bytes();
        sync(shared)?;
        on_disk(shared, || {
            control::checkpoint(conn, ffi::SQLITE_CHECKPOINT_PASSIVE).verdict()?;
            generation.sync_main().map_err(io_fault)
        })?;
        if generation.wal_bytes().saturating_sub(before) < LOCKED_BYTES_MAX {
            break;
        }
    }
    // A short wait for readers keeps them from starving checkpoints for ever. An old snapshot or a boundary would
    // outlast the wait.
    let is_behind = generation.wal_bytes() >= shared.options.checkpoint_bytes.saturating_mul(2);
    let is_behind = is_behind && !shared.keeps_old();
    let mode = if is_behind { ffi::SQLITE_CHECKPOINT_FULL } else { ffi::SQLITE_CHECKPOINT_PASSIVE };
    let result = under_writer_lock(shared, generation, mode, FULL_WAIT)?;
    drop(slowed);
    shared.metrics.checkpoints.observe(begun.elapsed());
    Ok(result.is_some_and(|(done, _)| done.is_complete()))
}

/// Empties the `-wal` if nobody reads from it, without waiting.
pub(crate) fn empty_wal(shared: &Shared, _pass: &Pass) -> Result<(), StoreFault> {
    under_writer_lock(shared, &shared.generations.current(), ffi::SQLITE_CHECKPOINT_TRUNCATE, Duration::ZERO).map(drop)
}

/// Runs a checkpoint under the writer lock, between transactions. Returns the result and the applied position, or
/// `None` if the store no longer writes to this generation.
pub(crate) fn under_writer_lock(
    shared: &Shared,
    generation: &Generation,
    mode: i32,
    wait: Duration,
) -> Result<Option<(Checkpointed, Applied)>, StoreFault> {
    let visited = shared.writer_lock.visit(|core| {
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

/// Runs checkpoints to bound the `-wal`, and when the store is idle.
pub(crate) struct Checkpointer {
    shared: Arc<Shared>,
    conn: Option<Attached>,
    /// The generation and the length of the `-wal` after a complete checkpoint. Nothing is to be done while both stay
    /// the same.
    done_at: Option<(u64, u64)>,
    synced_once: bool,
    seen: u64,
    quiet_since: Instant,
}

impl Checkpointer {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let seen = shared.applied().index();
        Self { shared, conn: None, done_at: None, synced_once: false, seen, quiet_since: Instant::now() }
    }

    fn check(&mut self) -> Result<Step, StoreFault> {
        self.shared.readers.expire();
        if !self.synced_once {
            sync(&self.shared)?;
            self.synced_once = true;
        }
        let generation = self.shared.generations.current();
        if generation.wal_bytes() >= self.shared.options.hold_bytes_max {
            self.shared.readers.end_old();
        }
        self.conn = self.conn.take().filter(|conn| conn.generation().number() == generation.number());
        if self.is_due(&generation) {
            return self.bound_wal(&generation);
        }
        if generation.wal_unsynced_bytes() >= self.shared.options.sync_bytes() {
            sync(&self.shared)?;
            return Ok(Step::Again);
        }
        let shared = Arc::clone(&self.shared);
        if self.is_idle()
            && generation.wal_file_bytes().is_ok_and(|bytes| bytes > 0)
            && let Some(pass) = shared.gate.try_enter_without_wake()
        {
            bound_wal(&shared, &pass, self.conn(&generation)?)?;
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

    fn bound_wal(&mut self, generation: &Arc<Generation>) -> Result<Step, StoreFault> {
        let shared = Arc::clone(&self.shared);
        let Some(pass) = shared.gate.try_enter_without_wake() else { return Ok(Step::WaitFor(RETRY)) };
        let conn = self.conn(generation)?;
        let is_complete = bound_wal(&shared, &pass, conn)?;
        self.done_at = is_complete.then(|| (generation.number(), generation.wal_bytes()));
        Ok(Step::WaitFor(if !is_complete && shared.keeps_old() { TICK } else { RETRY }))
    }

    /// The connection that runs in parallel with the writer, opened on the current generation if there is none.
    fn conn(&mut self, generation: &Arc<Generation>) -> Result<&Attached, StoreFault> {
        let conn = match self.conn.take() {
            Some(conn) => conn,
            None => on_disk(&self.shared, || {
                connection::open_checkpointer(generation).map_err(|error| StoreFault::Io(error.to_string()))
            })?,
        };
        Ok(self.conn.insert(conn))
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
        if let Some(fault) = self.shared.readers.recheck() {
            self.shared.report(&fault);
            return Step::WaitFor(TICK);
        }
        let due = self.shared.readers.suspicions().due_in();
        // Faults were already reported where they occurred.
        match (self.check().unwrap_or(Step::WaitFor(TICK)), due) {
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
    fn only_other_threads_wake_the_checkpointer() {
        let signal = Signal::new();
        let gate = Arc::new(Gate::new(signal.clone()));
        let is_woken = || signal.poll_wait(&Context::from_waker(Waker::noop())).is_ready();
        let pass = gate.try_enter_without_wake();
        assert!(pass.is_some() && gate.try_enter().is_none());
        drop(pass);
        assert!(!is_woken());
        drop(gate.try_enter());
        assert!(is_woken());
    }
}
