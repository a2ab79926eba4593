//! What a port counts. `docs/metrics.md` describes it.

use std::sync::atomic::{AtomicUsize, Ordering};

use quorate_env::metrics::Counter;

/// The counts of a port.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// The connections that were accepted.
    pub(crate) connections: Counter,
    /// The commands that were answered.
    pub(crate) commands: Counter,
    /// Those of them whose reply was an error.
    pub(crate) errors: Counter,
    /// The notifications that were dropped.
    pub(crate) missed: Counter,
    open: AtomicUsize,
    waiting: AtomicUsize,
}

/// Counts one more until it is dropped.
#[derive(Debug)]
pub(super) struct Counted<'a>(&'a AtomicUsize);

impl Counts {
    /// Returns how many connections are open.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Returns how many clients wait for a change of keys.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    pub(super) fn count_open(&self) -> Counted<'_> {
        Counted::new(&self.open)
    }

    pub(super) fn count_waiting(&self) -> Counted<'_> {
        Counted::new(&self.waiting)
    }
}

impl<'a> Counted<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
