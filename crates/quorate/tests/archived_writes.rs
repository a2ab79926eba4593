//! Writes that return when they are archived: the store then has their entries, whatever becomes of the nodes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use quorate::archive::objects::{Memory, Trouble, Verb};
use quorate::archive::{Archive, Objects, Plan, Target};
use quorate::sim::SimHooks;
use quorate::sql::Migration;
use quorate::{Client, Error, FailureKind, Level, Migrations, Position, Sql};
use quorate_env::Env;
use support::{Cluster, PATIENCE, Single, run, until};

const CREATE: &str = "CREATE TABLE lines (id INTEGER PRIMARY KEY, text TEXT)";
const INSERT: &str = "INSERT INTO lines (text) VALUES (?)";
const SHORT: Duration = Duration::from_millis(300);

/// Starts three nodes that all archive into one store.
async fn cluster(memory: &Memory) -> Cluster {
    let memory = memory.clone();
    Cluster::start_in(Box::new(move |_, config| {
        let archive = Archive::new(Arc::new(memory.clone())).with_interval(Duration::from_millis(20));
        config.archive = Some(archive.with_boundary(Duration::from_millis(200)));
        (Env::real(), SimHooks::default())
    }))
    .await
}

/// A handle of each kind: of the leader, of the archiver, of another node, and of a client.
async fn handles(cluster: &Cluster) -> (Vec<Sql>, Client) {
    let client = cluster.client().await;
    let mut handles: Vec<Sql> = cluster.nodes().map(|node| node.sql().with_archived_writes()).collect();
    handles.push(client.sql().with_archived_writes());
    (handles, client)
}

/// Whether the state after an entry can be restored from the store.
async fn has(memory: &Memory, position: Position) -> bool {
    let objects: Arc<dyn Objects> = Arc::new(memory.clone());
    let cluster = quorate::archive::only_cluster(&*objects, None).await.unwrap();
    Plan::make(&Env::real(), &objects, cluster, Target::Entry(position.index)).await.is_ok()
}

fn break_store(memory: &Memory) {
    // It can still be looked into.
    memory
        .set_troubles(|verb, _| Trouble { is_refused: !matches!(verb, Verb::Read | Verb::List), ..Trouble::default() });
}

/// Writes a line with a key and a short deadline, until that suffices for the write, but not for the archive. Returns
/// the position.
async fn not_archived(sql: &Sql, key: &str) -> Position {
    loop {
        let begun = Instant::now();
        let error = sql.with_deadline(SHORT).with_key(key).execute(INSERT, ("late",)).await.unwrap_err();
        assert!(begun.elapsed() < PATIENCE, "the deadline holds");
        match error {
            Error::NotArchived { position, .. } => {
                assert!(!error.is_retryable(), "it would be written twice");
                return position;
            }
            // On a busy machine the write itself takes longer.
            error => assert!(error.is_retryable() || matches!(error, Error::Unknown(_)), "{error:?}"),
        }
    }
}

async fn archiver(cluster: &Cluster) -> String {
    let mut found = None;
    until("a node archives", || {
        found = cluster.nodes().find(|node| node.status().archive.is_some()).map(|node| node.status().name);
        found.is_some()
    })
    .await;
    found.unwrap()
}

#[test]
fn a_write_returns_when_the_store_has_its_entry() {
    run(async {
        let memory = Memory::new();
        let mut cluster = cluster(&memory).await;
        let (handles, client) = handles(&cluster).await;
        let created = handles[0].execute(CREATE, ()).await.unwrap();
        assert!(has(&memory, created.position).await);
        for sql in &handles {
            let written = sql.execute(INSERT, ("one",)).await.unwrap();
            assert!(has(&memory, written.position).await);
            let written = sql.batch([(INSERT, ("two",)), (INSERT, ("three",))]).await.unwrap();
            assert!(has(&memory, written.position).await);
            let written = sql.transact(|tx| async move { tx.execute(INSERT, ("four",)) }).await.unwrap();
            assert!(has(&memory, written.position).await);
            let mut tx = sql.begin().await.unwrap();
            tx.execute(INSERT, ("five",)).await.unwrap();
            assert!(has(&memory, tx.commit().await.unwrap().position).await);
        }
        let migration = Migration::new("0001_more.sql", "CREATE TABLE more (a)").unwrap();
        handles[3].migrate(&Migrations::new([migration]).unwrap()).await.unwrap();
        assert!(has(&memory, cluster.node("a").status().applied).await);
        client.close().await;
        cluster.stop_all().await;
    });
}

