//! The trace of a simulated world: a running hash of all events, and the text of the latest ones.
//!
//! Invariant: two runs with equal seeds and equal scenarios have equal hashes. If they don't, some input comes from
//! outside the world: a real clock, an unseeded hash map, an unbiased `select!`.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::clock::Timeline;
use quorate_env::lock;

/// The number of events whose text is kept.
const KEPT: usize = 4_000;

/// Parameters of the 64-bit FNV-1a hash.
const HASH_START: u64 = 0xcbf2_9ce4_8422_2325;
const HASH_PRIME: u64 = 0x0000_0100_0000_01b3;

/// The events of a world. Clones share one trace.
#[derive(Clone, Debug)]
pub struct Trace(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    timeline: Timeline,
    events: Mutex<Events>,
}

#[derive(Debug)]
struct Events {
    hash: u64,
    count: u64,
    last: VecDeque<String>,
}

impl Trace {
    pub(crate) fn new(timeline: Timeline) -> Self {
        let events = Events { hash: HASH_START, count: 0, last: VecDeque::with_capacity(KEPT) };
        Self(Arc::new(Inner { timeline, events: Mutex::new(events) }))
    }

    /// Adds an event of `who`, with the virtual time.
    pub fn add(&self, who: &str, what: fmt::Arguments<'_>) {
        let time = self.0.timeline.elapsed();
        let event = format!("{:>12.6} {who}: {what}", time.as_secs_f64());
        let mut events = self.events();
        for byte in event.bytes() {
            events.hash = (events.hash ^ u64::from(byte)).wrapping_mul(HASH_PRIME);
        }
        events.count += 1;
        if events.last.len() == KEPT {
            events.last.pop_front();
        }
        events.last.push_back(event);
    }

    /// Returns the hash of all events so far.
    pub fn hash(&self) -> u64 {
        self.events().hash
    }

    /// Returns the number of events so far.
    pub fn count(&self) -> u64 {
        self.events().count
    }

    /// Returns the text of the last `count` events, one per line, as far as it is kept.
    pub fn tail(&self, count: usize) -> String {
        let events = self.events();
        let skipped = events.last.len().saturating_sub(count);
        events.last.iter().skip(skipped).flat_map(|event| [event.as_str(), "\n"]).collect()
    }

    fn events(&self) -> MutexGuard<'_, Events> {
        lock(&self.0.events)
    }
}
