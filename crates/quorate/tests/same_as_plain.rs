//! Three nodes whose clocks differ by hours, one of which loses its directory half-way, compute the same as plain
//! SQLite with the same stamps and seeds and one transaction for each entry.

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
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quorate::config::Timing;
use quorate::sim::SimHooks;
use quorate::{Config, Error, Sql};
use quorate_env::{Env, Parts, Rng, WallClock};
use quorate_model::codec::decode_proposal;
use quorate_model::{
    Applied, Entry, ImageSink, ImageSource, OnApplied, Outcome, Payload, RunningStatement, Stamp, StateMachine,
    StoreFault,
};
use quorate_sql::plain::{Plain, seen};
use quorate_sql::{SqlStore, connection, logical_hash};
use rusqlite::Connection;
use support::{Cluster, run, until};

const SETUP: &[&str] = &[
    "CREATE TABLE t (id INTEGER PRIMARY KEY, a UNIQUE, at DEFAULT CURRENT_TIMESTAMP, r DEFAULT (random()),
        b DEFAULT (randomblob(8)))",
    "CREATE TABLE log (what, at, r)",
    "CREATE TRIGGER t_insert AFTER INSERT ON t BEGIN
        INSERT INTO log VALUES (NEW.a, datetime('now'), random()); END",
    "CREATE TABLE parent (id INTEGER PRIMARY KEY)",
    "CREATE TABLE child (p REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)",
    "CREATE TABLE once (a UNIQUE ON CONFLICT ROLLBACK)",
    "CREATE VIRTUAL TABLE f USING fts5(body)",
];

/// Statements with one parameter, a small number; some of them sometimes fail. The first two return rows.
const STATEMENTS: &[&str] = &[
    "INSERT INTO t (a) VALUES (?1) RETURNING id, at, r, hex(b)",
    "UPDATE t SET at = CURRENT_TIMESTAMP, r = random() WHERE a > ?1 RETURNING at, r",
    "DELETE FROM t WHERE a = ?1",
    "INSERT INTO log VALUES (?1, strftime('%Y-%m-%d %H:%M:%f', 'now'), hex(randomblob(8)))",
    "INSERT INTO parent VALUES (?1)",
    "DELETE FROM parent WHERE id = ?1",
    "INSERT INTO child VALUES (?1)",
    "DELETE FROM child WHERE p = ?1",
    "INSERT INTO once VALUES (?1)",
    "DELETE FROM once WHERE a = ?1",
    "INSERT INTO f SELECT 'word' || ?1 || ' and ' || hex(randomblob(20))",
    "DELETE FROM f WHERE rowid = ?1",
];

/// The number of batches that are written on each node before and after the loss of a node, and by how many writers:
/// with each batch, a writer waits for the disks.
const BATCHES: usize = 150;
const WRITERS: usize = 3;

#[test]
fn nodes_compute_the_same_as_plain_sqlite() {
    run(async {
        let records = Records::default();
        let mut cluster = Cluster::start_in(Box::new(world(&records))).await;
        for sql in SETUP {
            cluster.sql("a").execute(*sql, ()).await.unwrap();
        }
        write(&cluster, &["a", "b", "c"]).await;

        cluster.stop("c").await;
        cluster.wipe("c").await;
        write(&cluster, &["a", "b"]).await;
        // The node gets an image instead of the log.
        let first = |name| cluster.config(name).data_dir.join("log/0000000001.wal");
        until("the log is purged", || ["a", "b"].iter().all(|name| !first(name).exists())).await;
        cluster.restart("c").await;
        write(&cluster, &["a", "b", "c"]).await;

        until("the same index on all nodes", || {
            let indexes: BTreeSet<u64> = cluster.nodes().map(|node| node.status().applied.index).collect();
            indexes.len() == 1
        })
        .await;
        cluster.stop_all().await;
        compare(&records);
    });
}

/// The runs of each node, by the node's name.
type Records = Arc<Mutex<Vec<(String, Arc<Record>)>>>;

/// The entries that one run of a node applied, and the directory of its state.
struct Record {
    store: SqlStore,
    applied: Mutex<BTreeMap<u64, (Payload, Outcome)>>,
}

fn world(records: &Records) -> impl Fn(&str, &mut Config) -> (Env, SimHooks) + use<> {
    let records = Arc::clone(records);
    move |name, config| {
        let hours = match name {
            "a" => -3,
            "b" => 0,
            _ => 5,
        };
        config.timing =
            Timing { silence: Duration::from_secs(1), status: Duration::from_millis(100), ..Timing::default() };
        // So small that the beginning of the log is soon purged.
        config.keep_log_bytes = 8 << 10;
        let real = Env::real();
        let env = Env::new(Parts {
            clock: Arc::new(Wrong { hours }),
            disk: Arc::clone(real.disk()),
            net: Arc::clone(real.net()),
            rng: real.rng().clone(),
            host: Arc::clone(real.host()),
        });
        let (name, records) = (name.to_owned(), Arc::clone(&records));
        let seams = SimHooks {
            groups: Default::default(),
            level: None,
            archives: false,
            log_segment_bytes: Some(64 << 10),
            tune: Some(Arc::new(move |options| {
                options.checkpoint_bytes = 64 << 10;
                options.batch_entries_max = 8;
                options.shuffle_batches = Some(Rng::from_seed(1));
            })),
            watch: Some(Arc::new(move |store| {
                let record = Arc::new(Record { store, applied: Mutex::default() });
                records.lock().unwrap().push((name.clone(), Arc::clone(&record)));
                Arc::new(Recorder(record))
            })),
        };
        (env, seams)
    }
}

/// A wall clock with an offset.
#[derive(Debug)]
struct Wrong {
    hours: i64,
}

