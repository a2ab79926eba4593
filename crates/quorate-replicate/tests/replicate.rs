//! The loop archives what an application writes, whatever the store does, and asks nothing of it without need.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::disallowed_methods, reason = "tests")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use quorate_archive::objects::{Memory, Trouble};
use quorate_archive::restore::{Target, clusters};
use quorate_archive::{ArchiveError, Objects};
use quorate_env::{Env, Instant, JoinHandle, timeout};
use quorate_replicate::{Options, ReplicateError, Status, Syncs, replicate, restore_pages};
use tempfile::TempDir;
use tokio::sync::{oneshot, watch};

mod common;

use common::{App, assert_same, block_on, copy, serve, wal_of};

const DEADLINE: Duration = Duration::from_secs(60);

/// A checkpoint keeps the application waiting while its disk is slow.
const PATIENT: &str = "PRAGMA busy_timeout = 60000";

/// How often an application commits without a pause.
const COMMITS: usize = 20_000;

#[test]
fn application() {
    serve();
}

/// A database with its application.
struct World {
    dir: TempDir,
    path: PathBuf,
    app: App,
    env: Env,
    memory: Memory,
}

/// A loop that archives it.
struct Running {
    status: watch::Receiver<Status>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), ReplicateError>>,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("app.db");
        let mut app = App::start(&path);
        app.run(0, PATIENT).unwrap();
        app.run(0, "PRAGMA synchronous = NORMAL").unwrap();
        app.run(0, "CREATE TABLE t (v BLOB); INSERT INTO t VALUES (randomblob(9000))").unwrap();
        Self { dir, path, app, env: Env::real(), memory: Memory::new() }
    }

    fn write(&mut self) {
        self.app.run(0, "INSERT INTO t VALUES (randomblob(20000))").unwrap();
    }

    fn objects(&self) -> Arc<dyn Objects> {
        Arc::new(self.memory.clone())
    }

    fn options() -> Options {
        Options {
            interval: Duration::from_millis(10),
            checkpoint_frames: 50,
            tidy_interval: Duration::from_millis(200),
            ..Options::default()
        }
    }

    fn start(&self) -> Running {
        self.start_with(Self::options())
    }

    fn start_with(&self, options: Options) -> Running {
        let (sender, status) = watch::channel(Status::default());
        let (stop, stopped) = oneshot::channel::<()>();
        let (env, path, objects) = (self.env.clone(), self.path.clone(), self.objects());
        let task = self.env.spawn(async move {
            replicate(&env, &path, objects, options, sender, async { drop(stopped.await) }).await
        });
        Running { status, stop, task }
    }

    /// Restores the last boundary, and compares it with the database.
    async fn check(&self) {
        let to = self.dir.path().join("restored");
        restore_pages(&self.env, &self.objects(), (None, Target::Latest), &to, Duration::ZERO).await.unwrap();
        assert_same(&std::fs::read(&to).unwrap(), &copy(&self.path), 4096);
        std::fs::remove_file(&to).unwrap();
    }
}

impl Running {
    async fn until(&mut self, is_reached: impl FnMut(&Status) -> bool) -> Status {
        timeout(DEADLINE, self.status.wait_for(is_reached)).await.unwrap().unwrap().clone()
    }

    async fn stop(self) -> Result<(), ReplicateError> {
        self.stop.send(()).unwrap();
        self.task.await.unwrap()
    }
}

#[test]
fn what_is_written_is_archived_and_the_end_is_too() {
    block_on(async {
        let mut world = World::new();
        let mut running = world.start();
        for round in 1..20 {
            world.write();
            running.until(|status| status.boundaries >= round && status.lag().is_zero()).await;
        }
        world.write();
        running.stop().await.unwrap();
        world.check().await;

        // Who begins again continues the archive.
        let again = world.start();
        world.write();
        again.stop().await.unwrap();
        world.check().await;
        assert_eq!(clusters(&world.memory).await.unwrap().len(), 1);
        let snapshots = world.memory.contents().keys().filter(|key| key.contains("/0009/")).count();
        assert_eq!(snapshots, 1);
    });
}

