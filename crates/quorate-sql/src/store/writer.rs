//! The writer: applies the queued entries, many in one SQLite transaction.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use quorate_apply::Touched;
use quorate_env::Instant;
use quorate_env::worker::{Step, Worker};
use quorate_model::StoreFault;

use super::queue::{Backlog, batch_of};
use super::shared::{Shared, Stop};
use super::verify;
use crate::checkpoint;

/// How soon a batch is tried again after the disk was full.
const FULL_RETRY: Duration = Duration::from_millis(200);

/// The largest `-wal` that is emptied when the store is closed. Emptying a longer one would delay the end of the
/// process.
const CLOSING_WAL_MAX: u64 = 64 << 20;

/// The longest rest after a batch while a checkpoint slows the writer.
const REST_MAX: Duration = Duration::from_millis(10);

/// The longest rest once the `-wal` is [`LONG_WAL`] times as long as it is when a checkpoint begins. Then the
/// checkpoint has to gain on the writer, however large batches are.
const LONG_REST_MAX: Duration = Duration::from_millis(100);

const LONG_WAL: u64 = 4;

/// Work that takes longer gets no priority over other threads.
const URGENT_MAX: Duration = Duration::from_millis(5);

/// Returns how long the writer rests after a batch. `wal` is the length of the `-wal` in units of that at which a
/// checkpoint begins.
fn rest_after(took: Duration, slowness: u32, wal: u64) -> Duration {
    took.saturating_mul(slowness).min(if wal < LONG_WAL { REST_MAX } else { LONG_REST_MAX })
}

pub(crate) struct Writer {
    shared: Arc<Shared>,
    backlog: Backlog,
    /// Whether callers wait for the work, and it takes little time.
    is_urgent: bool,
    /// When the next batch may begin, while a checkpoint slows the writer.
    rests_until: Option<Instant>,
    /// The last dry run that the writer knows to have ended.
    dry_run_ended: u64,
}