#[test]
fn many_writes_wait_at_once() {
    run(async {
        let memory = Memory::new();
        let mut cluster = cluster(&memory).await;
        let (handles, client) = handles(&cluster).await;
        handles[0].execute(CREATE, ()).await.unwrap();
        let writes = (0..400_usize).map(|number| handles[number % 4].execute(INSERT, (number.to_string(),)).boxed());
        for written in futures_util::future::join_all(writes).await {
            assert!(has(&memory, written.unwrap().position).await);
        }
        client.close().await;
        cluster.stop_all().await;
    });
}

#[test]
fn a_write_that_is_not_archived_in_time_is_there() {
    run(async {
        let memory = Memory::new();
        let mut cluster = cluster(&memory).await;
        let (handles, client) = handles(&cluster).await;
        let created = handles[0].execute(CREATE, ()).await.unwrap().position;
        for sql in &handles {
            // Each node knows the format level now that a write with a key needs.
            sql.at(Level::AtLeast(created)).query("SELECT 1", ()).await.unwrap();
        }
        break_store(&memory);
        for (number, sql) in handles.iter().enumerate() {
            let key = format!("key {number}");
            let position = not_archived(sql, &key).await;
            let count = "SELECT count(*) FROM lines";
            let found: i64 = sql.at(Level::AtLeast(position)).query_one(count, ()).await.unwrap();
            assert_eq!(usize::try_from(found).unwrap(), number + 1);
            // The same request waits again, and does not write again.
            assert_eq!(not_archived(sql, &key).await, position);
            assert!(!has(&memory, position).await);
        }
        memory.end_troubles();
        for (number, sql) in handles.iter().enumerate() {
            // The archiver pauses after failures, up to half a minute.
            let again = sql.with_deadline(PATIENCE).with_key(format!("key {number}"));
            let again = again.execute(INSERT, ("late",)).await.unwrap();
            assert!(has(&memory, again.position).await);
        }
        let all = handles[0].at(Level::Linearizable);
        assert_eq!(all.query_one::<i64>("SELECT count(*) FROM lines", ()).await.unwrap(), 4);
        client.close().await;
        cluster.stop_all().await;
    });
}

#[test]
fn a_write_that_waits_outlives_the_archiver() {
    run(async {
        let memory = Memory::new();
        let mut cluster = cluster(&memory).await;
        let name = archiver(&cluster).await;
        let other = ["a", "b", "c"].into_iter().find(|other| *other != name).unwrap();
        // The leader is another node, so that the writes themselves go on.
        cluster.node(other).admin().transfer(Some(other)).await.unwrap();
        let client = cluster.client().await;
        let handles = [cluster.sql(other), client.sql()].map(|sql| sql.with_archived_writes());
        let created = handles[0].execute(CREATE, ()).await.unwrap().position;
        break_store(&memory);
        let writes: Vec<_> = handles
            .iter()
            .map(|sql| {
                let sql = sql.with_deadline(PATIENCE);
                tokio::spawn(async move { sql.execute(INSERT, ("patient",)).await })
            })
            .collect();
        let count = "SELECT count(*) FROM lines";
        let here = cluster.sql(other).at(Level::AtLeast(created));
        while here.query_one::<i64>(count, ()).await.unwrap() < 2 {}
        cluster.kill(&name);
        memory.end_troubles();
        for write in writes {
            assert!(has(&memory, write.await.unwrap().unwrap().position).await);
        }
        assert_ne!(archiver(&cluster).await, name);
        client.close().await;
        cluster.stop_all().await;
    });
}

#[test]
fn without_an_archive_nothing_is_written() {
    run(async {
        let single = Single::start().await;
        let client = single.client().await;
        single.node.sql().execute(CREATE, ()).await.unwrap();
        for sql in [single.node.sql(), client.sql()].map(|sql| sql.with_archived_writes()) {
            let refused = sql.execute(INSERT, ("no",)).await.unwrap_err();
            assert_eq!(refused.failure().unwrap().kind, FailureKind::Refused);
            assert_eq!(refused.to_string(), "no node archives: set [archive] in the configuration of the nodes");
            assert!(sql.begin().await.is_err());
            let committed = sql.transact(|tx| async move { tx.execute(INSERT, ("no",)) }).await;
            assert!(committed.is_err());
            // Reads don't care.
            let found: i64 = sql.query_one("SELECT count(*) FROM lines", ()).await.unwrap();
            assert_eq!(found, 0);
            let read = sql.transact(|tx| async move { tx.query_one::<i64>("SELECT 7", ()).await });
            assert_eq!(read.await.unwrap().value, 7);
        }
        client.close().await;
        single.node.stop().await;
    });
}
