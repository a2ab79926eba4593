//! `quorate restore --plain` of what stock Litestream has stored: 0.5, and the layout of 0.3.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests run real processes and stop at the first surprise"
)]

mod support;

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, SystemTime};

use rusqlite::Connection;
use support::{failed, litestream, quorate, succeeded, wait_until};
use tempfile::TempDir;

/// A database that Litestream replicates to a directory.
struct World {
    dir: TempDir,
    litestream: PathBuf,
    application: Connection,
}

impl World {
    fn new(version: &str) -> Option<Self> {
        let litestream = litestream(version)?;
        let dir = TempDir::new().unwrap();
        let application = Connection::open(dir.path().join("app.db")).unwrap();
        application.busy_timeout(Duration::from_secs(20)).unwrap();
        application.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (v INTEGER, filling BLOB)").unwrap();
        let (app, replica) = (dir.path().join("app.db"), dir.path().join("replica"));
        let config = format!(
            "dbs:\n- path: {}\n  monitor-interval: 50ms\n  min-checkpoint-page-count: 200\n  replicas:\n  \
             - path: {}\n    sync-interval: 50ms\n",
            app.display(),
            replica.display()
        );
        std::fs::write(dir.path().join("litestream.yml"), config).unwrap();
        Some(Self { dir, litestream, application })
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    fn replicate(&self) -> Child {
        let mut command = Command::new(&self.litestream);
        command.args(["replicate", "-config", &self.path("litestream.yml")]);
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap()
    }

    /// Writes `rows` rows of 50 kB, in as many transactions.
    fn write(&self, rows: u32) {
        let next = "INSERT INTO t SELECT coalesce(max(v), 0) + 1, randomblob(50000) FROM t";
        for _ in 0..rows {
            self.application.execute(next, []).unwrap();
        }
    }

    /// Waits until Litestream itself restores so many rows.
    fn wait_for(&self, rows: i64) {
        wait_until("Litestream has stored the rows", || self.restored_by_litestream() == Some(rows));
    }

    fn restored_by_litestream(&self) -> Option<i64> {
        let file = self.path("stock.db");
        let mut command = Command::new(&self.litestream);
        let output = command.args(["restore", "-o", &file, &format!("file://{}", self.path("replica"))]).output();
        let is_restored = output.unwrap().status.success();
        let rows = is_restored.then(|| rows(&file));
        let _ = std::fs::remove_file(&file);
        rows
    }

    fn restore(&self, more: &[&str]) -> std::process::Output {
        let _ = std::fs::remove_file(self.path("restored.db"));
        let (url, file) = (format!("file://{}", self.path("replica")), self.path("restored.db"));
        quorate(&[&["restore", url.as_str(), "--plain", "-o", &file], more].concat())
    }

    /// The objects of this kind, sorted.
    fn objects(&self, kind: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut dirs = vec![PathBuf::from(self.path("replica"))];
        while let Some(dir) = dirs.pop() {
            for item in std::fs::read_dir(dir).unwrap().map(|item| item.unwrap().path()) {
                match item.is_dir() {
                    true => dirs.push(item),
                    false if item.to_str().unwrap().ends_with(kind) => found.push(item),
                    false => {}
                }
            }
        }
        found.sort();
        found
    }
}

fn rows(file: &str) -> i64 {
    let restored = Connection::open(file).unwrap();
    let verdict: String = restored.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");
    restored.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
}

fn end(mut litestream: Child) {
    support::signal(litestream.id().try_into().unwrap(), rustix::process::Signal::TERM);
    litestream.wait().unwrap();
}

/// Compares the tables of two databases.
fn assert_same(world: &World, restored: &str) {
    world.application.execute("ATTACH ?1 AS restored", [restored]).unwrap();
    let differing = "SELECT count(*) FROM (SELECT * FROM main.t EXCEPT SELECT * FROM restored.t)";
    let differing: i64 = world.application.query_row(differing, [], |row| row.get(0)).unwrap();
    world.application.execute_batch("DETACH restored").unwrap();
    assert_eq!(differing, 0);
    assert_eq!(rows(restored), rows(&world.path("app.db")));
}

fn now() -> String {
    chrono::DateTime::<chrono::Utc>::from(SystemTime::now()).to_rfc3339_opts(chrono::SecondsFormat::Millis, true)
}

/// Waits until this moment has passed, and returns the one then.
fn after(moment: &str) -> String {
    wait_until("the next moment", || now().as_str() > moment);
    now()
}

#[test]
fn both_layouts_are_restored_to_the_last_state_and_to_a_time() {
    for version in ["0.3", "0.5"] {
        let Some(world) = World::new(version) else { continue };
        let process = world.replicate();
        world.write(30);
        world.wait_for(30);
        let then = after(&now());
        after(&then);
        // Enough for several checkpoints, after which the -wal is begun anew.
        for rows in 1..=4 {
            world.write(20);
            world.wait_for(30 + rows * 20);
        }
        end(process);
        succeeded(&world.restore(&[]));
        assert_same(&world, &world.path("restored.db"));
        succeeded(&world.restore(&["--at", &then]));
        assert_eq!(rows(&world.path("restored.db")), 30, "{version}");
        assert!(failed(&world.restore(&["--at", "2001-01-01T00:00:00Z"])).contains("as old as that"));
        let left = std::fs::read_dir(world.dir.path()).unwrap().map(|item| item.unwrap().file_name());
        assert!(!left.into_iter().any(|name| name.to_str().unwrap().contains(".part")));
    }
}

#[test]
fn what_is_damaged_in_the_layout_of_0_3_is_named() {
    let Some(world) = World::new("0.3") else { return };
    let process = world.replicate();
    for rows in 1..=5 {
        world.write(20);
        world.wait_for(rows * 20);
    }
    end(process);
    let pieces = world.objects(".wal.lz4");
    assert!(pieces.iter().any(|piece| name(piece).starts_with("00000001_")), "{pieces:?}");
    let objects = [world.objects(".snapshot.lz4"), pieces.clone()].concat();
    for object in some_of(&objects) {
        let whole = std::fs::read(object).unwrap();
        // Each cut, also one between two blocks of the frame, and at the end mark.
        for left in [1, 7, whole.len() / 2, whole.len() - 8, whole.len() - 4, whole.len() - 1] {
            std::fs::write(object, &whole[..left]).unwrap();
            let told = failed(&world.restore(&[]));
            assert!(told.contains(name(object)) && told.contains("damaged"), "{told}");
        }
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 1;
        std::fs::write(object, &flipped).unwrap();
        assert!(failed(&world.restore(&[])).contains(name(object)));
        std::fs::write(object, [whole.as_slice(), b"more"].concat()).unwrap();
        assert!(failed(&world.restore(&[])).contains("something follows its end"));
        std::fs::write(object, &whole).unwrap();
    }
    // Nothing says how many pieces a -wal has, so only one that is followed by another piece of it can be missed.
    let index = |piece: &Path| name(piece)[..8].to_owned();
    let followed: Vec<_> = pieces.windows(2).filter(|pair| index(&pair[0]) == index(&pair[1])).collect();
    assert!(!followed.is_empty(), "{pieces:?}");
    for piece in some_of(&followed).map(|pair| &pair[0]) {
        let away = world.path("away");
        std::fs::rename(piece, &away).unwrap();
        let told = failed(&world.restore(&[]));
        assert!(told.contains(name(piece)) && told.contains("is missing"), "{told}");
        std::fs::rename(&away, piece).unwrap();
    }
    assert!(!Path::new(&world.path("restored.db")).exists());
}

/// Returns some of many: the slower the disk, the more pieces Litestream has stored, and each takes several restores.
fn some_of<T>(all: &[T]) -> impl Iterator<Item = &T> {
    const MOST: usize = 40;
    all.iter().step_by(all.len().div_ceil(MOST).max(1))
}

fn name(object: &Path) -> &str {
    object.file_name().unwrap().to_str().unwrap()
}
