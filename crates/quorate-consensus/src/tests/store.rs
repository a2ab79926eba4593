//! A store for tests that keeps the payloads that it has applied, in order. Its contents outlive the process, as if
//! each write were durable at once. A test may make it fail at some payloads.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use quorate_apply::Applier;
use quorate_apply::memory::Memory;
use quorate_apply::waits::Waits;
use quorate_model::codec::decode_proposal;
use quorate_model::limits::FORMAT_LEVEL;
use quorate_model::{
    Applied, Entry, Failure, FailureKind, ImageSink, ImageSource, LogId, OnApplied, Outcome, Payload, REJECTIONS_MAX,
    Reply, RunningStatement, StateMachine, StoreFault, StoreIdentity, Topic, WholeImage,
};

#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    pub(crate) applied: Applied,
    /// The index and the bytes of each applied proposal, without the stamp.
    pub(crate) proposals: Vec<(u64, Bytes)>,
    /// The indexes of rejected entries.
    pub(crate) rejected: Vec<u64>,
    /// The state of proposals that can be decoded; the others are plain texts.
    pub(crate) items: Items,
}

/// The engine in memory with the store for tests.
#[derive(Clone, Debug)]
pub(crate) struct Items(pub(crate) Memory);

impl Default for Items {
    fn default() -> Self {
        Self(Memory::new(StoreIdentity::default()))
    }
}

/// What happens at a proposal.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    Fault(StoreFault),
    /// The process dies, and the store never answers.
    Crash,
    /// The proposal takes until [`MemStore::go_on`] is called.
    Long,
    /// The proposal never ends, and the store applies nothing before it is opened again.
    Endless,
}

/// Entries that were handed over together, and the callback for their outcomes.
type Job = (Vec<Entry>, OnApplied);

/// The contents of the store, which outlive the process.
#[derive(Clone, Default)]
pub(crate) struct MemStore {
    kept: Arc<Mutex<Kept>>,
    /// What happens at proposals that begin with a text.
    troubles: Arc<Mutex<BTreeMap<&'static str, Trouble>>>,
    crashed: Arc<Mutex<bool>>,
    condemned: Arc<Mutex<Option<StoreFault>>>,
    /// The entries that the store is applying and that take long.
    held: Arc<Mutex<Option<Job>>>,
    /// The entry in which the store is stuck.
    stuck: Arc<Mutex<Option<u64>>>,
    /// Whether callers waited for the last entries that the store was given.
    was_awaited: Arc<Mutex<bool>>,
    /// The damage that a reader has found.
    found: Arc<Mutex<Option<StoreFault>>>,
    /// What [`StateMachine::is_slowed`] answers.
    pub(crate) is_slowed: Arc<AtomicBool>,
    /// The number of images that were installed.
    installed: Arc<Mutex<u64>>,
    /// The waiters of the node.
    pub(crate) waits: Waits,
}

impl MemStore {
    pub(crate) fn kept(&self) -> Kept {
        self.kept.lock().unwrap().clone()
    }

    pub(crate) fn set_applied(&self, applied: Applied) {
        self.kept.lock().unwrap().applied = applied;
    }

    /// Sets what happens at proposals that begin with this text.
    pub(crate) fn fail_at(&self, text: &'static str, trouble: Trouble) {
        self.troubles.lock().unwrap().insert(text, trouble);
    }

    /// Whether the store is applying a proposal that takes long.
    pub(crate) fn is_held(&self) -> bool {
        self.held.lock().unwrap().is_some()
    }

    /// Whether callers waited for the last entries that the store was given.
    pub(crate) fn was_awaited(&self) -> bool {
        *self.was_awaited.lock().unwrap()
    }

    /// Ends all troubles, and applies the entries that took long.
    pub(crate) fn go_on(&self) {
        self.troubles.lock().unwrap().clear();
        if let Some((entries, on_applied)) = self.held.lock().unwrap().take() {
            self.apply(entries, true, on_applied);
        }
    }

