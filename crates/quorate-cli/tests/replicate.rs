//! `quorate replicate` on real processes: what an application has written is restored, after kills too, and by stock
//! Litestream.

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

use rusqlite::Connection;
use support::{quorate, succeeded};
use tempfile::TempDir;

/// A database, whose application is this process, and a place for its archive.
struct World {
    dir: TempDir,
    application: Connection,
}

impl World {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        std::fs::create_dir(dir.path().join("archive")).unwrap();
        let application = Connection::open(dir.path().join("app.db")).unwrap();
        application.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (v TEXT)").unwrap();
        Self { dir, application }
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    fn url(&self) -> String {
        format!("file://{}", self.path("archive"))
    }

    fn write(&self, value: &str) {
        self.application.execute("INSERT INTO t VALUES (?1)", [value]).unwrap();
    }

    /// Returns the values in what is restored.
    fn restored(&self) -> String {
        let file = self.path("restored.db");
        succeeded(&quorate(&["restore", &self.url(), "--at", "latest", "--plain", "-o", &file]));
        let values = values(Path::new(&file));
        std::fs::remove_file(&file).unwrap();
        values
    }

    /// Whether there is something to restore.
    fn has_boundary(&self) -> bool {
        quorate(&["restore", &self.url(), "--at", "latest", "--dry-run"]).status.success()
    }

    /// The replica of Litestream in the archive.
    fn replica(&self) -> PathBuf {
        let cluster = std::fs::read_dir(self.path("archive")).unwrap().next().unwrap().unwrap();
        cluster.path().join("00000001")
    }
}

fn values(file: &Path) -> String {
    let connection = Connection::open(file).unwrap();
    connection.query_row("SELECT group_concat(v) FROM (SELECT v FROM t ORDER BY rowid)", [], |row| row.get(0)).unwrap()
}

fn replicate(world: &World, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
    command.args(["replicate", &world.path("app.db"), &world.url(), "--interval", "20ms"]).args(more);
    command
}

#[test]
fn what_is_there_now_is_archived_once() {
    let world = World::new();
    world.write("a");
    assert!(replicate(&world, &["--once"]).status().unwrap().success());
    assert_eq!(world.restored(), "a");
    world.write("b");
    assert!(replicate(&world, &["--once"]).status().unwrap().success());
    assert_eq!(world.restored(), "a,b");
}

#[test]
fn a_killed_process_loses_nothing_that_the_next_one_finds() {
    let world = World::new();
    world.write("a");
    let mut killed: Child = replicate(&world, &[]).spawn().unwrap();
    support::wait_until("a first boundary", || world.has_boundary());
    killed.kill().unwrap();
    killed.wait().unwrap();
    world.write("b");
    world.application.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    world.write("c");
    // It ends with the command, with its exit code.
    let status = replicate(&world, &["--exec", "exit 7"]).status().unwrap();
    assert_eq!(status.code(), Some(7));
    assert_eq!(world.restored(), "a,b,c");
}

#[test]
fn stock_litestream_restores_the_archive() {
    let Some(litestream) = litestream() else { return };
    let world = World::new();
    for value in ["a", "b", "c"] {
        world.write(value);
        assert!(replicate(&world, &["--once"]).status().unwrap().success());
    }
    let file = world.path("litestream.db");
    let url = format!("file://{}", world.replica().display());
    let output = Command::new(litestream).args(["restore", "-o", &file, &url]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let ours = world.path("ours.db");
    succeeded(&quorate(&["restore", &world.url(), "--at", "latest", "--plain", "-o", &ours]));
    assert!(std::fs::read(&file).unwrap() == std::fs::read(&ours).unwrap());
    assert_eq!(values(Path::new(&file)), "a,b,c");
}

/// Returns the installed program, or `None`, with a message, if it is not installed.
fn litestream() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = || std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let dir = std::env::var_os("QUORATE_LITESTREAM").map_or_else(|| target().join("litestream"), PathBuf::from);
    let program = dir.join("bin/litestream");
    if program.exists() {
        return Some(program);
    }
    assert!(std::env::var_os("CI").is_none(), "{} is missing: run .ci/litestream", program.display());
    eprintln!("skipped: Litestream is not installed; .ci/litestream installs it");
    None
}
