//! A durable state machine over the engine in memory, for tests of consensus with a second group.
//!
//! The data are in memory, and a file holds them as they were at some entry ([`files`]). After a start, consensus hands
//! over the entries since then, so only the log is synced for each entry. A checkpoint replaces the file: after
//! [`MemoryStoreOptions::checkpoint_entries`] entries, and when the store rests, so that an idle log can be purged. No
//! thread of the store's own could notice that it rests. So it does when it is asked for [`StateMachine::durable`],
//! which the purger does all the time: if nothing was applied between the last [`MemoryStoreOptions::rest_asks`] times,
//! it writes a checkpoint before it answers. That depends on no clock.
//!
//! # Invariants
//!
//! - What is called durable is in a file that was synced under a name that was synced, and is never taken back.
//! - A checkpoint that fails changes nothing but the time of the next one. It is no fault of applying.
//! - An entry is published when it is committed, then those who wait for its topics are woken, then its outcome is
//!   handed out, without a lock.
//! - The applied position never goes back while the store is open.
//! - Locks are taken in the order of the fields of [`MemoryStore`].

use std::path::Path;
use std::sync::{Arc, Mutex, Weak};

use quorate_env::disk::Disk;
use quorate_env::lock;
use quorate_env::mutant::Mutant;
use quorate_model::{
    Applied, Entry, ImageSink, ImageSource, OnApplied, Outcome, RunningStatement, StateMachine, StoreFault,
    StoreIdentity,
};
use tokio::sync::watch;

use crate::Applier;
use crate::memory::Memory;
use crate::waits::Waits;

mod files;
mod image;
mod saved;

use files::Files;
use saved::Saved;

/// After how many entries the state is written to the file, by default.
pub const CHECKPOINT_ENTRIES: u64 = 512;

/// How many times in a row the store is asked for its durable position, without a new entry, until it counts as at
/// rest, by default. Consensus asks about twice a second.
pub const REST_ASKS: u32 = 6;

/// The most bytes of a piece of an image.
pub const PIECE_BYTES_MAX: usize = 1 << 20;

/// The options of a [`MemoryStore`].
#[derive(Clone, Debug)]
pub struct MemoryStoreOptions {
    /// After how many entries the state is written to the file. A failed attempt is repeated after as many more.
    pub checkpoint_entries: u64,
    /// After how many times in a row that [`StateMachine::durable`] was asked for, without a new entry, the state is
    /// written.
    pub rest_asks: u32,
    /// Bytes of a piece of an image: at least 1, at most [`PIECE_BYTES_MAX`].
    pub piece_bytes: usize,
    /// The waiters for topics that entries touch. Installing an image wakes all of them.
    pub waits: Waits,
}

impl Default for MemoryStoreOptions {
    fn default() -> Self {
        Self {
            checkpoint_entries: CHECKPOINT_ENTRIES,
            rest_asks: REST_ASKS,
            piece_bytes: PIECE_BYTES_MAX,
            waits: Waits::default(),
        }
    }
}

/// Hashes of the state at one entry, to compare nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateHashes {
    /// The index of the last applied entry, or 0.
    pub index: u64,
    /// The running hash of outcomes.
    pub outcomes: u64,
    /// The hash of the rows of all stores ([`Memory::rows_hash`]).
    pub rows: u64,
}

/// The state machine. See the module's documentation.
#[derive(Debug)]
pub struct MemoryStore {
    /// For the images that are being received.
    this: Weak<Self>,
    identity: StoreIdentity,
    level: u32,
    options: MemoryStoreOptions,
    /// Held while the file is replaced.
    files: Mutex<Files>,
    /// Held while entries are applied and while the state is read, and during an installation.
    core: Mutex<Applier<Memory>>,
    saved: Mutex<Saved>,
    fault: Mutex<Option<StoreFault>>,
    /// The latest entries that the cluster decided not to run. Changed before the position is published.
    rejections: Mutex<Vec<u64>>,
    /// The applied position, as published.
    applied: watch::Sender<Applied>,
}