#[test]
fn an_idle_database_costs_no_request() {
    block_on(async {
        let mut world = World::new();
        let mut running = world.start();
        running.until(|status| status.boundary > 0 && status.lag().is_zero()).await;
        world.write();
        running.until(|status| status.boundary > 1 && status.lag().is_zero()).await;
        // The loop tidies up again and again, but only the first time after a boundary may cost something.
        let tidied = running.until(|status| status.boundary > 1).await.tidied;
        running.until(|status| status.tidied >= tidied + 2).await;
        let before = world.memory.requests();
        running.until(|status| status.tidied >= tidied + 4).await;
        assert_eq!(world.memory.requests(), before);
        running.stop().await.unwrap();
    });
}

#[test]
fn a_store_that_fails_delays_the_archive_and_not_the_application() {
    block_on(async {
        let mut world = World::new();
        let mut running = world.start();
        running.until(|status| status.boundary > 0).await;
        world.memory.set_troubles(|_, _| Trouble { is_refused: true, ..Trouble::default() });
        for _ in 0..100 {
            world.write();
            running.status.changed().await.unwrap();
        }
        let status = running.until(|status| status.errors > 0).await;
        assert!(!status.lag().is_zero() && status.behind_bytes >= 4096 && status.error.is_some());
        // 100 writes are more than 500 frames, and a checkpoint is made after 50.
        let length = std::fs::metadata(wal_of(&world.path)).unwrap().len();
        assert!(length < 300 * 4096, "the -wal has {length} bytes");
        world.memory.end_troubles();
        running.until(|status| status.lag().is_zero() && status.error.is_none()).await;
        running.stop().await.unwrap();
        world.check().await;
    });
}

#[test]
fn a_store_that_does_not_answer_keeps_neither_the_wal_nor_the_end() {
    block_on(async {
        let mut world = World::new();
        let options = Options { stop_wait: Duration::from_millis(50), ..World::options() };
        let mut running = world.start_with(options);
        running.until(|status| status.boundary > 0 && status.lag().is_zero()).await;
        // The first request fails, and the second one never ends.
        let mut is_first = true;
        world.memory.set_troubles(move |_, _| {
            let is_refused = std::mem::replace(&mut is_first, false);
            Trouble {
                is_refused,
                before: if is_refused { Duration::ZERO } else { DEADLINE * 60 },
                ..Trouble::default()
            }
        });
        for _ in 0..100 {
            world.write();
            running.status.changed().await.unwrap();
        }
        let length = std::fs::metadata(wal_of(&world.path)).unwrap().len();
        assert!(length < 300 * 4096, "the -wal has {length} bytes");
        assert!(!running.status.borrow().lag().is_zero());
        let late = timeout(DEADLINE, running.stop()).await.unwrap().unwrap_err();
        assert!(matches!(late, ReplicateError::Late(_)), "{late}");
        // The next one archives it.
        world.memory.end_troubles();
        world.start().stop().await.unwrap();
        world.check().await;
    });
}

#[test]
fn a_wal_that_grows_fast_is_begun_anew_often_between_two_boundaries() {
    block_on(async {
        let mut world = World::new();
        // Long enough for three checkpoints on a slow disk, each of which syncs five times.
        let interval = Duration::from_secs(5);
        let mut running = world.start_with(Options { interval, ..World::options() });
        running.until(|status| status.boundary > 0).await;
        let (mut boundary, mut restarts, mut salts) = (0, 0, salts(&world.path));
        let begun = Instant::now();
        while restarts < 3 {
            assert!(begun.elapsed() < DEADLINE, "the -wal was begun anew {restarts} times in an interval");
            world.write();
            let _ = timeout(Duration::from_millis(1), running.status.changed()).await;
            let now = self::salts(&world.path);
            restarts += usize::from(now != salts);
            salts = now;
            let archived = running.status.borrow().boundaries;
            if archived != boundary {
                (boundary, restarts) = (archived, 0);
            }
        }
        running.stop().await.unwrap();
        world.check().await;
    });
}

#[test]
fn what_was_committed_before_a_request_is_archived_without_waiting() {
    block_on(async {
        let mut world = World::new();
        let syncs = Syncs::default();
        let interval = DEADLINE * 60;
        let mut running = world.start_with(Options { interval, syncs: syncs.clone(), ..World::options() });
        for _ in 0..10 {
            world.write();
            let number = syncs.ask();
            running.until(|status| status.synced >= number).await;
            world.check().await;
        }
        // While the store fails, nothing is done, and nothing is forgotten.
        world.memory.set_troubles(|_, _| Trouble { is_refused: true, ..Trouble::default() });
        world.write();
        let number = syncs.ask();
        let failed = running.until(|status| status.errors > 0).await;
        assert!(failed.synced < number && failed.taken > failed.boundary, "{failed:?}");
        world.memory.end_troubles();
        running.until(|status| status.synced >= number).await;
        world.check().await;
        running.stop().await.unwrap();
    });
}