impl WallClock for Wrong {
    fn unix_nanos(&self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        u64::try_from(now.as_nanos()).unwrap().saturating_add_signed(self.hours * 3600 * 1_000_000_000)
    }
}

/// A store that records the entries that it applies.
struct Recorder(Arc<Record>);

impl StateMachine for Recorder {
    fn applied(&self) -> Applied {
        self.0.store.applied()
    }

    fn running(&self) -> Option<RunningStatement> {
        self.0.store.running()
    }

    fn rejections(&self) -> Vec<u64> {
        self.0.store.rejections()
    }

    fn condemn(&self, fault: &StoreFault) {
        self.0.store.condemn(fault);
    }

    fn apply(&self, entries: Vec<Entry>, is_awaited: bool, mut on_applied: OnApplied) {
        let (record, mut waiting) = (Arc::clone(&self.0), entries.clone().into_iter());
        let recording = Box::new(move |result: Result<Vec<Option<Outcome>>, StoreFault>| {
            let outcomes = result.iter().flatten().cloned();
            // An entry that an image already contained has no outcome.
            let applied = outcomes
                .zip(waiting.by_ref())
                .filter_map(|(outcome, entry)| Some((entry.log_id.index, (entry.payload, outcome?))));
            record.applied.lock().unwrap().extend(applied);
            on_applied(result);
        });
        self.0.store.apply(entries, is_awaited, recording);
    }

    fn prefetch(&self, entries: Vec<Entry>) {
        self.0.store.prefetch(entries);
    }

    fn outlives_process(&self) -> bool {
        self.0.store.outlives_process()
    }

    fn durable(&self) -> Applied {
        self.0.store.durable()
    }

    fn is_slowed(&self) -> bool {
        self.0.store.is_slowed()
    }

    fn fault(&self) -> Option<StoreFault> {
        self.0.store.fault()
    }

    fn send_image(&self) -> Result<Box<dyn ImageSource>, StoreFault> {
        self.0.store.send_image()
    }

    fn receive_image(&self) -> Result<Box<dyn ImageSink>, StoreFault> {
        self.0.store.receive_image()
    }
}

/// Runs the writers on each of these nodes, all at the same time.
async fn write(cluster: &Cluster, names: &[&str]) {
    let names = names.iter().cycle().take(names.len() * WRITERS);
    let writers = (1..).zip(names).map(|(seed, name)| write_some(cluster.sql(name), Rng::from_seed(seed)));
    futures_util::future::join_all(writers).await;
}

async fn write_some(sql: Sql, rng: Rng) {
    let below = |bound: usize| usize::try_from(rng.below(bound as u64)).unwrap();
    for _ in 0..BATCHES / WRITERS {
        let number = |_: usize| (i64::try_from(below(12)).unwrap(),);
        let statement = |_| (STATEMENTS[below(STATEMENTS.len())], number(0));
        let written = if below(5) == 0 {
            let rows: Vec<_> = (0..1 + below(4)).map(number).collect();
            sql.execute_many(STATEMENTS[2 + below(STATEMENTS.len() - 2)], rows).await.map(drop)
        } else {
            let statements: Vec<_> = (0..1 + below(3)).map(statement).collect();
            sql.batch(statements).await.map(drop)
        };
        match written {
            Ok(()) | Err(Error::Failed(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

fn compare(records: &Records) {
    let records = std::mem::take(&mut *records.lock().unwrap());
    let mut all: BTreeMap<u64, (Payload, Outcome)> = BTreeMap::new();
    for (name, record) in &records {
        for (index, applied) in record.applied.lock().unwrap().iter() {
            let known = all.entry(*index).or_insert_with(|| applied.clone());
            assert_eq!(known, applied, "entry {index} on node {name}");
        }
    }
    let first = |record: &Record| record.applied.lock().unwrap().keys().next().copied();
    let [_, _, _, (name, reborn)] = records.as_slice() else { panic!("{} lives", records.len()) };
    assert_eq!(name, "c");
    assert!(first(reborn) > Some(BATCHES as u64), "the log was sent, not an image: {:?}", first(reborn));

    let dir = tempfile::tempdir().unwrap();
    let plain = Plain::at(dir.path().join("db"));
    let (mut now, mut requests, mut failed) = (0, BTreeSet::new(), 0);
    for (index, (payload, outcome)) in &all {
        let Payload::Proposal(stamp, bytes) = payload else { continue };
        now = stamp.now.max(now);
        let proposal = decode_proposal(bytes).unwrap();
        let is_new = proposal.origin.is_none_or(|origin| requests.insert((origin.session, origin.sequence)));
        if is_new {
            let expected = plain.run(Stamp { now, ..*stamp }, &proposal).unwrap();
            assert_eq!(seen(outcome), expected, "entry {index}: {proposal:?}");
            failed += usize::from(expected.is_err());
        }
    }
    // The comparison must cover a useful number of entries.
    assert!(requests.len() > 7 * BATCHES && failed > BATCHES / 2, "{} requests, {failed} failed", requests.len());
    let expected = tables(&plain.connect().unwrap());
    for (name, record) in records.iter().filter(|(name, record)| name != "c" || Arc::ptr_eq(record, reborn)) {
        let conn = connection::open_reader(&record.store.generation(), 1 << 20).unwrap();
        assert_eq!(tables(&conn), expected, "the tables of {name}");
    }
}

/// Returns the hash of each table of users.
fn tables(conn: &Connection) -> BTreeMap<String, u128> {
    let all = logical_hash::by_table(conn).unwrap();
    all.into_iter().filter(|(name, _)| !name.starts_with("_quorate_")).collect()
}
