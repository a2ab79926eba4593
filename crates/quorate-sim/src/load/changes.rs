//! Clients that watch the changes of keys that a node applies, while other clients write cells.
//!
//! Invariant: a client judges what it heard between two writes of its own, its marks. It watches before it writes the
//! first one, and its node has applied the second one. So the rows of cells between them say what it must have heard.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quorate::keys::{EventClasses, Watched};
use quorate::{Level, Position, Sql};
use quorate_env::{Rng, sleep};
use quorate_model::keys::RELATIVE_LEVEL;

use super::WRITE_LIMIT;
use crate::cluster::Cluster;
use crate::coverage::CHANGES_NOTICED;
use crate::ledger::{Ledger, Noticed};

/// How many of them there are.
pub(super) const CLIENTS: u64 = 2;

/// The longest pause between two watches, and the longest time between two marks, in milliseconds.
const PAUSE_MILLIS: u64 = 1_000;
const WATCH_MILLIS: u64 = 6_000;

/// A client.
pub(super) struct ChangesClient {
    cluster: Cluster,
    ledger: Ledger,
    rng: Rng,
    stop: Arc<AtomicBool>,
    calm: u64,
    client: u64,
    /// The number of the last mark.
    mark: u64,
}

impl ChangesClient {
    pub(super) fn new(cluster: &Cluster, ledger: &Ledger, stop: &Arc<AtomicBool>, calm: u32, client: u64) -> Self {
        let (cluster, rng) = (cluster.clone(), cluster.world().rng().fork());
        Self { cluster, ledger: ledger.clone(), rng, stop: Arc::clone(stop), calm: calm.into(), client, mark: 0 }
    }

    pub(super) async fn run(mut self) {
        while !self.stop.load(Ordering::Relaxed) {
            self.pause(PAUSE_MILLIS * self.calm).await;
            if self.cluster.statuses().iter().any(|status| status.format_level >= RELATIVE_LEVEL) {
                self.watch().await;
            }
        }
    }

    /// Watches what one node applies, and records it if nothing but entries has changed the node's keys.
    async fn watch(&mut self) -> Option<()> {
        let (name, sql) = self.some_node()?;
        let (who, watch) = self.cluster.watch_keys(name)?;
        watch.want(EventClasses::STRING);
        let (first, from) = self.mark().await?;
        self.pause(WATCH_MILLIS).await;
        let (last, to) = self.mark().await?;
        sql.keys().at(Level::AtLeast(to)).exist([last.as_str()]).await.ok()?;
        let watched = watch.take();
        let (now, _) = self.cluster.watch_keys(name)?;
        if now == who && !self.cluster.history().has_installed(&who) {
            let heard = between(&watched, &first, &last);
            self.ledger.noticed(Noticed { who, from: from.index, to: to.index, heard });
            self.ledger.happened(CHANGES_NOTICED);
        }
        Some(())
    }

    /// Sets a key of its own, and returns it with the position.
    async fn mark(&mut self) -> Option<(String, Position)> {
        self.mark += 1;
        let key = format!("mark:{}:{}", self.client, self.mark);
        // With a key for the request, the position is that of the entry that ran it, also if it is sent again.
        let keys = self.some_node()?.1.keys().with_key(key.as_str());
        let (_, position) = keys.set(key.as_str(), "").with_position().await.ok()?;
        Some((key, position))
    }

    /// Returns the handle of a random node, if that node serves, with its name.
    fn some_node(&self) -> Option<(&'static str, Sql)> {
        let names = self.cluster.names();
        let name = names.get(usize::try_from(self.rng.below(names.len() as u64)).unwrap_or(0))?;
        Some((*name, self.cluster.sql(name)?.with_deadline(WRITE_LIMIT)))
    }

    async fn pause(&self, millis: u64) {
        sleep(Duration::from_millis(self.rng.below(millis))).await;
    }
}

/// Returns the changes of cells between two marks; none if the marks are not there once.
fn between(Watched { changes, missed }: &Watched, first: &str, last: &str) -> Option<Vec<(String, &'static str)>> {
    let place_of = |mark: &str| {
        let mut places = changes.iter().enumerate().filter(|(_, change)| change.key == mark).map(|(place, _)| place);
        places.next().filter(|_| places.next().is_none())
    };
    let (from, to) = place_of(first).zip(place_of(last)).filter(|_| *missed == 0)?;
    let heard = changes.get(from..to)?.iter();
    let named = heard.filter_map(|change| Some((String::from_utf8(change.key.to_vec()).ok()?, change.event.name())));
    Some(named.filter(|(key, _)| key.starts_with("cell:")).collect())
}