impl MemoryStore {
    /// Opens the store in `dir`, which is created if it is missing, for a program that understands the format up to
    /// `level`. Without a file it starts empty. Blocks.
    ///
    /// # Errors
    ///
    /// [`StoreFault::Damaged`] if the file is damaged, [`StoreFault::Unsupported`] if it needs a newer version, and
    /// [`StoreFault::Io`] if it can't be read or belongs to another cluster, epoch or group.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        identity: StoreIdentity,
        level: u32,
        options: MemoryStoreOptions,
    ) -> Result<Arc<Self>, StoreFault> {
        let files = Files::open(disk, dir)?;
        let (core, is_durable) = match files.load()? {
            None => (Applier::new(Memory::new(identity), level)?, false),
            Some((bytes, is_durable)) => {
                let core = decode(&bytes, identity, level).map_err(|fault| files.context(fault))?;
                (core, is_durable)
            }
        };
        let applied = core.applied().clone();
        let durable = if is_durable { applied.clone() } else { Applied::default() };
        Ok(Arc::new_cyclic(|this| Self {
            this: this.clone(),
            identity,
            level,
            options,
            files: Mutex::new(files),
            saved: Mutex::new(Saved::new(durable, applied.index())),
            fault: Mutex::default(),
            rejections: Mutex::new(core.rejected().to_vec()),
            core: Mutex::new(core),
            applied: watch::Sender::new(applied),
        }))
    }

    /// Calls `f` with the committed data and their position. Nothing is applied meanwhile, so `f` should be short. It
    /// must not call the store.
    pub fn read<T>(&self, f: impl FnOnce(&Memory, &Applied) -> T) -> T {
        let core = lock(&self.core);
        f(core.machine(), core.applied())
    }

    /// The applied position, updated after each batch.
    pub fn watch_applied(&self) -> watch::Receiver<Applied> {
        self.applied.subscribe()
    }

    /// Returns the waiters for topics that entries touch.
    pub fn waits(&self) -> &Waits {
        &self.options.waits
    }

    /// Waits until the entry at this index is applied, however long that takes.
    pub async fn applied_to(&self, index: u64) {
        let reached = |applied: &Applied| index_of(applied).is_some_and(|applied| applied >= index);
        // The sender is a field of this store, so it is there for as long as the call lasts.
        let _ = self.applied.subscribe().wait_for(reached).await;
    }

    /// Returns the hashes of the present state.
    pub fn hashes(&self) -> StateHashes {
        let core = lock(&self.core);
        StateHashes { index: core.applied().index(), outcomes: core.outcome_hash(), rows: core.machine().rows_hash() }
    }

    /// Returns the running hash of outcomes after the entry at `index`, if it is known
    /// ([`Applier::outcome_hash_at`]).
    pub fn outcome_hash_at(&self, index: u64) -> Option<u64> {
        lock(&self.core).outcome_hash_at(index)
    }

    /// Writes the present state to the file, unless the file has it already. Blocks.
    ///
    /// # Errors
    ///
    /// A fault if that is not possible, or if the store has a fault: its state may be wrong then. Nothing is lost; the
    /// next checkpoint tries again.
    pub fn checkpoint(&self) -> Result<(), StoreFault> {
        let files = lock(&self.files);
        let (applied, bytes) = {
            let core = lock(&self.core);
            if let Some(fault) = self.fault() {
                return Err(fault);
            }
            if !lock(&self.saved).begin(core.applied()) {
                return Ok(());
            }
            (core.applied().clone(), core.machine().encode()?)
        };
        files.save(&bytes)?;
        lock(&self.saved).end(applied);
        Ok(())
    }

    /// Applies the first of these entries, at least one. Returns the outcomes of those that are applied now, and the
    /// fault of the entry after them.
    fn apply_some(&self, entries: &[Entry]) -> (Vec<Option<Outcome>>, Result<(), StoreFault>) {
        let mut core = lock(&self.core);
        if let Some(fault) = self.fault() {
            return (Vec::new(), Err(fault));
        }
        let last = index_of(core.applied());
        let old = entries.iter().take_while(|entry| Some(entry.log_id.index) <= last).count();
        let new = entries.get(old..).unwrap_or_default();
        let mut applied = Vec::with_capacity(new.len());
        let done = check_next(last, new).and_then(|()| core.apply_batch(new, &mut applied));
        if !applied.is_empty() {
            self.publish(&core);
            self.options.waits.wake(&core.take_touched().topics);
        }
        if let Err(fault) = &done
            && !is_of_an_entry(fault)
        {
            self.report(fault);
        }
        let outcomes = std::iter::repeat_with(|| None).take(old).chain(applied.into_iter().map(Some));
        (outcomes.collect(), done)
    }

    /// Publishes the applied position. Must be called with the lock of the core, under which it was reached.
    fn publish(&self, core: &Applier<Memory>) {
        *lock(&self.rejections) = core.rejected().to_vec();
        self.applied.send_replace(core.applied().clone());
    }

    /// Makes a fault known. A later one never hides one that is final.
    fn report(&self, fault: &StoreFault) {
        let mut known = lock(&self.fault);
        if known.as_ref().is_none_or(StoreFault::is_retryable) {
            *known = Some(fault.clone());
        }
    }

    /// Replaces the state with one that was received: first the file, then the data in memory. If the file can't be
    /// replaced, the state in memory stays. After a restart the store then has either, and both are states that the
    /// cluster has gone through.
    fn install(&self, bytes: &[u8], next: Applier<Memory>) -> Result<Applied, StoreFault> {
        let files = lock(&self.files);
        let mut core = lock(&self.core);
        let (end, present) = (index_of(next.applied()), index_of(core.applied()));
        if end < present {
            return Err(image::lost(format!("it ends at {end:?}, but {present:?} is applied here already")));
        }
        files.save(bytes)?;
        *core = next;
        let applied = core.applied().clone();
        *lock(&self.saved) = Saved::new(applied.clone(), applied.index());
        *lock(&self.fault) = None;
        self.publish(&core);
        self.options.waits.wake_all();
        Ok(applied)
    }
}

