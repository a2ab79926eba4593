//! The archive on real processes: a cluster that has lost all of its machines comes back from a directory.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests run real processes and stop at the first surprise"
)]

mod support;

use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;
use support::cluster_archive::Archived;
use support::s3::{IDENTITY, RECIPIENT};
use support::servers::Servers;
use support::{Dev, failed, plain_sqlite, quorate, succeeded, until_said, wait_until};
use tempfile::TempDir;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_destroyed_cluster_comes_back_from_its_archive() {
    let archive = Archived::start();
    for value in 1..=20 {
        archive.write(value);
    }
    let before = archive.wait_for(0);
    archive.write(1000);
    archive.wait_for(before + 1);
    let place = archive.destroy();
    let place = text(place.path());

    let said = succeeded(&quorate(&["archive", "list", place]));
    assert!(said.contains("from 1.1."), "{said}");
    let said = succeeded(&quorate(&["archive", "verify", place]));
    assert!(said.contains("structure are right"), "{said}");
    let said = succeeded(&quorate(&["restore", place, "--at", &before.to_string(), "--dry-run"]));
    assert!(said.contains(&format!("entries up to {before}")), "{said}");

    // As a plain file, just before the last write.
    let out = TempDir::new().unwrap();
    let file = out.path().join("before.db");
    succeeded(&quorate(&["restore", place, "--at", &before.to_string(), "-o", text(&file)]));
    if let Some(sum) = plain_sqlite(text(&file), "SELECT sum(value) FROM kept") {
        assert_eq!(sum.trim(), "210");
    }
    let exists = failed(&quorate(&["restore", place, "--at", "latest", "-o", text(&file)]));
    assert!(exists.contains("exists"), "{exists}");
    let later = failed(&quorate(&["restore", place, "--at", "1.1.999999", "--dry-run"]));
    assert!(later.contains("can't be reached"), "{later}");

    // As a cluster, which then archives to the same place.
    let dir = TempDir::new().unwrap();
    let said = succeeded(&quorate(&["restore", place, "--at", "latest", "--data-dir", text(dir.path())]));
    assert!(said.contains("of the new cluster"), "{said}");
    let dev = Dev::start_in(dir, &["--archive", place]);
    assert_eq!(dev.value(None, "SELECT sum(value) FROM kept"), "1210");
    succeeded(&dev.sql(&[], "INSERT INTO kept VALUES (1)"));
    wait_until("the new cluster has an archive", || {
        let listed = quorate(&["archive", "list", "--json", place]);
        let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap_or_default();
        listed.as_array().is_some_and(|all| all.len() == 2 && all.iter().all(|one| !one["last"].is_null()))
    });
    let several = failed(&quorate(&["restore", place, "--at", "latest", "--dry-run"]));
    assert!(several.contains("name one of"), "{several}");
}

#[test]
fn a_time_is_a_state_too() {
    let archive = Archived::start();
    archive.write(1);
    archive.wait_for(0);
    let place = archive.destroy();
    let place = text(place.path());
    let far = succeeded(&quorate(&["restore", place, "--at", "2999-01-01T00:00:00Z", "--dry-run"]));
    assert!(far.contains("objects, "), "{far}");
    let early = failed(&quorate(&["restore", place, "--at", "1999-01-01T00:00:00Z", "--dry-run"]));
    assert!(early.contains("too early"), "{early}");
    let wrong = failed(&quorate(&["restore", place, "--at", "yesterday"]));
    assert!(wrong.contains("is no state"), "{wrong}");
}

#[test]
fn a_rehearsal_compares_the_archive_with_a_running_cluster() {
    let archive = Archived::start();
    archive.write(1);
    let (place, data) = (text(archive.place.path()), text(archive.dev.dir.path()));
    let mut said = String::new();
    wait_until("a rehearsal that each node has answered in time", || {
        let output = quorate(&["archive", "rehearse", place, "--data-dir", data]);
        said = String::from_utf8(output.stdout).unwrap();
        assert!(!said.contains(" differs: "), "{said}");
        output.status.success()
    });
    assert!(said.contains("\n  archive  "), "{said}");
    assert!(said.contains("all that answered hold the same"), "{said}");
    let elsewhere = TempDir::new().unwrap();
    let missing = failed(&quorate(&["archive", "rehearse", text(elsewhere.path()), "--data-dir", data]));
    assert!(missing.contains("there is no archive of the cluster"), "{missing}");
}

