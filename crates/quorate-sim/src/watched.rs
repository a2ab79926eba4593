//! A wrapper of a store that reports to the history what the store is given and answers, and that knows which
//! phases the store is in.
//!
//! Invariant: the wrapper passes everything on unchanged, with three exceptions: it delays entries when
//! [`Watched::hold_up`] asks for it, answers nothing after [`Watched::stick`], and sends no images of data that were
//! changed from outside.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use quorate_env::{Env, Instant, lock, sleep};
use quorate_model::{
    Applied, Entry, ImageSink, ImageSource, LogId, OnApplied, Outcome, RunningStatement, StateMachine, StoreFault,
    WholeImage,
};

use crate::coverage::Phase;
use crate::history::{GivenEntry, History};

/// A wrapped store of one life of a node; see the module.
pub struct Watched<S> {
    env: Env,
    who: String,
    store: Arc<S>,
    history: History,
    /// The entries that the last hint announced as the next ones.
    prefetched: Mutex<Vec<LogId>>,
    applying: Arc<AtomicU64>,
    sending: Arc<AtomicU64>,
    receiving: Arc<AtomicU64>,
    logged: Logged,
    applies: AtomicU64,
    /// Set while the store is stuck in a statement.
    stuck: Arc<Mutex<Option<Stuck>>>,
    /// By how much the next entries are delayed.
    late: Mutex<Duration>,
}

/// The statement in which a store is stuck, since when, and the callbacks that are never called.
struct Stuck {
    entry: Option<u64>,
    since: Instant,
    unanswered: Vec<OnApplied>,
}

/// Reads the last index from the files of the node's log; returns `None` if they can't be read.
pub type Logged = Box<dyn Fn() -> Option<u64> + Send + Sync>;

/// The log is read once for this many calls of `apply`.
const LOOK_EVERY: u64 = 8;

/// Increments a counter while it exists.
struct Counted(Arc<AtomicU64>);

impl Counted {
    fn by(counter: &Arc<AtomicU64>) -> Self {
        counter.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(counter))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<S: StateMachine> Watched<S> {
    /// Wraps a store of a node's life (`who`), for use by consensus.
    pub fn new(env: &Env, who: String, store: Arc<S>, history: History, logged: Logged) -> Self {
        let (applying, sending, receiving) = Default::default();
        let (prefetched, applies, stuck, late) = Default::default();
        let env = env.clone();
        Self { env, who, store, history, prefetched, applying, sending, receiving, logged, applies, stuck, late }
    }

    /// Checks that entries are in the node's own log before they are applied.
    fn check_log(&self, entries: &[Entry]) {
        let is_due = self.applies.fetch_add(1, Ordering::Relaxed).is_multiple_of(LOOK_EVERY);
        let last = entries.last().filter(|_| is_due).map(|entry| entry.log_id.index);
        if let (Some(last), Some(logged)) = (last, last.and_then(|_| (self.logged)()))
            && last > logged
        {
            self.history.violation(format!("{} is to apply entry {last}, but its log ends at {logged}", self.who));
        }
    }

    /// Makes the store stuck in the statement that runs now.
    pub fn stick(&self) {
        let entry = self.store.running().and_then(|running| running.entry);
        lock(&self.stuck).get_or_insert(Stuck { entry, since: Instant::now(), unanswered: Vec::new() });
    }

    /// Delays the next entries. Meanwhile the node learns of more committed entries.
    pub fn hold_up(&self, late: Duration) {
        *lock(&self.late) = late;
    }

    /// Returns the store itself.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Returns the phases that the store is in.
    pub fn phases(&self) -> BTreeSet<Phase> {
        let is_any = |counter: &AtomicU64| counter.load(Ordering::Relaxed) > 0;
        let found = [
            (is_any(&self.applying), Phase::Apply),
            (!self.expected().is_empty(), Phase::Ahead),
            (is_any(&self.sending), Phase::SendsImage),
            (is_any(&self.receiving), Phase::GetsImage),
        ];
        found.into_iter().filter(|(is_so, _)| *is_so).map(|(_, phase)| phase).collect()
    }

    fn expected(&self) -> MutexGuard<'_, Vec<LogId>> {
        lock(&self.prefetched)
    }
}

impl<S: StateMachine> StateMachine for Watched<S> {
    fn applied(&self) -> Applied {
        self.store.applied()
    }

