//! Finds out whether the entry or the node is to blame if an entry can't be applied.
//!
//! A node whose store fails at an entry, or whose process died while it applied the entry, stops before that entry and
//! asks the others. If another node has applied the entry, the node itself is to blame: it tries again, takes an image,
//! or ends. If no voter has applied the entry, and either a majority can't apply it or it takes more time or memory
//! than the leader allows for an entry, the leader proposes [`Payload::Reject`](quorate_model::Payload::Reject). Once
//! that is committed, every node applies the entry as one that failed. [`judge`] asks and decides, [`promise`] answers;
//! `docs/decisions/0019-entry-or-node.md` gives the reasons.
//!
//! # Invariants
//!
//! - Before `Reject(n)` is proposed, every voter has promised durably ([`Halt`]) not to apply entry `n`. A voter keeps
//!   its promise until the rejection is committed, or until a leader of the same or a later term whose log has no such
//!   rejection releases it. So no node applies a rejected entry and answers its caller.
//! - A voter that can't be reached need not promise if the leader has never told it that entry `n` is committed. Later
//!   a leader tells it so only together with the rejection ([`announce`]).
//! - A node that has a rejection in its log applies the rejected entry only once the rejection is committed, and then
//!   as a rejected entry.
//! - An entry that another node has applied is never rejected.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use quorate_env::mutant::Mutant;
use quorate_env::{lock, sleep, timeout};
use quorate_model::{NodeId, StateMachine, StoreFault};
use quorate_wal::{Restart, WalError};
use quorate_wire::Purpose;
use tokio::sync::watch;

use crate::group_log::GroupLog;
use crate::identity::{Halt, Trial};
use crate::images;
use crate::peer::messages::{Pull, encode, method};
use crate::peers::Peers;
use crate::raft::Raft;

mod announce;
pub(crate) mod judge;
mod log;
mod promise;
mod state;
mod stuck;

use log::logged;
pub(crate) use log::{reject, rejections, scan as scan_rejections};
use state::{FailedEntry, State};

/// The number of consecutive unclean ends at the same applied entry after which a node applies one entry at a time.
const CAREFUL_AFTER: u32 = 3;

/// How often a node tries an entry again that others have applied, before it takes an image.
const TRIES_MAX: u32 = 2;

/// The number of consecutive unclean ends after which a node no longer tries the entry at which it died, but waits for
/// an image.
const DEATHS_MAX: u32 = 6;

/// The pause before another try, and after a failed image. The latter is doubled each time, up to the second value.
const TRY_PAUSE: Duration = Duration::from_millis(500);
const IMAGE_PAUSE_MAX: Duration = Duration::from_secs(8);

/// The pause before another try of an entry that exceeded its limit of time or memory. The next try has a larger limit.
/// In the pause a leader hands over.
const MORE_PAUSE: Duration = Duration::from_millis(100);

/// The time after which a node that lacked memory tries an entry again, if nothing was decided meanwhile.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// What a node knows about entries that can't be applied. See the module.
pub(crate) struct Verdicts {
    log: GroupLog,
    store: Arc<dyn StateMachine>,
    state: Mutex<State>,
    changed: watch::Sender<()>,
    core: OnceLock<(Raft, Arc<Peers>)>,
    /// The fault that ended this node's part in consensus, if the store was stuck.
    stuck: OnceLock<StoreFault>,
}

/// An entry that a node can't apply, as its status shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// The index of the entry.
    pub index: u64,
    /// Why the entry can't be applied, or what the node waits for.
    pub why: String,
}

/// A range of entries that may be handed to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cleared {
    /// The last entry of the range.
    pub(crate) last: u64,
    /// Whether the first entry must be applied as a rejected one. Then it is the only entry of the range.
    pub(crate) rejected: bool,
}

/// What to do before the next entry is handed to the store.
enum Next {
    Go(Cleared),
    /// Record the entry durably, and then hand it over alone.
    Try,
    Wait,
    Settle(FailedEntry),
}

