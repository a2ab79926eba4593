//! Locks over real processes: over HTTP while leaders are killed, by `quorate locks`, and by `.locks`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests run real processes and stop at the first surprise"
)]

mod support;

use std::process::Output;
use std::thread;

use serde_json::{Value, json};
use support::door::Door;
use support::{Dev, failed, json_of, quorate, succeeded, wait_until};

/// The HTTP ports of a cluster, and the calls of a test.
struct Locks {
    dev: Dev,
    doors: Vec<Door>,
}

impl Locks {
    fn start(nodes: u64) -> Self {
        let dev = Dev::start(nodes);
        let doors = (0..dev.nodes().len()).map(|node| Door::of(&dev, node)).collect();
        Self { dev, doors }
    }

    /// Sends a request to one node after the other until one answers it. Requests on locks may be sent again, if they
    /// name their holder.
    fn send(&self, method: &str, path: &str) -> (u16, Value) {
        let mut doors = self.doors.iter().cycle();
        let mut answer = None;
        wait_until(&format!("an answer to {method} {path}"), || {
            let answered = doors.next().and_then(|door| door.send(method, path, &[], ""));
            answer = answered.filter(|(status, ..)| *status < 500);
            answer.is_some()
        });
        let (status, _, body) = answer.unwrap();
        (status, serde_json::from_str(&body).unwrap_or(Value::Null))
    }

    /// Acquires a lock; returns its token.
    fn acquire(&self, path: &str) -> u64 {
        let (status, lease) = self.send("POST", path);
        assert_eq!(status, 200, "{path}: {lease}");
        token(&lease)
    }

    /// Returns who holds a lock, with the tokens, and how many wait.
    fn held(&self, path: &str) -> (Vec<(String, u64)>, usize) {
        let (status, lock) = self.send("GET", path);
        assert_eq!(status, 200, "{path}: {lock}");
        let holders = lock["holders"].as_array().unwrap();
        let holders = holders.iter().map(|claim| (claim["holder"].as_str().unwrap().to_owned(), token(claim)));
        (holders.collect(), lock["waiters"].as_array().unwrap().len())
    }

    /// Kills the process of the leader, and waits until another one leads.
    fn kill_leader(&self) -> u64 {
        let leader = self.dev.leader();
        self.dev.kill(leader);
        wait_until("another leader", || self.dev.led_by().is_some_and(|led_by| led_by != leader));
        leader
    }
}

fn token(lease: &Value) -> u64 {
    lease["token"].as_str().unwrap().parse().unwrap()
}

#[test]
fn an_acknowledged_lock_is_held_after_its_leader_was_killed() {
    let locks = Locks::start(3);
    let mut last = 0;
    for (before, holder) in [("", "a"), ("a", "b"), ("b", "c")] {
        if !before.is_empty() {
            assert_eq!(locks.send("DELETE", &format!("/locks/job?holder={before}")).0, 204);
        }
        let token = locks.acquire(&format!("/locks/job?holder={holder}&ttl=1h"));
        assert!(token > last, "{token} after {last}");
        last = token;
        let killed = locks.kill_leader();
        assert_eq!(locks.held("/locks/job"), (vec![(holder.to_owned(), token)], 0));
        assert_eq!(locks.send("POST", "/locks/job?holder=other").0, 409);
        // Sent again, as after an answer that was lost, and renewed.
        assert_eq!(locks.acquire(&format!("/locks/job?holder={holder}&ttl=1h")), token);
        assert_eq!(locks.send("PUT", &format!("/locks/job?holder={holder}&token={token}&ttl=1h")).0, 200);
        succeeded(&locks.dev.restart(killed));
    }
}

/// The waiter asks another node if its own was the one that is killed, and has kept its place.
#[test]
fn an_expired_lease_passes_to_the_waiter_after_its_leader_was_killed() {
    let locks = Locks::start(3);
    let first = locks.acquire("/locks/job?holder=gone&ttl=1h");
    let second = thread::scope(|scope| {
        let waiter = scope.spawn(|| locks.acquire("/locks/job?holder=next&wait=50s&ttl=1h"));
        wait_until("the wait", || locks.held("/locks/job").1 == 1);
        // Only now is the lease so short that it ends during the test.
        assert_eq!(locks.send("PUT", &format!("/locks/job?holder=gone&token={first}&ttl=10s")).0, 200);
        locks.kill_leader();
        waiter.join().unwrap()
    });
    assert!(second > first);
    assert_eq!(locks.held("/locks/job"), (vec![("next".to_owned(), second)], 0));
    assert_eq!(locks.send("PUT", &format!("/locks/job?holder=gone&token={first}")).0, 412);
}

/// Runs `quorate locks`.
fn by_hand(dev: &Dev, args: &[&str]) -> Output {
    quorate(&[&["locks", args[0], "--data-dir", dev.path()], &args[1..]].concat())
}

#[test]
fn locks_are_acquired_shown_and_ended_by_hand() {
    let dev = Dev::start(1);
    let acquired = json_of(&by_hand(&dev, &["acquire", "deploy", "--holder", "ann", "--note", "release 7", "--json"]));
    let token = &acquired[0]["token"];
    assert_eq!(acquired[0]["holder"], "ann");
    assert!(acquired[0]["left"].as_f64().unwrap() > 500.0, "{acquired}");
    assert!(failed(&by_hand(&dev, &["acquire", "deploy", "--wait", "100ms"])).contains("others hold 'deploy'"));
    by_hand(&dev, &["acquire", "pool", "--permits", "2"]);
    let again = json_of(&by_hand(&dev, &["acquire", "deploy", "--holder", "ann", "--note", "release 7", "--json"]));
    assert_eq!(&again[0]["token"], token);

    let held = json_of(&by_hand(&dev, &["ls", "de", "--json"]));
    let lock = held[0].as_object().unwrap();
    let shown = ["name", "permits", "state", "holder", "token", "note"].map(|name| &lock[name]);
    let expected = [&json!("deploy"), &json!(1), &json!("held"), &json!("ann"), token, &json!("release 7")];
    assert_eq!((held.as_array().unwrap().len(), shown), (1, expected));
    assert!(succeeded(&dev.sql(&[], ".locks")).contains("pool"));
    assert!(!succeeded(&dev.sql(&[], ".locks de")).contains("pool"));

    assert!(failed(&by_hand(&dev, &["release", "deploy", "bob"])).contains("'bob' neither holds 'deploy'"));
    assert_eq!(succeeded(&by_hand(&dev, &["release", "deploy", "ann"])), "OK\n");
    assert_eq!(succeeded(&by_hand(&dev, &["force", "pool", "--token", "1"])), "OK, 0 leases ended\n");
    assert_eq!(succeeded(&by_hand(&dev, &["force", "pool"])), "OK, 1 lease ended\n");
    assert_eq!(json_of(&by_hand(&dev, &["ls", "--json"])), json!([]));
}
