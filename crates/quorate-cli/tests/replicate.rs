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

use std::path::Path;
use std::process::{Child, Command};

use rusqlite::Connection;
use support::archived::{Lines, World, values};
use support::{litestream, quorate, succeeded};

/// Returns `quorate replicate` with a short interval.
fn replicate(world: &World, more: &[&str]) -> Command {
    world.replicate(&[&["--interval", "20ms"], more].concat())
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

/// A small disk (tmpfs), mounted until it is dropped.
struct Disk(String);

impl Disk {
    /// Mounts it; `None` if this process must not mount anything.
    fn mount(at: &str) -> Option<Self> {
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "tmpfs", at]).status();
        let is_mounted = mounted.is_ok_and(|status| status.success());
        if !is_mounted {
            eprintln!("skipped: only a user who may mount a disk can fill one");
        }
        is_mounted.then(|| Self(at.to_owned()))
    }

    fn grow(&self) {
        let grown = Command::new("mount").args(["-o", "remount,size=64m", &self.0]).status();
        assert!(grown.unwrap().success());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["--lazy", &self.0]).status();
    }
}

#[test]
fn a_full_disk_of_the_archive_stops_no_write_and_loses_nothing_once_it_has_room() {
    let world = World::new();
    let Some(disk) = Disk::mount(&world.path("archive")) else { return };
    world.write("a");
    let mut side_car = Lines::of(replicate(&world, &[]));
    support::wait_until("a first boundary", || world.has_boundary());
    for _ in 0..10 {
        world.application.execute("INSERT INTO t VALUES (hex(randomblob(200000)))", []).unwrap();
    }
    side_car.until("No space left on device");
    world.write("b");
    disk.grow();
    side_car.until("is archived again");
    let written = values(Path::new(&world.path("app.db")));
    support::wait_until("the last row in the archive", || world.restored() == written);
}

#[test]
fn stock_litestream_restores_the_archive() {
    let Some(litestream) = litestream("0.5") else { return };
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

#[test]
fn databases_of_a_configuration_are_archived_and_new_files_too() {
    let world = World::new();
    world.write("a");
    std::fs::create_dir(world.path("tenants")).unwrap();
    std::fs::create_dir(world.path("places")).unwrap();
    let tenant = |name: &str| {
        let tenant = Connection::open(world.dir.path().join("tenants").join(name)).unwrap();
        tenant.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (v TEXT)").unwrap();
        tenant.execute("INSERT INTO t VALUES (?1)", [name]).unwrap();
        tenant
    };
    let _one = tenant("one.db");
    std::fs::write(world.path("tenants/text.db"), "This is no database. ".repeat(100)).unwrap();
    std::fs::write(world.path("tenants/other"), "This is not meant.").unwrap();
    let config = "interval = \"20 ms\"\n[[database]]\npath = \"app.db\"\nurl = \"archive\"\n\
                  [[directory]]\npath = \"tenants\"\npattern = \"*.db\"\nurl = \"places\"\n";
    std::fs::write(world.path("replicate.toml"), config).unwrap();
    let start = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
        command.args(["replicate", "--config", &world.path("replicate.toml")]).spawn().unwrap()
    };
    let restored = |place: &str| world.restored_from(&format!("file://{}", world.path(place)));

    let mut killed = start();
    let has_boundary = |place: &str| World::has_boundary_at(&format!("file://{}", world.path(place)));
    support::wait_until("the first boundaries", || has_boundary("places/one.db") && world.has_boundary());
    let _two = tenant("t wo.db");
    support::wait_until("a boundary of the new file", || has_boundary("places/t=20wo.db"));
    killed.kill().unwrap();
    killed.wait().unwrap();
    world.write("b");

    let mut stopped = start();
    support::wait_until("the next boundary", || world.restored() == "a,b");
    world.write("c");
    support::signal(stopped.id().try_into().unwrap(), rustix::process::Signal::TERM);
    // One file is no database, and that is an error at the end.
    assert_eq!(stopped.wait().unwrap().code(), Some(1));
    assert_eq!(world.restored(), "a,b,c");
    assert_eq!((restored("places/one.db"), restored("places/t=20wo.db")), ("one.db".into(), "t wo.db".into()));
    assert!(!Path::new(&world.path("places/other")).exists());
}

