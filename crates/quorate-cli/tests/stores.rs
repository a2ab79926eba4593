//! Backups and archives in stores, on real processes: to a directory, and to a stand-in for S3, which `.ci/stores`
//! installs. Without it the test of S3 is skipped, with a message; in CI it fails.

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

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;
use support::archived::{Lines, World, values};
use support::faulty::{Fault, Faulty};
use support::s3::{self, BUCKET, Kit, Moto, RECIPIENT, SECRET, http};
use support::servers::Servers;
use support::{Dev, QUORATE, failed, quorate, signal, succeeded, wait_until};
use tempfile::TempDir;

/// Backs a cluster up, encrypted; destroys all of its data; and restores it.
fn lose_all_and_restore(url: &str, credentials: &[&str], kit: &Kit, rows: usize) {
    let dev = Dev::start(3);
    succeeded(&dev.sql(&[], "CREATE TABLE kept (noise BLOB)"));
    succeeded(&dev.sql(&[], &vec!["INSERT INTO kept VALUES (randomblob(900000))"; rows].join(";")));
    let backup = ["backup", "--data-dir", dev.path(), "--recipient", RECIPIENT, url];
    let said = succeeded(&quorate(&[&backup, credentials].concat()));
    assert!(said.contains(".db.zst.age: ") && said.contains("verified, encrypted"), "{said}");

    let list = ["backups", "list", "--json", url];
    let listed: Value = serde_json::from_str(&succeeded(&quorate(&[&list, credentials].concat()))).unwrap();
    let [found] = listed.as_array().unwrap().as_slice() else { panic!("{listed}") };
    assert!(said.starts_with(found["name"].as_str().unwrap()) && found["encrypted"] == true, "{listed}");

    let (_, dir) = dev.end(Signal::INT);
    for item in std::fs::read_dir(dir.path()).unwrap() {
        let path = item.unwrap().path();
        if path.is_dir() { std::fs::remove_dir_all(path).unwrap() } else { std::fs::remove_file(path).unwrap() }
    }
    let restore = ["restore", "--latest", "--data-dir", dir.path().to_str().unwrap(), url];
    let locked = failed(&quorate(&[&restore, credentials].concat()));
    assert!(locked.contains("give --identity"), "{locked}");
    let identity = kit.path("identity");
    let restored = succeeded(&quorate(&[&restore, credentials, &["--identity", &identity]].concat()));
    assert!(restored.contains("epoch 2 of the new cluster"), "{restored}");

    let dev = Dev::start_in(dir, &[]);
    for id in dev.ids() {
        let expected = format!("{rows},{}", rows * 900_000);
        assert_eq!(dev.value(Some(id), "SELECT count(*), sum(length(noise)) FROM kept"), expected);
    }
}

#[test]
fn a_lost_cluster_is_restored_from_s3() {
    let Some(moto) = Moto::start() else { return };
    let kit = Kit::new();
    let file = kit.path("credentials");
    // So large that it goes in several parts.
    lose_all_and_restore(&moto.url(BUCKET), &["--credentials-file", &file], &kit, 40);

    let absent = failed(&quorate(&["backups", "list", &moto.url("no-such-bucket"), "--credentials-file", &file]));
    assert!(absent.contains("NoSuchBucket") && !absent.contains(SECRET), "{absent}");
    let pruned =
        succeeded(&quorate(&["backups", "prune", &moto.url(BUCKET), "--credentials-file", &file, "--keep-for", "0s"]));
    assert_eq!(pruned, "nothing to delete\n", "the newest stays");

    let doctor = |bucket: &str| kit.doctor(&format!("url = '{}'\ncredentials_file = '{file}'", moto.url(bucket)));
    assert!(doctor(BUCKET).contains("can be used; the newest of 1 backups is of"), "{}", doctor(BUCKET));
    assert!(doctor("no-such-bucket").contains("NoSuchBucket"), "{}", doctor("no-such-bucket"));
}

