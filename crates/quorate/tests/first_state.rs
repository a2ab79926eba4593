//! New clusters whose first state is restored from an archive, once: on real nodes, which then live as any others.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use quorate::archive::objects::{Memory, Trouble};
use quorate::archive::{Archive, FirstState, Target};
use quorate::sim::SimHooks;
use quorate::types::ClusterId;
use quorate::{Config, Level, Node, Sql, StartError};
use quorate_env::Env;
use support::dying::DyingDisk;
use support::{Cluster, run, start_again, try_start_again, until};
use tempfile::TempDir;

fn archive(memory: &Memory) -> Archive {
    let archive = Archive::new(Arc::new(memory.clone()));
    archive.with_interval(Duration::from_millis(20)).with_boundary(Duration::from_millis(100))
}

fn first_state(memory: &Memory) -> FirstState {
    FirstState::new(Arc::new(memory.clone()))
}

async fn write(sql: &Sql, number: i64) {
    sql.execute("INSERT INTO numbers VALUES (?1)", (number,)).await.unwrap();
}

async fn numbers(sql: &Sql) -> Vec<i64> {
    let rows: Vec<(i64,)> = sql.query_as("SELECT number FROM numbers ORDER BY number", ()).await.unwrap();
    rows.into_iter().map(|(number,)| number).collect()
}

/// Waits until everything that was written so far is archived.
async fn archived(node: &Node) -> u64 {
    let index = node.status().applied.index;
    let is_archived = || node.status().archive.is_some_and(|archive| archive.archived_index >= index);
    until("everything is archived", is_archived).await;
    index
}

/// Returns whether a node knows itself as one of three voters, which are all members.
fn votes(node: &Node) -> bool {
    let status = node.status();
    let is_own = status.members.iter().any(|member| member.id == status.node);
    is_own && status.members.len() == 3 && status.members.iter().all(|member| member.voter)
}

/// The archive of a cluster that was destroyed.
struct Lost {
    memory: Memory,
    cluster: ClusterId,
    /// The entry after which only the numbers 0 and 1 were there.
    two: u64,
}

impl Lost {
    /// Archives the numbers from 0 to 4, and loses everything but the archive.
    async fn new() -> Self {
        let (dir, memory) = (TempDir::new().unwrap(), Memory::new());
        let node = Node::start(Config::single(dir.path()).with_archive(archive(&memory))).await.unwrap();
        let sql = node.sql();
        sql.execute("CREATE TABLE numbers (number INTEGER PRIMARY KEY)", ()).await.unwrap();
        // The archive begins here.
        let mut two = archived(&node).await;
        for number in 0..5 {
            write(&sql, number).await;
            if number == 1 {
                two = archived(&node).await;
            }
        }
        archived(&node).await;
        let cluster = node.status().cluster;
        node.stop().await;
        Self { memory, cluster, two }
    }

    /// Returns the objects of the lost cluster.
    fn objects(&self) -> BTreeMap<String, Bytes> {
        let name = self.cluster.to_string();
        self.memory.contents().into_iter().filter(|(key, _)| key.contains(&name)).collect()
    }

    fn config(&self, dir: &TempDir) -> Config {
        Config::single(dir.path().join("node")).with_first_state(first_state(&self.memory))
    }
}

#[test]
fn a_new_cluster_begins_with_the_state_of_a_lost_one_and_lives_on() {
    run(async {
        let lost = Lost::new().await;
        let (before, memory) = (lost.objects(), lost.memory.clone());
        // All of them archive to the place that they come from, and keep the key for ever.
        let mut cluster = Cluster::start_in(Box::new(move |_, config: &mut Config| {
            (config.archive, config.first_state) = (Some(archive(&memory)), Some(first_state(&memory)));
            config.timing.silence = Duration::from_secs(1);
            (Env::real(), SimHooks::default())
        }))
        .await;
        let sql = || cluster.sql("a").at(Level::Linearizable);
        assert_eq!(numbers(&sql()).await, [0, 1, 2, 3, 4]);
        write(&sql(), 5).await;
        until("all vote", || cluster.nodes().all(votes)).await;
        let id = cluster.node("a").status().cluster;
        assert_ne!(id, lost.cluster);

        // A restart restores nothing.
        cluster.stop_all().await;
        cluster.start_all().await;
        write(&cluster.sql("b"), 6).await;
        assert_eq!(numbers(&cluster.sql("b").at(Level::Linearizable)).await, [0, 1, 2, 3, 4, 5, 6]);

        // A node without its disk comes back to the living cluster, even the one that has restored.
        for name in ["a", "b"] {
            cluster.kill(name);
            cluster.wipe(name).await;
            cluster.restart(name).await;
            let sql = cluster.sql(name).at(Level::Linearizable);
            assert_eq!(numbers(&sql).await, [0, 1, 2, 3, 4, 5, 6], "{name}");
            assert_eq!(cluster.node(name).status().cluster, id, "{name}");
            until("all vote", || cluster.nodes().all(votes)).await;
        }

        // The new cluster has an archive of its own, and the old one is what it was.
        let archives = || cluster.nodes().any(|node| node.status().archive.is_some_and(|one| one.archived_index > 0));
        until("the new cluster is archived", archives).await;
        assert_eq!(lost.objects(), before);
        cluster.stop_all().await;
    });
}

