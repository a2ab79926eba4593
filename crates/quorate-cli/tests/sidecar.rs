//! The control socket of `quorate replicate`, on real processes: it carries requests out, and nothing that arrives
//! there harms anything.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests run real processes and stop at the first surprise"
)]

mod support;

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;
use rustix::process::Signal;
use serde_json::Value;
use support::archived::{Lines, World};
use support::{QUORATE, failed, quorate, succeeded, wait_until};

/// A side-car that only archives when it is asked to, after its first boundary.
struct Sidecar {
    world: World,
    process: Lines,
}

impl Sidecar {
    fn start() -> Self {
        let world = World::new();
        let process = begin(&world);
        Self { world, process }
    }

    fn socket(&self) -> String {
        self.world.path("socket")
    }

    fn command(&self, command: &str, more: &[&str]) -> std::process::Output {
        let socket = self.socket();
        quorate(&[&["sidecar", command, "--json"], more, &["--socket", &socket]].concat())
    }

    fn ask(&self, command: &str, more: &[&str]) -> Value {
        serde_json::from_str(&succeeded(&self.command(command, more))).unwrap()
    }

    fn refused(&self, command: &str, more: &[&str]) -> String {
        failed(&self.command(command, more))
    }

    /// Archives all that is committed, and returns the answer.
    fn sync(&self, database: &str) -> Value {
        let answer = self.ask("sync", &[database, "--wait", "--timeout", "1min"]);
        assert_eq!(answer["txid"], answer["replicated_txid"], "{answer}");
        answer
    }

    fn databases(&self) -> Vec<Value> {
        self.ask("list", &[])["databases"].as_array().unwrap().clone()
    }

    /// Sends bytes to the socket, and returns all bytes of the answer.
    fn send(&self, bytes: &[u8]) -> String {
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        // It may close the connection before it has read all.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn post(&self, path: &str, body: &str) -> String {
        let length = body.len();
        let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
        self.send((head + body).as_bytes())
    }
}

/// Starts a process, and waits until it listens.
fn begin(world: &World) -> Lines {
    let mut process = Lines::of(world.replicate(&["--interval", "1h", "--socket", &world.path("socket")]));
    process.until("listens for requests");
    process
}

/// An application that inserts numbers into a database, one after the other.
struct Writer {
    committed: Arc<AtomicI64>,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Writer {
    fn start(path: &Path) -> Self {
        let (committed, is_over) = (Arc::<AtomicI64>::default(), Arc::<AtomicBool>::default());
        let connection = Connection::open(path).unwrap();
        connection.busy_timeout(Duration::from_secs(60)).unwrap();
        connection
            .execute_batch(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; CREATE TABLE IF NOT EXISTS n (v INTEGER)",
            )
            .unwrap();
        let (count, end) = (Arc::clone(&committed), Arc::clone(&is_over));
        let thread = std::thread::spawn(move || {
            while !end.load(Ordering::Relaxed) {
                let next = count.load(Ordering::Relaxed) + 1;
                connection.execute("INSERT INTO n VALUES (?1)", [next]).unwrap();
                count.store(next, Ordering::Release);
            }
        });
        Self { committed, is_over, thread }
    }

    fn committed(&self) -> i64 {
        self.committed.load(Ordering::Acquire)
    }

    fn end(self) -> i64 {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        self.committed.load(Ordering::Acquire)
    }
}

/// Returns the last number in what is restored.
fn restored(world: &World, url: &str) -> i64 {
    let file = world.path("restored.db");
    succeeded(&quorate(&["restore", url, "--at", "latest", "--plain", "-o", &file]));
    let last = Connection::open(&file).unwrap().query_row("SELECT max(v) FROM n", [], |row| row.get(0)).unwrap();
    std::fs::remove_file(&file).unwrap();
    last
}

#[test]
fn after_a_sync_all_that_was_committed_before_is_restored() {
    let sidecar = Sidecar::start();
    let app = sidecar.world.path("app.db");
    for values in ["a", "a,b", "a,b,c"] {
        sidecar.world.write(values.rsplit(',').next().unwrap());
        assert_eq!(sidecar.sync(&app)["status"], "synced");
        assert_eq!(sidecar.world.restored(), values);
    }
    assert_eq!(sidecar.sync(&app)["status"], "no_change");

    let writer = Writer::start(Path::new(&app));
    for _ in 0..3 {
        wait_until("more commits", || writer.committed() > 100);
        let before = writer.committed();
        sidecar.sync(&app);
        assert!(restored(&sidecar.world, &sidecar.world.url()) >= before);
    }
    let last = writer.end();
    // Without waiting it is archived soon, too.
    assert_eq!(sidecar.ask("sync", &[&app])["status"], "requested");
    wait_until("the last commit in the store", || restored(&sidecar.world, &sidecar.world.url()) == last);
    // What is stored is known to be all once the database was looked at after that.
    wait_until("nothing left to archive", || sidecar.databases()[0]["lag_bytes"] == 0);
    let [shown] = &sidecar.databases()[..] else { panic!("there is one database") };
    assert_eq!((&shown["state"], &shown["error"], &shown["generation"]), (&"running".into(), &Value::Null, &1.into()));
    assert_eq!((&shown["path"], &shown["lag_bytes"]), (&app.as_str().into(), &0.into()));
    assert!(shown["replicated_txid"].as_u64() > Some(1) && shown["replicated_at"].is_string(), "{shown}");
}

#[test]
fn a_stopped_database_is_released_and_a_started_one_continues() {
    let sidecar = Sidecar::start();
    let (world, app) = (&sidecar.world, sidecar.world.path("app.db"));
    world.write("a");
    sidecar.sync(&app);
    world.write("b");
    assert_eq!(sidecar.ask("stop", &[&app])["status"], "stopped");
    // The store holds all that the application had committed before the call.
    assert_eq!(world.restored(), "a,b");
    assert_eq!(sidecar.databases()[0]["state"], "stopped");
    assert!(sidecar.refused("sync", &[&app]).contains("start it first"));
    assert_eq!(sidecar.ask("stop", &[&app])["status"], "stopped");
    // Nobody else uses the database: only then SQLite leaves WAL mode.
    let mode = |mode: &str| -> String {
        let sql = format!("PRAGMA journal_mode = {mode}");
        world.application.query_row(&sql, [], |row| row.get(0)).unwrap()
    };
    let is_busy: bool = world.application.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).unwrap();
    assert!(!is_busy && mode("DELETE") == "delete" && mode("WAL") == "wal");

