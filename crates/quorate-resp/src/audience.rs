//! Who listens to which channels, over all connections of a node.
//!
//! Invariant: a connection counts once for each channel and each pattern that it listens to, until it ends that.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use bytes::Bytes;
use quorate_env::lock;

use crate::glob::Glob;

/// Who listens to what.
#[derive(Debug, Default)]
pub struct Audience(Mutex<Listeners>);

#[derive(Debug, Default)]
struct Listeners {
    channels: BTreeMap<Bytes, u64>,
    patterns: BTreeMap<Bytes, (Glob, u64)>,
}

impl Audience {
    /// Returns how many messages an event of a channel is: one for each connection and each of its subscriptions.
    pub fn reached(&self, channel: &[u8]) -> u64 {
        let listeners = self.listeners();
        let matching = listeners.patterns.values().filter(|(glob, _)| glob.matches(channel));
        listeners.channels.get(channel).copied().unwrap_or(0) + matching.map(|(_, count)| count).sum::<u64>()
    }

    /// Returns how many listen to a channel by its name.
    pub(crate) fn listening(&self, channel: &[u8]) -> u64 {
        self.listeners().channels.get(channel).copied().unwrap_or(0)
    }

    /// Returns the channels that anybody listens to by their names.
    pub(crate) fn channels(&self, wanted: Option<&Glob>) -> Vec<Bytes> {
        let listeners = self.listeners();
        let wanted = listeners.channels.keys().filter(|name| wanted.is_none_or(|glob| glob.matches(name)));
        wanted.cloned().collect()
    }

    /// Returns how many patterns anybody listens to.
    pub(crate) fn patterns(&self) -> u64 {
        self.listeners().patterns.len() as u64
    }

    pub(crate) fn join_channel(&self, name: &Bytes) {
        *self.listeners().channels.entry(name.clone()).or_default() += 1;
    }

    pub(crate) fn join_pattern(&self, name: &Bytes, glob: &Glob) {
        self.listeners().patterns.entry(name.clone()).or_insert_with(|| (glob.clone(), 0)).1 += 1;
    }

    pub(crate) fn leave_channel(&self, name: &Bytes) {
        let channels = &mut self.listeners().channels;
        if let Some(count) = channels.get_mut(name) {
            *count -= 1;
            if *count == 0 {
                channels.remove(name);
            }
        }
    }

    pub(crate) fn leave_pattern(&self, name: &Bytes) {
        let patterns = &mut self.listeners().patterns;
        if let Some((_, count)) = patterns.get_mut(name) {
            *count -= 1;
            if *count == 0 {
                patterns.remove(name);
            }
        }
    }

    fn listeners(&self) -> MutexGuard<'_, Listeners> {
        lock(&self.0)
    }
}