#[test]
fn a_destroyed_cluster_comes_back_from_its_archive_in_s3() {
    let Some(moto) = Moto::start() else { return };
    let kit = Kit::new();
    let (url, file) = (moto.url(BUCKET), kit.path("credentials"));
    let dev = Dev::start(3);
    succeeded(&dev.sql(&[], "CREATE TABLE kept (noise BLOB)"));
    // So large that the first snapshot goes in several parts.
    succeeded(&dev.sql(&[], &["INSERT INTO kept VALUES (randomblob(900000))"; 40].join(";")));
    let dev = dev.configured(&format!("[archive]\nurl = '{url}'\ncredentials_file = '{file}'"));
    succeeded(&dev.sql(&[], "INSERT INTO kept VALUES ('the last')"));
    let written = dev.applied();
    let list = ["archive", "list", "--json", &url, "--credentials-file", &file];
    wait_until("everything is archived", || {
        let listed: Value = serde_json::from_slice(&quorate(&list).stdout).unwrap_or_default();
        let last = listed[0]["last"]["position"].as_str().and_then(|last| last.rsplit('.').next()?.parse().ok());
        last.is_some_and(|last: u64| last >= written)
    });
    for node in dev.nodes() {
        signal(i32::try_from(node["pid"].as_i64().unwrap()).unwrap(), Signal::KILL);
    }
    drop(dev.end(Signal::KILL));

    let dir = TempDir::new().unwrap();
    let to = dir.path().to_str().unwrap();
    let restore = ["restore", &url, "--at", "latest", "--credentials-file", &file, "--data-dir", to];
    succeeded(&quorate(&restore));
    let dev = Dev::start_in(dir, &[]);
    let found = dev.value(None, "SELECT count(*), sum(length(noise)), max(typeof(noise)) FROM kept");
    assert_eq!(found, format!("41,{},text", 40 * 900_000 + 8));
}

/// A side-car and the follower of its archive, with S3 between them, which is away for a moment.
#[test]
fn a_copy_follows_a_database_through_s3() {
    let Some(moto) = Moto::start() else { return };
    let (kit, world, faulty) = (Kit::new(), World::new(), Faulty::start(moto.port));
    let (url, file) = (s3::url(BUCKET, faulty.port), kit.path("credentials"));
    let store = [url.as_str(), "--credentials-file", &file];
    let quick = ["--interval", "50ms"];
    let database = world.path("app.db");
    let side_car = [&["replicate", &database], store.as_slice(), &quick].concat();
    world.write("one");
    let _side_car = Lines::of(command(&side_car));
    let list = [&["restore", "--at", "latest", "--dry-run"], store.as_slice()].concat();
    wait_until("an archive", || quorate(&list).status.success());

    let (copy, plain) = (world.path("copy.db"), ["--plain", "--follow", "--follow-interval", "1s", "-o"]);
    let _follower = Lines::of(command(&[&["restore"], store.as_slice(), &plain, &[&copy]].concat()));
    let follows = |expected: &str| {
        wait_until(&format!("a copy with {expected}"), || {
            Path::new(&copy).exists() && values(Path::new(&copy)) == expected
        });
    };
    follows("one");
    faulty.set(Fault::Refused(503, "SlowDown"));
    world.write("two");
    wait_until("requests that fail", || faulty.spoiled() > 3);
    faulty.set(Fault::None);
    follows("one,two");
    let restored = world.path("restored.db");
    succeeded(&quorate(&[&["restore"], store.as_slice(), &["--at", "latest", "--plain", "-o", &restored]].concat()));
    assert_eq!(values(Path::new(&restored)), "one,two");
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(QUORATE);
    command.args(args);
    command
}

#[test]
fn the_doctor_tries_the_store() {
    let kit = Kit::new();
    let store = kit.path("store");
    let config = format!("url = '{store}'");
    let found = kit.doctor(&config);
    assert!(found.contains("PROBLEM  backups") && found.contains("the directory does not exist"), "{found}");
    std::fs::create_dir(&store).unwrap();
    let found = kit.doctor(&config);
    assert!(found.contains("note     backups") && found.contains("holds no backup yet"), "{found}");
    assert!(objects(Path::new(&store)).is_empty(), "the doctor leaves nothing");

    std::fs::write(kit.path("phrase"), "correct horse battery\n").unwrap();
    std::fs::set_permissions(kit.path("phrase"), Permissions::from_mode(0o644)).unwrap();
    let found = kit.doctor(&format!("{config}\npassphrase_file = '{}'", kit.path("phrase")));
    assert!(found.contains("is open to other users (mode 644)"), "{found}");
    let found = kit.doctor(&format!("{config}\npassphrase_file = '{}'", kit.path("none")));
    assert!(found.contains("No node can start with this [backup]"), "{found}");
}

