//! `quorate members` on real processes: a node is added, another removed, leadership moves, all during writes.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests run real processes and stop at the first surprise"
)]

mod support;

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use support::servers::free_ports;
use support::{Dev, Ends, failed, is_alive, quorate, succeeded, until_said, wait_until};

/// A node in addition to those of `quorate dev`, with a configuration that lists them and itself.
struct Serve {
    config: PathBuf,
    log: PathBuf,
    addr: String,
    process: Child,
}

impl Serve {
    fn start(dev: &Dev, name: &str) -> Self {
        let dir = dev.dir.path();
        let addr = format!("127.0.0.1:{}", free_ports(1)[0]);
        let listed = std::fs::read_to_string(dir.join("node-1.toml")).unwrap();
        let members = listed.split_once("[members]\n").unwrap().1;
        let own = format!("data_dir = \"node-{name}\"\nname = \"{name}\"\nsecret_file = \"secret\"\n");
        let (config, log) = (dir.join(format!("node-{name}.toml")), dir.join(format!("node-{name}.log")));
        std::fs::write(&config, format!("{own}[members]\n{members}{name} = \"{addr}\"\n")).unwrap();
        let process = Self::spawn(&config, &log);
        Self { config, log, addr, process }
    }

    fn spawn(config: &PathBuf, log: &PathBuf) -> Child {
        let said = std::fs::File::options().create(true).append(true).open(log).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
        command.args(["serve", "--until-stdin-closes", "--config"]).arg(config);
        command.stdin(Stdio::piped()).stdout(said.try_clone().unwrap()).stderr(said).spawn().unwrap()
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until the process has ended, and returns whether it succeeded.
    fn ended(&mut self) -> bool {
        let mut ended = None;
        wait_until("the end of the node", || {
            ended = self.process.try_wait().unwrap();
            ended.is_some()
        });
        ended.unwrap().success()
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.said());
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn members(dev: &Dev, command: &[&str]) -> std::process::Output {
    quorate(&[&["members"], command, &["--data-dir", dev.path()]].concat())
}

/// Returns the names of the voters, and of the leader.
fn listed(dev: &Dev) -> (Vec<String>, String) {
    let mut list = Value::Null;
    // It fails while there is no leader.
    wait_until("a leader", || {
        let output = members(dev, &["list", "--json"]);
        list = serde_json::from_slice(&output.stdout).unwrap_or_default();
        output.status.success()
    });
    let voters = list["members"].as_array().unwrap().iter().filter(|member| member["voter"] == true);
    let names = voters.map(|member| member["name"].as_str().unwrap().to_owned()).collect();
    (names, list["leader"].as_str().unwrap_or_default().to_owned())
}

/// Hands leadership over, again if there was another election meanwhile. Returns what the command has printed.
fn transfer(dev: &Dev, name: &str) -> String {
    let mut said = String::new();
    wait_until("the new leader", || {
        let output = members(dev, &["transfer", name]);
        if output.status.success() {
            said = succeeded(&output);
        }
        // It may take over after the command has given up; the next one says then who leads.
        !said.is_empty() && listed(dev).1 == name
    });
    said
}

/// Writes rows one after the other until `stop` is set. Returns the number of acknowledged rows.
fn write(dev: &Dev, stop: &AtomicBool) -> u64 {
    let mut acknowledged = 0;
    while !stop.load(Ordering::Relaxed) {
        succeeded(&dev.sql(&[], "INSERT INTO kept VALUES (1)"));
        acknowledged += 1;
    }
    acknowledged
}

#[test]
fn nodes_come_and_go_under_writes_and_none_is_lost() {
    let dev = Dev::start(3);
    succeeded(&dev.sql(&[], "CREATE TABLE kept (value INTEGER)"));
    let stop = AtomicBool::new(false);
    let mut serve = Serve::start(&dev, "d");
    let acknowledged = std::thread::scope(|scope| {
        let _ends = Ends(&stop);
        let writing = scope.spawn(|| write(&dev, &stop));
        let waits = "'d' is not in the list of members";
        wait_until("the node to report that it waits", || serve.said().contains(waits));
        assert_eq!(listed(&dev).0, ["1", "2", "3"]);

        let added = succeeded(&members(&dev, &["add", "d", &serve.addr]));
        assert!(added.ends_with("'d' is a voter\n"), "{added}");
        assert_eq!(listed(&dev).0, ["1", "2", "3", "d"]);

        let transferred = transfer(&dev, "d");
        assert!(transferred.contains("'d' at") && transferred.contains("leads"), "{transferred}");

        // The leader hands leadership over, and a member is removed that every configuration lists.
        transfer(&dev, "2");
        let removed = succeeded(&members(&dev, &["remove", "2"]));
        assert!(removed.contains("'2' is removed"), "{removed}");
        let (voters, leader) = listed(&dev);
        assert_eq!(voters, ["1", "3", "d"]);
        assert_ne!(leader, "2");
        stop.store(true, Ordering::Relaxed);
        writing.join().unwrap()
    });

    // The removed node logs that once, ends, and is not admitted again.
    wait_until("the end of the removed node", || !is_alive(dev.pid(2)));
    let said = dev.node_said(2);
    assert_eq!(said.matches("ERROR").count(), 1, "{said}");
    assert!(said.contains("the node '2'") && said.contains("was removed from the cluster"), "{said}");
    let again = failed(&dev.restart(2));
    assert!(again.contains("did not start"), "{again}");
    assert!(dev.node_said(2).contains("a removed id never comes back"));
    assert_eq!(listed(&dev).0, ["1", "3", "d"]);

    let count = dev.value(None, "SELECT count(*) FROM kept");
    assert_eq!(count, acknowledged.to_string());
    for id in [1, 3] {
        wait_until("all rows", || dev.value(Some(id), "SELECT count(*) FROM kept") == count);
    }

    // Node d is removed again, and still knows that after a restart.
    succeeded(&members(&dev, &["remove", "d"]));
    assert!(!serve.ended());
    serve.process = Serve::spawn(&serve.config, &serve.log);
    assert!(!serve.ended());
    assert!(serve.said().contains("the node can't start: the node 'd'"), "{}", serve.said());
}

#[test]
fn impossible_changes_are_refused_with_a_reason() {
    let dev = Dev::start(1);
    for (command, expected) in [
        (["remove", "x"].as_slice(), "there is no member 'x': the members are 1"),
        (&["remove", "1"], "the last voter can't be removed"),
        (&["transfer"], "no other voter"),
        (&["add", "x", "127.0.0.1:1"], "no node answers at 127.0.0.1:1"),
        (&["replace", "1", "x", &dev.addr(1)], "is called '1', not 'x'"),
    ] {
        let error = failed(&members(&dev, command));
        assert!(error.contains(expected), "{command:?}: {error}");
    }
    let list = succeeded(&until_said("1 leads", || members(&dev, &["list"])));
    assert!(list.contains("leader"), "{list}");
}

/// The other nodes, including the leader, have been killed: the remaining node must not report that leader any longer.
#[test]
fn a_lost_majority_is_reported() {
    let dev = Dev::start(3);
    let leader = dev.leader();
    let left = dev.ids().into_iter().find(|id| *id != leader).unwrap();
    for id in dev.ids().into_iter().filter(|id| *id != left) {
        dev.kill(id);
        wait_until("its end", || !is_alive(dev.pid(id)));
    }

    let why = "no leader: 1 of 3 voters can be reached; a majority is needed";
    let list = until_said(why, || members(&dev, &["list"]));
    failed(&list);
    let table = String::from_utf8(list.stdout).unwrap();
    for id in dev.ids() {
        let row = table.lines().find(|line| line.contains(&dev.addr(id))).unwrap_or_else(|| panic!("{table}"));
        assert!(row.ends_with(if id == left { "yes" } else { "no" }) || row.contains("no, silent for"), "{row}");
    }
    let json = until_said("\"voters_reachable\": 1", || members(&dev, &["list", "--json"]));
    let report: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(
        (json.status.code(), report["voters"].as_u64(), report["voters_reachable"].as_u64()),
        (Some(1), Some(3), Some(1))
    );

    let doctor = until_said("1 of 3 voters answer", || quorate(&["doctor", "--data-dir", dev.path()]));
    let text = String::from_utf8(doctor.stdout).unwrap();
    assert_eq!(doctor.status.code(), Some(1));
    for expected in ["1 of 3 voters answer", "no leader: 1 of 3 voters can be reached"] {
        assert!(text.split_whitespace().collect::<Vec<_>>().join(" ").contains(expected), "{text}");
    }
    let why = "no leader: 1 of 3 voters can be reached";
    succeeded(&until_said(why, || quorate(&["status", "--data-dir", dev.path()])));
}