#[test]
fn after_the_end_no_file_of_the_database_is_open() {
    let is_open = |path: &Path| {
        let files = std::fs::read_dir("/proc/self/fd").unwrap();
        let mut names = files.filter_map(|file| std::fs::read_link(file.unwrap().path()).ok());
        names.any(|name| name.starts_with(path.parent().unwrap()))
    };
    block_on(async {
        let mut world = World::new();
        let running = world.start();
        world.write();
        running.stop().await.unwrap();
        assert!(!is_open(&world.path));
        // The end comes while pages are read and sent, and does not wait for the store.
        let mut running = world.start_with(Options { stop_wait: Duration::ZERO, ..World::options() });
        running.until(|status| status.boundary > 0).await;
        world.memory.set_troubles(|_, _| Trouble { is_refused: true, ..Trouble::default() });
        world.write();
        running.until(|status| status.error.is_some()).await;
        assert!(is_open(&world.path));
        running.stop().await.unwrap_err();
        assert!(!is_open(&world.path));
    });
}

/// Returns what distinguishes the `-wal` from the one before it was begun anew; `None` if it is empty.
fn salts(database: &Path) -> Option<Vec<u8>> {
    std::fs::read(wal_of(database)).unwrap().get(16..24).map(<[u8]>::to_vec)
}

#[test]
fn the_lag_grows_while_the_database_cannot_be_looked_at() {
    block_on(async {
        let world = World::new();
        let mut running = world.start();
        let idle = running.until(|status| status.boundary > 0 && status.lag().is_zero()).await;
        assert_eq!((idle.behind_bytes, idle.generation), (0, 1));
        // Nothing has changed, as far as anybody knows, and nobody can know it any more.
        std::fs::rename(&world.path, world.path.with_extension("away")).unwrap();
        running.until(|status| status.lag() > Duration::from_millis(100)).await;
        let first = running.status.borrow().behind_since;
        running.until(|status| status.lag() > Duration::from_millis(300)).await;
        assert_eq!(running.status.borrow().behind_since, first);
        std::fs::rename(world.path.with_extension("away"), &world.path).unwrap();
        running.until(|status| status.lag().is_zero()).await;
        running.stop().await.unwrap();
    });
}

#[test]
fn what_was_not_answered_is_stored_although_nothing_more_happens() {
    block_on(async {
        let mut world = World::new();
        let mut running = world.start();
        let first = running.until(|status| status.boundary > 0 && status.lag().is_zero()).await;
        world.memory.set_troubles(|_, _| Trouble { is_refused: true, ..Trouble::default() });
        world.write();
        running.until(|status| status.errors > first.errors).await;
        world.memory.end_troubles();
        running.until(|status| status.boundary > first.boundary && status.error.is_none()).await;
        world.check().await;
        running.stop().await.unwrap();
    });
}

#[test]
fn a_second_one_takes_the_archive_over() {
    block_on(async {
        let mut world = World::new();
        let mut first = world.start();
        first.until(|status| status.boundary > 0).await;
        // Another process would hold locks of its own; the archive does not care where the second one is.
        let other = World { memory: world.memory.clone(), ..World::new() };
        let mut second = other.start();
        second.until(|status| status.boundary > 0).await;
        world.write();
        let beaten = timeout(DEADLINE, first.task).await.unwrap().unwrap().unwrap_err();
        assert!(matches!(beaten, ReplicateError::Archive(ArchiveError::Fenced { token: 2, .. })), "{beaten}");
        second.stop().await.unwrap();
        other.check().await;
    });
}

#[test]
fn of_several_archives_one_has_to_be_named() {
    block_on(async {
        let world = World::new();
        for cluster in [1, 2] {
            let running = world.start_with(Options { cluster: Some(cluster), ..Options::default() });
            running.stop().await.unwrap();
        }
        let refused = timeout(DEADLINE, world.start().task).await.unwrap().unwrap().unwrap_err();
        let text = refused.to_string();
        assert!(text.contains(&format!("{:032x}, {:032x}", 1, 2)), "{text}");
        assert!(!refused.is_retryable());
    });
}

