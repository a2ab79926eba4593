//! `quorate restore` on real processes, killed in the middle: the next one reads only what is missing, and the result
//! has the same bytes.

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
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;
use support::archived::{Lines, World};
use support::faulty::{Fault, Faulty};
use support::s3::{self, BUCKET, Kit, Moto};
use support::{Dev, QUORATE, is_alive, succeeded, wait_until};

/// So many rows of noise that a restore takes several reads.
const ROWS: usize = 40;
const NOISE: &str = "INSERT INTO noise VALUES (randomblob(900000))";

/// An archive in the stand-in for S3, behind a proxy that counts.
struct Store {
    kit: Kit,
    faulty: Faulty,
    _moto: Moto,
}

impl Store {
    fn start() -> Option<Self> {
        let moto = Moto::start()?;
        Some(Self { kit: Kit::new(), faulty: Faulty::start(moto.port), _moto: moto })
    }

    fn url(&self) -> String {
        s3::url(BUCKET, self.faulty.port)
    }

    /// Returns `quorate` with arguments, the store, and more arguments.
    fn quorate(&self, before: &[&str], after: &[&str]) -> Command {
        let mut command = Command::new(QUORATE);
        command.args(before).args([&self.url(), "--credentials-file", &self.kit.path("credentials")]).args(after);
        command
    }

    /// Restores into a file. Returns how many bytes the store sent, and what the program printed.
    fn restore(&self, options: &[&str], file: &str) -> (u64, String) {
        let before = self.faulty.sent();
        let output = self.quorate(&["restore"], &[options, &["-o", file]].concat()).output().unwrap();
        succeeded(&output);
        wait_until("the end of its requests", || self.faulty.is_idle());
        (self.faulty.sent() - before, String::from_utf8(output.stderr).unwrap())
    }

    /// Kills a restore in the middle, and runs it again.
    fn kill_and_restore(&self, options: &[&str], part: &str) {
        let (whole, file) = (self.kit.path("whole.db"), self.kit.path("again.db"));
        let (all, said) = self.restore(options, &whole);
        assert!(!said.contains("restore_goes_on"), "{said}");
        let (part, state) = (format!("{file}{part}"), format!("{file}{part}.state"));
        self.faulty.set(Fault::Slow);
        let killed = Lines::of(self.quorate(&["restore"], &[options, &["-o", &file]].concat()));
        wait_until("a part of it", || Path::new(&state).exists());
        killed.signal(Signal::KILL);
        drop(killed);
        self.faulty.set(Fault::None);
        wait_until("the end of its requests", || self.faulty.is_idle());
        assert!(Path::new(&part).exists() && !Path::new(&file).exists());
        let (rest, said) = self.restore(options, &file);
        assert!(said.contains("restore_goes_on") && !said.contains("restore_begins_anew"), "{said}");
        // At least the first piece of 4 MiB, up to the page at its end, is not read again.
        assert!(rest + (3 << 20) <= all, "{rest} bytes of {all} were read again");
        assert!(std::fs::read(&file).unwrap() == std::fs::read(&whole).unwrap(), "the same bytes");
        assert!(!Path::new(&part).exists() && !Path::new(&state).exists(), "nothing is left");
    }
}

#[test]
fn a_killed_restore_of_a_database_goes_on() {
    let Some(store) = Store::start() else { return };
    let world = World::new();
    world.application.execute_batch(&format!("CREATE TABLE noise (v); {}", [NOISE; ROWS].join(";"))).unwrap();
    let side_car = Lines::of(store.quorate(&["replicate", &world.path("app.db")], &["--interval", "50ms"]));
    let plan = || store.quorate(&["restore"], &["--at", "latest", "--dry-run"]).output().unwrap().status.success();
    wait_until("an archive", plan);
    side_car.signal(Signal::KILL);
    drop(side_car);
    store.kill_and_restore(&["--plain"], ".part");
}

#[test]
fn a_killed_restore_of_a_cluster_goes_on() {
    let Some(store) = Store::start() else { return };
    let dev = Dev::start(1);
    succeeded(&dev.sql(&[], "CREATE TABLE noise (v)"));
    succeeded(&dev.sql(&[], &[NOISE; ROWS].join(";")));
    let credentials = store.kit.path("credentials");
    let dev = dev.configured(&format!("[archive]\nurl = '{}'\ncredentials_file = '{credentials}'", store.url()));
    succeeded(&dev.sql(&[], "INSERT INTO noise VALUES ('the last')"));
    let last = dev.applied();
    wait_until("everything is archived", || {
        let listed = store.quorate(&["archive", "list", "--json"], &[]).output().unwrap();
        let listed: Value = serde_json::from_slice(&listed.stdout).unwrap_or_default();
        let found = listed[0]["last"]["position"].as_str().and_then(|last| last.rsplit('.').next()?.parse().ok());
        found.is_some_and(|found: u64| found >= last)
    });
    let pid = dev.pid(1);
    drop(dev);
    // It archives until its end.
    wait_until("the end of the node", || !is_alive(pid));
    store.kill_and_restore(&["--at", "latest"], ".partial");
}
