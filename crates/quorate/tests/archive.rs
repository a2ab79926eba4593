//! The archive of running clusters: any state that was archived is restored, with nothing but the store.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

mod support;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use quorate::admin::Difference;
use quorate::archive::objects::{Memory, Trouble, Verb};
use quorate::archive::{self, Archive, FetchOptions, Objects, Target};
use quorate::restore::{RestoreOptions, from_archive};
use quorate::sim::SimHooks;
use quorate::{ClientConfig, Config, Level, Node, Sql};
use quorate_env::Env;
use support::{Cluster, free_addr, run, secret, until};
use tempfile::TempDir;

/// How often is read while nothing is written. Each read takes a round of the quorum.
const READS: usize = 500;

/// The state of a database, as far as clients see it.
async fn contents(sql: &Sql) -> Vec<(i64, String)> {
    sql.query_as("SELECT id, text FROM lines ORDER BY id", ()).await.unwrap()
}

fn archive(memory: &Memory) -> Archive {
    let archive = Archive::new(Arc::new(memory.clone()));
    archive.with_interval(Duration::from_millis(20)).with_boundary(Duration::from_millis(100))
}

async fn start(dir: &Path, memory: &Memory) -> Node {
    Node::start(Config::single(dir).with_archive(archive(memory))).await.unwrap()
}

/// Waits until everything that was written so far is archived.
async fn archived(node: &Node) -> u64 {
    let index = node.status().applied.index;
    let is_archived = || node.status().archive.is_some_and(|archive| archive.archived_index >= index);
    until("everything is archived", is_archived).await;
    index
}

/// Waits until a boundary holds everything that was written so far.
async fn settled(node: &Node) -> u64 {
    let index = node.status().applied.index;
    let is_settled = || node.status().archive.is_some_and(|archive| archive.boundary_index >= index);
    until("a boundary is archived", is_settled).await;
    index
}

/// Restores a state into a new cluster, and returns its node.
async fn restored(memory: &Memory, target: Target, dir: &TempDir) -> Node {
    let objects: Arc<dyn Objects> = Arc::new(memory.clone());
    let mut state = FetchOptions::default();
    state.target = Some(target);
    let config = Config::single(dir.path());
    let restored = from_archive(&objects, &state, &config, &RestoreOptions::default()).await.unwrap();
    if let Target::Entry(entry) = target {
        assert_eq!(restored.from.unwrap().1.index, entry);
    }
    Node::start(config).await.unwrap()
}

#[test]
fn every_archived_state_is_restored_from_the_store_alone() {
    run(async {
        let (dir, memory) = (TempDir::new().unwrap(), Memory::new());
        let node = start(&dir.path().join("a"), &memory).await;
        let sql = node.sql();
        sql.execute("CREATE TABLE lines (id INTEGER PRIMARY KEY, text TEXT)", ()).await.unwrap();
        archived(&node).await;
        let mut states = Vec::new();
        for round in 0..30_i64 {
            let text = format!("{round} {}", "x".repeat(usize::try_from(round * 97 % 5000).unwrap()));
            sql.execute("INSERT INTO lines (text) VALUES (?1)", (text,)).await.unwrap();
            sql.execute("UPDATE lines SET text = text || random() WHERE id % 7 = ?1", (round % 7,)).await.unwrap();
            if round % 10 == 9 {
                sql.execute("DELETE FROM lines WHERE id % 3 = 0", ()).await.unwrap();
                settled(&node).await;
            }
            states.push((node.status().applied.index, contents(&sql).await));
        }
        archived(&node).await;
        // Nothing is left but the store.
        drop(node);
        drop(dir);
        for (index, state) in states.iter().step_by(7).chain(states.last()) {
            let dir = TempDir::new().unwrap();
            let node = restored(&memory, Target::Entry(*index), &dir).await;
            assert_eq!(&contents(&node.sql()).await, state, "entry {index}");
            node.stop().await;
        }
        let dir = TempDir::new().unwrap();
        let node = restored(&memory, Target::Latest, &dir).await;
        assert_eq!(contents(&node.sql()).await, states.last().unwrap().1);
        node.stop().await;
    });
}

