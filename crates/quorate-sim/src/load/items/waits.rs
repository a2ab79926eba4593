//! Waits for items: on a node, and over the network.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};
use quorate::sim::{Waiter, register_waiter};
use quorate::{Client, ClientConfig};
use quorate_apply::items::topic;
use quorate_apply::memory_store::MemoryStore;
use quorate_apply::waits::Woken;
use quorate_env::timeout;
use quorate_model::StateMachine as _;

use super::{ItemsClient, Part};
use crate::cluster::{BESIDE, Cluster};
use crate::coverage::{ITEM_WAITED, TURN_PASSED};
use crate::load::WRITE_LIMIT;

/// How long a woken waiter may take to run.
const WAKE_MAX: Duration = Duration::from_millis(100);

/// How long a turn may stay with a waiter over the network. A node gives up a silent client after 20 seconds.
const TURN_MAX: Duration = Duration::from_secs(40);

/// The longest time to connect and to register.
const REGISTER_MAX: Duration = Duration::from_secs(2);

/// A waiter over the network. It uses no turn: it passes its turn on, or goes away with its client.
struct Remote {
    waiter: Waiter,
    goes_with: Option<Client>,
}

impl ItemsClient {
    /// Waits on one node for an item that is added through another. The waiter must not be woken before the item can be
    /// read, and it must be woken then. Sometimes a waiter over the network comes first, and does not use its turn.
    pub(super) async fn wait(&mut self, part: &Part) {
        let (Some(name), key) = (self.name(), self.next_key()) else { return };
        let Some((_, items)) = self.part_of(name) else { return };
        let has_remote = self.rng.below(2) == 0;
        let remote = if has_remote { self.register(name, &key).await } else { None };
        // The waiters of a node end with it, and the next life has a store of its own.
        let is_alive = || self.cluster.items(name).is_some_and(|now| Arc::ptr_eq(&now, &items));
        if !is_alive() {
            return;
        }
        // The node may register a waiter whose client has given up.
        let limit = if has_remote { TURN_MAX } else { WAKE_MAX };
        let store = items.store();
        let Ok(mut waiter) = store.waits().register(topic(&key)) else { return };
        let waiting = async {
            let watching = async {
                let woken = waiter.woken().await;
                self.check_woken(store, &key, woken);
                self.ledger.happened(ITEM_WAITED);
            };
            let adding = async {
                let added = self.add_key(part, key.clone(), 0).await?;
                let applied = timeout(WRITE_LIMIT, store.applied_to(added.index)).await;
                applied.is_ok().then_some(added)
            };
            let (mut watching, mut adding) = (pin!(watching), pin!(adding));
            match select(&mut watching, &mut adding).await {
                Either::Left(_) => drop(adding.await),
                Either::Right((Some(added), _)) => {
                    let is_woken = timeout(limit, watching).await.is_ok();
                    if !is_woken && is_alive() {
                        self.violation(format!("a waiter for {key:?}, added at {added}, was not woken on {name}"));
                    }
                }
                Either::Right((None, _)) => {}
            }
        };
        let passing = async {
            if let Some(remote) = remote {
                self.pass_on(store, &key, remote).await;
            }
            pending::<()>().await
        };
        select(pin!(waiting), pin!(passing)).await;
    }

    /// Registers a waiter over the network.
    async fn register(&mut self, name: &'static str, key: &Bytes) -> Option<Remote> {
        let registering = async {
            if !self.remotes.contains_key(name) {
                let config = ClientConfig::pinned(self.cluster.addr(name), Cluster::secret());
                let client = Client::connect_in(self.env.clone(), config).await.ok()?;
                self.remotes.insert(name, client);
            }
            register_waiter(self.remotes.get(name)?, BESIDE, topic(key)).await.ok()
        };
        let Ok(Some(waiter)) = timeout(REGISTER_MAX, registering).await else {
            // The next life of the node may have another address.
            self.remotes.remove(name);
            return None;
        };
        let goes_with = if self.rng.below(2) == 0 { self.remotes.remove(name) } else { None };
        Some(Remote { waiter, goes_with })
    }

    /// Waits for the turn of a waiter over the network, and does not use it.
    async fn pass_on(&self, store: &MemoryStore, key: &Bytes, Remote { mut waiter, goes_with }: Remote) {
        // After an error the node passes the turn on by itself.
        let Ok(woken) = waiter.woken().await else { return };
        self.check_woken(store, key, woken);
        self.ledger.happened(TURN_PASSED);
        if let Some(client) = goes_with {
            client.close().await;
        }
        waiter.pass_on();
    }

    fn check_woken(&self, store: &MemoryStore, key: &Bytes, woken: Woken) {
        let Woken::By(index) = woken else { return };
        let applied = store.applied().index();
        let has_item = store.read(|memory, _| memory.item(key, 0).is_some());
        if applied < index || !has_item {
            self.violation(format!("a waiter for {key:?} was woken by {index} at {applied}"));
        }
    }
}
