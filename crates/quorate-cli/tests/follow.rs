//! `quorate restore --follow` on real processes: an application writes, and the test kills the follower again and
//! again. Readers see one state of the database at any moment, and at the end the copy equals the database.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stderr,
    clippy::panic,
    reason = "tests run real processes and stop at the first surprise"
)]

mod support;

use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};
use rustix::process::Signal;
use support::{Dev, QUORATE, failed, litestream, quorate, succeeded, wait_until};
use tempfile::TempDir;

/// How long a lock may take. A follower that catches up leaves the copy only for a moment between two changes, which a
/// reader finds late if the disk is slow.
const BUSY_MAX: Duration = Duration::from_secs(60);

/// A process that ends with the test.
struct Process(Child);

impl Process {
    fn start(program: &Path, args: &[&str]) -> Self {
        Self(Command::new(program).args(args).spawn().unwrap())
    }

    fn end(mut self, with: Signal) -> Option<i32> {
        support::signal(self.0.id().try_into().unwrap(), with);
        self.0.wait().unwrap().code()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A thread that repeats a step until the test stops it.
struct Busy {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Busy {
    fn start(mut step: impl FnMut(u64) + Send + 'static) -> Self {
        let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (is_stopped, counted) = (Arc::clone(&stop), Arc::clone(&count));
        let thread = std::thread::spawn(move || {
            while !is_stopped.load(Ordering::Relaxed) {
                step(counted.load(Ordering::Relaxed));
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { stop, count, thread }
    }

    /// Waits until it was done so many times more.
    fn goes_on(&self, times: u64) {
        let from = self.count.load(Ordering::Relaxed);
        wait_until("a thread", || self.thread.is_finished() || self.count.load(Ordering::Relaxed) >= from + times);
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

/// A database, a place for its archive, and a name for the copy.
struct World(TempDir);

impl World {
    fn new() -> Self {
        let world = Self(TempDir::new().unwrap());
        std::fs::create_dir(world.path("archive")).unwrap();
        let application = world.application();
        application.execute_batch("PRAGMA auto_vacuum = FULL; PRAGMA journal_mode = WAL").unwrap();
        let table = |name| format!("CREATE TABLE {name} (id INTEGER PRIMARY KEY, v INTEGER, filling BLOB);");
        application.execute_batch(&format!("BEGIN; {} {} COMMIT", table("a"), table("b"))).unwrap();
        world
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn url(&self) -> String {
        format!("file://{}", self.path("archive"))
    }

    fn application(&self) -> Connection {
        let application = Connection::open(self.path("app.db")).unwrap();
        application.busy_timeout(BUSY_MAX).unwrap();
        application
    }

    /// Starts the application: the sums of `a` and `b` are equal after each transaction, of which some make the file
    /// grow, and some make it shrink.
    fn write(&self) -> Busy {
        let application = self.application();
        Busy::start(move |round| {
            let filling = if round % 5 == 0 { 200_000 } else { 2_000 };
            let cut = if round % 20 == 19 { "DELETE FROM a; DELETE FROM b;" } else { "" };
            let insert = |table| format!("INSERT INTO {table} (v, filling) VALUES ({round}, randomblob({filling}));");
            let sql = format!("BEGIN IMMEDIATE; {cut} {} {} COMMIT", insert("a"), insert("b"));
            application.execute_batch(&sql).unwrap();
            // The application's pace: nothing waits for it.
            std::thread::sleep(Duration::from_millis(5));
        })
    }

    /// Starts the follower, and waits until there is a copy.
    fn begin_to_follow(&self) -> Process {
        let probe = self.path("probe.db");
        let restore = || quorate(&["restore", &self.url(), "--plain", "-o", &probe]).status.success();
        wait_until("something to follow", restore);
        let follower = self.follow();
        wait_until("a copy", || Path::new(&self.path("copy.db")).exists());
        follower
    }

    fn follow(&self) -> Process {
        let (url, copy) = (self.url(), self.path("copy.db"));
        let args = ["restore", &url, "--plain", "--follow", "--follow-interval", "0s", "-o", &copy];
        Process::start(Path::new(QUORATE), &args)
    }

    /// Starts a program that reads the copy all the time. One that may only read can't undo a change that a killed
    /// follower has left, and says so until the next one has.
    fn read(&self, flags: OpenFlags) -> Busy {
        let connect = {
            let copy = self.path("copy.db");
            move || {
                let reader = Connection::open_with_flags(&copy, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX).unwrap();
                reader.busy_timeout(BUSY_MAX).unwrap();
                reader
            }
        };
        let mut reader = connect();
        Busy::start(move |round| {
            if round % 50 == 49 {
                reader = connect();
            }
            let sum = "SELECT (SELECT total(v) FROM a) = (SELECT total(v) FROM b)
                       AND (SELECT sum(length(filling)) FROM a) IS (SELECT sum(length(filling)) FROM b)";
            match reader.query_row(sum, [], |row| row.get::<_, bool>(0)) {
                Ok(is_one_state) => assert!(is_one_state),
                Err(error) if error.sqlite_error_code() == Some(ErrorCode::ReadOnly) => {}
                Err(error) => panic!("{error}"),
            }
            if round % 20 == 0 && flags.contains(OpenFlags::SQLITE_OPEN_READ_WRITE) {
                let verdict: String = reader.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
                assert_eq!(verdict, "ok");
            }
        })
    }

    /// Returns the bytes of a database, without those in which a copy differs.
    fn bytes(&self, name: &str) -> Vec<u8> {
        let mut bytes = std::fs::read(self.path(name)).unwrap();
        for differing in [18..20, 24..32, 92..96] {
            bytes[differing].fill(0);
        }
        bytes
    }

    fn position(&self) -> String {
        std::fs::read_to_string(self.path("copy.db-position")).unwrap_or_default()
    }

    /// Follows while `archiver` archives, with kills, and compares in the end.
    fn is_followed(&self, archiver: Process) {
        let application = self.write();
        let mut follower = self.begin_to_follow();
        let readers = [self.read(OpenFlags::SQLITE_OPEN_READ_ONLY), self.read(OpenFlags::SQLITE_OPEN_READ_WRITE)];
        for kill in 0..6 {
            let before = self.position();
            wait_until("progress", || self.position() != before);
            if kill % 2 == 1 {
                // In the middle of a change, as far as that can be seen from outside.
                wait_until("a change", || Path::new(&self.path("copy.db-journal")).exists());
            }
            follower.end(Signal::KILL);
            readers.iter().for_each(|reader| reader.goes_on(3));
            follower = self.follow();
        }
        application.end();
        self.is_at_the_end(archiver);
        readers.into_iter().for_each(Busy::end);
        // Litestream may have stored a change of its own after the last row. In this process nobody has a lock on the
        // files any more, which reading them would drop.
        wait_until("the last change", || self.bytes("copy.db") == self.bytes("app.db"));
        assert_eq!(follower.end(Signal::TERM), Some(0));
        assert!(self.bytes("copy.db") == self.bytes("app.db"));
        let left: Vec<_> = std::fs::read_dir(self.0.path()).unwrap().map(|item| item.unwrap().file_name()).collect();
        let is_left = |name: &str| left.iter().any(|left| left == name);
        assert!(!is_left("copy.db-journal") && !is_left("copy.db-fetched") && !is_left("copy.db.part"), "{left:?}");
    }

    /// Ends the archiver, and waits until the copy is where the database is.
    fn is_at_the_end(&self, archiver: Process) {
        archiver.end(Signal::TERM);
        self.application().query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        let rows = |name: &str| -> (i64, Option<i64>) {
            let database = Connection::open(self.path(name)).unwrap();
            database.busy_timeout(BUSY_MAX).unwrap();
            database.query_row("SELECT count(*), max(v) FROM a", [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
        };
        wait_until("the last state", || rows("copy.db") == rows("app.db"));
    }

    /// Returns the transaction of the copy, if no change is being made.
    fn txid(&self) -> u64 {
        let position = self.position();
        u64::from_str_radix(position.trim_end().rsplit(' ').next().unwrap(), 16).unwrap()
    }

    fn replicate_by(&self, litestream: &Path) -> Process {
        let config = format!(
            "levels: [{{interval: 1s}}, {{interval: 10s}}]\nl0-retention: 3s\nl0-retention-check-interval: 1s\n\
             dbs:\n- path: {}\n  monitor-interval: 100ms\n  replica: {{url: 'file://{}', sync-interval: 100ms}}\n",
            self.path("app.db"),
            self.path("archive")
        );
        std::fs::write(self.path("litestream.yml"), config).unwrap();
        Process::start(litestream, &["replicate", "-config", &self.path("litestream.yml")])
    }

    fn replicate(&self) -> Process {
        let (app, url) = (self.path("app.db"), self.url());
        Process::start(Path::new(QUORATE), &["replicate", &app, &url, "--interval", "50ms"])
    }
}

#[test]
fn readers_of_a_copy_see_one_state_though_the_follower_is_killed() {
    let world = World::new();
    world.is_followed(world.replicate());
}

#[test]
fn a_replica_of_stock_litestream_is_followed() {
    let Some(litestream) = litestream("0.5") else { return };
    let world = World::new();
    world.is_followed(world.replicate_by(&litestream));
}

#[test]
fn files_that_were_merged_while_the_follower_was_away_are_found() {
    let Some(litestream) = litestream("0.5") else { return };
    let world = World::new();
    let application = world.write();
    let archiver = world.replicate_by(&litestream);
    assert_eq!(world.begin_to_follow().end(Signal::TERM), Some(0));
    let next = world.txid() + 1;
    let next = format!("{next:016x}-{next:016x}.ltx");
    let files = || std::fs::read_dir(format!("{}/ltx/0", world.path("archive"))).unwrap();
    // A later one is there, so it was written.
    wait_until("the end of the next file", || {
        let names: Vec<_> = files().map(|item| item.unwrap().file_name().into_string().unwrap()).collect();
        names.iter().any(|name| *name > next && name.ends_with(".ltx")) && !names.contains(&next)
    });
    application.end();
    let follower = world.follow();
    world.is_at_the_end(archiver);
    assert_eq!(follower.end(Signal::TERM), Some(0));
}

#[test]
fn another_generation_replaces_the_copy_at_once() {
    let world = World::new();
    let application = world.write();
    let archiver = world.replicate();
    let follower = world.begin_to_follow();
    let reader = world.read(OpenFlags::SQLITE_OPEN_READ_ONLY);
    archiver.end(Signal::KILL);
    // Without the checksums of its pages the archive can't be continued.
    let cluster = std::fs::read_dir(world.path("archive")).unwrap().next().unwrap().unwrap().path();
    std::fs::remove_dir_all(cluster.join("00000001/sums")).unwrap();
    let archiver = world.replicate();
    wait_until("another generation", || world.position().contains(" 00000002 "));
    reader.goes_on(5);
    application.end();
    archiver.end(Signal::TERM);
    reader.end();
    assert_eq!(follower.end(Signal::INT), Some(0));
}

#[test]
fn a_store_that_is_away_is_waited_for() {
    let world = World::new();
    let archiver = world.replicate();
    let follower = world.begin_to_follow();
    // First, because it would create the directory again.
    archiver.end(Signal::KILL);
    std::fs::rename(world.path("archive"), world.path("away")).unwrap();
    world.application().execute_batch("INSERT INTO a (v) VALUES (7); INSERT INTO b (v) VALUES (7)").unwrap();
    std::fs::rename(world.path("away"), world.path("archive")).unwrap();
    let _archiver = world.replicate();
    let copy = Connection::open(world.path("copy.db")).unwrap();
    copy.busy_timeout(BUSY_MAX).unwrap();
    wait_until("the row", || copy.query_row("SELECT count(*) FROM b", [], |row| row.get::<_, i64>(0)).unwrap() == 1);
    drop(copy);
    assert_eq!(follower.end(Signal::TERM), Some(0));
}

#[test]
fn a_file_that_is_no_copy_is_left_alone() {
    let world = World::new();
    std::fs::write(world.path("copy.db"), "precious").unwrap();
    let (url, copy) = (world.url(), world.path("copy.db"));
    let args = ["restore", &url, "--plain", "--follow", "-o", &copy];
    assert!(failed(&quorate(&args)).contains("no copy that `--follow` made"));
    assert_eq!(std::fs::read(&copy).unwrap(), b"precious");
    // A place without an archive is a wrong name.
    std::fs::remove_file(&copy).unwrap();
    assert!(failed(&quorate(&args)).contains("nothing to follow"));
}

/// The cluster writes its archive, while the node that does so is killed, and the follower too.
#[test]
fn a_copy_follows_the_archive_of_a_cluster() {
    let world = World::new();
    let keys = format!("[archive]\nurl = '{}'\ninterval = '100ms'\nboundary = '300ms'", world.url());
    let dev = Dev::start(3).configured(&keys);
    succeeded(&dev.sql(&[], "CREATE TABLE kept (value INTEGER)"));
    let write = |value: i64| succeeded(&dev.sql(&[], &format!("INSERT INTO kept VALUES ({value})")));
    write(1);
    let mut follower = world.begin_to_follow();
    let copy = Connection::open(world.path("copy.db")).unwrap();
    copy.busy_timeout(BUSY_MAX).unwrap();
    // The copy may begin before the table.
    let sum = || copy.query_row("SELECT sum(value) FROM kept", [], |row| row.get::<_, i64>(0)).unwrap_or(0);
    let follows = |expected: i64| wait_until(&format!("a copy with {expected}"), || sum() == expected);
    follows(1);
    // One of them is the archiver.
    for id in dev.ids() {
        dev.kill(id);
        write(1 << id);
        follows((2 << id) - 1);
        succeeded(&dev.restart(id));
        follower.end(Signal::KILL);
        follower = world.follow();
    }
    write(16);
    follows(31);
    let verdict: String = copy.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");
    drop(copy);
    assert_eq!(follower.end(Signal::TERM), Some(0));
}
