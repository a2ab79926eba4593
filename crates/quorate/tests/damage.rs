//! Damage that a read finds: the node reports it, ends, and heals at its next start.

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests stop at the first surprise")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use quorate::{Ended, Error, Node, StartError, params};
use support::{Cluster, PATIENCE, Single, run, until};

const SUM: &str = "SELECT sum(length(v)) FROM t";
const ROWS: i64 = 500;

/// Overwrites a page of rows in the only database below a data directory. Another process does it, because closing the
/// file in this one would drop SQLite's locks.
fn overwrite_a_page(data_dir: &Path) {
    let mut generations = std::fs::read_dir(data_dir.join("db")).unwrap().map(|item| item.unwrap().path());
    let path: PathBuf = generations.find(|path| path.is_dir()).unwrap().join("quorate.db");
    let page = std::fs::metadata(&path).unwrap().len() / 4096 / 2;
    let junk = data_dir.join("junk");
    std::fs::write(&junk, [0xa5; 4096]).unwrap();
    let args = [format!("if={}", junk.display()), format!("of={}", path.display()), format!("seek={page}")];
    let done = Command::new("dd").args(args).args(["bs=4096", "count=1", "conv=notrunc"]).output().unwrap();
    assert!(done.status.success());
}

/// Makes a table with rows, and returns the index of the write.
async fn fill(node: &Node) -> u64 {
    node.sql().execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v BLOB)", ()).await.unwrap();
    let rows = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < ?)
        INSERT INTO t SELECT i, zeroblob(900) FROM n";
    node.sql().execute(rows, params![ROWS]).await.unwrap().position.index
}

/// Waits until a node's whole database is in its main file.
async fn settled(node: &Node) {
    until("the -wal is emptied", || node.metrics().sizes.wal_file == 0).await;
}

/// Reads until the damage is found, and checks the node's error.
async fn finds_the_damage(node: &Node) {
    assert!(node.metrics().fault.is_none());
    let error = node.sql().query_one::<i64>(SUM, ()).await.unwrap_err();
    assert!(matches!(error, Error::Store(_)), "{error:?}");
    assert!(error.to_string().contains("the database is damaged"), "{error}");
    until("the fault is known", || node.metrics().fault.is_some()).await;
    assert!(!node.metrics().not_ready.is_empty());
    let ended = tokio::time::timeout(PATIENCE, node.ended()).await.unwrap();
    assert!(matches!(ended, Ended::Store(_)), "{ended}");
}

#[test]
fn a_damaged_follower_ends_and_heals() {
    run(async {
        let mut cluster = Cluster::start().await;
        let leader = cluster.leader().await;
        let filled = fill(cluster.node(&leader)).await;
        let victim = ["a", "b", "c"].into_iter().find(|name| *name != leader).unwrap();
        until("the follower has applied it", || cluster.node(victim).status().applied.index >= filled).await;
        settled(cluster.node(victim)).await;
        overwrite_a_page(&cluster.config(victim).data_dir);
        finds_the_damage(cluster.node(victim)).await;
        cluster.stop(victim).await;
        cluster.start_all().await;
        until("the node has a copy", || cluster.node(victim).status().applied.index >= filled).await;
        assert_eq!(cluster.sql(victim).query_one::<i64>(SUM, ()).await.unwrap(), ROWS * 900);
        cluster.stop_all().await;
    });
}

#[test]
fn a_damaged_single_node_refuses_to_start() {
    run(async {
        let Single { dir, node } = Single::start().await;
        fill(&node).await;
        settled(&node).await;
        overwrite_a_page(dir.path());
        finds_the_damage(&node).await;
        node.stop().await;
        let error = Node::start(Single::config(&dir)).await.unwrap_err();
        assert!(matches!(error, StartError::Consensus(_)), "{error}");
        assert!(error.to_string().contains("the database is damaged"), "{error}");
    });
}
