//! The places of a server for connections.
//!
//! A client that stalls on many connections must not keep others out: nodes could not reconnect, and a health check
//! that gets no connection would cause the restart of a healthy process. Therefore a new connection always gets a
//! place. If all are taken, the address with the most places loses the one that has been idle longest. One that works
//! on a request is not idle, and is spared while its address has idle ones: a stalled connection loses its place before
//! one that is in use.
//!
//! Invariant: at most as many connections as the server allows have a place.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::{Notify, oneshot};

use crate::lock;

/// Takes the place of the time of the last use while a connection works. It is later than all such times.
const AT_WORK: u64 = u64::MAX;

/// The places of a server, and their holders.
#[derive(Debug)]
pub struct Places {
    max: usize,
    held: Mutex<Held>,
    /// The number of uses so far, which is the time by which they are compared. A place is used when it is given, and
    /// when work ends.
    uses: AtomicU64,
    /// Notified when a place is released.
    freed: Notify,
}

#[derive(Debug, Default)]
struct Held {
    /// The number of places given so far.
    given: u64,
    /// The number of places that are held.
    count: usize,
    /// The places of each host, by their numbers. Each host has some.
    by_host: BTreeMap<String, BTreeMap<u64, Holder>>,
}

/// The holder of a place.
#[derive(Debug)]
struct Holder {
    /// When the place was used last.
    used: Arc<AtomicU64>,
    /// Its drop takes the place away.
    _keep: oneshot::Sender<()>,
}

/// A place, until it is dropped or another connection takes it.
#[derive(Debug)]
pub struct Place {
    host: String,
    number: u64,
    kept: oneshot::Receiver<()>,
    usage: Usage,
}

/// Tells when the connection that has a place works.
#[derive(Clone, Debug)]
pub struct Usage {
    places: Arc<Places>,
    used: Arc<AtomicU64>,
}

/// The work of a connection, until it is dropped.
#[derive(Debug)]
pub struct Work(Usage);

impl Places {
    /// Returns this number of places.
    pub fn new(max: usize) -> Self {
        Self { max, held: Mutex::default(), uses: AtomicU64::default(), freed: Notify::new() }
    }

    /// Returns a place for a connection from `host:port`.
    pub fn take(self: &Arc<Self>, from: &str) -> Place {
        let host = from.rsplit_once(':').map_or(from, |(host, _)| host).to_owned();
        let mut held = self.held();
        while held.count >= self.max {
            let Some((host, number)) = held.idle_longest_of_most() else { break };
            // This notifies its connection.
            held.remove(&host, number);
        }
        let (number, (keep, kept)) = (held.given, oneshot::channel());
        let used = Arc::new(AtomicU64::new(self.now()));
        held.given = held.given.saturating_add(1);
        held.count = held.count.saturating_add(1);
        let holder = Holder { used: Arc::clone(&used), _keep: keep };
        held.by_host.entry(host.clone()).or_default().insert(number, holder);
        Place { host, number, kept, usage: Usage { places: Arc::clone(self), used } }
    }

    /// Waits until all places are free.
    pub async fn all_free(&self) {
        loop {
            let freed = self.freed.notified();
            if self.held().count == 0 {
                return;
            }
            freed.await;
        }
    }

    /// Returns the time of a use, which is later than that of all before it.
    fn now(&self) -> u64 {
        self.uses.fetch_add(1, Ordering::Relaxed)
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        lock(&self.held)
    }
}

impl Held {
    /// Returns the place that has been idle longest of the host that has the most, or of all such hosts. If all of them
    /// work, it is the oldest.
    fn idle_longest_of_most(&self) -> Option<(String, u64)> {
        let most = self.by_host.values().map(BTreeMap::len).max()?;
        let hosts = self.by_host.iter().filter(|(_, places)| places.len() == most);
        let places = hosts.flat_map(|(host, places)| places.iter().map(move |place| (host, place)));
        let idle = places.min_by_key(|(_, (number, holder))| (holder.used.load(Ordering::Relaxed), **number));
        idle.map(|(host, (number, _))| (host.clone(), *number))
    }

