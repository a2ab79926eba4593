//! Backups of three nodes in one process, taken while clients write.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorate::backup::{BackupError, BackupInfo, BackupOptions};
use quorate::{ClientConfig, Error, Level, Sql, backup};
use support::{Cluster, run, secret, until};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;

const NAMES: [&str; 3] = ["a", "b", "c"];
const WRITERS: i64 = 8;

/// A written row: the number of its writer, and its own number from 1.
type Row = (i64, i64);

/// Writers that each insert numbered rows, and the index of each acknowledged row.
struct Writers {
    acknowledged: Arc<Mutex<BTreeMap<Row, u64>>>,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Writers {
    fn start(cluster: &Cluster) -> Self {
        let (acknowledged, stop) = (Arc::default(), watch::Sender::new(false));
        let task = |writer: i64| {
            let sql = cluster.sql(NAMES[usize::try_from(writer).unwrap() % NAMES.len()]);
            tokio::spawn(count_up(sql, writer, Arc::clone(&acknowledged), stop.subscribe()))
        };
        let tasks = (0..WRITERS).map(task).collect();
        Self { acknowledged, stop, tasks }
    }

    async fn go_on(&self, count: usize) {
        let aim = self.acknowledged().len() + count;
        until("rows are written", || self.acknowledged().len() >= aim).await;
    }

    fn acknowledged(&self) -> BTreeMap<Row, u64> {
        self.acknowledged.lock().unwrap().clone()
    }

    async fn end(self) -> BTreeMap<Row, u64> {
        self.stop.send_replace(true);
        for task in self.tasks {
            task.await.unwrap();
        }
        Arc::into_inner(self.acknowledged).unwrap().into_inner().unwrap()
    }
}

async fn count_up(sql: Sql, writer: i64, info: Arc<Mutex<BTreeMap<Row, u64>>>, stop: watch::Receiver<bool>) {
    for number in 1.. {
        if *stop.borrow() {
            return;
        }
        let blob = vec![u8::try_from(number % 251).unwrap(); 2_000];
        let written = sql.execute("INSERT INTO t VALUES (?, ?, ?)", (writer, number, blob)).await.unwrap();
        info.lock().unwrap().insert((writer, number), written.position.index);
    }
}

/// Returns the rows of a backup, read as a plain SQLite file.
fn rows(file: &Path) -> BTreeSet<Row> {
    let conn = rusqlite::Connection::open(file).unwrap();
    let mut statement = conn.prepare("SELECT writer, number FROM t").unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

#[test]
fn a_backup_of_each_node_is_the_database_at_its_position() {
    run(async {
        let mut cluster = Cluster::start().await;
        cluster.sql("a").execute("CREATE TABLE t (writer, number, blob)", ()).await.unwrap();
        let dir = TempDir::new().unwrap();
        let writers = Writers::start(&cluster);
        let mut made: Vec<(BackupInfo, BTreeMap<Row, u64>)> = Vec::new();
        for (name, addr) in NAMES.into_iter().zip(cluster.addrs()) {
            writers.go_on(300).await;
            let before = writers.acknowledged();
            let config = ClientConfig::pinned(addr, secret());
            let info = backup(config, dir.path().join(name), &BackupOptions::default()).await.unwrap();
            made.push((info, before));
            let before = writers.acknowledged();
            let path = dir.path().join(format!("{name}-embedded"));
            let info = cluster.node(name).backup(path, &BackupOptions::default()).await.unwrap();
            made.push((info, before));
        }
        writers.go_on(100).await;
        let written = writers.end().await;
        for (backup, before) in made {
            let file = &backup.file;
            let found = rows(file);
            let index = backup.position.index;
            let expected: BTreeSet<Row> = written.iter().filter(|(_, at)| **at <= index).map(|(row, _)| *row).collect();
            assert_eq!(found, expected, "{}: all rows up to its position and no other", file.display());
            assert!(before.keys().all(|row| found.contains(row)), "what was acknowledged before is in it");
            assert_eq!(backup.bytes, std::fs::metadata(file).unwrap().len());
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 6, "no other files are next to the backups");
        cluster.stop_all().await;
    });
}

#[test]
fn without_a_majority_only_local_backups_work() {
    run(async {
        let mut cluster = Cluster::start().await;
        cluster.sql("a").execute("CREATE TABLE t (writer, number, blob)", ()).await.unwrap();
        let written = cluster.sql("a").execute("INSERT INTO t VALUES (0, 1, x'')", ()).await.unwrap();
        let at = cluster.sql("c").at(Level::AtLeast(written.position));
        assert_eq!(at.query_one::<i64>("SELECT count(*) FROM t", ()).await, Ok(1));
        cluster.kill("a");
        cluster.kill("b");
        let (dir, file) = (TempDir::new().unwrap(), "alone.db");
        let config = ClientConfig::new(cluster.addrs(), secret());
        let hasty = config.clone().with_deadline(Duration::from_secs(2));
        let path = dir.path().join(file);
        let refused = backup(hasty, &path, &BackupOptions::default()).await.unwrap_err();
        assert!(matches!(&refused, BackupError::Cluster(Error::Unavailable(_))) && refused.is_retryable(), "{refused}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);

        let local = BackupOptions { level: Level::Local, ..BackupOptions::default() };
        let backup = backup(config, &path, &local).await.unwrap();
        assert!(backup.position >= written.position);
        assert_eq!(rows(&path), BTreeSet::from([(0, 1)]));
    });
}
