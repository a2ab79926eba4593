//! The entries that wait for the writer.
//!
//! Consensus hands entries over in jobs. The writer applies them in batches that ignore the bounds of jobs. After each
//! batch it gives every job the outcomes of its entries in that batch.
//!
//! Invariant: a job gets the outcome of each of its entries exactly once, or a fault in place of the missing ones,
//! unless the writer is killed.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use quorate_env::lock;
use quorate_model::{Entry, OnApplied, Outcome, Payload, StoreFault};

use crate::options::{BATCH_BYTES_MAX, QUEUE_BYTES_MAX};

/// Entries that were handed over together.
struct Job {
    entries: Vec<Entry>,
    bytes: usize,
    is_awaited: bool,
    on_applied: OnApplied,
}

/// Jobs on their way to the writer.
#[derive(Default)]
pub(crate) struct Queue(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    jobs: Vec<Job>,
    bytes: usize,
    /// Entries that will probably come in a job soon. Only those of the latest call are kept.
    prefetched: Vec<Entry>,
    closed: bool,
}

/// The writer's side of a [`Queue`]: the entries in order, and the jobs to answer.
#[derive(Default)]
pub(crate) struct Backlog {
    entries: VecDeque<Entry>,
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    left: usize,
    bytes: usize,
    is_awaited: bool,
    on_applied: OnApplied,
}

impl Queue {
    /// Takes a job, or refuses it at once if there is no room or the writer has ended.
    pub(crate) fn push(&self, entries: Vec<Entry>, is_awaited: bool, mut on_applied: OnApplied) {
        let bytes = entries.iter().map(size).sum();
        let mut inner = self.lock();
        let refusal = if inner.closed {
            StoreFault::Closed
        } else if inner.bytes.saturating_add(bytes) > QUEUE_BYTES_MAX && inner.bytes > 0 {
            StoreFault::Io(format!(
                "over {QUEUE_BYTES_MAX} bytes wait to be applied; wait for outcomes before sending more"
            ))
        } else {
            inner.bytes = inner.bytes.saturating_add(bytes);
            inner.jobs.push(Job { entries, bytes, is_awaited, on_applied });
            return;
        };
        drop(inner);
        on_applied(Err(refusal));
    }

    /// Moves all jobs to the writer's side. Their bytes count until they are answered.
    pub(crate) fn take(&self, backlog: &mut Backlog) {
        let jobs = std::mem::take(&mut self.lock().jobs);
        for Job { entries, bytes, is_awaited, on_applied } in jobs {
            backlog.waiting.push_back(Waiting { left: entries.len(), bytes, is_awaited, on_applied });
            backlog.entries.extend(entries);
        }
    }

    /// Stores entries that will probably come in a job soon.
    pub(crate) fn prefetch(&self, entries: Vec<Entry>) {
        self.lock().prefetched = entries;
    }

    /// Removes and returns the entries that will probably come in a job soon.
    pub(crate) fn take_prefetched(&self) -> Vec<Entry> {
        std::mem::take(&mut self.lock().prefetched)
    }

    /// Refuses every job from now on.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
    }

    /// Bytes of the entries that were handed over and are not answered yet.
    pub(crate) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    fn answered(&self, bytes: usize) {
        let mut inner = self.lock();
        inner.bytes = inner.bytes.saturating_sub(bytes);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.0)
    }
}

impl Backlog {
    /// Whether there is no entry to apply and no (empty) job to answer.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether callers wait for some of the entries.
    pub(crate) fn is_awaited(&self) -> bool {
        self.waiting.iter().any(|job| job.is_awaited)
    }

    /// The next batch: at most `max` entries and about [`BATCH_BYTES_MAX`] bytes, but at least one entry if there is
    /// one.
    pub(crate) fn batch(&mut self, max: usize) -> &[Entry] {
        batch_of(self.entries.make_contiguous(), max)
    }

    /// Hands the outcomes of the first entries to their jobs.
    pub(crate) fn answer(&mut self, queue: &Queue, outcomes: Vec<Option<Outcome>>) {
        self.entries.drain(..outcomes.len().min(self.entries.len()));
        let mut outcomes = outcomes.into_iter();
        while let Some(mut job) = self.waiting.pop_front() {
            let part: Vec<_> = outcomes.by_ref().take(job.left).collect();
            job.left = job.left.saturating_sub(part.len());
            let is_over = job.left == 0;
            if is_over {
                queue.answered(job.bytes);
            }
            if is_over || !part.is_empty() {
                (job.on_applied)(Ok(part));
            }
            if !is_over {
                return self.waiting.push_front(job);
            }
        }
    }

    /// Answers every job with a fault.
    pub(crate) fn fail(&mut self, queue: &Queue, fault: &StoreFault) {
        self.entries.clear();
        for mut job in self.waiting.drain(..) {
            queue.answered(job.bytes);
            (job.on_applied)(Err(fault.clone()));
        }
    }
}

/// The first of these entries, as many as make a batch.
pub(crate) fn batch_of(entries: &[Entry], max: usize) -> &[Entry] {
    let mut bytes = 0_usize;
    let fits = |entry: &&Entry| {
        bytes = bytes.saturating_add(size(entry));
        bytes <= BATCH_BYTES_MAX
    };
    let count = entries.iter().take(max).take_while(fits).count().max(1);
    entries.get(..count).unwrap_or(entries)
}

/// The approximate size of an entry in bytes.
fn size(entry: &Entry) -> usize {
    let payload = match &entry.payload {
        Payload::Blank | Payload::Reject(_) => 0,
        Payload::Proposal(_, bytes) | Payload::Rejected(_, bytes) | Payload::Membership(bytes) => bytes.len(),
    };
    payload.saturating_add(size_of::<Entry>())
}