#[test]
fn a_first_state_can_be_an_earlier_one_of_a_named_cluster() {
    run(async {
        let (lost, dir) = (Lost::new().await, TempDir::new().unwrap());
        let first = first_state(&lost.memory).with_cluster(lost.cluster).with_target(Target::Entry(lost.two));
        let config = Config::single(dir.path()).with_archive(archive(&lost.memory)).with_first_state(first);
        let node = start_again(&config).await;
        assert_eq!(numbers(&node.sql()).await, [0, 1]);
        archived(&node).await;
        node.stop().await;

        // Now there are two, so the next new cluster has to name one.
        let other = TempDir::new().unwrap();
        let error = try_start_again(&lost.config(&other)).await.unwrap_err();
        assert!(matches!(error, StartError::FirstState(_)), "{error}");
        assert!(error.to_string().contains("name one of"), "{error}");
    });
}

#[test]
fn a_node_does_not_start_empty_when_its_first_state_cannot_be_restored() {
    run(async {
        let (lost, dir) = (Lost::new().await, TempDir::new().unwrap());
        let nowhere = Config::single(dir.path().join("node")).with_first_state(first_state(&Memory::new()));
        let error = try_start_again(&nowhere).await.unwrap_err();
        assert!(matches!(error, StartError::FirstState(_)) && !error.is_retryable(), "{error}");
        assert!(error.to_string().contains("Correct 'archive.restore_from'"), "{error}");

        // Each request fails in turn, until none does.
        let mut failures = 0;
        for good in 0.. {
            let mut asked = 0;
            lost.memory.set_troubles(move |_, _| {
                asked += 1;
                Trouble { is_refused: asked > good, ..Trouble::default() }
            });
            match try_start_again(&lost.config(&dir)).await {
                Ok(node) => {
                    assert_eq!(numbers(&node.sql()).await, [0, 1, 2, 3, 4]);
                    node.stop().await;
                    break;
                }
                Err(error) => assert!(matches!(error, StartError::FirstState(_)) && error.is_retryable(), "{error}"),
            }
            failures += 1;
        }
        assert!(failures > 2, "{failures}");

        // Even with a store that fails, a node that has data starts with what it has.
        lost.memory.set_troubles(|_, _| Trouble { is_refused: true, ..Trouble::default() });
        let node = start_again(&lost.config(&dir)).await;
        assert_eq!(numbers(&node.sql()).await, [0, 1, 2, 3, 4]);
        node.stop().await;
    });
}

/// How many nodes are killed at the same time, because each mostly waits for the disk.
const LANES: usize = 4;

/// Kills nodes that restore a first state, each after more changes of the disk than the one before, until one finishes
/// first. Returns how many did not finish.
async fn killed(lost: &Lost, first: i64) -> usize {
    let mut unfinished = 0;
    for changes in (first..).step_by(3 * LANES) {
        let dir = TempDir::new().unwrap();
        let config = lost.config(&dir);
        let died = Node::start_in(DyingDisk::after(changes).env(), config.clone()).await;
        let is_up = died.is_ok();
        drop(died);
        let mark = config.data_dir.join("RESTORING");
        if mark.exists() {
            unfinished += 1;
            // Without the key, nobody knows what to do with the directory.
            let without = Config::single(&config.data_dir);
            let error = try_start_again(&without).await.unwrap_err();
            assert!(matches!(error, StartError::Unfinished(_)), "{error}");
        }
        let node = start_again(&config).await;
        assert_eq!(numbers(&node.sql()).await, [0, 1, 2, 3, 4], "after {changes} changes");
        node.stop().await;
        let left = std::fs::read_dir(&config.data_dir).unwrap().map(|item| item.unwrap().file_name());
        let left: Vec<_> = left.map(|name| name.into_string().unwrap()).collect();
        let is_remains =
            |name: &&String| ["RESTORING", "fetched", "replaced"].iter().any(|remains| name.starts_with(remains));
        assert!(left.iter().find(is_remains).is_none(), "after {changes} changes: {left:?}");
        if is_up {
            break;
        }
    }
    unfinished
}

#[test]
fn a_restore_of_a_first_state_that_is_killed_begins_anew() {
    run(async {
        let lost = Lost::new().await;
        let lanes = join_all((0..).step_by(3).take(LANES).map(|first| killed(&lost, first))).await;
        assert!(lanes.iter().sum::<usize>() > 3, "{lanes:?}");
    });
}
