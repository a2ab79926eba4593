//! Waiters for topics: a blocking pop, a lock, a listener.
//!
//! A caller registers, then looks, so it misses nothing. If it finds nothing, it waits. When an entry that touches its
//! topic is committed, it is woken and looks again. If it finds nothing then, because another client was faster or
//! because two topics have the same number, it passes its turn on ([`Waiter::pass_on`]), registers again and waits.
//!
//! # Invariants
//!
//! - The waiters of a topic are woken first in, first out, one for each time that the topic is touched. Those who watch
//!   it ([`Topic::watched`]) are all woken, because what they wait for is for all.
//! - A waiter that was woken but goes away before it has noticed passes its turn on to the next.
//! - Nothing of a waiter is left when it is dropped.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex};

use quorate_env::lock;
use quorate_model::Topic;
use tokio::sync::oneshot;

/// The most waiters of a node.
pub const WAITERS_MAX: usize = 65_536;

/// Too many waiters are registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{WAITERS_MAX} callers wait on this node already; wait for less at a time, or on another node")]
pub struct TooManyWaiters;

impl TooManyWaiters {
    /// Always true: some waiters may go.
    pub fn is_retryable(&self) -> bool {
        true
    }
}

/// Why a waiter was woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The entry at this index touched the topic.
    By(u64),
    /// The state was replaced as a whole, and may hold what the waiter waits for.
    Replaced,
}

/// The waiters of a node. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Waits(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    /// By topic, and in the order in which they came.
    waiting: BTreeMap<Topic, BTreeMap<u64, oneshot::Sender<Woken>>>,
    count: usize,
    /// The number of the next waiter.
    next: u64,
}

/// A registered waiter.
#[derive(Debug)]
pub struct Waiter {
    waits: Waits,
    topic: Topic,
    number: u64,
    woken: oneshot::Receiver<Woken>,
}

impl Waits {
    /// Registers a waiter behind those that wait for the topic already.
    ///
    /// # Errors
    ///
    /// Fails if the node has [`WAITERS_MAX`] waiters.
    pub fn register(&self, topic: Topic) -> Result<Waiter, TooManyWaiters> {
        let mut inner = lock(&self.0);
        if inner.count >= WAITERS_MAX {
            return Err(TooManyWaiters);
        }
        let (sender, woken) = oneshot::channel();
        let number = inner.next;
        inner.next = inner.next.saturating_add(1);
        inner.count = inner.count.saturating_add(1);
        inner.waiting.entry(topic).or_default().insert(number, sender);
        Ok(Waiter { waits: self.clone(), topic, number, woken })
    }

    /// Wakes one waiter for each touched topic, and all who watch it. The caller must have committed the entries,
    /// and made them visible to readers.
    pub fn wake(&self, touched: &[(u64, Topic)]) {
        if touched.is_empty() {
            return;
        }
        let mut inner = lock(&self.0);
        for (index, topic) in touched {
            inner.wake(*topic, Woken::By(*index));
            inner.wake_watchers(*topic, Woken::By(*index));
        }
    }

    /// Wakes all waiters, because the state was replaced.
    pub fn wake_all(&self) {
        let mut inner = lock(&self.0);
        inner.count = 0;
        let all = std::mem::take(&mut inner.waiting);
        drop(inner);
        for sender in all.into_values().flat_map(BTreeMap::into_values) {
            // A waiter that is gone needs no answer.
            let _ = sender.send(Woken::Replaced);
        }
    }

    /// Returns the number of waiters.
    pub fn count(&self) -> usize {
        lock(&self.0).count
    }
}

impl Inner {
    /// Wakes the first waiter of a topic that is still there.
    fn wake(&mut self, topic: Topic, woken: Woken) {
        let Entry::Occupied(mut waiting) = self.waiting.entry(topic) else { return };
        while let Some((_, sender)) = waiting.get_mut().pop_first() {
            self.count = self.count.saturating_sub(1);
            if sender.send(woken).is_ok() {
                break;
            }
        }
        if waiting.get().is_empty() {
            waiting.remove();
        }
    }

