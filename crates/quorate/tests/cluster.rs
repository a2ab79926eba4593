//! Three nodes in one process: reads and writes on each node, and leaders that are killed under load.

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
use std::sync::atomic::{AtomicI64, Ordering};

use quorate::{Error, Level, Position, Sql};
use support::{Cluster, PATIENCE, run, until};
use tokio::sync::watch;
use tokio::task::JoinHandle;

const NAMES: [&str; 3] = ["a", "b", "c"];

#[test]
fn every_node_reads_the_writes_of_all() {
    run(async {
        let mut cluster = Cluster::start().await;
        cluster.sql("b").execute("CREATE TABLE t (x)", ()).await.unwrap();
        for (count, writer) in (1_i64..).zip(NAMES) {
            let written = cluster.sql(writer).execute("INSERT INTO t VALUES (?)", (writer,)).await.unwrap();
            for reader in NAMES {
                for level in [Level::AtLeast(written.position), Level::Linearizable] {
                    let found = cluster.sql(reader).at(level).query_one::<i64>("SELECT count(*) FROM t", ()).await;
                    assert_eq!(found, Ok(count), "written on {writer}, read on {reader} at {level:?}");
                }
            }
        }
        let remote = cluster.client().await;
        assert_eq!(remote.sql().query_one::<i64>("SELECT count(*) FROM t", ()).await, Ok(3));
        cluster.stop_all().await;
    });
}

/// Followers learn that a write is committed later than its client.
#[test]
fn own_writes_are_seen_on_every_node_and_level() {
    run(async {
        let mut cluster = Cluster::start().await;
        let remote = cluster.client().await;
        remote.sql().execute("CREATE TABLE t (x)", ()).await.unwrap();
        let handles = NAMES.map(|name| cluster.sql(name)).into_iter().chain([remote.sql()]);
        for handle in handles.map(|handle| handle.with_own_writes()) {
            for number in 1..10 {
                let text = number.to_string();
                let position =
                    handle.execute("REPLACE INTO t (rowid, x) VALUES (1, ?)", (text,)).await.unwrap().position;
                let start = Level::AtLeast(Position { index: 0, ..position });
                for level in [Level::Local, start, Level::Bounded(PATIENCE), Level::Linearizable] {
                    let found = handle.at(level).query_one::<String>("SELECT x FROM t", ()).await;
                    assert_eq!(found, Ok(number.to_string()), "at {level:?}");
                }
                let one = handle.snapshot().await.unwrap().query("SELECT x FROM t", ()).await.unwrap().one();
                assert_eq!(one, Ok(number.to_string()));
            }
        }
        cluster.stop_all().await;
    });
}

/// The result of each insert, by its number.
type Ends = BTreeMap<i64, Result<(), Error>>;

/// Inserts numbers, each once, until stopped; the table has no key, so that duplicates are visible.
struct Load {
    ended: Arc<AtomicI64>,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<Ends>>,
}

impl Load {
    /// Starts `each` tasks on each handle.
    fn start(numbers: &Arc<AtomicI64>, handles: &[Sql], each: usize) -> Self {
        let (ended, stop) = (Arc::new(AtomicI64::new(0)), watch::Sender::new(false));
        let handles = handles.iter().flat_map(|sql| std::iter::repeat_n(sql, each));
        let tasks = handles
            .map(|sql| tokio::spawn(insert(sql.clone(), Arc::clone(numbers), Arc::clone(&ended), stop.subscribe())))
            .collect();
        Self { ended, stop, tasks }
    }

    /// Waits until `count` more inserts have ended.
    async fn go_on(&self, count: i64) {
        let aim = self.ended.load(Ordering::Relaxed) + count;
        until("inserts go on", || self.ended.load(Ordering::Relaxed) >= aim).await;
    }

    async fn end(self) -> Ends {
        self.stop.send_replace(true);
        let mut all = Ends::new();
        for task in self.tasks {
            all.extend(task.await.unwrap());
        }
        all
    }
}

async fn insert(sql: Sql, numbers: Arc<AtomicI64>, ended: Arc<AtomicI64>, stop: watch::Receiver<bool>) -> Ends {
    let mut ends = Ends::new();
    while !*stop.borrow() && !ends.values().any(|end| *end == Err(Error::Closed)) {
        let number = numbers.fetch_add(1, Ordering::Relaxed);
        ends.insert(number, sql.execute("INSERT INTO t VALUES (?)", (number,)).await.map(drop));
        ended.fetch_add(1, Ordering::Relaxed);
    }
    ends
}