#[test]
fn a_lost_cluster_is_restored_from_a_directory() {
    let kit = Kit::new();
    let store = kit.path("store");
    let url = format!("file://{store}");
    let missing = failed(&quorate(&["backups", "list", &url]));
    assert!(missing.contains("the directory does not exist; create it"), "{missing}");
    std::fs::create_dir(&store).unwrap();
    let empty = failed(&quorate(&["restore", &url, "--latest", "--data-dir", &kit.path("data")]));
    assert!(empty.contains("holds no backup; check the prefix"), "{empty}");
    lose_all_and_restore(&url, &[], &kit, 3);

    let plain = failed(&quorate(&["backup", "--recipient", RECIPIENT, &kit.path("plain.db")]));
    assert!(plain.contains("a plain file is not encrypted"), "{plain}");
    let wrong = failed(&quorate(&["restore", &format!("{url}/monday.db"), "--data-dir", &kit.path("data")]));
    assert!(wrong.contains("'monday.db' is not the name of a backup"), "{wrong}");
    let object = std::fs::read_dir(&store).unwrap().next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&object).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&object, bytes).unwrap();
    let object = format!("file://{}", object.display());
    let args = ["restore", &object, "--identity", &kit.path("identity"), "--data-dir", &kit.path("data")];
    let damaged = failed(&quorate(&args));
    assert!(damaged.contains("is damaged") && damaged.contains("restore an earlier backup"), "{damaged}");
}

#[test]
fn servers_make_backups_on_a_schedule() {
    let mut servers = Servers::init(3);
    let store = servers.dir.path().join("store");
    std::fs::create_dir(&store).unwrap();
    let names = ["a", "b", "c"];
    for name in names {
        servers.configure(name, "http.tls", "false");
        servers.configure(name, "backup.url", "\"store\"");
        servers.configure(name, "backup.schedule", "\"* * * * * *\"");
        servers.configure(name, "backup.keep_for", "\"1 s\"");
        servers.configure(name, "backup.keep_min", "2");
        servers.configure(name, "backup.recipients", &format!("[\"{RECIPIENT}\"]"));
    }
    names.iter().for_each(|name| servers.serve(name));
    assert_eq!(servers.value("CREATE TABLE kept (x); INSERT INTO kept VALUES (7); SELECT x FROM kept"), "7");

    let is_backup = |name: &String| name.ends_with(".db.zst.age");
    let mut seen = BTreeSet::new();
    wait_until("five backups, of which old ones are deleted", || {
        let there: Vec<String> = objects(&store).into_iter().filter(is_backup).collect();
        let count = there.len();
        seen.extend(there);
        seen.len() >= 5 && count < seen.len()
    });
    let times: BTreeSet<&str> = seen.iter().map(|name| &name[..16]).collect();
    assert_eq!(times.len(), seen.len(), "no time has two: {seen:?}");
    let made: Vec<&str> = names.into_iter().filter(|name| servers.said(name).contains("event=\"backup\"")).collect();
    assert!(!made.is_empty(), "{}", servers.said("a"));
    check_pages(&servers, made[0]);

    for name in names {
        assert!(servers.stop(name, Signal::TERM).success(), "{}", servers.said(name));
    }
    let left = objects(&store);
    assert!(left.iter().all(is_backup), "no claims are left: {left:?}");
}

fn objects(store: &Path) -> Vec<String> {
    let items = std::fs::read_dir(store).unwrap().map(|item| item.unwrap().file_name().into_string().unwrap());
    // The stand-in of the file system: what is being written.
    items.filter(|name| !name.contains('#')).collect()
}

/// Checks what the HTTP port of a server that has made a backup tells of it.
fn check_pages(servers: &Servers, name: &str) {
    let config = std::fs::read_to_string(servers.config(name)).unwrap();
    let listen = config.lines().find_map(|line| line.strip_prefix("http.listen = ")).unwrap();
    let port = listen.trim_matches('"').rsplit_once(':').unwrap().1.parse().unwrap();
    let login = format!("authorization: Bearer {}\r\n", servers.token);
    let status = http(port, "GET /status HTTP/1.1", &login);
    let status: Value = serde_json::from_str(status.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert!(status["backup"]["last"].as_str().unwrap().ends_with(".db.zst.age"), "{status}");
    assert_eq!((&status["backup"]["failures"], &status["backup"]["error"]), (&0.into(), &Value::Null));
    let metrics = http(port, "GET /metrics HTTP/1.1", &login);
    let at = status["backup"]["last_at"].as_u64().unwrap();
    let sample = |name: &str| metrics.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
    assert!(sample("quorate_backup_last_success_timestamp_seconds").unwrap() as u64 >= at, "{metrics}");
    assert_eq!(sample("quorate_backup_failures_total"), Some(0.0));
    let said = servers.said(name);
    let line = said.lines().find(|line| line.contains("event=\"backup\"")).unwrap();
    for part in ["name=", "bytes=", "position=1.1.", "seconds=", "store"] {
        assert!(line.contains(part), "{part}: {line}");
    }
}
