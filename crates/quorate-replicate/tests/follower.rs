//! Whatever an application does with its database, an archive of boundaries restores it byte by byte.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::path::PathBuf;

use proptest::prelude::*;
use quorate_archive::objects::Memory;
use quorate_archive::{Archiver, Changed};
use quorate_env::Env;
use quorate_replicate::Follower;
use tempfile::TempDir;

mod common;

use common::{App, archiver, assert_same, block_on, copy, restored, serve};

#[test]
fn application() {
    serve();
}

/// One step of the application, or of what follows its database.
#[derive(Clone, Debug)]
enum Step {
    /// A connection runs this.
    Sql(u8, String),
    /// A connection is closed.
    Close(u8),
    /// The application is killed while it runs this, and started again.
    Kill(String),
    Boundary,
    Checkpoint,
    /// What follows begins anew.
    Restart,
}

fn writes() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => (1_u32..40, 1_u32..3000).prop_map(|(rows, length)| insert(rows, length)),
        3 => (0_u32..7).prop_map(|rest| format!("UPDATE t SET v = v || randomblob(20) WHERE id % 7 = {rest}")),
        3 => (0_u32..5).prop_map(|rest| format!("DELETE FROM t WHERE id % 5 = {rest}")),
        2 => (100_u32..600).prop_map(|rows| insert(rows, 900)),
        1 => Just("DELETE FROM t WHERE id > 20".to_owned()),
        1 => Just("VACUUM".to_owned()),
        1 => Just("DROP TABLE IF EXISTS u; CREATE TABLE u AS SELECT * FROM t; CREATE INDEX ui ON u (v)".to_owned()),
        1 => Just("DROP TABLE IF EXISTS u".to_owned()),
        1 => Just("PRAGMA incremental_vacuum".to_owned()),
    ]
}

fn insert(rows: u32, length: u32) -> String {
    format!(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows}) \
         INSERT INTO t (v) SELECT randomblob({length}) FROM n"
    )
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let mode = prop::sample::select(vec!["PASSIVE", "FULL", "RESTART", "TRUNCATE"]);
    let checkpoint = mode.prop_map(|mode| format!("PRAGMA wal_checkpoint({mode})"));
    let settings = vec![
        "PRAGMA synchronous = FULL",
        "PRAGMA synchronous = NORMAL",
        "PRAGMA cache_size = 2",
        "PRAGMA cache_size = -2000",
        "PRAGMA wal_autocheckpoint = 5",
        "PRAGMA wal_autocheckpoint = 1000",
    ];
    let settings = prop::sample::select(settings).prop_map(str::to_owned);
    let reader = prop::sample::select(vec!["BEGIN; SELECT count(*) FROM t", "COMMIT"]);
    let transaction = (prop::collection::vec(writes(), 1..4), any::<bool>()).prop_map(|(writes, is_kept)| {
        let writes: Vec<_> = writes.into_iter().filter(|sql| !sql.contains("VACUUM")).collect();
        format!("BEGIN; {}; {}", writes.join("; "), if is_kept { "COMMIT" } else { "ROLLBACK" })
    });
    let step = prop_oneof![
        10 => (0_u8..2, writes()).prop_map(|(connection, sql)| Step::Sql(connection, sql)),
        4 => (0_u8..2, transaction).prop_map(|(connection, sql)| Step::Sql(connection, sql)),
        3 => (0_u8..2, checkpoint).prop_map(|(connection, sql)| Step::Sql(connection, sql)),
        2 => (0_u8..2, settings).prop_map(|(connection, sql)| Step::Sql(connection, sql)),
        3 => reader.prop_map(|sql| Step::Sql(2, sql.to_owned())),
        2 => (0_u8..3).prop_map(Step::Close),
        1 => writes().prop_map(Step::Kill),
        9 => Just(Step::Boundary),
        4 => Just(Step::Checkpoint),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..60)
}

/// A database with its application, and what follows it.
struct World {
    _dir: TempDir,
    path: PathBuf,
    page_size: usize,
    app: App,
    env: Env,
    memory: Memory,
    follower: Option<Follower>,
    archiver: Archiver,
    /// Whether a boundary was stored since the follower began.
    has_begun: bool,
    losses: u64,
}

impl World {
    async fn new(page_size: usize, vacuum: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("app.db");
        let mut app = App::start(&path);
        let schema = "CREATE TABLE t (id INTEGER PRIMARY KEY, v BLOB)";
        app.run(0, &format!("PRAGMA page_size = {page_size}; PRAGMA auto_vacuum = {vacuum}; {schema}")).unwrap();
        let (env, memory) = (Env::real(), Memory::new());
        let archiver = archiver(&env, &memory).await;
        let follower = Some(Follower::begin(&env, &path).unwrap());
        Self { _dir: dir, path, page_size, app, env, memory, follower, archiver, has_begun: false, losses: 0 }
    }

