//! Keys, locks and events are in every copy of the data: on all nodes, in backups, in archives, and in what is
//! restored.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests run real processes and stop at the first surprise"
)]

mod support;

use rustix::process::Signal;
use support::cluster_archive::Archived;
use support::redis::Redis;
use support::{Dev, quorate, succeeded, wait_until};
use tempfile::TempDir;

/// What there is of each store, by the views that show it.
const VIEWS: [&str; 7] = [
    "SELECT hex(key), type, version, expires_at, hex(value) FROM quorate_keys ORDER BY key",
    "SELECT hex(key), hex(field), version, expires_at, hex(value) FROM quorate_hashes ORDER BY key, field",
    "SELECT hex(key), hex(member), version, expires_at FROM quorate_sets ORDER BY key, member",
    "SELECT * FROM quorate_sorted_sets",
    "SELECT * FROM quorate_lists",
    "SELECT * FROM quorate_locks",
    "SELECT * FROM quorate_events",
];

fn resp(dev: &Dev, id: u64) -> Redis {
    let node = dev.nodes().into_iter().find(|node| node["id"] == id).unwrap();
    Redis::connect(node["resp_addr"].as_str().unwrap())
}

/// Writes something to each store.
fn fill(dev: &Dev) {
    let mut client = resp(dev, 1);
    wait_until("keys", || client.ask("SET text abc EX 86400") == "+OK");
    let filled = client.ask(
        "SETBIT bits 70 1\nHSET hash a 1 b 2\nHEXPIRE hash 86400 FIELDS 1 a\nSADD set x y\nZADD zset 1.5 m 2 n\n\
         RPUSH list 1 2 3\nLPOP list\nQ.LOCK lock 86400000 HOLDER me NOTE why\nPUBLISH news first",
    );
    assert!(!filled.contains('-') || filled.contains(":1 *[:1, $\"me\"]"), "{filled}");
    succeeded(&dev.sql(&[], "SELECT 1; CREATE TABLE t (a); INSERT INTO t SELECT notify('news', 'second')"));
}

/// Returns what all views show on a node.
fn shown(dev: &Dev, id: u64) -> Vec<String> {
    let addr = dev.addr(id);
    let pinned = ["--format", "csv", "--node", &addr];
    VIEWS.iter().map(|view| succeeded(&dev.sql(&pinned, view))).collect()
}

/// Checks that all nodes show this, verify it, and go on with it.
fn check(dev: &Dev, expected: &[String], how: &str) {
    for id in dev.ids() {
        assert_eq!(shown(dev, id), expected, "{how}, node {id}");
    }
    dev.verified();
    let mut client = resp(dev, 2);
    wait_until("keys", || !client.ask("TTL text").starts_with('-'));
    assert_eq!(client.ask("GETBIT bits 70\nHGETALL hash\nZSCORE zset n\nLRANGE list 0 -1"), {
        ":1 *[$\"a\", $\"1\", $\"b\", $\"2\"] $\"2\" *[$\"2\", $\"3\"]"
    });
    let held = client.ask("Q.LOCK lock 1000 HOLDER another");
    assert_eq!(held, "*-1", "{how}: the lock is still held");
    // The next token and event come after those of the copy.
    assert_eq!(client.ask("Q.UNLOCK lock me\nQ.HOLDS lock 1").split(' ').next(), Some(":1"), "{how}");
    let next = client.ask("Q.LOCK lock 1000 HOLDER another");
    assert!(next.starts_with("*[:") && next != "*[:1, $\"another\"]", "{how}: {next}");
}

#[test]
fn keys_locks_and_events_are_in_every_copy() {
    let archive = Archived::start();
    fill(&archive.dev);
    let expected = shown(&archive.dev, 1);
    assert!(expected.iter().all(|view| view.lines().count() > 1), "{expected:?}");
    for id in archive.dev.ids() {
        assert_eq!(shown(&archive.dev, id), expected, "node {id}");
    }
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("backup.db").to_str().unwrap().to_owned();
    succeeded(&quorate(&["backup", "--data-dir", archive.dev.path(), &file]));
    archive.wait_for(0);
    let place = archive.destroy();
    let place = place.path().to_str().unwrap();
    succeeded(&quorate(&["archive", "verify", place]));

    for (how, from) in [("backup", vec![file.as_str()]), ("archive", vec![place, "--at", "latest"])] {
        let new = TempDir::new().unwrap();
        let to = ["restore", "--data-dir", new.path().to_str().unwrap()];
        succeeded(&quorate(&[&to[..], &from].concat()));
        let restored = Dev::start_in(new, &[]);
        check(&restored, &expected, how);
        restored.end(Signal::INT);
    }
}