#[test]
fn what_is_no_database_is_refused() {
    block_on(async {
        let mut world = World::new();
        world.path = world.dir.path().join("missing.db");
        let refused = timeout(DEADLINE, world.start().task).await.unwrap().unwrap().unwrap_err();
        assert!(!refused.is_retryable() && !world.path.exists(), "{refused}");
        std::fs::write(&world.path, "This is a text and not a database. ".repeat(40)).unwrap();
        let refused = timeout(DEADLINE, world.start().task).await.unwrap().unwrap().unwrap_err();
        assert!(!refused.is_retryable(), "{refused}");
    });
}

#[test]
fn a_database_that_is_put_in_its_place_is_archived_instead() {
    block_on(async {
        let mut world = World::new();
        let mut running = world.start();
        running.until(|status| status.boundary > 0).await;
        let mut other = World::new();
        other.write();
        drop(other.app);
        std::fs::write(world.dir.path().join("other.db"), copy(&other.path)).unwrap();
        world.app.kill();
        std::fs::remove_file(wal_of(&world.path)).unwrap();
        std::fs::rename(world.dir.path().join("other.db"), &world.path).unwrap();
        running.until(|status| status.boundary > 1 && status.error.is_none()).await;
        running.stop().await.unwrap();
        world.check().await;
    });
}

#[test]
fn a_database_that_is_deleted_is_archived_again_when_there_is_one() {
    block_on(async {
        let mut world = World::new();
        let mut running = world.start();
        running.until(|status| status.boundary > 0).await;
        world.app.kill();
        std::fs::remove_file(&world.path).unwrap();
        // The side-car may remove these two files first, when it notices that the database is gone.
        for file in [wal_of(&world.path), format!("{}-shm", world.path.display()).into()] {
            let _ = std::fs::remove_file(&file);
            assert!(!file.exists());
        }
        let gone = running.until(|status| status.error.is_some()).await;
        assert!(gone.error.unwrap().contains("the database is gone"));
        // It is looked for all the time, but told only now and then.
        for _ in 0..30 {
            running.status.changed().await.unwrap();
        }
        assert!(running.status.borrow().errors < gone.errors + 10);
        world.app = App::start(&world.path);
        // The side-car switches it to WAL mode meanwhile.
        world.app.run(0, PATIENT).unwrap();
        world.app.run(0, "CREATE TABLE u (v BLOB); INSERT INTO u VALUES (randomblob(5000))").unwrap();
        running.until(|status| status.boundary > gone.boundary && status.error.is_none()).await;
        running.stop().await.unwrap();
        world.check().await;
    });
}

#[test]
fn a_checkpoint_of_the_application_does_not_wait_until_it_gives_up() {
    block_on(async {
        let mut world = World::new();
        let mut running = world.start_with(Options { checkpoint_frames: u32::MAX, ..World::options() });
        // It would give up after an hour.
        world.app.run(0, "PRAGMA busy_timeout = 3600000").unwrap();
        for _ in 0..3 {
            world.write();
            let boundaries = running.status.borrow().boundaries;
            running.until(|status| status.boundaries > boundaries && status.lag().is_zero()).await;
            world.app.begin(0, "PRAGMA wal_checkpoint(TRUNCATE)");
            let wal = wal_of(&world.path);
            running.until(|_| std::fs::metadata(&wal).unwrap().len() == 0).await;
            world.app.end().unwrap();
        }
        running.stop().await.unwrap();
        world.check().await;
    });
}

#[test]
fn the_wal_of_a_busy_application_does_not_grow() {
    block_on(async {
        let world = World::new();
        let options = Options { checkpoint_frames: Options::default().checkpoint_frames, ..World::options() };
        let mut running = world.start_with(options);
        running.until(|status| status.boundary > 0).await;
        // Each is a commit, and makes a checkpoint of its own when the `-wal` has 1000 pages.
        let mut busy = App::start(&world.path);
        busy.run(0, PATIENT).unwrap();
        let write = move || busy.run(0, &"INSERT INTO t VALUES (randomblob(100));".repeat(COMMITS));
        world.env.blocking(write).await.unwrap().unwrap();
        let bytes = std::fs::metadata(wal_of(&world.path)).unwrap().len();
        assert!(bytes < COMMITS as u64 * 4096 / 4, "{bytes}");
        running.stop().await.unwrap();
        world.check().await;
    });
}