    fn apply(&self, entries: Vec<Entry>, is_awaited: bool, on_applied: OnApplied) {
        if let Some(stuck) = &mut *lock(&self.stuck) {
            return stuck.unanswered.push(on_applied);
        }
        let mut waiting: Vec<GivenEntry> = entries.iter().map(GivenEntry::from).collect();
        self.check_log(&entries);
        let expected = std::mem::take(&mut *self.expected());
        if !expected.is_empty() {
            let is_same = |(expected, entry): (&LogId, &Entry)| *expected == entry.log_id;
            self.history.expected(expected.len() <= entries.len() && expected.iter().zip(&entries).all(is_same));
        }
        let (who, history, counted) = (self.who.clone(), self.history.clone(), Counted::by(&self.applying));
        let (mut counted, mut on_applied, stuck) = (Some(counted), Some(on_applied), Arc::clone(&self.stuck));
        let answer = move |result: Result<Vec<Option<Outcome>>, StoreFault>| {
            if let Some(stuck) = &mut *lock(&stuck) {
                return stuck.unanswered.extend(on_applied.take());
            }
            match &result {
                Ok(outcomes) => {
                    let applied: Vec<GivenEntry> = waiting.drain(..outcomes.len().min(waiting.len())).collect();
                    history.applied(&who, &applied, outcomes);
                }
                Err(fault) => history.could_not_apply(&who, fault),
            }
            if result.is_err() || waiting.is_empty() {
                drop(counted.take());
            }
            if let Some(on_applied) = &mut on_applied {
                on_applied(result);
            }
        };
        let late = std::mem::take(&mut *lock(&self.late));
        if late.is_zero() {
            return self.store.apply(entries, is_awaited, Box::new(answer));
        }
        let store = Arc::clone(&self.store);
        drop(self.env.spawn(async move {
            sleep(late).await;
            store.apply(entries, is_awaited, Box::new(answer));
        }));
    }

    fn running(&self) -> Option<RunningStatement> {
        match &*lock(&self.stuck) {
            Some(stuck) => Some(RunningStatement { entry: stuck.entry, overdue: stuck.since.elapsed() }),
            None => self.store.running(),
        }
    }

    fn rejections(&self) -> Vec<u64> {
        self.store.rejections()
    }

    fn condemn(&self, fault: &StoreFault) {
        self.store.condemn(fault);
    }

    fn prefetch(&self, entries: Vec<Entry>) {
        if lock(&self.stuck).is_some() {
            return;
        }
        *self.expected() = entries.iter().map(|entry| entry.log_id).collect();
        self.store.prefetch(entries);
    }

    fn outlives_process(&self) -> bool {
        self.store.outlives_process()
    }

    fn durable(&self) -> Applied {
        self.store.durable()
    }

    fn is_slowed(&self) -> bool {
        self.store.is_slowed()
    }

    fn fault(&self) -> Option<StoreFault> {
        self.store.fault()
    }

    fn send_image(&self) -> Result<Box<dyn ImageSource>, StoreFault> {
        // An image would spread the changed data before any node notices the change, and then no check could tell right
        // from wrong.
        if self.history.is_tampered(&self.who) {
            return Err(StoreFault::ImageLost("its data were changed from outside".to_owned()));
        }
        let source = self.store.send_image()?;
        Ok(Box::new(WatchedSource { source, _counted: Counted::by(&self.sending) }))
    }

    fn receive_image(&self) -> Result<Box<dyn ImageSink>, StoreFault> {
        let sink = self.store.receive_image()?;
        let (who, history, counted) = (self.who.clone(), self.history.clone(), Counted::by(&self.receiving));
        Ok(Box::new(WatchedSink { who, sink, history, counted }))
    }
}

/// An image that the node sends.
struct WatchedSource {
    source: Box<dyn ImageSource>,
    _counted: Counted,
}

impl ImageSource for WatchedSource {
    fn begun_at(&self) -> Applied {
        self.source.begun_at()
    }

    fn next(&mut self) -> Result<Option<Bytes>, StoreFault> {
        self.source.next()
    }
}

/// An image that the node receives.
struct WatchedSink {
    who: String,
    sink: Box<dyn ImageSink>,
    history: History,
    counted: Counted,
}

impl ImageSink for WatchedSink {
    fn write(&mut self, piece: Bytes) -> Result<(), StoreFault> {
        self.sink.write(piece)
    }

    fn finish(self: Box<Self>) -> Result<Box<dyn WholeImage>, StoreFault> {
        let Self { who, sink, history, counted } = *self;
        let image = sink.finish().inspect_err(|fault| history.refused(&who, fault))?;
        history.verified(&who);
        Ok(Box::new(WatchedImage { who, image, history, counted }))
    }
}

/// An image that arrived completely.
struct WatchedImage {
    who: String,
    image: Box<dyn WholeImage>,
    history: History,
    counted: Counted,
}

impl WholeImage for WatchedImage {
    fn end(&self) -> Option<LogId> {
        self.image.end()
    }

    fn install(self: Box<Self>) -> Result<Applied, StoreFault> {
        let Self { who, image, history, counted } = *self;
        history.installing(&who);
        let result = image.install();
        drop(counted);
        history.installed(&who, &result);
        result
    }
}