    assert_eq!(sidecar.ask("start", &[&app])["status"], "started");
    assert_eq!(sidecar.ask("start", &[&app])["status"], "already_running");
    sidecar.sync(&app);
    world.write("c");
    sidecar.sync(&app);
    assert_eq!(world.restored(), "a,b,c");
    assert_eq!(world.snapshots(), 1);

    // A file that is replaced while nobody looks is archived, too.
    sidecar.ask("stop", &[&app]);
    for name in ["app.db", "app.db-wal", "app.db-shm"] {
        let _ = std::fs::remove_file(world.path(name));
    }
    let other = Connection::open(&app).unwrap();
    other.execute_batch("CREATE TABLE t (v TEXT); INSERT INTO t VALUES ('other')").unwrap();
    drop(other);
    sidecar.ask("start", &[&app]);
    sidecar.sync(&app);
    assert_eq!(world.restored(), "other");
}

#[test]
fn databases_are_registered_under_load_and_unregistered() {
    let mut sidecar = Sidecar::start();
    let world = &sidecar.world;
    let (tenant, url) = (world.path("tenant.db"), format!("file://{}", world.path("tenant")));
    std::fs::create_dir(world.path("tenant")).unwrap();
    assert!(sidecar.refused("register", &[&tenant, &url]).contains("create the database first"));
    let writer = Writer::start(Path::new(&tenant));
    wait_until("commits", || writer.committed() > 100);
    assert_eq!(sidecar.ask("register", &[&tenant, &url])["status"], "registered");
    assert_eq!(sidecar.ask("register", &[&tenant, &url])["status"], "already_registered");
    let before = writer.committed();
    sidecar.sync(&tenant);
    assert!(restored(world, &url) >= before);
    for (database, url, why) in [
        (&tenant, world.url(), "unregister it first"),
        (&world.path("restored.db"), url.clone(), "needs a place of its own"),
        (&tenant, "ftp://x".to_owned(), "ftp://"),
        (&tenant, format!("file://{}", world.path("missing")), "missing"),
    ] {
        let refusal = sidecar.refused("register", &[database, &url]);
        assert!(refusal.contains(why), "{refusal}");
    }
    assert_eq!(sidecar.ask("info", &[])["databases"], 2);
    assert_eq!(sidecar.ask("unregister", &[&tenant])["status"], "unregistered");
    assert!(sidecar.refused("sync", &[&tenant]).contains("is not among the databases"));
    let last = writer.end();
    assert_eq!(sidecar.ask("register", &[&tenant, &url])["status"], "registered");
    sidecar.process.signal(Signal::TERM);
    assert!(sidecar.process.child.wait().unwrap().success());
    assert_eq!(restored(&sidecar.world, &url), last);
}

