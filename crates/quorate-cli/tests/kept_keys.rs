//! Keys over real processes: by `quorate keys`, by `.keys`, and over plain HTTP while leaders are killed.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests run real processes and stop at the first surprise"
)]

mod support;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Command, Output};

use serde_json::{Value, json};
use support::door::Door;
use support::{Dev, ended_with, failed, json_of, quorate, quorate_reads, succeeded, wait_until};

/// Runs `quorate keys`.
fn keys(dev: &Dev, args: &[&str]) -> Output {
    quorate(&[&["keys", args[0], "--data-dir", dev.path()], &args[1..]].concat())
}

#[test]
fn keys_are_set_shown_and_removed_by_hand() {
    let dev = Dev::start(1);
    assert_eq!(succeeded(&keys(&dev, &["set", "greeting", "hello", "--ttl", "1h"])), "OK\n");
    assert_eq!(succeeded(&keys(&dev, &["get", "greeting", "--raw"])), "hello");
    assert_eq!(json_of(&keys(&dev, &["get", "greeting", "--json"])), json!([{ "value": "hello" }]));
    let left = json_of(&keys(&dev, &["ttl", "greeting", "--json"]))[0]["ttl"].as_f64().unwrap();
    assert!((3_000.0..=3_600.0).contains(&left), "{left}");
    succeeded(&keys(&dev, &["ttl", "greeting", "never"]));
    let shown = json_of(&keys(&dev, &["ttl", "greeting", "--json"]))[0].clone();
    assert_eq!((&shown["type"], &shown["ttl"]), (&json!("string"), &Value::Null));

    assert!(failed(&keys(&dev, &["set", "greeting", "x", "--if-missing"])).contains("the condition does not hold"));
    assert!(failed(&keys(&dev, &["set", "other", "x", "--if-exists"])).contains("'other' was not set"));
    assert!(failed(&keys(&dev, &["set", "greeting", "x", "--if-version", "1"])).contains("was not set"));
    let version = shown["version"].to_string();
    succeeded(&keys(&dev, &["set", "greeting", "good day", "--if-version", &version]));

    assert_eq!(succeeded(&keys(&dev, &["del", "greeting", "nothing"])), "OK, 1 key removed\n");
    for args in
        [&["get", "greeting"][..], &["get", "greeting", "--raw"], &["ttl", "greeting"], &["ttl", "greeting", "5m"]]
    {
        assert!(failed(&keys(&dev, args)).contains("there is no key 'greeting'"), "{args:?}");
    }
    ended_with(2, &keys(&dev, &["set", "a", "b", "--space", "8"]));
    ended_with(2, &keys(&dev, &["ttl", "a", "soon"]));
}

#[test]
fn bytes_that_are_no_text_are_told_apart() {
    let dev = Dev::start(1);
    let name = OsStr::from_bytes(b"\xff\x00".strip_suffix(b"\x00").unwrap());
    let mut set = Command::new(env!("CARGO_BIN_EXE_quorate"));
    set.args(["keys", "set", "--data-dir", dev.path()]).arg(name).arg("X'FF'");
    succeeded(&set.output().unwrap());
    let set = ["keys", "set", "--data-dir", dev.path(), "from stdin", "-"];
    succeeded(&quorate_reads(&set, "line\u{1b}[31m\n"));
    assert_eq!(succeeded(&keys(&dev, &["get", "from stdin", "--raw"])), "line\u{1b}[31m\n");
    let listed = json_of(&keys(&dev, &["ls", "--json"]));
    let names: Vec<&Value> = listed.as_array().unwrap().iter().map(|row| &row["key"]).collect();
    assert_eq!(names, [&json!("from stdin"), &json!({ "hex": "ff" })]);
    let quoted = succeeded(&keys(&dev, &["ls", "--format", "quote"]));
    assert!(quoted.contains("X'FF'") && quoted.contains("'from stdin'"), "{quoted}");
}