impl StateMachine for MemoryStore {
    fn applied(&self) -> Applied {
        self.applied.borrow().clone()
    }

    /// Applies the entries on the calling thread. A fault of the store stays until an image is installed; one of an
    /// entry does not, and the entry may be handed over again.
    fn apply(&self, entries: Vec<Entry>, _: bool, mut on_applied: OnApplied) {
        let mut left = entries.as_slice();
        loop {
            let (outcomes, done) = self.apply_some(left);
            left = left.get(outcomes.len()..).unwrap_or_default();
            // The callback must come once even if there were no entries.
            if !outcomes.is_empty() || done.is_ok() {
                on_applied(Ok(outcomes));
            }
            if let Err(fault) = done {
                on_applied(Err(fault));
                break;
            }
            if left.is_empty() {
                break;
            }
        }
        if lock(&self.saved).is_due(self.applied().index(), self.options.checkpoint_entries) {
            // Tried again later.
            let _ = self.checkpoint();
        }
    }

    fn running(&self) -> Option<RunningStatement> {
        None
    }

    fn rejections(&self) -> Vec<u64> {
        lock(&self.rejections).clone()
    }

    /// The fault is not kept over a restart: the state comes from the file and the log then.
    fn condemn(&self, fault: &StoreFault) {
        self.report(fault);
    }

    /// Runs nothing ahead: it would save nothing.
    fn prefetch(&self, entries: Vec<Entry>) {
        if Mutant::WokenBeforeCommit.is_on()
            && let Ok(mut ahead) = Applier::new(lock(&self.core).machine().clone(), self.level)
        {
            let _ = ahead.apply_batch(&entries, &mut Vec::new());
            self.options.waits.wake(&ahead.take_touched().topics);
        }
    }

    /// The end of the process loses what was applied since the last checkpoint.
    fn outlives_process(&self) -> bool {
        false
    }

    /// Writes a checkpoint first if the store rests: see the module's documentation.
    fn durable(&self) -> Applied {
        let applied = self.applied();
        let rests = lock(&self.saved).note_ask(index_of(&applied), self.options.rest_asks);
        if rests {
            // Tried again when the store was asked as many times more.
            let _ = self.checkpoint();
        }
        lock(&self.saved).durable().clone()
    }

    fn is_slowed(&self) -> bool {
        false
    }

    fn fault(&self) -> Option<StoreFault> {
        lock(&self.fault).clone()
    }

    fn send_image(&self) -> Result<Box<dyn ImageSource>, StoreFault> {
        // An image would spread what is wrong.
        if let Some(fault @ (StoreFault::Diverged(_) | StoreFault::Damaged(_))) = self.fault() {
            return Err(fault);
        }
        let core = lock(&self.core);
        let (begun_at, bytes) = (core.applied().clone(), core.machine().encode()?);
        Ok(Box::new(image::Source::new(begun_at, bytes, self.options.piece_bytes)))
    }

    fn receive_image(&self) -> Result<Box<dyn ImageSink>, StoreFault> {
        let store = self.this.upgrade().ok_or(StoreFault::Closed)?;
        Ok(Box::new(image::Sink::new(store)))
    }
}

/// Makes an applier of encoded data, which must have this identity.
fn decode(bytes: &[u8], identity: StoreIdentity, level: u32) -> Result<Applier<Memory>, StoreFault> {
    let machine = Memory::decode(bytes)?;
    let found = machine.applied_record().map(|row| row.identity).unwrap_or_default();
    if found != identity {
        return Err(StoreFault::Io(format!(
            "the data belong to {found:?}, not to {identity:?}; give this node a directory of its own"
        )));
    }
    Applier::new(machine, level)
}

/// The index of the last applied entry. The first entry of a log has the index 0.
fn index_of(applied: &Applied) -> Option<u64> {
    applied.log_id.map(|id| id.index)
}

/// Fails unless the first of these entries comes right after the last applied one.
fn check_next(last: Option<u64>, entries: &[Entry]) -> Result<(), StoreFault> {
    match (last, entries.first().map(|entry| entry.log_id.index)) {
        (Some(last), Some(next)) if next != last.saturating_add(1) => {
            Err(StoreFault::Io(format!("entry {next} was handed over after entry {last}; restart the node")))
        }
        _ => Ok(()),
    }
}

/// Whether a fault may be that of an entry, about which consensus decides. The others are those of the store.
fn is_of_an_entry(fault: &StoreFault) -> bool {
    match fault {
        StoreFault::Full(_)
        | StoreFault::Io(_)
        | StoreFault::Memory(_)
        | StoreFault::TooMuch(_)
        | StoreFault::Slow(_)
        | StoreFault::Damaged(_) => true,
        StoreFault::Stuck(_)
        | StoreFault::Diverged(_)
        | StoreFault::Unsupported(_)
        | StoreFault::ImageLost(_)
        | StoreFault::Closed => false,
    }
}

#[cfg(test)]
mod tests;
