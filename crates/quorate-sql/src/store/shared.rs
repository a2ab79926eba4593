//! What the handle, the writer, the checkpointer and images of one store share.

use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use quorate_env::signal::Signal;
use quorate_env::{Env, Throttle, lock};
use quorate_model::{Applied, StoreFault};
use tokio::sync::watch;

use super::core::Core;
use super::queue::Queue;
use super::turn::Turn;
use super::verify::Verifications;
use crate::checkpoint::Gate;
use crate::generation::Generations;
use crate::metrics::StoreMetrics;
use crate::options::StoreOptions;
use crate::readers::Readers;
use crate::supervision::Supervision;
use crate::validate::Validator;

/// Whether the workers go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// They do.
    Running,
    /// The checkpointer ends; the writer follows.
    Closing,
    /// Both end in good order.
    Closed,
    /// Both end at once: the last handle was dropped.
    Abandoned,
}

/// How many do something at the same time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slots(Arc<AtomicUsize>);

/// One of them; given back when dropped.
#[derive(Debug)]
pub(crate) struct Slot(Arc<AtomicUsize>);

impl Slots {
    /// Takes a slot unless `max` are taken.
    pub(crate) fn try_take(&self, max: usize) -> Option<Slot> {
        let free = |taken: usize| (taken < max).then(|| taken.saturating_add(1));
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, free).ok().map(|_| Slot(Arc::clone(&self.0)))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

pub(crate) struct Shared {
    pub(crate) env: Env,
    pub(crate) options: StoreOptions,
    pub(crate) queue: Queue,
    pub(crate) gate: Arc<Gate>,
    pub(crate) senders: Slots,
    pub(crate) receivers: Slots,
    pub(crate) writer: Signal,
    pub(crate) checkpointer: Signal,
    pub(crate) applied: watch::Sender<Applied>,
    pub(crate) fault: watch::Sender<Option<StoreFault>>,
    pub(crate) metrics: StoreMetrics,
    pub(crate) verifications: Verifications,
    pub(crate) dry_runs: DryRuns,
    durable: Mutex<Applied>,
    /// Of lines that say that the disk is full, and that a checkpoint has to wait.
    disk_is_full: Throttle,
    checkpoint_waits: Throttle,
    /// The latest entries that the cluster decided not to run.
    pub(crate) rejections: Mutex<Vec<u64>>,
    stop: AtomicU8,
    /// What else looks at the writer's statements, and interrupts them.
    pub(crate) supervision: Arc<Supervision>,
    // Connections go before the generations and the lock on their directory.
    pub(crate) turn: Turn<Option<Core>>,
    pub(crate) readers: Readers,
    pub(crate) validator: Validator,
    pub(crate) generations: Arc<Generations>,
}

/// The numbers of dry runs.
#[derive(Debug, Default)]
pub(crate) struct DryRuns {
    /// The last that was begun.
    pub(crate) begun: AtomicU64,
    /// The last whose handle is gone.
    pub(crate) ended: AtomicU64,
}

impl Shared {
    /// `supervision` is that of `core`.
    pub(crate) fn new(
        env: &Env,
        options: StoreOptions,
        generations: Generations,
        core: Core,
        supervision: Arc<Supervision>,
    ) -> Arc<Self> {
        let generations = Arc::new(generations);
        let writer = Signal::new();
        let checkpointer = Signal::new();
        let readers = Readers::new(Arc::clone(&generations), options.readers, options.slow.clone(), &checkpointer);
        let read_faults = readers.suspicions().counts();
        let metrics = StoreMetrics { slow: options.slow.clone(), read_faults, ..StoreMetrics::default() };
        metrics.sessions.set(core.sessions());
        Arc::new(Self {
            env: env.clone(),
            queue: Queue::default(),
            gate: Arc::new(Gate::new(checkpointer.clone())),
            senders: Slots::default(),
            receivers: Slots::default(),
            applied: watch::Sender::new(core.applied().clone()),
            fault: watch::Sender::new(None),
            metrics,
            verifications: Verifications::default(),
            dry_runs: DryRuns::default(),
            durable: Mutex::default(),
            disk_is_full: Throttle::default(),
            checkpoint_waits: Throttle::default(),
            rejections: Mutex::new(core.rejected().to_vec()),
            stop: AtomicU8::new(Stop::Running as u8),
            supervision,
            readers,
            validator: Validator::new(Arc::clone(&generations)),
            turn: Turn::new(Some(core), writer.clone()),
            writer,
            checkpointer,
            options,
            generations,
        })
    }

    pub(crate) fn stop(&self) -> Stop {
        let stop = self.stop.load(Ordering::Acquire);
        [Stop::Running, Stop::Closing, Stop::Closed].into_iter().find(|&s| s as u8 == stop).unwrap_or(Stop::Abandoned)
    }

