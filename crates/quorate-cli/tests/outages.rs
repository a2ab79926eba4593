//! A cluster whose store fails: writes go on, the status shows the failure, and the archive catches up by itself.

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
use serde_json::Value;
use support::faulty::{Fault, Faulty};
use support::s3::{self, BUCKET, Kit, Moto};
use support::{Dev, quorate, signal, succeeded, wait_until};
use tempfile::TempDir;

/// The faults, each with a text that the status must show; `None` if it need not show a failure.
const FAULTS: [(Fault, Option<&str>); 11] = [
    (Fault::Closed, Some("")),
    (Fault::Refused(500, "InternalError"), Some("InternalError")),
    (Fault::Refused(503, "SlowDown"), Some("SlowDown")),
    (Fault::Refused(403, "ExpiredToken"), Some("ExpiredToken")),
    (Fault::Refused(403, "RequestTimeTooSkewed"), Some("RequestTimeTooSkewed")),
    (Fault::Refused(404, "NoSuchBucket"), Some("NoSuchBucket")),
    // A 412 tells the archiver that the object exists, so it goes on.
    (Fault::Disowned(412, "PreconditionFailed"), None),
    (Fault::Disowned(500, "InternalError"), Some("InternalError")),
    (Fault::Cut, Some("")),
    (Fault::Unanswered, None),
    (Fault::Slow, None),
];
/// How many requests go wrong before the store is well again.
const SPOILED_MIN: usize = 3;

/// A cluster whose archive is behind a proxy.
struct Archived {
    dev: Dev,
    /// The archive, past the proxy.
    list: Vec<String>,
    written: u64,
}

impl Archived {
    /// Writes another row.
    fn write(&mut self) {
        self.written += 1;
        succeeded(&self.dev.sql(&[], &format!("INSERT INTO kept VALUES ({})", self.written)));
    }

    /// Waits until everything that was written so far is in the store.
    fn wait(&self, after: &str) {
        let target = self.dev.applied();
        let list: Vec<&str> = self.list.iter().map(String::as_str).collect();
        wait_until(&format!("an archive that is complete after {after}"), || {
            let listed: Value = serde_json::from_slice(&quorate(&list).stdout).unwrap_or_default();
            let last = listed[0]["last"]["position"].as_str().and_then(|last| last.rsplit('.').next()?.parse().ok());
            last.is_some_and(|last: u64| last >= target)
        });
    }

    /// Kills the node that archives, and starts it again.
    fn kill_archiver(&self) {
        let status = self.dev.status();
        let id = status["archiver"]["node"].as_str().unwrap().parse().unwrap();
        self.dev.kill(id);
        succeeded(&self.dev.restart(id));
    }

    /// Returns the line about the archive in `quorate status`.
    fn said(&self) -> String {
        let mut said = String::new();
        wait_until("a status", || {
            let output = quorate(&["status", "--data-dir", self.dev.path()]);
            said = String::from_utf8(output.stdout).unwrap();
            output.status.success()
        });
        said.lines().find(|line| line.starts_with("archive:")).unwrap_or_default().to_owned()
    }
}

#[test]
fn a_failing_store_stops_no_write_and_loses_nothing_once_it_is_well() {
    let Some(moto) = Moto::start() else { return };
    let (kit, faulty) = (Kit::new(), Faulty::start(moto.port));
    let (url, file) = (moto.url(BUCKET), kit.path("credentials"));
    let keys = format!("url = '{}'\ncredentials_file = '{file}'", s3::url(BUCKET, faulty.port));
    let dev = Dev::start(3).configured(&format!("[archive]\n{keys}"));
    succeeded(&dev.sql(&[], "CREATE TABLE kept (value INTEGER)"));
    let list = ["archive", "list", "--json", &url, "--credentials-file", &file].map(str::to_owned).to_vec();
    let mut archived = Archived { dev, list, written: 0 };
    archived.wait("its start");

    for (fault, told) in FAULTS {
        // The archiver waits 20 s for an answer, so one such request is enough.
        let enough = if fault == Fault::Unanswered { 1 } else { SPOILED_MIN };
        let before = faulty.spoiled();
        faulty.set(fault);
        wait_until(&format!("requests that meet {fault:?}"), || {
            archived.write();
            faulty.spoiled() >= before + enough
        });
        if let Some(told) = told {
            let is_told = |said: &str| said.contains("it last failed:") && said.contains(told);
            wait_until(&format!("a status that shows the failure by {fault:?}"), || is_told(&archived.said()));
        }
        if matches!(fault, Fault::Disowned(500, _)) {
            archived.kill_archiver();
        }
        archived.write();
        faulty.set(Fault::None);
        archived.wait(&format!("{fault:?}"));
        wait_until("no failure any more", || !archived.said().contains("failed"));
    }

    let written = archived.written;
    for node in archived.dev.nodes() {
        signal(i32::try_from(node["pid"].as_i64().unwrap()).unwrap(), Signal::KILL);
    }
    drop(archived.dev.end(Signal::KILL));
    let dir = TempDir::new().unwrap();
    let to = dir.path().to_str().unwrap();
    succeeded(&quorate(&["restore", &url, "--at", "latest", "--credentials-file", &file, "--data-dir", to]));
    let found = Dev::start_in(dir, &[]).value(None, "SELECT count(*), max(value), count(DISTINCT value) FROM kept");
    assert_eq!(found, format!("{written},{written},{written}"));
}
