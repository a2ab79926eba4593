//! Who listens to which channels, over all connections of a node.
//!
//! Invariant: a connection counts once for each channel and each pattern that it listens to, until it ends that.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use bytes::Bytes;
use quorate_env::lock;

use crate::glob::Glob;

/// The channel of an event that was published to a shard channel begins with this. The rest is the name of the shard
/// channel.
pub const SHARD: &str = "__shard__:";

/// What a client listens to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// A channel.
    Channel,
    /// The channels that match a pattern.
    Pattern,
    /// A shard channel: they have names of their own, which no pattern matches.
    Shard,
}

/// Who listens to what.
#[derive(Debug, Default)]
pub struct Audience(Mutex<Listeners>);

#[derive(Debug, Default)]
struct Listeners {
    channels: BTreeMap<Bytes, u64>,
    shards: BTreeMap<Bytes, u64>,
    patterns: BTreeMap<Bytes, (Glob, u64)>,
}

impl Listeners {
    /// Returns the names that are listened to by this means, with how many do so.
    fn names(&mut self, of: Means) -> &mut BTreeMap<Bytes, u64> {
        if of == Means::Shard { &mut self.shards } else { &mut self.channels }
    }
}

impl Audience {
    /// Returns how many messages an event of a channel is: one for each connection and each of its subscriptions.
    pub fn reached(&self, channel: &[u8]) -> u64 {
        let listeners = self.listeners();
        if let Some(name) = channel.strip_prefix(SHARD.as_bytes()) {
            return listeners.shards.get(name).copied().unwrap_or(0);
        }
        let matching = listeners.patterns.values().filter(|(glob, _)| glob.matches(channel));
        listeners.channels.get(channel).copied().unwrap_or(0) + matching.map(|(_, count)| count).sum::<u64>()
    }

    /// Returns how many listen to a channel by its name.
    pub(crate) fn listening(&self, of: Means, channel: &[u8]) -> u64 {
        self.listeners().names(of).get(channel).copied().unwrap_or(0)
    }

    /// Returns the channels that anybody listens to by their names.
    pub(crate) fn channels(&self, of: Means, wanted: Option<&Glob>) -> Vec<Bytes> {
        let mut listeners = self.listeners();
        let wanted = listeners.names(of).keys().filter(|name| wanted.is_none_or(|glob| glob.matches(name)));
        wanted.cloned().collect()
    }

    /// Returns how many patterns anybody listens to.
    pub(crate) fn patterns(&self) -> u64 {
        self.listeners().patterns.len() as u64
    }

    pub(crate) fn join_channel(&self, of: Means, name: &Bytes) {
        *self.listeners().names(of).entry(name.clone()).or_default() += 1;
    }

    pub(crate) fn join_pattern(&self, name: &Bytes, glob: &Glob) {
        self.listeners().patterns.entry(name.clone()).or_insert_with(|| (glob.clone(), 0)).1 += 1;
    }

    pub(crate) fn leave(&self, of: Means, name: &Bytes) {
        let mut listeners = self.listeners();
        if of == Means::Pattern {
            leave(&mut listeners.patterns, name, |(_, count)| count);
        } else {
            leave(listeners.names(of), name, |count| count);
        }
    }

    fn listeners(&self) -> MutexGuard<'_, Listeners> {
        lock(&self.0)
    }
}

/// Counts one less, and forgets a name that nobody listens to.
fn leave<T>(names: &mut BTreeMap<Bytes, T>, name: &Bytes, count: impl FnOnce(&mut T) -> &mut u64) {
    let Some(of_name) = names.get_mut(name) else { return };
    let left = count(of_name);
    *left -= 1;
    if *left == 0 {
        names.remove(name);
    }
}
