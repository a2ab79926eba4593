//! `quorate wal inspect` on the log of a real process: running, stopped, damaged.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests run real processes and stop at the first surprise"
)]

mod support;

use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::{Value, json};
use support::{Dev, failed, quorate, succeeded};

/// Returns every file in a directory with its bytes.
fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|item| item.unwrap().path()).collect();
    files.sort();
    files.into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

fn inspect(dir: &Path, options: &[&str]) -> std::process::Output {
    quorate(&[&["wal", "inspect", dir.to_str().unwrap()], options].concat())
}

#[test]
fn inspecting_a_log_in_any_state_changes_nothing() {
    let dev = Dev::start(1);
    succeeded(&dev.sql(&[], "CREATE TABLE kept (value INTEGER)"));
    for value in 0..20 {
        succeeded(&dev.sql(&[], &format!("INSERT INTO kept VALUES ({value})")));
    }
    let home = dev.dir.path().join("node-1");
    let running = succeeded(&inspect(&home, &["--entries"]));
    assert!(running.contains(&format!("in use by process {}\n", dev.pid(1))), "{running}");
    assert!(running.contains("node 1, id ") && running.contains("0000000001.wal"), "{running}");
    assert!(running.contains("durability: fsync\n"), "{running}");
    for text in ["voters 1", "opens a session", "CREATE TABLE kept", "INSERT INTO kept VALUES (19)", "  session "] {
        assert!(running.contains(text), "{text}: {running}");
    }
    assert_eq!(dev.value(None, "SELECT count(*) FROM kept"), "20", "the node runs on");

    let (_, dir) = dev.end(Signal::INT);
    let home = dir.path().join("node-1");
    let before = contents(&home.join("log"));
    let report: Value = serde_json::from_str(&succeeded(&inspect(&home, &["--json", "--entries"]))).unwrap();
    assert_eq!(contents(&home.join("log")), before, "not a byte changes");
    assert_eq!((report["state"].as_str(), report["in_use_by"].is_null()), (Some("closed"), true), "{report}");
    assert_eq!((&report["identity"]["name"], &report["identity"]["durability"]), (&json!("1"), &json!("fsync")));
    let entries = report["entries"].as_array().unwrap();
    let last = entries.iter().rfind(|entry| entry["kind"] == "proposal").unwrap();
    let index: u64 = last["id"].as_str().unwrap().rsplit('.').next().unwrap().parse().unwrap();
    assert!(last["time"].as_str().unwrap().starts_with("20"), "{last}");
    let index = index.to_string();
    let one = succeeded(&inspect(&home, &["--entries", "--hex", "--from", &index, "--to", &index]));
    assert!(one.contains(&format!(".{index}  ")) && one.contains("    00000000  01"), "{one}");

    // Flip a bit of a frame that later frames declare durable.
    let segment = before.iter().rfind(|(path, _)| path.extension().is_some_and(|e| e == "wal")).unwrap();
    let frames: Vec<usize> = segment.1.windows(4).enumerate().filter(|(_, w)| w == b"QFRM").map(|(at, _)| at).collect();
    let at = frames[frames.len() / 2] + 64;
    let file = std::fs::File::options().write(true).open(&segment.0).unwrap();
    file.write_all_at(&[segment.1[at] ^ 4], at as u64).unwrap();
    let damaged = inspect(&home, &[]);
    let (error, shown) = (failed(&damaged), String::from_utf8(damaged.stdout).unwrap());
    assert!(error.contains("is damaged at byte") && shown.contains("known to be durable"), "{error}{shown}");
    assert!(shown.contains("main"), "what comes before is shown: {shown}");
    file.write_all_at(&[segment.1[at]], at as u64).unwrap();

    // Cut the last frame inside its header.
    let last = *frames.last().unwrap();
    file.set_len(last as u64 + 62).unwrap();
    file.set_len(segment.1.len() as u64).unwrap();
    let torn = succeeded(&inspect(&home, &["--json"]));
    let torn: Value = serde_json::from_str(&torn).unwrap();
    assert_eq!(torn["state"], "torn", "{torn}");
    assert!(torn["torn"]["offset"].as_u64().unwrap() <= last as u64, "{torn}");
    let none = failed(&inspect(&dir.path().join("nowhere"), &[]));
    assert!(none.contains("nowhere"), "{none}");
}