/// Checks that all nodes have the same rows: each acknowledged one once, and no failed one unless it was in doubt.
async fn check(cluster: &Cluster, ends: Ends) {
    let mut tables = Vec::new();
    for name in NAMES {
        let sql = cluster.sql(name).at(Level::Linearizable);
        tables.push(sql.query_as::<i64>("SELECT x FROM t ORDER BY x", ()).await.unwrap());
    }
    assert!(tables[0] == tables[1] && tables[1] == tables[2], "the nodes differ");
    let mut counts = BTreeMap::new();
    tables[0].iter().for_each(|number| *counts.entry(*number).or_insert(0) += 1);
    for (number, result) in ends {
        let found = counts.remove(&number).unwrap_or(0);
        match result {
            Ok(()) => assert_eq!(found, 1, "{number} was acknowledged"),
            Err(Error::Unknown(_)) => assert!(found <= 1, "{number} is there {found} times"),
            Err(error) => assert_eq!(found, 0, "{number} was not done: {error}"),
        }
    }
    assert!(counts.is_empty(), "never written: {counts:?}");
}

#[test]
fn killed_leaders_lose_or_duplicate_no_write() {
    run(async {
        let mut cluster = Cluster::start().await;
        cluster.sql("a").execute("CREATE TABLE t (x)", ()).await.unwrap();
        let (numbers, mut ends) = (Arc::new(AtomicI64::new(0)), Ends::new());
        let remote = cluster.client().await;
        let elsewhere = Load::start(&numbers, &[remote.sql()], 16);
        for _ in 0..3 {
            // The handles of a killed node fail, so each round uses new handles.
            let load = Load::start(&numbers, &NAMES.map(|name| cluster.sql(name)), 8);
            load.go_on(200).await;
            let leader = cluster.leader().await;
            cluster.kill(&leader);
            load.go_on(200).await;
            elsewhere.go_on(100).await;
            cluster.restart(&leader).await;
            ends.extend(load.end().await);
        }
        let remote_ends = elsewhere.end().await;
        let failed: Vec<_> = remote_ends.iter().filter(|(_, end)| end.is_err()).collect();
        assert!(failed.is_empty(), "a remote handle survives every failover: {failed:?}");
        ends.extend(remote_ends);
        check(&cluster, ends).await;
    });
}

#[test]
fn all_nodes_stop_and_come_back() {
    run(async {
        let mut cluster = Cluster::start().await;
        cluster.sql("a").execute("CREATE TABLE t (x)", ()).await.unwrap();
        for life in 0..3_i64 {
            for name in NAMES {
                cluster.sql(name).execute("INSERT INTO t VALUES (?)", (life,)).await.unwrap();
            }
            match life {
                0 => cluster.stop_all().await,
                _ => NAMES.iter().for_each(|name| cluster.kill(name)),
            }
            cluster.start_all().await;
            for name in NAMES {
                let sql = cluster.sql(name).at(Level::Linearizable);
                assert_eq!(sql.query_one::<i64>("SELECT count(*) FROM t", ()).await, Ok((life + 1) * 3));
            }
        }
    });
}

#[test]
fn a_clean_stop_hands_over_leadership() {
    run(async {
        let mut cluster = Cluster::start().await;
        cluster.sql("a").execute("CREATE TABLE t (x)", ()).await.unwrap();
        let leader = cluster.leader().await;
        cluster.stop(&leader).await;
        let others: Vec<_> = cluster.nodes().collect();
        assert!(others.iter().any(|node| node.is_leader()), "another node leads as soon as the leader has stopped");
    });
}

#[test]
fn a_pinned_client_uses_only_its_node() {
    run(async {
        let cluster = Cluster::start().await;
        cluster.sql("a").execute("CREATE TABLE t (x)", ()).await.unwrap();
        until("all know the members", || cluster.nodes().all(|node| node.status().members.len() == 3)).await;
        for (count, addr) in (1_i64..).zip(cluster.addrs()) {
            let config = quorate::ClientConfig::pinned(addr.as_str(), support::secret());
            let remote = quorate::Client::connect(config).await.unwrap();
            let status = remote.status().await.unwrap();
            let own = status.members.iter().find(|member| member.id == status.node).unwrap();
            assert_eq!((own.addr.as_str(), status.members.len()), (addr.as_str(), 3));
            let written = remote.sql().execute("INSERT INTO t VALUES (1)", ()).await.unwrap();
            let here = remote.sql().at(Level::AtLeast(written.position));
            assert_eq!(here.query_one::<i64>("SELECT count(*) FROM t", ()).await, Ok(count));
        }
    });
}