impl Verdicts {
    /// Starts from what this node's former process has recorded. `restart` says how that process ended.
    pub(crate) async fn begin(
        log: &GroupLog,
        store: &Arc<dyn StateMachine>,
        restart: Restart,
    ) -> Result<Arc<Self>, WalError> {
        let applied = store.applied().index();
        let known = log.notes().trial.unwrap_or_default();
        // Otherwise the record may be older than entries that this node has applied and answered for.
        let outlives = store.outlives_process();
        let is_unclean = matches!(restart, Restart::ProcessOnly | Restart::Rebooted) && outlives;
        let starts = match (is_unclean, known.applied == applied) {
            (true, true) => known.starts.saturating_add(1),
            (true, false) => 1,
            (false, _) => 0,
        };
        let last = log.last().map_or(0, |id| id.index);
        // So it may be after a power failure.
        let is_certain = outlives && (restart != Restart::Rebooted || starts >= CAREFUL_AFTER);
        let trying = known.trying.filter(|index| *index > applied && *index <= last && is_certain);
        let trial = Trial { applied, starts, trying };
        if trial != known {
            log.note_trial(trial).await?;
        }
        let why = "the process ended while it applied this entry";
        let is_kept = |halt: &Halt| halt.index > applied && !Mutant::HaltForgotten.is_on();
        let halts: Vec<Halt> = log.notes().halts.into_iter().filter(is_kept).collect();
        let state = State {
            failed: trying.map(|index| FailedEntry::new(index, why)),
            halts: halts.into_iter().map(|halt| (halt.index, halt)).collect(),
            perhaps_applied: last,
            lost_power_in: (restart == Restart::Rebooted).then(|| log.term_of_vote()),
            careful_until: if starts >= CAREFUL_AFTER { last } else { 0 },
            logged: logged(log, applied),
            ..State::default()
        };
        if state.careful_until > applied {
            tracing::warn!(applied, starts, "this node has ended again and again: it now applies one entry at a time");
        }
        let (store, changed, stuck) = (Arc::clone(store), watch::Sender::new(()), OnceLock::new());
        let (log, state, core) = (log.clone(), Mutex::new(state), OnceLock::new());
        Ok(Arc::new(Self { log, store, state, changed, core, stuck }))
    }

    /// Sets the core. Before that nothing is decided.
    pub(crate) fn bind(&self, raft: &Raft, peers: &Arc<Peers>) {
        // Nothing else sets it.
        let _ = self.core.set((raft.clone(), Arc::clone(peers)));
    }

    /// Ends all waits with [`StoreFault::Closed`].
    pub(crate) fn close(&self) {
        self.change(|state| state.closed = true);
    }

    /// Records the rejections among entries that are appended to the log.
    pub(crate) fn appended(&self, rejections: impl Iterator<Item = (u64, u64)>) {
        let rejections: Vec<_> = rejections.collect();
        if !rejections.is_empty() {
            self.change(|state| state.logged.extend(rejections));
        }
    }

    /// Records that the log is cut after this entry.
    pub(crate) fn truncated(&self, last: Option<u64>) {
        self.change(|state| state.logged.retain(|index, _| Some(*index) <= last));
    }

    /// Records that the log is committed up to this entry.
    pub(crate) fn committed(&self, index: u64) {
        let is_awaited = {
            let mut state = self.state();
            state.committed = state.committed.max(index);
            !state.logged.is_empty()
        };
        if is_awaited {
            self.changed.send_replace(());
        }
    }

    /// Whether the store may run entries before they are committed.
    pub(crate) fn may_prefetch(&self) -> bool {
        let state = self.state();
        state.is_quiet() && (state.careful_until == 0 || state.careful_until <= self.store.applied().index())
    }

    /// Returns the first entry that this node does not apply for now, if there is one.
    pub(crate) fn blocked(&self) -> Option<Blocked> {
        let applied = self.store.applied().index();
        let state = self.state();
        let failed = state.failed.as_ref().map(|failed| Blocked { index: failed.index, why: failed.why.clone() });
        let waits =
            |index: &u64| Blocked { index: *index, why: "the cluster decides whether it is rejected".to_owned() };
        let all = failed.into_iter().chain(state.halts.keys().map(waits));
        all.filter(|blocked| blocked.index > applied).min_by_key(|blocked| blocked.index)
    }

    /// Returns the nodes that have applied the entry that this node can't apply.
    pub(crate) fn holders(&self) -> Vec<NodeId> {
        self.state().holders()
    }

