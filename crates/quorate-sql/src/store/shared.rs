//! State that the handle, the writer, the checkpointer and the images of one store share.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use quorate_apply::Users;
use quorate_apply::changes::Changes;
use quorate_apply::waits::Waits;
use quorate_env::mutant::Mutant;
use quorate_env::signal::Signal;
use quorate_env::{Env, Throttle, lock};
use quorate_model::{Applied, Archiver, StoreFault};
use tokio::sync::watch;

use super::core::Core;
use super::queue::Queue;
use super::turn::WriterLock;
use super::verify::Verifications;
use crate::checkpoint::Gate;
use crate::cluster_time::ClusterTime;
use crate::generation::Generations;
use crate::metrics::StoreMetrics;
use crate::options::StoreOptions;
use crate::readers::Readers;
use crate::supervision::Supervision;
use crate::validate::Validator;

/// Whether the workers run or end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Both workers run.
    Running,
    /// The checkpointer ends; the writer follows.
    Closing,
    /// Both end in order.
    Closed,
    /// Both end at once: the last handle was dropped.
    Abandoned,
}

/// Limits how many tasks of one kind run at the same time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slots(Arc<AtomicUsize>);

/// One slot of a [`Slots`]; given back when dropped.
#[derive(Debug)]
pub(crate) struct Slot(Arc<AtomicUsize>);

impl Slots {
    /// Takes a slot unless `max` are taken.
    pub(crate) fn try_take(&self, max: usize) -> Option<Slot> {
        let free = |taken: usize| (taken < max).then(|| taken.saturating_add(1));
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, free).ok().map(|_| Slot(Arc::clone(&self.0)))
    }

    /// Whether any slot is taken.
    pub(crate) fn is_taken(&self) -> bool {
        self.0.load(Ordering::Acquire) > 0
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
    pub(crate) captures: Slots,
    pub(crate) boundaries: Slots,
    /// Whether a read transaction kept an image from its hold since the last boundary began.
    pub(crate) image_waits: AtomicBool,
    pub(crate) writer: Signal,
    pub(crate) checkpointer: Signal,
    pub(crate) applied: watch::Sender<Applied>,
    pub(crate) fault: watch::Sender<Option<StoreFault>>,
    pub(crate) metrics: StoreMetrics,
    pub(crate) verifications: Verifications,
    pub(crate) dry_runs: DryRuns,
    pub(crate) waits: Waits,
    pub(crate) changes: Changes,
    durable: Mutex<Applied>,
    /// Throttles of the log lines that report a full disk, and a checkpoint that has to wait.
    disk_is_full: Throttle,
    checkpoint_waits: Throttle,
    /// The latest entries that the cluster decided not to run.
    pub(crate) rejections: Mutex<Vec<u64>>,
    /// The users as of the last COMMIT that changed them.
    pub(crate) users: watch::Sender<Arc<Users>>,
    /// The archiver as of the last COMMIT that changed it.
    pub(crate) archiver: watch::Sender<Option<Archiver>>,
    stop: AtomicU8,
    /// Lets other threads observe the writer's statements and interrupt them.
    pub(crate) supervision: Arc<Supervision>,
    /// The cluster's time, which follows the stamps of what is published.
    pub(crate) time: Arc<ClusterTime>,
    // Declared in this order so that connections close before the generations and the lock on their directory.
    pub(crate) writer_lock: WriterLock<Option<Core>>,
    pub(crate) readers: Readers,
    pub(crate) validator: Validator,
    pub(crate) generations: Arc<Generations>,
}

/// The numbers of dry runs.
#[derive(Debug, Default)]
pub(crate) struct DryRuns {
    /// The number of the last one that began.
    pub(crate) begun: AtomicU64,
    /// The number of the last one whose handle was dropped.
    pub(crate) ended: AtomicU64,
}