    /// Ends what `stop` says; nothing goes back.
    pub(crate) fn set_stop(&self, stop: Stop) {
        self.stop.fetch_max(stop as u8, Ordering::AcqRel);
        self.supervision.set_closing(stop != Stop::Running);
        self.checkpointer.wake();
        self.writer.wake();
    }

    pub(crate) fn applied(&self) -> Applied {
        self.applied.borrow().clone()
    }

    pub(crate) fn durable(&self) -> Applied {
        self.lock_durable().clone()
    }

    /// Everything that was applied then survives power loss from now on.
    pub(crate) fn is_durable(&self, applied: Applied) {
        let mut durable = self.lock_durable();
        if durable.log_id.map(|id| id.index) < applied.log_id.map(|id| id.index) {
            *durable = applied;
        }
    }

    fn lock_durable(&self) -> MutexGuard<'_, Applied> {
        lock(&self.durable)
    }

    /// Tells everybody where the store stands. To be called in the turn that brought it there.
    pub(crate) fn publish(&self, core: &Core) {
        self.note_rejections(core);
        self.applied.send_replace(core.applied().clone());
        self.metrics.sessions.set(core.sessions());
        let generation = core.generation();
        let is_long = generation.wal_bytes() >= self.options.checkpoint_bytes;
        if is_long || generation.wal_unsynced_bytes() >= self.options.sync_bytes() {
            self.checkpointer.wake();
        }
    }

    /// Keeps what others ask for without the writer's turn. To be called before the position is published.
    pub(crate) fn note_rejections(&self, core: &Core) {
        let mut known = lock(&self.rejections);
        if known.last() != core.rejected().last() {
            *known = core.rejected().to_vec();
        }
    }

    /// An image was put in force: faults of what was before are gone. To be called in the turn that did it.
    pub(crate) fn installed(&self, core: &Core, applied: &Applied) {
        self.note_rejections(core);
        self.applied.send_replace(applied.clone());
        *self.lock_durable() = applied.clone();
        self.fault.send_replace(None);
        self.readers.switch();
        self.validator.switch();
        self.checkpointer.wake();
    }

    /// The fault after which nothing is applied any more until an image is installed.
    pub(crate) fn final_fault(&self) -> Option<StoreFault> {
        self.fault.borrow().clone().filter(|fault| !matches!(fault, StoreFault::Full(_) | StoreFault::Diverged(_)))
    }

    /// Whether the data are not those of the other nodes.
    pub(crate) fn has_diverged(&self) -> bool {
        matches!(*self.fault.borrow(), Some(StoreFault::Diverged(_)))
    }

    pub(crate) fn is_full(&self) -> bool {
        matches!(*self.fault.borrow(), Some(StoreFault::Full(_)))
    }

    /// Fails if they are not: a copy would carry that on.
    pub(crate) fn check_agreed(&self) -> Result<(), StoreFault> {
        let fault = self.fault.borrow().clone().filter(|fault| matches!(fault, StoreFault::Diverged(_)));
        fault.map_or(Ok(()), Err)
    }

    /// Makes a fault known. A later one never hides an earlier one that is final.
    pub(crate) fn report(&self, fault: &StoreFault) {
        let is_news = self.fault.send_if_modified(|known| {
            let is_new = known.as_ref() != Some(fault) && known.as_ref().is_none_or(StoreFault::is_retryable);
            if is_new {
                *known = Some(fault.clone());
            }
            is_new
        });
        // While the disk is full the same comes again and again, and goes in between.
        if is_news && (!matches!(fault, StoreFault::Full(_)) || self.disk_is_full.is_due()) {
            tracing::error!(%fault, "the store stops applying");
        }
        match fault {
            StoreFault::Damaged(what) => self.generations.note_damage(what),
            // A node that ends before it is healed does not open such data again.
            StoreFault::Diverged(what) => self.generations.note_damage(&format!("it differs from the others: {what}")),
            StoreFault::Io(what) => self.generations.note_unsynced(what),
            _ => {}
        }
    }

    /// The disk is no longer full.
    pub(crate) fn applied_again(&self) {
        if self.is_full() {
            self.fault.send_replace(None);
        }
    }

    /// What went wrong in a checkpoint. That the main file can't grow, or that there is no memory, costs nothing yet:
    /// the `-wal` holds the data.
    pub(crate) fn report_unless_passing(&self, fault: &StoreFault) {
        match fault {
            StoreFault::Full(_) | StoreFault::Memory(_) => {
                if self.checkpoint_waits.is_due() {
                    tracing::warn!(%fault, "a checkpoint has to wait");
                }
            }
            _ => self.report(fault),
        }
    }
}