    /// Returns a receiver that is notified of each change of this state.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Waits until the next entry, `first`, may be handed to the store, and returns how many of the entries up to
    /// `last` may be handed over with it. The caller must call [`Verdicts::answered`] afterwards.
    pub(crate) async fn clear(&self, first: u64, last: u64) -> Result<Cleared, StoreFault> {
        let mut changed = self.changed.subscribe();
        loop {
            changed.mark_unchanged();
            match self.next(first, last)? {
                Next::Go(cleared) => return Ok(cleared),
                Next::Try => {
                    let noted = self.log.note_trying(first).await;
                    noted.map_err(|error| StoreFault::Io(error.to_string()))?;
                    return Ok(Cleared { last: first, rejected: false });
                }
                // An error is impossible: the sender lives as long as this value.
                Next::Wait => drop(changed.changed().await),
                Next::Settle(failed) => self.settle(&failed, None).await?,
            }
        }
    }

    /// Does the same without waiting: returns `None` if there is anything to wait for, or to record first.
    pub(crate) fn clear_now(&self, first: u64, last: u64) -> Option<Cleared> {
        if first <= self.state().careful_until {
            return None;
        }
        match self.next(first, last) {
            Ok(Next::Go(cleared)) => Some(cleared),
            _ => None,
        }
    }

    fn next(&self, first: u64, last: u64) -> Result<Next, StoreFault> {
        let mut state = self.state();
        if state.closed {
            return Err(StoreFault::Closed);
        }
        if state.is_rejected(first) {
            state.in_flight = Some(first);
            return Ok(Next::Go(Cleared { last: first, rejected: true }));
        }
        if let Some(failed) = state.failed.clone().filter(|failed| failed.index == first && !failed.again) {
            return Ok(Next::Settle(failed));
        }
        if state.is_bound(first) {
            return Ok(Next::Wait);
        }
        if first <= state.careful_until {
            state.in_flight = Some(first);
            return Ok(Next::Try);
        }
        // An entry that is tried again may take long again. If later entries were in flight with it, this node could
        // not promise that it has not applied them.
        let tried = state.failed.as_ref().map(|failed| failed.index.max(first.saturating_add(1)));
        let halted = state.halts.keys().copied().chain(tried);
        let barrier = halted.chain(state.logged.values().copied()).filter(|index| *index > first).min();
        let last = barrier.map_or(last, |index| last.min(index.saturating_sub(1)));
        state.in_flight = Some(last);
        Ok(Next::Go(Cleared { last, rejected: false }))
    }

    /// Records that the store has answered for the entries that it was given.
    pub(crate) fn answered(&self) {
        let applied = self.store.applied().index();
        let mut state = self.state();
        state.in_flight = None;
        state.perhaps_applied = state.perhaps_applied.max(applied);
        if !state.is_quiet() {
            state.forget(applied);
            drop(state);
            self.changed.send_replace(());
        }
    }

    /// Handles a fault of the store at the entry after the last applied one. Returns when the entry is to be handed
    /// over again.
    ///
    /// # Errors
    ///
    /// Returns the fault if it is this node's own and can't be repaired. The node then has to end.
    pub(crate) async fn fault(&self, fault: &StoreFault) -> Result<(), StoreFault> {
        if !is_of_an_entry(fault) {
            return Err(fault.clone());
        }
        let index = self.store.applied().index().saturating_add(1);
        tracing::error!(event = "entry_not_applied", index, %fault, "an entry can't be applied here");
        // The process may end before the entry is decided.
        if self.log.note_trying(index).await.is_err() {
            return Err(fault.clone());
        }
        let failed = {
            let mut state = self.state();
            let before = state.failed.take().filter(|failed| failed.index == index);
            let tries = before.map_or(0, |failed| failed.tries);
            let is_too_much = matches!(fault, StoreFault::Slow(_) | StoreFault::TooMuch(_));
            let failed = FailedEntry { is_too_much, tries, ..FailedEntry::new(index, &fault.to_string()) };
            state.failed.insert(failed).clone()
        };
        self.changed.send_replace(());
        self.settle(&failed, Some(fault)).await
    }