#[test]
fn servers_rehearse_restores_on_a_schedule() {
    let mut servers = Servers::init(3);
    std::fs::create_dir(servers.dir.path().join("store")).unwrap();
    let names = ["a", "b", "c"];
    for name in names {
        servers.configure(name, "archive.url", "\"store\"");
        servers.configure(name, "archive.rehearse", "\"* * * * * *\"");
    }
    names.iter().for_each(|name| servers.serve(name));
    assert_eq!(servers.value("CREATE TABLE kept (x); INSERT INTO kept VALUES (7); SELECT x FROM kept"), "7");

    let has = |name: &&str, event: &str| servers.said(name).contains(event);
    wait_until("a rehearsal", || names.iter().any(|name| has(name, "event=\"rehearsed\"")));
    // A node that did not answer in time is away, which is no difference.
    let differs = |line: &str| line.contains("rehearsal_differs") && !line.contains("differences=[]");
    assert!(!names.iter().any(|name| servers.said(name).lines().any(differs)));
    let config = servers.config("a");
    succeeded(&until_said(", rehearsed at 2", || quorate(&["status", "--config", text(&config)])));

    servers.stop("c", Signal::KILL);
    let is_away = |name: &&str| {
        let said = servers.said(name);
        said.lines().any(|line| line.contains("event=\"rehearsal_differs\"") && line.contains("away=[\"c\"]"))
    };
    wait_until("a rehearsal says which node it could not compare", || ["a", "b"].iter().any(is_away));
    for name in ["a", "b"] {
        assert!(servers.stop(name, Signal::TERM).success(), "{}", servers.said(name));
    }
}

#[test]
fn an_encrypted_archive_is_restored_with_its_identity() {
    let mut servers = Servers::init(1);
    let dir = servers.dir.path().to_owned();
    let (store, key) = (dir.join("store"), dir.join("archive.key"));
    std::fs::create_dir(&store).unwrap();
    std::fs::write(&key, IDENTITY).unwrap();
    servers.configure("a", "archive.url", "\"store\"");
    servers.configure("a", "archive.recipients", &format!("[\"{RECIPIENT}\"]"));
    servers.configure("a", "archive.identity_file", "\"archive.key\"");
    servers.serve("a");
    assert_eq!(servers.value("CREATE TABLE kept (x); INSERT INTO kept VALUES (7); SELECT x FROM kept"), "7");
    let identity = ["--identity", text(&key)];
    let listed = |args: &[&str]| quorate(&[&["archive", "list", "--json", text(&store)], args].concat());
    wait_until("a state is archived", || {
        let listed = listed(&identity);
        listed.status.success() && serde_json::from_slice::<Value>(&listed.stdout).unwrap()[0]["last"].is_object()
    });
    assert!(servers.stop("a", Signal::TERM).success(), "{}", servers.said("a"));

    let locked = failed(&listed(&[]));
    assert!(locked.contains("it needs an identity; give --identity"), "{locked}");
    let file = dir.join("restored.db");
    let restore = ["restore", text(&store), "--at", "latest", "-o", text(&file)];
    failed(&quorate(&restore));
    succeeded(&quorate(&[&restore, &identity[..]].concat()));
    if let Some(found) = plain_sqlite(text(&file), "SELECT x FROM kept") {
        assert_eq!(found.trim(), "7");
    }
    succeeded(&quorate(&[&["archive", "verify", text(&store)], &identity[..]].concat()));
}

/// Prepares three servers whose cluster begins with the state of the archive and keeps an archive there too.
fn restoring(place: &str) -> Servers {
    let servers = Servers::init(3);
    for name in ["a", "b", "c"] {
        servers.configure(name, "archive.url", &format!("\"{place}\""));
        servers.configure(name, "archive.restore_from", &format!("\"{place}\""));
    }
    servers
}