    /// Wakes all who watch a topic.
    fn wake_watchers(&mut self, topic: Topic, woken: Woken) {
        let all = self.waiting.remove(&topic.watched()).unwrap_or_default();
        self.count = self.count.saturating_sub(all.len());
        for sender in all.into_values() {
            // A waiter that is gone needs no answer.
            let _ = sender.send(woken);
        }
    }
}

impl Waiter {
    /// Waits until the waiter is woken. May be called again when its future was dropped, but not after it has returned.
    pub async fn woken(&mut self) -> Woken {
        // The sender is dropped only after it has sent.
        (&mut self.woken).await.unwrap_or(Woken::Replaced)
    }

    /// Wakes the next waiter of the topic, because this one was woken and found nothing for itself.
    pub fn pass_on(self, woken: Woken) {
        lock(&self.waits.0).wake(self.topic, woken);
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut inner = lock(&self.waits.0);
        if let Entry::Occupied(mut waiting) = inner.waiting.entry(self.topic)
            && waiting.get_mut().remove(&self.number).is_some()
        {
            if waiting.get().is_empty() {
                waiting.remove();
            }
            inner.count = inner.count.saturating_sub(1);
        }
        self.woken.close();
        if let Ok(woken) = self.woken.try_recv() {
            inner.wake(self.topic, woken);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    const TOPIC: Topic = Topic(7);

    fn is_woken(waiter: &mut Waiter) -> Option<Woken> {
        waiter.woken.try_recv().ok()
    }

    #[test]
    fn waiters_are_woken_in_order_one_for_each_touch() {
        let waits = Waits::default();
        let [mut first, mut second, mut third] = [(); 3].map(|()| waits.register(TOPIC).unwrap());
        let mut other = waits.register(Topic(8)).unwrap();
        waits.wake(&[(10, TOPIC), (11, TOPIC), (12, Topic(9))]);
        assert_eq!((is_woken(&mut first), is_woken(&mut second)), (Some(Woken::By(10)), Some(Woken::By(11))));
        assert_eq!((is_woken(&mut third), is_woken(&mut other), waits.count()), (None, None, 2));
        waits.wake_all();
        assert_eq!((is_woken(&mut third), is_woken(&mut other)), (Some(Woken::Replaced), Some(Woken::Replaced)));
        assert_eq!(waits.count(), 0);
    }

    #[test]
    fn a_touch_wakes_all_who_watch_and_they_take_no_turn() {
        let waits = Waits::default();
        let mut watchers = [(); 3].map(|()| waits.register(TOPIC.watched()).unwrap());
        let [mut first, mut second] = [(); 2].map(|()| waits.register(TOPIC).unwrap());
        let mut other = waits.register(Topic(8).watched()).unwrap();
        waits.wake(&[(10, TOPIC)]);
        assert_eq!(watchers.each_mut().map(is_woken), [Some(Woken::By(10)); 3]);
        assert_eq!([&mut first, &mut second, &mut other].map(is_woken), [Some(Woken::By(10)), None, None]);
        assert_eq!(waits.count(), 2);
    }

    #[test]
    fn a_waiter_that_goes_away_leaves_nothing_and_passes_its_turn_on() {
        let waits = Waits::default();
        let [first, second, mut third] = [(); 3].map(|()| waits.register(TOPIC).unwrap());
        drop(second);
        assert_eq!(waits.count(), 2);
        waits.wake(&[(10, TOPIC)]);
        assert_eq!(is_woken(&mut third), None);
        drop(first);
        assert_eq!(is_woken(&mut third), Some(Woken::By(10)));
        let mut fourth = waits.register(TOPIC).unwrap();
        third.pass_on(Woken::By(10));
        assert_eq!(is_woken(&mut fourth), Some(Woken::By(10)));
        drop(fourth);
        assert!(lock(&waits.0).waiting.is_empty() && waits.count() == 0);
    }
}
