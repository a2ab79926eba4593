//! What happened in a simulated world: a running hash of every event, and the last of them in words.
//!
//! Invariant: two runs with equal seeds and equal scenarios have equal hashes. Where they don't, something in them
//! comes from outside of the world: a real clock, an unseeded hash map, an unbiased `select!`.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::clock::Timeline;
use quorate_env::lock;

/// Events that are kept in words.
const KEPT: usize = 4_000;

/// FNV-1a, 64 bits.
const HASH_START: u64 = 0xcbf2_9ce4_8422_2325;
const HASH_PRIME: u64 = 0x0000_0100_0000_01b3;

/// The events of a world. Clones are the same trace.
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

    /// Adds an event, with the virtual time and who it happened to.
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

    /// The hash of all events so far.
    pub fn hash(&self) -> u64 {
        self.events().hash
    }

    /// Events so far.
    pub fn count(&self) -> u64 {
        self.events().count
    }

    /// The last `count` events, a line each, as far as they are kept.
    pub fn tail(&self, count: usize) -> String {
        let events = self.events();
        let skipped = events.last.len().saturating_sub(count);
        events.last.iter().skip(skipped).flat_map(|event| [event.as_str(), "\n"]).collect()
    }

    fn events(&self) -> MutexGuard<'_, Events> {
        lock(&self.0.events)
    }
}
