//! The places of a server for connections.
//!
//! A client that stalls on many connections must not keep others out: nodes could not reconnect, and a health check
//! that gets no connection would cause the restart of a healthy process. Therefore a new connection always gets a
//! place. If all are taken, the address with the most places loses its oldest one. A handshake or a health check takes
//! some milliseconds, while a stalled connection is old.
//!
//! Invariant: at most as many connections as the server allows have a place.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::{Notify, oneshot};

use crate::lock;

/// The places of a server, and their holders.
#[derive(Debug)]
pub struct Places {
    max: usize,
    held: Mutex<Held>,
    /// Notified when a place is released.
    freed: Notify,
}

#[derive(Debug, Default)]
struct Held {
    /// The number of places given so far.
    given: u64,
    /// The places in the order in which they were given: the host, and the sender whose drop takes the place away.
    by_age: BTreeMap<u64, (String, oneshot::Sender<()>)>,
}

/// A place, until it is dropped or another connection takes it.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    number: u64,
    kept: oneshot::Receiver<()>,
}

impl Places {
    /// Returns this number of places.
    pub fn new(max: usize) -> Self {
        Self { max, held: Mutex::default(), freed: Notify::new() }
    }

    /// Returns a place for a connection from `host:port`.
    pub fn take(self: &Arc<Self>, from: &str) -> Place {
        let host = from.rsplit_once(':').map_or(from, |(host, _)| host);
        let mut held = self.held();
        while held.by_age.len() >= self.max {
            let oldest = held.oldest_of_most();
            // Dropping its sender notifies its connection.
            let Some(_lost) = oldest.and_then(|number| held.by_age.remove(&number)) else { break };
        }
        let (number, (keep, kept)) = (held.given, oneshot::channel());
        held.given = held.given.saturating_add(1);
        held.by_age.insert(number, (host.to_owned(), keep));
        Place { places: Arc::clone(self), number, kept }
    }

    /// Waits until all places are free.
    pub async fn all_free(&self) {
        loop {
            let freed = self.freed.notified();
            if self.held().by_age.is_empty() {
                return;
            }
            freed.await;
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        lock(&self.held)
    }
}

impl Held {
    /// Returns the oldest place of the host that has the most; among several such hosts, the oldest of all.
    fn oldest_of_most(&self) -> Option<u64> {
        let mut hosts: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
        for (number, (host, _)) in &self.by_age {
            let (count, _oldest) = hosts.entry(host).or_insert((0, *number));
            *count = count.saturating_add(1);
        }
        let most = hosts.into_values().max_by_key(|(count, oldest)| (*count, std::cmp::Reverse(*oldest)));
        most.map(|(_, oldest)| oldest)
    }
}

impl Place {
    /// Waits until another connection takes the place.
    pub async fn lost(&mut self) {
        // Nothing is ever sent: this waits until the sender is dropped.
        let _ = (&mut self.kept).await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.held().by_age.remove(&self.number);
        self.places.freed.notify_one();
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
        assert!(places.held().by_age.is_empty());
    }
}