    async fn step(&mut self, step: &Step) {
        match step {
            // What the locks of the other connections forbid is refused, and that is no matter here.
            Step::Sql(connection, sql) => drop(self.app.run(*connection, sql)),
            Step::Close(connection) => self.app.run(*connection, "close").unwrap(),
            Step::Kill(sql) => {
                self.app.begin(0, sql);
                self.app.kill();
                self.app = App::start(&self.path);
                // It may have been killed after a commit was in the `-wal` and before SQLite had published it. That is
                // no commit as long as somebody has the database open, but it is one in a copy. So write over it.
                self.app.run(0, "INSERT INTO t (v) VALUES ('alive')").unwrap();
            }
            Step::Boundary => self.boundary().await,
            Step::Checkpoint => drop(checkpoint(self.follower.as_mut().unwrap())),
            Step::Restart => {
                self.losses += self.follower.take().unwrap().counts().losses;
                self.follower = Some(Follower::begin(&self.env, &self.path).unwrap());
                self.archiver = archiver(&self.env, &self.memory).await;
                self.has_begun = false;
            }
        }
    }

    async fn boundary(&mut self) {
        let follower = self.follower.as_mut().unwrap();
        let expected = copy(&self.path);
        if follower.news().unwrap().is_some() {
            let index = self.archiver.next_index().await.unwrap();
            let boundary = follower.boundary(index).unwrap().unwrap();
            assert_eq!(boundary.changed() == Changed::All, !self.has_begun);
            self.archiver.put_pages(boundary).await.unwrap();
            self.has_begun = true;
        }
        assert_same(&restored(&self.env, &self.memory).await, &expected, self.page_size);
    }
}

/// Each case has processes of its own, so there are few, if the environment does not ask for more.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(12)
}

fn run(page_size: usize, vacuum: &str, steps: &[Step]) {
    block_on(async {
        let mut world = World::new(page_size, vacuum).await;
        for step in steps.iter().chain([&Step::Boundary]) {
            world.step(step).await;
        }
        assert_eq!(world.losses + world.follower.unwrap().counts().losses, 0);
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 60, ..ProptestConfig::default() })]

    #[test]
    fn every_boundary_is_restored(
        page_size in prop::sample::select(vec![512, 1024, 4096, 65536]),
        vacuum in prop::sample::select(vec!["NONE", "FULL", "INCREMENTAL"]),
        steps in steps(),
    ) {
        run(page_size, vacuum, &steps);
    }
}

/// What the load does again and again.
const LOAD: [&str; 6] = [
    "INSERT INTO t (v) SELECT randomblob(700) FROM t LIMIT 300",
    "UPDATE t SET v = v || randomblob(9) WHERE id % 3 = 1",
    "BEGIN; DELETE FROM t WHERE id % 4 = 2; INSERT INTO t (v) SELECT randomblob(5000) FROM t LIMIT 60; COMMIT",
    "PRAGMA wal_checkpoint(RESTART); INSERT INTO t (v) VALUES (randomblob(40000))",
    "BEGIN; UPDATE t SET v = randomblob(3000); ROLLBACK; VACUUM",
    "DELETE FROM t WHERE id > 200; PRAGMA wal_checkpoint(TRUNCATE); INSERT INTO t (v) VALUES ('after')",
];

#[test]
fn boundaries_are_taken_beside_writers() {
    block_on(async {
        let mut world = World::new(4096, "NONE").await;
        let schema = "PRAGMA synchronous = OFF; PRAGMA cache_size = 10; PRAGMA wal_autocheckpoint = 20";
        world.app.run(0, schema).unwrap();
        world.app.run(0, "INSERT INTO t (v) VALUES (randomblob(9000)), (randomblob(20))").unwrap();
        let mut holder = App::start(&world.path);
        // Nobody lets the application restart the -wal while the holder waits, so that one must be more patient.
        world.app.run(0, "PRAGMA busy_timeout = 1000").unwrap();
        holder.run(0, "PRAGMA busy_timeout = 60000").unwrap();
        for round in 0..60 {
            world.app.begin(0, LOAD[round % LOAD.len()]);
            // Whatever moment this is, what is restored is sound.
            let follower = world.follower.as_mut().unwrap();
            let index = world.archiver.next_index().await.unwrap();
            let boundary = follower.boundary(index).unwrap().unwrap();
            world.archiver.put_pages(boundary).await.unwrap();
            world.has_begun = true;
            if round % 4 == 3 {
                checkpoint(follower);
            }
            restored(&world.env, &world.memory).await;
            // While nobody can write, it can be compared.
            holder.run(0, "BEGIN IMMEDIATE").unwrap();
            world.boundary().await;
            holder.run(0, "ROLLBACK").unwrap();
            drop(world.app.end());
        }
        let counts = world.follower.unwrap().counts();
        assert_eq!(counts.losses, 0);
        assert!(counts.restarts > 5, "{counts:?}");
    });
}

/// Makes a checkpoint. Returns whether all frames are copied.
fn checkpoint(follower: &mut Follower) -> bool {
    follower.copy().unwrap() && follower.copy_rest().unwrap()
}

#[test]
fn after_a_checkpoint_the_wal_begins_anew() {
    block_on(async {
        let mut world = World::new(4096, "NONE").await;
        for restarts in 1..4 {
            world.app.run(0, &insert(300, 900)).unwrap();
            let follower = world.follower.as_mut().unwrap();
            let before = follower.counts().restarts;
            assert!(checkpoint(follower), "{restarts}");
            assert_eq!(follower.wal_frames().unwrap().1, 0);
            world.app.run(0, "INSERT INTO t (v) VALUES ('after')").unwrap();
            world.boundary().await;
            let follower = world.follower.as_mut().unwrap();
            assert_eq!(follower.counts().restarts, before + 1);
            assert!(follower.wal_frames().unwrap().0 < 20);
        }
    });
}