#[test]
fn what_is_unregistered_is_not_found_again_in_its_directory() {
    let world = World::new();
    std::fs::create_dir(world.path("tenants")).unwrap();
    let create = |name: &str| {
        Connection::open(world.path(name)).unwrap().execute_batch("CREATE TABLE t (v TEXT)").unwrap();
    };
    create("tenants/a.db");
    let config = "socket = \"socket\"\n[[directory]]\npath = \"tenants\"\npattern = \"*.db\"\nurl = \"archive\"\n";
    std::fs::write(world.path("replicate.toml"), config).unwrap();
    let mut command = Command::new(QUORATE);
    command.args(["replicate", "--config", &world.path("replicate.toml")]);
    let mut process = Lines::of(command);
    process.until("listens for requests");
    let sidecar = Sidecar { world, process };
    let names = || -> Vec<String> {
        let shown = sidecar.databases().into_iter();
        shown.map(|database| database["url"].as_str().unwrap().rsplit('/').next().unwrap().to_owned()).collect()
    };
    let path = |name: &str| sidecar.world.path(name);
    wait_until("the file", || names() == ["a.db"]);
    sidecar.ask("unregister", &[&path("tenants/a.db")]);
    // When this one is found, the directory was searched again.
    Connection::open(path("tenants/b.db")).unwrap().execute_batch("CREATE TABLE t (v TEXT)").unwrap();
    wait_until("the other file", || !names().is_empty());
    assert_eq!(names(), ["b.db"]);
    let place = format!("file://{}", path("archive/a.db"));
    sidecar.ask("register", &[&path("tenants/a.db"), &place]);
    sidecar.sync(&path("tenants/a.db"));
    assert!(World::has_boundary_at(&place));
}

#[test]
fn garbage_on_the_socket_harms_nothing() {
    let sidecar = Sidecar::start();
    let app = sidecar.world.path("app.db");
    let idle: Vec<_> = (0..100).map(|_| UnixStream::connect(sidecar.socket()).unwrap()).collect();
    let mut halves: Vec<_> = (0..10).map(|_| UnixStream::connect(sidecar.socket()).unwrap()).collect();
    for half in &mut halves {
        half.write_all(b"POST /stop HTTP/1.1\r\ncontent-length: 100\r\n\r\n{\"path\": \"").unwrap();
    }
    let code = |answer: &str| answer.split(' ').nth(1).unwrap_or_default().to_owned();
    for (answer, expected) in [
        (sidecar.send(b"\x00\xff\x13garbage\r\n\r\n"), "400"),
        (sidecar.send(b"DELETE /list HTTP/1.1\r\nconnection: close\r\n\r\n"), "405"),
        (sidecar.send(b"GET /stop HTTP/1.1\r\nconnection: close\r\n\r\n"), "405"),
        (sidecar.send(b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n"), "404"),
        (sidecar.post("/stop", ""), "400"),
        (sidecar.post("/stop", "{"), "400"),
        (sidecar.post("/stop", "[[[[[[[[[[[[]"), "400"),
        (sidecar.post("/stop", "{\"path\": \"app.db\"}"), "400"),
        (sidecar.post("/stop", "{\"path\": \"/nowhere\"}"), "404"),
        (sidecar.post("/stop", "{\"path\": \"/\\u0000\"}"), "404"),
        (sidecar.post("/sync", &format!("{{\"path\": \"{app}\", \"wait\": 1}}")), "400"),
        (sidecar.post("/register", &format!("{{\"path\": \"{app}\", \"url\": \"file:///nowhere\"}}")), "400"),
    ] {
        assert_eq!(code(&answer), expected, "{answer}");
    }
    // What is too large is refused, and its connection is closed, perhaps before the refusal was read.
    for large in [sidecar.send(&[b'x'; 1 << 20]), sidecar.post("/stop", &" ".repeat(1 << 20))] {
        assert!(["", "400", "431"].contains(&code(&large).as_str()), "{large}");
    }
    sidecar.world.write("a");
    sidecar.sync(&app);
    assert_eq!(sidecar.databases().len(), 1);
    assert_eq!(sidecar.world.restored(), "a");
    drop((idle, halves));
}

#[test]
fn the_socket_is_private_and_only_that_of_a_dead_process_is_replaced() {
    let mut sidecar = Sidecar::start();
    let socket = sidecar.socket();
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    let second = World::new();
    let refused = second.replicate(&["--socket", &socket]).output().unwrap();
    assert!(failed(&refused).contains("another process listens there"), "{refused:?}");

    sidecar.process.child.kill().unwrap();
    sidecar.process.child.wait().unwrap();
    assert!(Path::new(&socket).exists());
    assert!(sidecar.refused("list", &[]).contains("start it with --socket"));
    sidecar.process = begin(&sidecar.world);
    let info = sidecar.ask("info", &[]);
    assert_eq!(info["pid"], sidecar.process.child.id());
    sidecar.process.signal(Signal::TERM);
    assert!(sidecar.process.child.wait().unwrap().success());
    assert!(!Path::new(&socket).exists());
}