impl Shared {
    /// `supervision` must be the one that `core` was opened with.
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
        let (slow, time) = (options.slow.clone(), Arc::new(ClusterTime::new(core.now())));
        let readers = Readers::new(Arc::clone(&generations), options.readers, slow, Arc::clone(&time), &checkpointer);
        let read_faults = readers.suspicions().counts();
        let metrics = StoreMetrics { slow: options.slow.clone(), read_faults, ..StoreMetrics::default() };
        core.note_sizes(&metrics);
        Arc::new(Self {
            env: env.clone(),
            queue: Queue::default(),
            gate: Arc::new(Gate::new(checkpointer.clone())),
            senders: Slots::default(),
            receivers: Slots::default(),
            captures: Slots::default(),
            boundaries: Slots::default(),
            image_waits: AtomicBool::new(false),
            applied: watch::Sender::new(core.applied().clone()),
            fault: watch::Sender::new(None),
            metrics,
            verifications: Verifications::default(),
            dry_runs: DryRuns::default(),
            waits: Waits::default(),
            changes: Changes::default(),
            durable: Mutex::default(),
            disk_is_full: Throttle::default(),
            checkpoint_waits: Throttle::default(),
            rejections: Mutex::new(core.rejected().to_vec()),
            users: watch::Sender::new(Arc::clone(core.users())),
            archiver: watch::Sender::new(core.archiver()),
            stop: AtomicU8::new(Stop::Running as u8),
            supervision,
            time,
            readers,
            validator: Validator::new(Arc::clone(&generations)),
            writer_lock: WriterLock::new(Some(core), writer.clone()),
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

    /// Moves to a later state of [`Stop`]. An earlier state is ignored.
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

    /// Records that everything up to `applied` survives power loss from now on.
    pub(crate) fn is_durable(&self, applied: Applied) {
        let mut durable = self.lock_durable();
        if durable.log_id.map(|id| id.index) < applied.log_id.map(|id| id.index) {
            *durable = applied;
        }
    }

    fn lock_durable(&self) -> MutexGuard<'_, Applied> {
        lock(&self.durable)
    }

    /// Publishes the applied position. Must be called under the writer lock that was held while it was reached.
    pub(crate) fn publish(&self, core: &Core) {
        self.note_records(core);
        self.applied.send_replace(core.applied().clone());
        core.note_sizes(&self.metrics);
        let generation = core.generation();
        let is_long = generation.wal_bytes() >= self.options.checkpoint_bytes;
        if is_long || generation.wal_unsynced_bytes() >= self.options.sync_bytes() {
            self.checkpointer.wake();
        }
    }

    /// Publishes the time, the rejections, the users and the archiver, which others read without the writer lock. Must
    /// be called before the position is published: who knows the position of such a change finds the change made.
    fn note_records(&self, core: &Core) {
        self.time.applied(core.now());
        let mut known = lock(&self.rejections);
        if known.last() != core.rejected().last() {
            *known = core.rejected().to_vec();
        }
        drop(known);
        self.users.send_if_modified(|users| {
            let is_new = !Arc::ptr_eq(users, core.users()) && !Mutant::UsersNotPublished.is_on();
            if is_new {
                *users = Arc::clone(core.users());
            }
            is_new
        });
        self.archiver.send_if_modified(|archiver| std::mem::replace(archiver, core.archiver()) != core.archiver());
    }

    /// Records that an image was installed, which clears the faults of the earlier data. Must be called under the
    /// writer lock that was held for the installation.
    pub(crate) fn installed(&self, core: &Core, applied: &Applied) {
        self.note_records(core);
        self.applied.send_replace(applied.clone());
        *self.lock_durable() = applied.clone();
        self.fault.send_replace(None);
        self.readers.switch();
        self.validator.switch();
        self.waits.wake_all();
        self.checkpointer.wake();
    }

    /// Whether a read transaction is open that may last much longer than a checkpoint should wait.
    pub(crate) fn keeps_old(&self) -> bool {
        self.readers.keeps_old() || self.boundaries.is_taken()
    }

    /// The fault that stops applying until an image is installed.
    pub(crate) fn final_fault(&self) -> Option<StoreFault> {
        self.fault.borrow().clone().filter(|fault| !matches!(fault, StoreFault::Full(_) | StoreFault::Diverged(_)))
    }

    /// Whether the data differ from those of the other nodes.
    pub(crate) fn has_diverged(&self) -> bool {
        matches!(*self.fault.borrow(), Some(StoreFault::Diverged(_)))
    }

    pub(crate) fn is_full(&self) -> bool {
        matches!(*self.fault.borrow(), Some(StoreFault::Full(_)))
    }

    /// Fails if the data differ from those of the other nodes: an image would spread the difference.
    pub(crate) fn check_agreed(&self) -> Result<(), StoreFault> {
        let fault = self.fault.borrow().clone().filter(|fault| matches!(fault, StoreFault::Diverged(_)));
        fault.map_or(Ok(()), Err)
    }

    /// Makes a fault known. A later fault never hides an earlier one that is final.
    pub(crate) fn report(&self, fault: &StoreFault) {
        let is_news = self.fault.send_if_modified(|known| {
            let is_new = known.as_ref() != Some(fault) && known.as_ref().is_none_or(StoreFault::is_retryable);
            if is_new {
                *known = Some(fault.clone());
            }
            is_new
        });
        // While the disk is full, the same fault comes and goes repeatedly.
        if is_news && (!matches!(fault, StoreFault::Full(_)) || self.disk_is_full.is_due()) {
            tracing::error!(%fault, "the store stops applying");
        }
        match fault {
            StoreFault::Damaged(what) => self.generations.note_damage(what),
            // If the node ends before it gets an image, the next start must not open these data.
            StoreFault::Diverged(what) => self.generations.note_damage(&format!("it differs from the others: {what}")),
            StoreFault::Io(what) => self.generations.note_unsynced(what),
            _ => {}
        }
    }

    /// Clears the fault of a full disk.
    pub(crate) fn applied_again(&self) {
        if self.is_full() {
            self.fault.send_replace(None);
        }
    }

    /// Reports a fault of a checkpoint. A main file that can't grow, or a lack of memory, is only logged: the `-wal`
    /// still holds the data.
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