#[test]
fn one_request_archives_what_was_written_in_an_interval() {
    run(async {
        let (dir, memory) = (TempDir::new().unwrap(), Memory::new());
        let interval = Duration::from_millis(200);
        let archive = archive(&memory).with_interval(interval).with_boundary(Duration::from_secs(3600));
        let node = Node::start(Config::single(dir.path()).with_archive(archive)).await.unwrap();
        let sql = node.sql();
        sql.execute("CREATE TABLE lines (id INTEGER PRIMARY KEY, text TEXT)", ()).await.unwrap();
        archived(&node).await;
        // A request takes so long that more is written meanwhile.
        memory.set_troubles(|_, _| Trouble { before: Duration::from_millis(20), ..Trouble::default() });
        let created = || memory.requests().get(&Verb::Create).copied().unwrap_or(0);
        let (begun, before) = (Instant::now(), created());
        while created() < before + 5 {
            sql.execute("INSERT INTO lines (text) VALUES ('x')", ()).await.unwrap();
        }
        let intervals = begun.elapsed().as_millis() / interval.as_millis();
        assert!(intervals + 1 >= 5, "5 requests in {intervals} intervals");
        node.stop().await;
    });
}

#[test]
fn a_restarted_node_continues_its_archive() {
    run(async {
        let (dir, memory) = (TempDir::new().unwrap(), Memory::new());
        let place = dir.path().join("a");
        for round in 0..3_i64 {
            let node = start(&place, &memory).await;
            let sql = node.sql();
            sql.execute("CREATE TABLE IF NOT EXISTS lines (id INTEGER PRIMARY KEY, text TEXT)", ()).await.unwrap();
            sql.execute("INSERT INTO lines (text) VALUES (?1)", (round.to_string(),)).await.unwrap();
            if round < 2 {
                archived(&node).await;
            }
            // What the last process has not archived yet, the next one does.
            node.stop().await;
        }
        let node = start(&place, &memory).await;
        let state = contents(&node.sql()).await;
        archived(&node).await;
        node.stop().await;
        let dir = TempDir::new().unwrap();
        let node = restored(&memory, Target::Latest, &dir).await;
        assert_eq!(contents(&node.sql()).await, state);
        assert_eq!(state.len(), 3);
        node.stop().await;
        let folders: Vec<_> = memory.contents().into_keys().collect();
        assert!(folders.iter().all(|key| !key.contains("/00000002/")), "one generation is enough: {folders:?}");
    });
}

#[test]
fn a_store_that_is_away_delays_the_archive_and_nothing_else() {
    run(async {
        let (dir, memory) = (TempDir::new().unwrap(), Memory::new());
        let node = start(&dir.path().join("a"), &memory).await;
        let sql = node.sql();
        sql.execute("CREATE TABLE lines (id INTEGER PRIMARY KEY, text TEXT)", ()).await.unwrap();
        archived(&node).await;
        memory.set_troubles(|_, _| Trouble { is_refused: true, ..Trouble::default() });
        for round in 0..50_i64 {
            sql.execute("INSERT INTO lines (text) VALUES (?1)", (round.to_string(),)).await.unwrap();
        }
        // A boundary may fail before the archiver has seen the first of these writes.
        let shows_both = || node.status().archive.is_some_and(|one| one.failure.is_some() && !one.lag.is_zero());
        until("the status shows the failure and the delay", shows_both).await;
        memory.end_troubles();
        archived(&node).await;
        let healed = || node.status().archive.is_some_and(|archive| archive.failure.is_none());
        until("the failure is forgotten", healed).await;
        let state = contents(&sql).await;
        node.stop().await;
        let dir = TempDir::new().unwrap();
        let node = restored(&memory, Target::Latest, &dir).await;
        assert_eq!(contents(&node.sql()).await, state);
        node.stop().await;
    });
}