impl Writer {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, backlog: Backlog::default(), is_urgent: false, rests_until: None, dry_run_ended: 0 }
    }

    /// Applies one batch.
    fn apply(&mut self) -> Step {
        if let Some(fault) = self.shared.final_fault() {
            self.backlog.fail(&self.shared.queue, &fault);
            return Step::Wait;
        }
        if self.shared.has_diverged() {
            // The waiting entries are applied to the image that replaces these data.
            return Step::Wait;
        }
        if self.backlog.is_empty() {
            self.end_dry_run();
            self.look_ahead();
            return Step::Wait;
        }
        if let Some(rest) = self.rest() {
            return Step::WaitFor(rest);
        }
        let (max, is_awaited) = (self.batch_max(), self.backlog.is_awaited());
        let Some(mut core) = self.shared.writer_lock.lock_for_writer() else { return Step::Wait };
        let begun = Instant::now();
        let mut outcomes = Vec::new();
        let result = match core.as_mut() {
            None => Err(StoreFault::Closed),
            Some(core) => {
                core.note_changes(self.shared.changes.wanted());
                let result = core.apply(self.backlog.batch(max), is_awaited, &mut outcomes);
                // Must happen before the entry is published as applied.
                if let Some(index) = core.take_verification() {
                    verify::begin(&self.shared, core.generation(), index);
                }
                // After a fault of one entry, the entries before it are applied.
                self.shared.publish(core);
                let Touched { topics, changes } = core.applier().take_touched();
                self.shared.waits.wake(&topics);
                self.shared.changes.publish(changes);
                result
            }
        };
        drop(core);
        self.shared.metrics.entries.add(outcomes.len() as u64);
        self.backlog.answer(&self.shared.queue, outcomes);
        match result {
            Ok(()) => {
                let took = begun.elapsed();
                self.is_urgent = is_awaited && took < URGENT_MAX;
                self.shared.metrics.batches.observe(took);
                self.shared.applied_again();
                let wal = self.shared.generations.current().wal_bytes() / self.shared.options.checkpoint_bytes.max(1);
                let rest = rest_after(took, self.shared.writer_lock.slowness(), wal);
                self.rests_until = (!rest.is_zero()).then(|| Instant::now() + rest);
                Step::Again
            }
            Err(fault) => self.failed(fault),
        }
    }

    /// Returns how long the writer still rests, if it does.
    fn rest(&mut self) -> Option<Duration> {
        let rest = self.rests_until?.saturating_duration_since(Instant::now());
        let rests = !rest.is_zero() && self.shared.writer_lock.slowness() > 0;
        if !rests {
            self.rests_until = None;
        }
        rests.then_some(rest)
    }

    /// Rolls back a dry run whose handle was dropped, so that its transaction does not stay open while the writer is
    /// idle.
    fn end_dry_run(&mut self) {
        let ended = self.shared.dry_runs.ended.load(Ordering::Acquire);
        if ended > self.dry_run_ended
            && let Some(mut core) = self.shared.writer_lock.lock_for_writer()
            && let Some(core) = core.as_mut()
        {
            core.applier().end_dry_run(ended);
            self.dry_run_ended = ended;
        }
    }

    /// Runs entries that will probably be handed over soon.
    fn look_ahead(&mut self) {
        let prefetched = self.shared.queue.take_prefetched();
        if !prefetched.is_empty()
            && let Some(mut core) = self.shared.writer_lock.lock_for_writer()
            && let Some(core) = core.as_mut()
        {
            let begun = Instant::now();
            core.note_changes(self.shared.changes.wanted());
            // Entries beyond the next batch would be rolled back.
            core.prefetch(batch_of(&prefetched, self.shared.options.batch_entries_max));
            self.is_urgent = begun.elapsed() < URGENT_MAX;
        }
    }

    /// Handles a fault. If the disk is full, the batch is kept and tried again. For most other faults, consensus finds
    /// out whether the entry or this node is to blame, and hands the entry over again or condemns the store.
    fn failed(&mut self, fault: StoreFault) -> Step {
        if self.shared.stop() != Stop::Running {
            // The batch was interrupted, and may be applied after the next start.
            self.backlog.fail(&self.shared.queue, &StoreFault::Closed);
            return Step::Wait;
        }
        match fault {
            StoreFault::Full(_) => {
                self.shared.report(&fault);
                // A checkpoint lets the `-wal` start again from its beginning, which may free enough space.
                self.shared.checkpointer.wake();
                return Step::WaitFor(FULL_RETRY);
            }
            StoreFault::Memory(_)
            | StoreFault::TooMuch(_)
            | StoreFault::Slow(_)
            | StoreFault::Io(_)
            | StoreFault::Damaged(_) => {
                self.shared.applied_again();
            }
            _ => self.shared.report(&fault),
        }
        self.backlog.fail(&self.shared.queue, &fault);
        Step::Wait
    }

    fn batch_max(&self) -> usize {
        let max = self.shared.options.batch_entries_max.max(1);
        match &self.shared.options.shuffle_batches {
            Some(rng) => usize::try_from(rng.below(max as u64)).unwrap_or(0).saturating_add(1),
            None => max,
        }
    }

    fn end(&mut self, stop: Stop) -> Step {
        self.shared.queue.close();
        self.shared.queue.take(&mut self.backlog);
        self.backlog.fail(&self.shared.queue, &StoreFault::Closed);
        if stop == Stop::Closed
            && self.shared.generations.current().wal_bytes() <= CLOSING_WAL_MAX
            && let Some(pass) = self.shared.gate.try_enter()
            && let Err(fault) = checkpoint::empty_wal(&self.shared, &pass)
        {
            self.shared.report_unless_passing(&fault);
        }
        self.shared.writer_lock.visit(|core| *core = None);
        Step::Done
    }
}

impl Worker for Writer {
    fn run_once(&mut self) -> Step {
        match self.shared.stop() {
            stop @ (Stop::Closed | Stop::Abandoned) => self.end(stop),
            Stop::Running | Stop::Closing => {
                self.shared.queue.take(&mut self.backlog);
                self.apply()
            }
        }
    }

    fn is_urgent(&self) -> bool {
        self.is_urgent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_are_short_until_the_wal_is_long() {
        for millis in [1, 5, 20, 60, 100] {
            let took = Duration::from_millis(millis);
            assert_eq!([1, LONG_WAL].map(|wal| rest_after(took, 0, wal)), [Duration::ZERO; 2]);
            for slowness in [1, 2, 4, 8] {
                let rest = |wal| rest_after(took, slowness, wal);
                assert!(rest(LONG_WAL - 1) <= Duration::from_millis(10));
                assert!(rest(LONG_WAL) >= took, "the writer works for at most half of the time");
            }
        }
    }
}