#[test]
fn each_type_is_printed_as_what_it_is() {
    let dev = Dev::start(1);
    let door = Door::of(&dev, 0);
    let commands = json!([
        { "on": "hash", "do": "set", "key": "user:7", "fields": [["name", "Ann"], ["city", "Bern"]] },
        { "on": "set", "do": "add", "key": "tags", "members": ["b", "a"] },
        { "on": "sorted set", "do": "add", "key": "scores", "members": [["ann", 2.5], ["bob", 1]] },
        { "on": "list", "do": "push", "key": "queue", "values": ["x", "y"], "end": "right" },
    ]);
    assert_eq!(door.send("POST", "/keys", &[], &commands.to_string()).unwrap().0, 200);
    let get = |key: &str| succeeded(&keys(&dev, &["get", key, "--format", "csv"]));
    assert_eq!(get("user:7"), "field,value\ncity,Bern\nname,Ann\n");
    assert_eq!(get("tags"), "member\na\nb\n");
    assert_eq!(get("scores"), "member,score\nbob,1.0\nann,2.5\n");
    assert_eq!(get("queue"), "index,item\n0,x\n1,y\n");
    assert!(failed(&keys(&dev, &["get", "tags", "--raw"])).contains("WRONGTYPE"));
    let listed = json_of(&keys(&dev, &["ls", "--json", "--type", "sorted set"]));
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["key"]), (1, &json!("scores")));
    let listed = json_of(&dev.sql(&["--format", "json"], ".keys us"));
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["type"]), (1, &json!("hash")));
    assert!(succeeded(&dev.sql(&[], ".keys")).contains("queue"));
}

/// Each request is sent until it is answered, to one node after the other, while leaders are killed. By its key it
/// takes effect once: the sums have no gap, and a value that is changed by its version is never changed by others.
#[test]
fn requests_take_effect_once_while_leaders_are_killed() {
    const REQUESTS: usize = 60;
    const KILL_EVERY: usize = 20;
    let dev = Dev::start(3);
    let doors: Vec<Door> = (0..3).map(|node| Door::of(&dev, node)).collect();
    let mut turn = 0;
    let mut done = |method: &str, path: &str, headers: &[(&str, &str)], body: &str| {
        let mut answer = None;
        wait_until(&format!("an answer to {method} {path}"), || {
            turn += 1;
            let answered = doors[turn % doors.len()].send(method, path, headers, body);
            // 500 is an outcome that is not known, 503 none: the key makes it safe to ask again.
            answer = answered.filter(|(status, ..)| *status < 500);
            answer.is_some()
        });
        answer.unwrap()
    };
    let (_, mut tag, _) = done("PUT", "/keys/chain", &[("idempotency-key", "first")], "0");
    let mut killed = None;
    for number in 1..=REQUESTS {
        if number % KILL_EVERY == KILL_EVERY / 2 {
            let leader = dev.leader();
            dev.kill(leader);
            killed = Some(leader);
        }
        let key = format!("request {number}");
        let (status, _, sum) = done("POST", "/keys/sum?increment=1", &[("idempotency-key", &key)], "");
        assert_eq!((status, sum), (200, number.to_string()));
        let key = format!("change {number}");
        let headers = [("idempotency-key", key.as_str()), ("if-match", tag.as_str())];
        let (status, next, _) = done("PUT", "/keys/chain", &headers, &number.to_string());
        assert!(status == 204 && next != tag, "{number}: {status}");
        tag = next;
        if number % KILL_EVERY == KILL_EVERY - 1
            && let Some(killed) = killed.take()
        {
            succeeded(&dev.restart(killed));
        }
    }
    for door in &doors {
        let mut seen = None;
        wait_until("a read of each node", || {
            seen = door.send("GET", "/keys/chain", &[], "").filter(|(status, ..)| *status == 200);
            seen.is_some()
        });
        assert_eq!(seen.unwrap(), (200, tag.clone(), REQUESTS.to_string()));
    }
}
