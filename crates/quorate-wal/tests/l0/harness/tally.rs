//! Counts how often each class of event happened.

use std::collections::BTreeMap;

/// The classes of events. A run of sufficient size must include each of them.
const CLASSES: &[&str] = &[
    "end: power loss",
    "end: kill",
    "end: clean close",
    "stopped: running",
    "stopped: opening",
    "fault: i/o error",
    "fault: no space",
    "fault: failed sync",
    "fault: read error",
    "fault: bit flip",
    "verdict: all kept",
    "verdict: unacknowledged lost",
    "verdict: unacknowledged partly kept",
    "verdict: torn tail cut",
    "verdict: damage refused",
    "verdict: damage harmless",
    "verdict: last frame damaged",
    "verdict: os entries lost with power",
    "verdict: restart reported",
    "log: poisoned",
    "log: waited for space",
    "log: segments begun",
    "log: segments recycled",
    "log: frame larger than a segment",
    "log: entries replaced after truncation",
    "log: purged beyond the end",
    "log: cold reads",
];

/// The number of events by class.
#[derive(Clone, Debug, Default)]
pub struct Tally(BTreeMap<&'static str, u64>);

impl Tally {
    pub fn count(&mut self, class: &'static str) {
        self.add(class, 1);
    }

    pub fn add(&mut self, class: &'static str, times: u64) {
        debug_assert!(CLASSES.contains(&class), "{class} is not a class");
        *self.0.entry(class).or_default() += times;
    }

    pub fn merge(&mut self, other: &Self) {
        for (class, times) in &other.0 {
            *self.0.entry(class).or_default() += times;
        }
    }

    /// The classes without any event.
    pub fn missing(&self) -> Vec<&'static str> {
        CLASSES.iter().filter(|class| !self.0.contains_key(*class)).copied().collect()
    }

    /// One line per class.
    pub fn lines(&self) -> Vec<String> {
        CLASSES.iter().map(|class| format!("{:>12}  {class}", self.0.get(class).copied().unwrap_or(0))).collect()
    }
}