    /// Loses the last applied proposal, as a database may that is not yet durable.
    pub(crate) fn lose_last(&self) {
        let mut kept = self.kept.lock().unwrap();
        let (lost, _) = kept.proposals.pop().unwrap();
        let log_id = kept.applied.log_id.as_mut().unwrap();
        assert_eq!(log_id.index, lost);
        log_id.index -= 1;
    }

    /// Returns how many images were installed.
    pub(crate) fn installed(&self) -> u64 {
        *self.installed.lock().unwrap()
    }

    /// Lets a reader find damage. Installing an image repairs it.
    pub(crate) fn find_damage(&self) {
        *self.found.lock().unwrap() = Some(StoreFault::Damaged("by a test".to_owned()));
    }

    pub(crate) fn condemned(&self) -> Option<StoreFault> {
        self.condemned.lock().unwrap().clone()
    }

    /// Opens the store in a new process.
    pub(crate) fn reopen(&self) {
        *self.stuck.lock().unwrap() = None;
    }

    /// Whether the process must be killed. Returns true only once for each crash.
    pub(crate) fn take_crashed(&self) -> bool {
        std::mem::take(&mut *self.crashed.lock().unwrap())
    }

    fn trouble(&self, entry: &Entry) -> Option<Trouble> {
        let Payload::Proposal(_, bytes) = &entry.payload else { return None };
        let troubles = self.troubles.lock().unwrap();
        troubles.iter().find(|(text, _)| bytes.starts_with(text.as_bytes())).map(|(_, trouble)| trouble.clone())
    }
}

impl StateMachine for MemStore {
    fn applied(&self) -> Applied {
        self.kept.lock().unwrap().applied.clone()
    }

    fn apply(&self, entries: Vec<Entry>, is_awaited: bool, mut on_applied: OnApplied) {
        *self.was_awaited.lock().unwrap() = is_awaited;
        let applied = self.applied().index();
        let is_endless = |entry: &&Entry| matches!(self.trouble(entry), Some(Trouble::Endless));
        let endless = entries.iter().filter(|entry| entry.log_id.index > applied).find(is_endless);
        let mut stuck = self.stuck.lock().unwrap();
        *stuck = stuck.or(endless.map(|entry| entry.log_id.index));
        if stuck.is_some() {
            // Never answers: the node that waits ends.
            return std::mem::forget(on_applied);
        }
        drop(stuck);
        let is_long = |entry: &Entry| matches!(self.trouble(entry), Some(Trouble::Long));
        if entries.iter().any(is_long) {
            *self.held.lock().unwrap() = Some((entries, on_applied));
            return;
        }
        let mut outcomes = Vec::new();
        for entry in entries {
            let is_new = self.applied().log_id.is_none_or(|id| id.index < entry.log_id.index);
            match self.trouble(&entry).filter(|_| is_new) {
                Some(Trouble::Fault(fault)) => {
                    on_applied(Ok(outcomes));
                    return on_applied(Err(fault));
                }
                Some(Trouble::Crash) => {
                    *self.crashed.lock().unwrap() = true;
                    // Never answers: the test kills the node that waits.
                    return std::mem::forget(on_applied);
                }
                Some(Trouble::Long | Trouble::Endless) | None => {
                    let mut touched = Vec::new();
                    outcomes.push(self.kept.lock().unwrap().apply(entry, &mut touched));
                    self.waits.wake(&touched);
                }
            }
        }
        on_applied(Ok(outcomes));
    }

    fn running(&self) -> Option<RunningStatement> {
        let entry = *self.stuck.lock().unwrap();
        entry.map(|index| RunningStatement { entry: Some(index), overdue: Duration::from_secs(3600) })
    }

    fn rejections(&self) -> Vec<u64> {
        let all = self.kept().rejected;
        all.get(all.len().saturating_sub(REJECTIONS_MAX)..).unwrap_or_default().to_vec()
    }

    fn condemn(&self, fault: &StoreFault) {
        *self.condemned.lock().unwrap() = Some(fault.clone());
    }

    fn prefetch(&self, _entries: Vec<Entry>) {}

    fn outlives_process(&self) -> bool {
        true
    }