/// A boundary of a large database is on its way for minutes, and what is written meanwhile must not wait for it.
#[test]
fn entries_do_not_wait_for_a_boundary_that_is_on_its_way() {
    run(async {
        let (dir, memory) = (TempDir::new().unwrap(), Memory::new());
        let node = start(&dir.path().join("a"), &memory).await;
        let sql = node.sql();
        sql.execute("CREATE TABLE lines (id INTEGER PRIMARY KEY, text TEXT)", ()).await.unwrap();
        settled(&node).await;
        let is_asked = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&is_asked);
        memory.set_troubles(move |_, key| {
            let is_file = key.ends_with(".ltx");
            asked.fetch_or(is_file, Ordering::Relaxed);
            Trouble { before: if is_file { Duration::from_secs(3600) } else { Duration::ZERO }, ..Trouble::default() }
        });
        let mut number = 0_i64;
        let mut write = async || {
            number += 1;
            sql.execute("INSERT INTO lines (text) VALUES (?1)", (number.to_string(),)).await.unwrap();
            archived(&node).await
        };
        while !is_asked.load(Ordering::Relaxed) {
            write().await;
        }
        let boundary = node.status().archive.unwrap().boundary_index;
        let last = [write().await, write().await, write().await][2];
        assert_eq!(node.status().archive.unwrap().boundary_index, boundary);

        // All of them can be restored, and the next archiver misses none.
        memory.end_troubles();
        let state = contents(&sql).await;
        let dir_b = TempDir::new().unwrap();
        let copy = restored(&memory, Target::Entry(last), &dir_b).await;
        assert_eq!(contents(&copy.sql()).await, state);
        copy.stop().await;
        node.stop().await;
    });
}

#[test]
fn reads_and_rest_send_nothing_to_the_store() {
    run(async {
        let (dir, memory) = (TempDir::new().unwrap(), Memory::new());
        let node = start(&dir.path().join("a"), &memory).await;
        node.sql().execute("CREATE TABLE lines (id INTEGER PRIMARY KEY, text TEXT)", ()).await.unwrap();
        settled(&node).await;
        archived(&node).await;
        let before = memory.requests();
        for _ in 0..READS {
            contents(&node.sql().at(Level::Linearizable)).await;
        }
        assert_eq!(memory.requests(), before);
        node.stop().await;
    });
}

#[test]
fn a_restore_that_fails_leaves_no_file() {
    run(async {
        let (dir, memory) = (TempDir::new().unwrap(), Memory::new());
        let node = start(&dir.path().join("a"), &memory).await;
        node.sql().execute("CREATE TABLE lines (id INTEGER PRIMARY KEY, text TEXT)", ()).await.unwrap();
        settled(&node).await;
        // The pages are read before the entries.
        let boundary = node.status().archive.unwrap().boundary_index;
        memory.set_troubles(|_, key| Trouble { is_refused: key.ends_with(".ltx"), ..Trouble::default() });
        node.sql().execute("INSERT INTO lines (text) VALUES ('late')", ()).await.unwrap();
        let last = archived(&node).await;
        assert!(last > boundary);
        memory.set_troubles(|verb, key| {
            let is_refused = match verb {
                Verb::Read => key.contains("/entries/"),
                Verb::List => false,
                // Still no boundary that holds the last entry.
                _ => key.ends_with(".ltx"),
            };
            Trouble { is_refused, ..Trouble::default() }
        });
        let objects: Arc<dyn Objects> = Arc::new(memory.clone());
        let mut state = FetchOptions::default();
        state.target = Some(Target::Entry(last));
        let place = dir.path().join("b");
        let config = Config::single(&place);
        from_archive(&objects, &state, &config, &RestoreOptions::default()).await.unwrap_err();
        let left: Vec<_> = std::fs::read_dir(&place).unwrap().map(|item| item.unwrap().file_name()).collect();
        assert!(left.iter().all(|name| !name.to_string_lossy().starts_with("fetched")), "{left:?}");
        memory.end_troubles();
        from_archive(&objects, &state, &config, &RestoreOptions::default()).await.unwrap();
        node.stop().await;
    });
}

