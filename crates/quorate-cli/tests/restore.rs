//! `quorate restore` on real processes: a cluster is restored from a backup, a new one begins with it, and a running
//! one is left alone.

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

use std::path::{Path, PathBuf};

use rustix::process::Signal;
use support::{Dev, failed, is_alive, quorate, signal, succeeded, wait_until};
use tempfile::TempDir;

/// Returns a cluster of three nodes with a row, and its backup.
fn backed_up() -> (Dev, TempDir, PathBuf) {
    let (dev, dir) = (Dev::start(3), TempDir::new().unwrap());
    succeeded(&dev.sql(&[], "CREATE TABLE kept (value INTEGER); INSERT INTO kept VALUES (1)"));
    let file = dir.path().join("backup.db");
    succeeded(&quorate(&["backup", "--data-dir", dev.path(), text(&file)]));
    (dev, dir, file)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn check(dev: &Dev) {
    let status = dev.status();
    assert_eq!(status["epoch"], 2, "{status}");
    for id in dev.ids() {
        assert_eq!(dev.value(Some(id), "SELECT sum(value) FROM kept"), "1");
    }
    succeeded(&dev.sql(&[], "INSERT INTO kept VALUES (2)"));
    assert_eq!(dev.value(None, "SELECT sum(value) FROM kept"), "3");
}

#[test]
fn only_a_stopped_cluster_is_restored() {
    let (dev, _dir, file) = backed_up();
    succeeded(&dev.sql(&[], "INSERT INTO kept VALUES (1000)"));
    let running = failed(&quorate(&["restore", "--replace", "--data-dir", dev.path(), text(&file)]));
    assert!(running.contains("already running"), "{running}");

    let (_, dir) = dev.end(Signal::INT);
    let held = failed(&quorate(&["restore", "--data-dir", text(dir.path()), text(&file)]));
    assert!(held.contains("holds a node") && held.contains("--replace"), "{held}");
    let said = succeeded(&quorate(&["restore", "--replace", "--data-dir", text(dir.path()), text(&file)]));
    assert!(said.contains("epoch 2 of the new cluster") && said.contains("start it: quorate dev"), "{said}");
    assert_eq!(said.matches("replaced-").count(), 3, "{said}");
    check(&Dev::start_in(dir, &[]));
}

#[test]
fn another_cluster_begins_with_a_backup() {
    let (dev, dir, file) = backed_up();
    let new = TempDir::new().unwrap();
    let said = succeeded(&quorate(&["restore", "--data-dir", text(new.path()), text(&file)]));
    assert!(!said.contains("replaced-"), "{said}");
    check(&Dev::start_in(new, &[]));

    // A configuration of the running cluster, with another directory.
    let config = std::fs::read_to_string(dev.dir.path().join("node-2.toml")).unwrap();
    let secret = format!("secret_file = \"{}/secret\"", dev.path());
    let config = config.replace("secret_file = \"secret\"", &secret);
    let path = dir.path().join("node.toml");
    std::fs::write(&path, config).unwrap();
    let living = failed(&quorate(&["restore", "--config", text(&path), text(&file)]));
    assert!(living.contains("a member of the living cluster") && living.contains("stop all of its nodes"), "{living}");
    assert_eq!(dev.value(None, "SELECT sum(value) FROM kept"), "1");

    // A paused node may continue later, so it counts as alive.
    for id in [1, 2] {
        dev.kill(id);
        wait_until("its end", || !is_alive(dev.pid(id)));
    }
    signal(dev.pid(3), Signal::STOP);
    let paused = failed(&quorate(&["restore", "--config", text(&path), text(&file)]));
    signal(dev.pid(3), Signal::CONT);
    assert!(paused.contains("where '3' is expected") && paused.contains("does not say whether"), "{paused}");

    let (_, stopped) = dev.end(Signal::INT);
    let said = succeeded(&quorate(&["restore", "--config", text(&path), text(&file)]));
    assert!(said.contains("then start 1, 3 with empty data directories"), "{said}");
    drop(stopped);
}

#[test]
fn a_file_that_is_not_a_backup_is_refused() {
    let dir = TempDir::new().unwrap();
    let (data, file) = (dir.path().join("data"), dir.path().join("file"));
    let restore = || failed(&quorate(&["restore", "--data-dir", text(&data), text(&file)]));
    assert!(restore().contains("No such file"), "{}", restore());
    std::fs::write(&file, "a text, not a database, and long enough to have a header of one hundred bytes".repeat(9))
        .unwrap();
    let refused = restore();
    assert!(refused.contains("is not a backup of Quorate") && refused.contains("--plain"), "{refused}");
}