    /// Waits until it is decided whether the entry or this node is to blame, and does what this node has to do then.
    async fn settle(&self, failed: &FailedEntry, fault: Option<&StoreFault>) -> Result<(), StoreFault> {
        let mut pause = TRY_PAUSE;
        while let Some(holders) = self.verdict(failed.index, fault).await? {
            match fault {
                // A disk that fails could not hold an image either.
                Some(fault @ StoreFault::Io(_)) => {
                    self.store.condemn(fault);
                    return Err(fault.clone());
                }
                Some(StoreFault::Memory(_) | StoreFault::Slow(_) | StoreFault::TooMuch(_))
                    if failed.tries < TRIES_MAX =>
                {
                    sleep(if failed.is_too_much { MORE_PAUSE } else { TRY_PAUSE }).await;
                    self.try_again();
                    return Ok(());
                }
                _ => {}
            }
            for holder in holders {
                if self.take_image(holder).await {
                    self.try_again();
                    return Ok(());
                }
            }
            // The data of the others may be damaged, and this process may have ended for another reason than the entry.
            let deaths = self.log.notes().trial.unwrap_or_default().starts;
            if fault.is_none() && pause == IMAGE_PAUSE_MAX && deaths < DEATHS_MAX {
                self.try_again();
                return Ok(());
            }
            // The others may be reachable again later, and are asked again.
            sleep(pause).await;
            pause = pause.saturating_mul(2).min(IMAGE_PAUSE_MAX);
            self.change(|state| {
                if let Some(failed) = &mut state.failed {
                    failed.holders.clear();
                }
            });
        }
        Ok(())
    }

    /// Waits for the verdict on an entry that can't be applied here. Returns the nodes that have applied it, or `None`
    /// if it is to be handed over again. A sole voter does not reject an entry if its own disk may be to blame.
    async fn verdict(&self, index: u64, fault: Option<&StoreFault>) -> Result<Option<Vec<NodeId>>, StoreFault> {
        let is_of_disk = matches!(fault, Some(StoreFault::Io(_) | StoreFault::Damaged(_)));
        let retries = matches!(fault, Some(StoreFault::Memory(_)));
        let mut changed = self.changed.subscribe();
        loop {
            changed.mark_unchanged();
            {
                let state = self.state();
                if state.closed {
                    return Err(StoreFault::Closed);
                }
                // An image may have arrived meanwhile.
                let is_over = state.failed.as_ref().is_none_or(|failed| failed.again);
                if is_over || state.is_rejected(index) {
                    return Ok(None);
                }
                let holders = state.holders();
                if !holders.is_empty() {
                    return Ok(Some(holders));
                }
                if let Some(fault) = fault.filter(|_| is_of_disk && self.is_sole_voter()) {
                    self.store.condemn(fault);
                    return Err(fault.clone());
                }
            }
            if timeout(RETRY_AFTER, changed.changed()).await.is_err() && retries && !self.state().is_bound(index) {
                self.try_again();
                return Ok(None);
            }
        }
    }

    /// Records that an image of another node has replaced the store's state. It ends the wait only if it holds the
    /// entry: the image of a leader that stops before the same entry does not.
    pub(crate) fn healed(&self) {
        let applied = self.store.applied().index();
        self.change(|state| {
            state.perhaps_applied = state.perhaps_applied.max(applied);
            state.forget(applied);
        });
    }

    /// Has the entry handed to the store once more.
    fn try_again(&self) {
        self.change(|state| {
            if let Some(failed) = &mut state.failed {
                (failed.again, failed.tries) = (true, failed.tries.saturating_add(1));
                failed.holders.clear();
            }
        });
    }

    /// Replaces this node's state with an image of another node's. Returns whether that succeeded.
    async fn take_image(&self, from: NodeId) -> bool {
        let Some((_, peers)) = self.core.get() else { return false };
        let pull = encode(&Pull { group: self.log.group().0 });
        let opened = peers.open_stream(from.0, Purpose::Image, method::PULL).await;
        let Some((mut sender, mut pieces)) = opened else {
            tracing::warn!(%from, "no image was received: the node can't be reached");
            return false;
        };
        // If this fails, the stream is broken, and so its pieces end too early.
        let _ = sender.send(pull).await;
        sender.finish();
        match images::replace(&self.log, &self.store, &mut pieces).await {
            Ok(applied) => {
                self.healed();
                let index = applied.index();
                tracing::info!(event = "healed", index, %from, "this node has received a copy of another node's data");
                true
            }
            Err(error) => {
                tracing::warn!(%error, %from, "no image was received");
                false
            }
        }
    }

    fn is_sole_voter(&self) -> bool {
        self.core.get().is_some_and(|(raft, _)| raft.voter_ids().eq([*raft.node_id()]))
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.send_replace(());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// Whether an entry may have caused a fault.
fn is_of_an_entry(fault: &StoreFault) -> bool {
    matches!(
        fault,
        StoreFault::Memory(_)
            | StoreFault::TooMuch(_)
            | StoreFault::Slow(_)
            | StoreFault::Io(_)
            | StoreFault::Damaged(_)
    )
}
