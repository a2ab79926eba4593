//! A store that tells the history what passes, and knows what it is doing.
//!
//! Invariant: the store passes everything on unchanged. It only delays entries when it is told to, and withholds images
//! of data that somebody has changed.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use quorate_env::{Env, Instant, lock, sleep};
use quorate_model::{
    Applied, Entry, ImageSink, ImageSource, LogId, OnApplied, Outcome, RunningStatement, Store, StoreFault, WholeImage,
};
use quorate_sql::store::SqlStore;

use crate::coverage::Phase;
use crate::history::{History, Told};

/// See the module.
pub struct Watched {
    env: Env,
    who: String,
    store: SqlStore,
    history: History,
    /// Entries that were told to come next.
    foreseen: Mutex<Vec<LogId>>,
    applying: Arc<AtomicU64>,
    sending: Arc<AtomicU64>,
    receiving: Arc<AtomicU64>,
    logged: Logged,
    applies: AtomicU64,
    /// The statement in which it is stuck, since when, and what is never answered.
    stuck: Arc<Mutex<Option<Stuck>>>,
    /// How late the next entries reach it.
    late: Mutex<Duration>,
}

/// A store that is stuck in a statement.
struct Stuck {
    entry: Option<u64>,
    since: Instant,
    unanswered: Vec<OnApplied>,
}

/// Says where the node's log ends, as its files have it; `None` where that can't be read.
pub type Logged = Box<dyn Fn() -> Option<u64> + Send + Sync>;

/// How many times entries are handed over from one look into the log to the next.
const LOOK_EVERY: u64 = 8;

/// Counts while it is there.
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

impl Watched {
    /// What consensus is to take for the store of a node's life (`who`).
    pub fn new(env: &Env, who: String, store: SqlStore, history: History, logged: Logged) -> Self {
        let (applying, sending, receiving) = Default::default();
        let (foreseen, applies, stuck, late) = Default::default();
        let env = env.clone();
        Self { env, who, store, history, foreseen, applying, sending, receiving, logged, applies, stuck, late }
    }

    /// Entries are in the node's own log before they are applied.
    fn check_log(&self, entries: &[Entry]) {
        let is_due = self.applies.fetch_add(1, Ordering::Relaxed).is_multiple_of(LOOK_EVERY);
        let last = entries.last().filter(|_| is_due).map(|entry| entry.log_id.index);
        if let (Some(last), Some(logged)) = (last, last.and_then(|_| (self.logged)()))
            && last > logged
        {
            self.history.violation(format!("{} is to apply entry {last}, its log ends at {logged}", self.who));
        }
    }

    /// From now on it is stuck in the statement that runs.
    pub fn stick(&self) {
        let entry = self.store.running().and_then(|running| running.entry);
        lock(&self.stuck).get_or_insert(Stuck { entry, since: Instant::now(), unanswered: Vec::new() });
    }

    /// The next entries reach it so late. The node knows meanwhile of more that are committed.
    pub fn hold_up(&self, late: Duration) {
        *lock(&self.late) = late;
    }

    /// The store itself.
    pub fn store(&self) -> &SqlStore {
        &self.store
    }

    /// What it is doing.
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
        lock(&self.foreseen)
    }
}

impl Store for Watched {
    fn applied(&self) -> Applied {
        self.store.applied()
    }

    fn apply(&self, entries: Vec<Entry>, is_awaited: bool, on_applied: OnApplied) {
        if let Some(stuck) = &mut *lock(&self.stuck) {
            return stuck.unanswered.push(on_applied);
        }
        let mut waiting: Vec<Told> = entries.iter().map(Told::from).collect();
        self.check_log(&entries);
        let expected = std::mem::take(&mut *self.expected());
        if !expected.is_empty() {
            let is_same = |(expected, entry): (&LogId, &Entry)| *expected == entry.log_id;
            self.history.expected(expected.len() <= entries.len() && expected.iter().zip(&entries).all(is_same));
        }
        let (who, history, counted) = (self.who.clone(), self.history.clone(), Counted::by(&self.applying));
        let (mut counted, mut on_applied, stuck) = (Some(counted), Some(on_applied), Arc::clone(&self.stuck));
        let tell = move |result: Result<Vec<Option<Outcome>>, StoreFault>| {
            if let Some(stuck) = &mut *lock(&stuck) {
                return stuck.unanswered.extend(on_applied.take());
            }
            match &result {
                Ok(outcomes) => {
                    let applied: Vec<Told> = waiting.drain(..outcomes.len().min(waiting.len())).collect();
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
            return self.store.apply(entries, is_awaited, Box::new(tell));
        }
        let store = self.store.clone();
        drop(self.env.spawn(async move {
            sleep(late).await;
            store.apply(entries, is_awaited, Box::new(tell));
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

    fn foresee(&self, entries: Vec<Entry>) {
        if lock(&self.stuck).is_some() {
            return;
        }
        *self.expected() = entries.iter().map(|entry| entry.log_id).collect();
        self.store.foresee(entries);
    }

    fn durable(&self) -> Applied {
        self.store.durable()
    }

    fn fault(&self) -> Option<StoreFault> {
        self.store.fault()
    }

    fn send_image(&self) -> Result<Box<dyn ImageSource>, StoreFault> {
        // What is changed behind a node's back spreads with its images until somebody notices: no oracle could hold.
        if self.history.is_tampered(&self.who) {
            return Err(StoreFault::ImageLost("its data were tampered with".to_owned()));
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

/// An image on its way out.
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

/// An image on its way in.
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

/// An image that came as a whole.
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
