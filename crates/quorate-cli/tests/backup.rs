//! `quorate backup` on real processes: it writes plain SQLite, and no kill leaves an incomplete file.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests run real processes and stop at the first surprise"
)]

mod support;

use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use support::{Dev, failed, is_alive, plain_sqlite, quorate, signal, succeeded, wait_until};
use tempfile::TempDir;

/// A row so large that the backup of a few takes a while.
const INSERT: &str = "INSERT INTO kept VALUES (zeroblob(200000), randomblob(800000))";
const ROWS: usize = 24;
/// Half of the bytes of all rows: the node still has to send the others.
const HALF: u64 = ROWS as u64 * 1_000_000 / 2;

fn filled() -> Dev {
    let dev = Dev::start(3);
    succeeded(&dev.sql(&[], "CREATE TABLE kept (zeros BLOB, noise BLOB)"));
    succeeded(&dev.sql(&[], &[INSERT; ROWS].join(";")));
    dev
}

/// A backup in a separate process that was paused halfway.
struct Stopped {
    process: Child,
}

impl Stopped {
    /// Returns `None` if the backup was at its end before it could be paused.
    fn begin(dev: &Dev, node: &str, file: &Path) -> Option<Self> {
        let mut process = Command::new(env!("CARGO_BIN_EXE_quorate"))
            .args(["backup", "--data-dir", dev.path(), "--node", node])
            .arg(file)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let partial = file.with_extension("db.partial");
        wait_until("its first bytes", || {
            file.exists() || std::fs::metadata(&partial).is_ok_and(|partial| partial.len() > 0)
        });
        signal(process.id().try_into().unwrap(), Signal::STOP);
        let is_halfway = std::fs::metadata(&partial).is_ok_and(|partial| partial.len() < HALF);
        if !is_halfway {
            signal(process.id().try_into().unwrap(), Signal::CONT);
            process.wait().unwrap();
            std::fs::remove_file(file).unwrap();
            return None;
        }
        Some(Self { process })
    }

    fn send(&self, with: Signal) {
        signal(self.process.id().try_into().unwrap(), with);
    }
}

/// Tries until a backup was paused halfway.
fn stopped(dev: &Dev, node: &str, file: &Path) -> Stopped {
    (0..50).find_map(|_| Stopped::begin(dev, node, file)).expect("no backup could be paused halfway")
}

fn names(dir: &Path) -> Vec<String> {
    std::fs::read_dir(dir).unwrap().map(|item| item.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_backup_is_plain_sqlite_and_overwrites_nothing() {
    let dev = filled();
    let dir = TempDir::new().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let said = succeeded(&quorate(&["backup", "--data-dir", dev.path(), &path("any.db")]));
    assert!(said.contains("MiB up to position 1.1.") && said.contains("verified"), "{said}");
    for id in dev.ids() {
        let file = path(&format!("{id}.db"));
        succeeded(&quorate(&["backup", "--data-dir", dev.path(), "--node", &dev.addr(id), &file]));
        let found = plain_sqlite(&file, "SELECT count(*), sum(length(noise)) FROM kept; PRAGMA integrity_check");
        let Some(found) = found else { return eprintln!("not compared: this machine has neither sqlite3 nor python3") };
        assert_eq!(found, format!("{ROWS}|{}\nok\n", ROWS * 800_000));
    }
    let refused = failed(&quorate(&["backup", "--data-dir", dev.path(), &path("1.db")]));
    assert!(refused.contains("--force"), "{refused}");
    succeeded(&quorate(&["backup", "--data-dir", dev.path(), "--force", "--level", "local", &path("1.db")]));
    assert_eq!(names(dir.path()).len(), 4);

    let said = dev.verified();
    assert!(said.contains("all that answered hold the same") && said.matches(" tables").count() == 3, "{said}");
    dev.kill(3);
    wait_until("its end", || !is_alive(dev.pid(3)));
    let verified = quorate(&["verify", "--data-dir", dev.path()]);
    let said = String::from_utf8(verified.stdout).unwrap();
    assert!(!verified.status.success() && said.contains("no answer") && said.matches(" tables").count() == 2, "{said}");
}

#[test]
fn a_killed_client_leaves_no_incomplete_backup() {
    let dev = filled();
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("a.db");
    let mut client = stopped(&dev, &dev.addr(2), &file);
    client.send(Signal::KILL);
    client.process.wait().unwrap();
    assert_eq!(names(dir.path()), ["a.db.partial"]);
    // The node may still wait for the killed client, but the next backup must succeed soon.
    wait_until("the next backup", || {
        let args = ["backup", "--data-dir", dev.path(), "--node", &dev.addr(2), file.to_str().unwrap()];
        quorate(&args).status.success()
    });
    assert_eq!(names(dir.path()), ["a.db"]);
    succeeded(&dev.sql(&[], INSERT));
}

#[test]
fn a_killed_node_ends_its_backup_and_comes_back() {
    let dev = filled();
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("a.db");
    for id in dev.ids() {
        let client = stopped(&dev, &dev.addr(id), &file);
        let pid = dev.pid(id);
        dev.kill(id);
        wait_until("the node's end", || !is_alive(pid));
        client.send(Signal::CONT);
        let said = failed(&client.process.wait_with_output().unwrap());
        assert!(said.contains("broke off") && said.contains("try again"), "{said}");
        assert_eq!(names(dir.path()), [""; 0]);

        succeeded(&quorate(&["backup", "--data-dir", dev.path(), file.to_str().unwrap()]));
        std::fs::remove_file(&file).unwrap();
        succeeded(&dev.restart(id));
        wait_until("its rows", || dev.value(Some(id), "SELECT count(*) FROM kept") == ROWS.to_string());
    }
}
