//! Changes of keys, for those who watch what this node applies.
//!
//! While nobody watches, applying notes no changes. What is noted changes nothing else, so nodes with and without
//! watchers stay equal.
//!
//! # Invariants
//!
//! - A watch gets the changes of the classes that it wants, in the order of the entries, each once, after the commit;
//!   or it learns how many it has missed.
//! - Applying never waits for a watch: what finds no room is dropped and counted.
//! - A watch gets nothing of an image, which replaces the whole state.

use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use quorate_env::lock;
use quorate_env::signal::Signal;
use quorate_model::keys::{EventClasses, KeyChange};

/// The most changes that wait for a watch.
pub const CHANGES_WAITING_MAX: usize = 16_384;

/// The most bytes of keys that wait for a watch.
pub const CHANGES_WAITING_BYTES_MAX: usize = 4 << 20;

/// The changes of a node. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Changes(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// The classes that any watch wants.
    wanted: AtomicU16,
    watches: Mutex<Vec<Arc<Queue>>>,
}

/// The changes that wait for a watch.
#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    came: Signal,
}

#[derive(Debug, Default)]
struct Waiting {
    wanted: EventClasses,
    watched: Watched,
    /// The bytes of its keys.
    bytes: usize,
}

/// Gets the changes that the node applies, until it is dropped.
#[derive(Debug)]
pub struct KeyWatch {
    all: Changes,
    queue: Arc<Queue>,
}

/// What a watch gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watched {
    /// Changes in their order.
    pub changes: Vec<KeyChange>,
    /// How many others were missed, because too many were waiting.
    pub missed: u64,
}

impl Changes {
    /// Returns a watch, which wants nothing yet.
    pub fn watch(&self) -> KeyWatch {
        let queue = Arc::<Queue>::default();
        lock(&self.0.watches).push(Arc::clone(&queue));
        KeyWatch { all: self.clone(), queue }
    }

    /// Returns the number of watches.
    pub fn count(&self) -> usize {
        lock(&self.0.watches).len()
    }

    /// Returns the classes that anybody wants.
    pub fn wanted(&self) -> EventClasses {
        EventClasses::from_bits(self.0.wanted.load(Ordering::Acquire))
    }

    /// Hands changes of committed entries to the watches that want them.
    pub fn publish(&self, changes: Vec<KeyChange>) {
        if changes.is_empty() {
            return;
        }
        for queue in lock(&self.0.watches).iter() {
            let mut waiting = lock(&queue.waiting);
            changes.iter().for_each(|change| waiting.push(change));
            drop(waiting);
            queue.came.wake();
        }
    }

    /// Works out again what anybody wants.
    fn note_wanted(&self) {
        let watches = lock(&self.0.watches);
        let wanted = watches.iter().fold(EventClasses::NONE, |all, queue| all | lock(&queue.waiting).wanted);
        self.0.wanted.store(wanted.bits(), Ordering::Release);
    }
}

impl Waiting {
    fn push(&mut self, KeyChange { space, key, event }: &KeyChange) {
        if !event.class().meet(self.wanted) {
            return;
        }
        let bytes = self.bytes.saturating_add(key.len());
        if self.watched.changes.len() >= CHANGES_WAITING_MAX || bytes > CHANGES_WAITING_BYTES_MAX {
            self.watched.missed = self.watched.missed.saturating_add(1);
            return;
        }
        self.bytes = bytes;
        // A copy, since a slice would hold the bytes of the whole entry.
        let key = Bytes::copy_from_slice(key);
        self.watched.changes.push(KeyChange { space: *space, key, event: *event });
    }

    fn take(&mut self) -> Watched {
        self.bytes = 0;
        std::mem::take(&mut self.watched)
    }
}

impl KeyWatch {
    /// Has the watch get the changes of these classes, and no others, of all entries that are proposed from now on. Of
    /// entries that are being applied it may get some.
    pub fn want(&self, classes: EventClasses) {
        let mut waiting = lock(&self.queue.waiting);
        waiting.wanted = classes;
        if classes.is_empty() {
            waiting.take();
        }
        drop(waiting);
        self.all.note_wanted();
    }

    /// Takes the changes that wait.
    pub fn take(&self) -> Watched {
        lock(&self.queue.waiting).take()
    }

    /// Waits until there are changes, or some were missed, and takes them. May be dropped at any time.
    pub async fn next(&self) -> Watched {
        loop {
            let watched = self.take();
            if watched != Watched::default() {
                return watched;
            }
            self.queue.came.wait().await;
        }
    }
}

impl Drop for KeyWatch {
    fn drop(&mut self) {
        lock(&self.all.0.watches).retain(|queue| !Arc::ptr_eq(queue, &self.queue));
        self.all.note_wanted();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use quorate_model::keys::KeyEvent;

    use super::*;

    fn change(key: impl Into<Bytes>, event: KeyEvent) -> KeyChange {
        KeyChange { space: 0, key: key.into(), event }
    }

    fn taken(watch: &KeyWatch) -> Option<Watched> {
        match pin!(watch.next()).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(watched) => Some(watched),
            Poll::Pending => None,
        }
    }

    #[test]
    fn what_waits_is_gone_once_nothing_is_wanted() {
        let all = Changes::default();
        let watch = all.watch();
        watch.want(EventClasses::STRING);
        all.publish(vec![change("k", KeyEvent::Set)]);
        watch.want(EventClasses::NONE);
        watch.want(EventClasses::STRING);
        assert_eq!(taken(&watch), None);
    }

    #[test]
    fn a_watch_gets_what_it_wants_in_order() {
        let all = Changes::default();
        let (strings, lists, none) = (all.watch(), all.watch(), all.watch());
        assert!(all.wanted().is_empty());
        strings.want(EventClasses::STRING | EventClasses::GENERIC);
        lists.want(EventClasses::LIST);
        assert!(all.wanted().meet(EventClasses::LIST) && !all.wanted().meet(EventClasses::HASH));
        let [set, push, delete] = [KeyEvent::Set, KeyEvent::LeftPush, KeyEvent::Delete].map(|event| change("k", event));
        all.publish(vec![set.clone(), push.clone()]);
        all.publish(vec![delete.clone()]);
        assert_eq!(taken(&strings).unwrap(), Watched { changes: vec![set, delete], missed: 0 });
        assert_eq!(taken(&lists).unwrap(), Watched { changes: vec![push], missed: 0 });
        assert_eq!((taken(&strings), taken(&lists), taken(&none)), (None, None, None));
        drop((strings, none));
        assert_eq!(all.wanted(), EventClasses::LIST);
        drop(lists);
        assert!(all.wanted().is_empty());
    }

    #[test]
    fn what_finds_no_room_is_counted_and_later_changes_come() {
        let all = Changes::default();
        let watch = all.watch();
        watch.want(EventClasses::STRING);
        all.publish(vec![change("k", KeyEvent::Set); CHANGES_WAITING_MAX + 3]);
        let watched = taken(&watch).unwrap();
        assert_eq!((watched.changes.len(), watched.missed), (CHANGES_WAITING_MAX, 3));
        let long = Bytes::from(vec![b'k'; 64 << 10]);
        let fit = CHANGES_WAITING_BYTES_MAX / long.len();
        all.publish(vec![change(long, KeyEvent::Set); fit + 2]);
        let watched = taken(&watch).unwrap();
        assert_eq!((watched.changes.len(), watched.missed), (fit, 2));
        all.publish(vec![change("k", KeyEvent::Append)]);
        assert_eq!(taken(&watch).unwrap().changes, [change("k", KeyEvent::Append)]);
    }
}