#[test]
fn a_rehearsal_compares_the_archive_with_the_nodes() {
    run(async {
        let (dir, memory) = (TempDir::new().unwrap(), Memory::new());
        let archived = archive(&memory);
        let cluster = Cluster::start_in(Box::new(move |_, config| {
            config.archive = Some(archived.clone());
            (Env::real(), SimHooks::default())
        }))
        .await;
        // The archive has begun once this returns.
        let sql = cluster.sql("b").with_archived_writes();
        sql.execute("CREATE TABLE lines (id INTEGER PRIMARY KEY, text TEXT DEFAULT (datetime()))", ()).await.unwrap();
        let objects: Arc<dyn Objects> = Arc::new(memory.clone());
        let file = dir.path().join("rehearsal.db");
        for _ in 0..3 {
            sql.execute("INSERT INTO lines (text) VALUES (hex(randomblob(20)))", ()).await.unwrap();
            let client = ClientConfig::new(cluster.addrs(), secret());
            let rehearsed = archive::rehearse(client, &objects, &file, &FetchOptions::default()).await.unwrap();
            assert!(rehearsed.is_sound(), "{:?}", rehearsed.differences());
            let names: Vec<_> = rehearsed.nodes.iter().map(|node| node.name.as_str()).collect();
            assert_eq!(names, ["a", "b", "c", "archive"]);
            assert!(rehearsed.nodes[3].tables.as_ref().unwrap().contains_key("lines"));
            assert!(!file.exists());
        }
    });
}

/// The database of the only node is changed behind its back, so its archive does not hold the change.
#[test]
fn a_rehearsal_reports_a_difference_between_the_archive_and_the_nodes() {
    run(async {
        let (dir, memory) = (TempDir::new().unwrap(), Memory::new());
        // The members keep the address.
        let config = Config::single(dir.path().join("a")).with_secret(secret()).with_listen(free_addr());
        let node = Node::start(config.clone().with_archive(archive(&memory))).await.unwrap();
        let sql = node.sql();
        sql.execute("CREATE TABLE lines (id INTEGER PRIMARY KEY, text TEXT)", ()).await.unwrap();
        sql.execute("INSERT INTO lines (text) VALUES ('archived')", ()).await.unwrap();
        settled(&node).await;
        node.stop().await;

        let mut generations = std::fs::read_dir(config.data_dir.join("db")).unwrap().map(|item| item.unwrap().path());
        let file = generations.find(|path| path.is_dir()).unwrap().join("quorate.db");
        let conn = rusqlite::Connection::open(file).unwrap();
        assert_eq!(conn.execute("UPDATE lines SET text = 'changed'", ()), Ok(1));
        drop(conn);

        // No boundary is taken any more, which would hold the change.
        let late = archive(&memory).with_boundary(Duration::from_secs(3600));
        let node = Node::start(config.with_archive(late)).await.unwrap();
        let (objects, copy) = (Arc::new(memory) as Arc<dyn Objects>, dir.path().join("rehearsal.db"));
        let client = ClientConfig::new([node.local_addr()], secret());
        let rehearsed = node.observer().rehearse(client, &objects, &copy, &FetchOptions::default()).await.unwrap();
        let mut differences = rehearsed.differences();
        differences.iter_mut().for_each(|difference| difference.versions.sort());
        let versions = vec![vec!["archive".to_owned()], vec!["node".to_owned()]];
        assert_eq!(differences, [Difference { table: "lines".to_owned(), versions }]);
        assert!(!rehearsed.is_sound() && !copy.exists());
        assert_eq!(node.metrics().archive.rehearsal_failures.get(), 1);
        assert_eq!(node.status().archive.unwrap().rehearsed_at, None);
        node.stop().await;
    });
}
