//! Waits of remote clients, in a group whose store touches topics.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

mod support;

use std::sync::{Arc, Mutex};

use futures_util::FutureExt as _;
use quorate::sim::{OpenGroup, SimHooks, Waiter, group, register_waiter};
use quorate::types::GroupId;
use quorate::{Client, ClientConfig, Config, Error, Node};
use quorate_apply::items::topic;
use quorate_apply::memory_store::{MemoryStore, MemoryStoreOptions};
use quorate_apply::waits::{Waits, Woken};
use quorate_consensus::Group;
use quorate_env::{Env, lock};
use quorate_model::limits::FORMAT_LEVEL;
use quorate_model::{Command, ItemsCommand, Proposal, StateMachine, Topic, codec};
use support::{PATIENCE, Single, run, secret, until};
use tempfile::TempDir;

const GROUP: GroupId = GroupId(2);

/// A node with a group, and the waiters of the group.
struct Running {
    node: Node,
    waits: Waits,
    _dir: TempDir,
}

impl Running {
    async fn start() -> Self {
        let dir = TempDir::new().unwrap();
        let (hooks, waits) = hooks(&Single::config(&dir));
        let node = Node::start_with(Env::real(), Single::config(&dir), hooks).await.unwrap();
        let waits = lock(&waits).clone().unwrap();
        let running = Self { node, waits, _dir: dir };
        until("the group accepts items", || {
            let group = running.group();
            group.is_leader() && group.check_level(Command::Items(ItemsCommand::Abort).level()).is_ok()
        })
        .await;
        running
    }

    fn group(&self) -> Group {
        group(&self.node, GROUP).unwrap()
    }

    async fn client(&self) -> Client {
        Client::connect(ClientConfig::new([self.node.local_addr()], secret())).await.unwrap()
    }

    /// Adds an item, which touches the topic of its key. Returns the index of the entry.
    async fn add(&self, key: &'static str) -> u64 {
        let command = ItemsCommand::Add { key: key.into(), value: key.into(), ttl: 0 };
        self.propose(command).await
    }

    async fn take(&self, key: &'static str) {
        self.propose(ItemsCommand::Take(key.into())).await;
    }

    async fn propose(&self, command: ItemsCommand) -> u64 {
        let proposal = Proposal::new(None, vec![Command::Items(command)]);
        let (position, outcome) = self.group().propose(codec::encode_proposal(&proposal).unwrap()).await.unwrap();
        outcome.unwrap();
        position.index
    }

    /// Waits until the node has this many waiters that were not woken.
    async fn has_waiters(&self, count: usize) {
        until("the node has as many waiters as expected", || self.waits.count() == count).await;
    }
}

/// Returns hooks that add a group, and the place where its waiters are put.
fn hooks(config: &Config) -> (SimHooks, Arc<Mutex<Option<Waits>>>) {
    let (disk, dir) = (Arc::clone(Env::real().disk()), config.data_dir.join("beside"));
    let place = Arc::new(Mutex::new(None));
    let here = Arc::clone(&place);
    let open: OpenGroup = Arc::new(move |identity, waits| {
        *lock(&here) = Some(waits.clone());
        let options = MemoryStoreOptions { waits, ..MemoryStoreOptions::default() };
        let store = MemoryStore::open(Arc::clone(&disk), &dir, identity, FORMAT_LEVEL, options)?;
        Ok(store as Arc<dyn StateMachine>)
    });
    (SimHooks { groups: [(GROUP, open)].into(), ..SimHooks::default() }, place)
}

fn of(key: &str) -> Topic {
    topic(key.as_bytes())
}

async fn register(client: &Client, key: &str) -> Waiter {
    register_waiter(client, GROUP, of(key)).await.unwrap()
}

async fn woken(waiter: &mut Waiter) -> Result<Woken, Error> {
    tokio::time::timeout(PATIENCE, waiter.woken()).await.expect("the waiter is woken")
}

#[test]
fn the_waiters_of_many_clients_are_woken_in_order() {
    run(async {
        let running = Running::start().await;
        let (one, other) = (running.client().await, running.client().await);
        let mut first = register(&one, "a").await;
        let mut second = register(&other, "a").await;
        let mut third = register(&one, "a").await;
        let mut apart = register(&one, "b").await;
        let by = running.add("a").await;
        assert_eq!(woken(&mut first).await.unwrap(), Woken::By(by));
        running.take("a").await;
        let by = running.add("a").await;
        assert_eq!(woken(&mut second).await.unwrap(), Woken::By(by));
        // Its turn is used, so nobody gets it.
        drop(second);
        let by = running.add("b").await;
        assert_eq!(woken(&mut apart).await.unwrap(), Woken::By(by));
        assert!(third.woken().now_or_never().is_none());
        running.has_waiters(1).await;
        drop(third);
        running.has_waiters(0).await;
        running.node.stop().await;
    });
}

#[test]
fn a_turn_that_a_client_does_not_use_goes_to_the_next_waiter() {
    run(async {
        let running = Running::start().await;
        let [one, gone, other] = [running.client().await, running.client().await, running.client().await];
        let mut finds_nothing = register(&one, "a").await;
        let unaware = register(&one, "a").await;
        let of_the_gone = register(&gone, "a").await;
        let mut last = register(&other, "a").await;
        let by = running.add("a").await;
        woken(&mut finds_nothing).await.unwrap();
        finds_nothing.pass_on();
        // The client may know that it is its turn, but its caller does not.
        drop(unaware);
        running.has_waiters(1).await;
        gone.close().await;
        assert_eq!(woken(&mut last).await.unwrap(), Woken::By(by));
        drop(of_the_gone);
        running.node.stop().await;
    });
}

#[test]
fn a_waiter_learns_that_its_client_or_its_node_has_ended() {
    run(async {
        let running = Running::start().await;
        let (closed, client) = (running.client().await, running.client().await);
        let mut of_closed = register(&closed, "a").await;
        closed.close().await;
        assert_eq!(woken(&mut of_closed).await, Err(Error::Closed));
        running.has_waiters(0).await;
        let mut waiter = register(&client, "a").await;
        running.node.stop().await;
        let error = woken(&mut waiter).await.unwrap_err();
        assert!(error.is_retryable(), "{error}");
        let error = register_waiter(&client, GROUP, of("a")).await.err().unwrap();
        assert!(error.is_retryable(), "{error}");
    });
}

#[test]
fn nothing_can_be_waited_for_in_a_group_that_the_node_does_not_have() {
    run(async {
        let running = Running::start().await;
        let client = running.client().await;
        let error = register_waiter(&client, GroupId(9), of("a")).await.err().unwrap();
        assert!(matches!(error, Error::Forbidden(_)), "{error}");
        // The stream goes on.
        let mut waiter = register(&client, "a").await;
        running.add("a").await;
        woken(&mut waiter).await.unwrap();
        running.node.stop().await;
    });
}