#[test]
fn servers_restore_their_first_state_once_even_if_they_are_killed_meanwhile() {
    let archive = Archived::start();
    for value in 1..=20 {
        archive.write(value);
    }
    archive.wait_for(0);
    let place = archive.destroy();
    let mut servers = restoring(text(place.path()));
    let names = ["a", "b", "c"];
    ["b", "c"].iter().for_each(|name| servers.serve(name));
    // The last step removes the mark. A node that is killed after it goes on as a member, and tells of no restore.
    let home = servers.dir.path().join("a");
    let is_over = || home.join("CLUSTER").exists() && !home.join("RESTORING").exists();
    for kill in 1..=5 {
        servers.serve("a");
        let begun = |said: String| said.matches("restoring the first state").count();
        wait_until("a restore", || begun(servers.said("a")) == kill || is_over());
        servers.stop("a", Signal::KILL);
        if is_over() {
            break;
        }
    }
    servers.serve("a");
    assert_eq!(servers.value("SELECT sum(value) FROM kept"), "210");
    assert_eq!(servers.value("INSERT INTO kept VALUES (1000); SELECT sum(value) FROM kept"), "1210");
    let cluster =
        |name: &str| std::fs::read_to_string(servers.dir.path().join(name).join("CLUSTER")).unwrap_or_default();
    wait_until("all belong to it", || names.iter().all(|name| !cluster(name).is_empty()));

    // The keys stay in the configuration, and all nodes are killed. The writes since the restore survive.
    let before = cluster("a");
    for name in names {
        servers.stop(name, Signal::KILL);
    }
    names.iter().for_each(|name| servers.serve(name));
    assert_eq!(servers.value("SELECT sum(value) FROM kept"), "1210");
    let cluster = std::fs::read_to_string(servers.dir.path().join("a").join("CLUSTER")).unwrap();
    assert_eq!(cluster, before);
    for name in names {
        assert!(!servers.dir.path().join(name).join("RESTORING").exists());
        assert!(servers.stop(name, Signal::TERM).success(), "{}", servers.said(name));
    }
}

#[test]
fn a_server_whose_first_state_is_missing_ends_and_says_what_to_do() {
    let nowhere = TempDir::new().unwrap();
    let mut servers = Servers::init(1);
    servers.configure("a", "archive.restore_from", &format!("\"{}\"", text(nowhere.path())));
    for _ in 0..2 {
        servers.serve("a");
        let said = servers.failed("a");
        assert!(said.contains("there is no archive at this place"), "{said}");
        assert!(said.contains("Correct 'archive.restore_from'"), "{said}");
    }
}

#[test]
fn states_are_given_up_beside_a_living_cluster_and_after_its_end() {
    let archive = Archived::start();
    for value in 1..=20 {
        archive.write(value);
    }
    archive.wait_for(0);
    let prune = |place: &Path, more: &[&str]| {
        let said = quorate(&[&["archive", "prune", text(place), "--keep-for", "0s", "--json"], more].concat());
        serde_json::from_str::<serde_json::Value>(&succeeded(&said)).unwrap()
    };
    prune(archive.place.path(), &[]);
    let last = archive.write(1000);
    archive.wait_for(last);
    let place = archive.destroy();
    let holds = || {
        let said = succeeded(&quorate(&["archive", "status", "--json", text(place.path())]));
        serde_json::from_str::<serde_json::Value>(&said).unwrap()[0]["objects"].as_u64().unwrap()
    };
    let before = holds();
    let planned = prune(place.path(), &["--dry-run"]);
    assert_eq!(holds(), before);
    let pruned = prune(place.path(), &[]);
    assert_eq!(pruned["objects"], planned["objects"]);
    assert_eq!(holds(), before - pruned["objects"].as_array().unwrap().len() as u64);
    let said = succeeded(&quorate(&["archive", "status", text(place.path())]));
    assert!(said.contains("  generation 1: from 1.1.") && said.contains("  archiver: node "), "{said}");
    let out = TempDir::new().unwrap();
    let file = out.path().join("last.db");
    succeeded(&quorate(&["restore", text(place.path()), "--at", "latest", "-o", text(&file)]));
    if let Some(sum) = plain_sqlite(text(&file), "SELECT sum(value) FROM kept") {
        assert_eq!(sum.trim(), "1210");
    }
}