    fn durable(&self) -> Applied {
        self.applied()
    }

    fn is_slowed(&self) -> bool {
        self.is_slowed.load(Ordering::Relaxed)
    }

    fn fault(&self) -> Option<StoreFault> {
        self.found.lock().unwrap().clone()
    }

    fn send_image(&self) -> Result<Box<dyn ImageSource>, StoreFault> {
        Ok(Box::new(Source(Some(self.kept()))))
    }

    fn receive_image(&self) -> Result<Box<dyn ImageSink>, StoreFault> {
        Ok(Box::new(Sink { store: self.clone(), received: None }))
    }
}

impl Kept {
    /// Applies a proposal that can be decoded by the rules of the real state machines.
    fn apply_decoded(&mut self, entry: &Entry, touched: &mut Vec<(u64, Topic)>) -> Outcome {
        let Items(machine) = std::mem::take(&mut self.items);
        let mut applier = Applier::new(machine, FORMAT_LEVEL).unwrap();
        let mut outcomes = Vec::new();
        applier.apply_batch(std::slice::from_ref(entry), &mut outcomes).unwrap();
        touched.extend(applier.take_touched().topics);
        (self.applied.level, self.applied.due) = (applier.applied().level, applier.applied().due);
        self.items = Items(applier.into_machine());
        outcomes.remove(0)
    }

    fn apply(&mut self, entry: Entry, touched: &mut Vec<(u64, Topic)>) -> Option<Outcome> {
        if self.applied.log_id.is_some_and(|id| id.index >= entry.log_id.index) {
            return None;
        }
        self.applied.log_id = Some(entry.log_id);
        match entry.payload {
            Payload::Blank | Payload::Reject(_) => {}
            Payload::Rejected(..) => {
                self.rejected.push(entry.log_id.index);
                return Some(Err(Failure::new(FailureKind::Rejected, "rejected")));
            }
            Payload::Membership(bytes) => self.applied.membership = Some((entry.log_id, bytes)),
            Payload::Proposal(_, ref bytes) if decode_proposal(bytes).is_ok() => {
                return Some(self.apply_decoded(&entry, touched));
            }
            Payload::Proposal(_, bytes) => self.proposals.push((entry.log_id.index, bytes)),
        }
        Some(Ok(Reply::default()))
    }
}

/// The images between stores of one process. A piece is an index into this table, because nothing else reads the
/// pieces.
static IMAGES: Mutex<Vec<Kept>> = Mutex::new(Vec::new());

struct Source(Option<Kept>);

impl ImageSource for Source {
    fn begun_at(&self) -> Applied {
        self.0.as_ref().map(|kept| kept.applied.clone()).unwrap_or_default()
    }

    fn next(&mut self) -> Result<Option<Bytes>, StoreFault> {
        Ok(self.0.take().map(|kept| {
            let mut images = IMAGES.lock().unwrap();
            images.push(kept);
            Bytes::copy_from_slice(&(images.len() - 1).to_le_bytes())
        }))
    }
}

struct Sink {
    store: MemStore,
    received: Option<Kept>,
}

impl ImageSink for Sink {
    fn write(&mut self, piece: Bytes) -> Result<(), StoreFault> {
        let number = usize::from_le_bytes(piece[..].try_into().unwrap());
        self.received = Some(IMAGES.lock().unwrap()[number].clone());
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Box<dyn WholeImage>, StoreFault> {
        let kept = self.received.ok_or_else(|| StoreFault::ImageLost("no piece came".to_owned()))?;
        Ok(Box::new(Whole { store: self.store, kept }))
    }
}

struct Whole {
    store: MemStore,
    kept: Kept,
}

impl WholeImage for Whole {
    fn end(&self) -> Option<LogId> {
        self.kept.applied.log_id
    }

    fn install(self: Box<Self>) -> Result<Applied, StoreFault> {
        *self.store.kept.lock().unwrap() = self.kept;
        *self.store.found.lock().unwrap() = None;
        *self.store.installed.lock().unwrap() += 1;
        self.store.waits.wake_all();
        Ok(self.store.applied())
    }
}