    /// Takes a place from its holder, if that still has it.
    fn remove(&mut self, host: &str, number: u64) {
        let Some(places) = self.by_host.get_mut(host) else { return };
        if places.remove(&number).is_some() {
            self.count = self.count.saturating_sub(1);
        }
        if places.is_empty() {
            self.by_host.remove(host);
        }
    }
}

impl Place {
    /// Waits until another connection takes the place.
    pub async fn lost(&mut self) {
        // Nothing is ever sent: this waits until the sender is dropped.
        let _ = (&mut self.kept).await;
    }

    /// Returns what tells when the connection works.
    pub fn usage(&self) -> Usage {
        self.usage.clone()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Usage { places, .. } = &self.usage;
        places.held().remove(&self.host, self.number);
        places.freed.notify_one();
    }
}

impl Usage {
    /// Says that the connection works until the result is dropped. The work of a connection must not overlap.
    pub fn work(&self) -> Work {
        self.used.store(AT_WORK, Ordering::Relaxed);
        Work(self.clone())
    }

    /// Returns whether the connection works.
    pub fn is_at_work(&self) -> bool {
        self.used.load(Ordering::Relaxed) == AT_WORK
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let Self(Usage { places, used }) = self;
        used.store(places.now(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests stop at the first surprise")]

    use super::*;

    const PLACES: usize = 8;

    fn is_lost(place: &mut Place) -> bool {
        place.kept.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    #[test]
    fn the_host_with_the_most_places_loses_its_oldest() {
        let places = Arc::new(Places::new(PLACES));
        let mut old = places.take("10.0.0.1:1");
        let mut many: Vec<Place> = (1..PLACES).map(|port| places.take(&format!("10.0.0.2:{port}"))).collect();
        let mut new = places.take("[::1]:1");
        assert!(is_lost(&mut many[0]) && !is_lost(&mut many[1]));
        assert!(!is_lost(&mut old) && !is_lost(&mut new));
        let again = places.take("10.0.0.2:9");
        assert!(is_lost(&mut many[1]) && !is_lost(&mut old));
        drop((old, new, again, many));
        assert!(places.held().by_host.is_empty() && places.held().count == 0);
    }

    #[test]
    fn the_place_that_has_been_idle_longest_is_lost_before_those_that_work() {
        let places = Arc::new(Places::new(3));
        let [mut first, mut second, mut third] = ["a:1", "a:2", "a:3"].map(|from| places.take(from));
        let working = first.usage().work();
        drop(second.usage().work());
        let mut fourth = places.take("a:4");
        assert!(is_lost(&mut third), "the second was used after it");
        assert!(!is_lost(&mut first) && !is_lost(&mut second));
        let also_working = [&second, &fourth].map(|place| place.usage().work());
        let mut fifth = places.take("a:5");
        assert!(is_lost(&mut first), "all work, and it is the oldest");
        assert!(![&mut second, &mut fourth, &mut fifth].map(is_lost).contains(&true));
        drop((working, also_working));
        let _sixth = places.take("a:6");
        assert!(is_lost(&mut fifth) && !is_lost(&mut second) && !is_lost(&mut fourth));
    }

    #[test]
    fn of_hosts_that_have_as_many_the_one_that_has_been_idle_longest_loses_a_place() {
        let places = Arc::new(Places::new(4));
        let [mut old, mut other] = ["b:1", "a:1"].map(|from| places.take(from));
        let [mut third, mut fourth] = ["b:2", "a:2"].map(|from| places.take(from));
        let _new = places.take("c:1");
        assert!(is_lost(&mut old));
        assert!(![&mut other, &mut third, &mut fourth].map(is_lost).contains(&true));
    }
}