#[test]
fn a_configuration_of_litestream_is_followed() {
    let world = World::new();
    world.write("a");
    std::fs::create_dir_all(world.path("tenants/below")).unwrap();
    std::fs::create_dir(world.path("places")).unwrap();
    let tenant = Connection::open(world.dir.path().join("tenants/below/b.db")).unwrap();
    tenant.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (v TEXT); INSERT INTO t VALUES ('b')").unwrap();
    let config = "exec: exit 7\ndbs:\n- path: $ROOT/app.db\n  replica: {url: 'file://${ROOT}/archive'}\n\
                  - {dir: $ROOT/tenants, pattern: '*.db', recursive: true, replica: {path: $ROOT/places}}\n";
    std::fs::write(world.path("litestream.yml"), config).unwrap();
    let replicate = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
        command.env("ROOT", world.dir.path()).args(["replicate", "--config", &world.path("litestream.yml")]);
        command
    };
    assert_eq!(replicate().status().unwrap().code(), Some(7));
    assert_eq!(world.restored(), "a");
    assert_eq!(world.restored_from(&format!("file://{}", world.path("places/below/b.db"))), "b");
    std::fs::write(world.path("litestream.yml"), format!("{config}levels: []\n")).unwrap();
    let refused = replicate().output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("'levels' is not supported"));
}

#[test]
fn metrics_and_health_are_shown_over_http() {
    let world = World::new();
    world.write("a");
    let mut process = Lines::of(replicate(&world, &["--metrics", "127.0.0.1:0"]));
    let shown = process.until("shows its metrics");
    let url = shown.split("url=").nth(1).unwrap().trim().trim_matches('"').to_owned();
    let named = |name: &str| format!("{name}{{database=\"{}\"}} ", world.path("app.db"));
    let value = |name: &str| -> Option<f64> {
        let page = get(&url, "/metrics");
        let line = page.lines().find_map(|line| line.strip_prefix(&named(name)));
        line.map(|value| value.parse().unwrap())
    };
    support::wait_until("a boundary", || value("quorate_replicate_boundary_index").is_some_and(|index| index >= 1.0));
    support::wait_until("no lag", || value("quorate_replicate_lag_seconds") == Some(0.0));
    assert_eq!(value("quorate_replicate_lag_bytes"), Some(0.0));
    assert_eq!(value("quorate_replicate_generation"), Some(1.0));
    assert!(value("quorate_replicate_boundary_bytes_total").unwrap() > 0.0);
    assert_eq!(value("quorate_replicate_failures_total"), Some(0.0));
    assert!(get(&url, "/metrics").contains("quorate_replicate_requests_total{verb=\"create\"} "));
    assert!(get(&url, "/health").ends_with("ok\n"));
    assert!(get(&url, "/other").starts_with("HTTP/1.1 404"));
    process.signal(rustix::process::Signal::TERM);
    assert!(process.child.wait().unwrap().success());
}

#[test]
fn a_second_signal_ends_the_process_at_once() {
    let world = World::new();
    world.write("a");
    // It takes connections, and never answers.
    let store = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("s3://b/a?region=r&endpoint=http://{}", store.local_addr().unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
    command.args(["replicate", &world.path("app.db"), &url, "--exec", "trap '' TERM; while true; do sleep 1; done"]);
    command.env("AWS_ACCESS_KEY_ID", "a").env("AWS_SECRET_ACCESS_KEY", "b");
    let mut process = Lines::of(command);
    // The request for the archive: now the process has handlers for signals.
    drop(store.accept().unwrap());
    process.signal(rustix::process::Signal::TERM);
    process.until("a second signal ends the process at once");
    process.signal(rustix::process::Signal::INT);
    process.until("ended at once by a second signal");
    assert_eq!(process.child.wait().unwrap().code(), Some(1));
}

/// Returns the answer to a request, with its head.
fn get(url: &str, path: &str) -> String {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
