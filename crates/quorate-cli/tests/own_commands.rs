//! Our own commands at the port for the clients of Redis, on clusters of real processes.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests run real processes and stop at the first surprise")]

mod support;

use support::redis::Redis;
use support::{Dev, succeeded, wait_until};

/// Connects to a node, and waits until the cluster has everything that these commands need.
fn connect(dev: &Dev, id: u64) -> Redis {
    let addr = dev.nodes()[usize::try_from(id).unwrap() - 1]["resp_addr"].as_str().unwrap().to_owned();
    let mut client = Redis::connect(&addr);
    wait_until("the format level", || client.ask("Q.LOCK ready 100").starts_with("*["));
    client
}

/// Returns the number of a reply.
fn number(reply: &str) -> u64 {
    reply.trim_start_matches(':').parse().unwrap()
}

#[test]
fn sql_and_keys_are_one_transaction() {
    let dev = Dev::start(3);
    let [mut first, mut second] = [1, 2].map(|id| connect(&dev, id));
    assert_eq!(first.call(&["Q.SQL", "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT UNIQUE)"]), {
        "*[$\"changes\", :0, $\"last_insert_rowid\", :0]"
    });
    let insert = ["Q.SQL", "INSERT INTO t (name) VALUES (?)", "ann"];
    assert_eq!(first.ask("MULTI"), "+OK");
    assert_eq!(first.call(&insert), "+QUEUED");
    assert_eq!(first.call(&["Q.SQL", "SELECT id, name FROM t WHERE id = ?", "1"]), "+QUEUED");
    assert_eq!(first.ask("INCR logins\nEXEC"), {
        "+QUEUED *[*[$\"changes\", :1, $\"last_insert_rowid\", :1], *[*[$\"id\", :1, $\"name\", $\"ann\"]], :1]"
    });
    // Each command of a transaction succeeds or fails by itself, but for one that is to be done as a whole.
    assert_eq!(first.ask("MULTI\nINCR logins"), "+OK +QUEUED");
    assert_eq!(first.call(&insert), "+QUEUED");
    let unique = "UNIQUE constraint failed: t.name";
    assert!(first.ask("EXEC").starts_with(&format!("*[:2, -ERR {unique}")));
    assert_eq!(first.ask("MULTI\nQ.ATOMIC\nINCR logins"), "+OK +QUEUED +QUEUED");
    assert_eq!(first.call(&insert), "+QUEUED");
    let reply = first.ask("EXEC");
    assert!(reply.starts_with(&format!("-EXECABORT Transaction discarded because of: {unique}")), "{reply}");
    assert_eq!(first.ask("MULTI\nQ.ATOMIC\nINCR logins\nEXEC"), "+OK +QUEUED +QUEUED *[+OK, :3]");
    // A statement that can't be read has the whole transaction fail.
    assert_eq!(first.ask("MULTI\nINCR logins"), "+OK +QUEUED");
    assert_eq!(first.call(&["Q.SQL", "INSERT INTO"]), "+QUEUED");
    assert!(first.ask("EXEC").starts_with("-ERR incomplete input"));
    assert_eq!(second.ask("Q.LEVEL linearizable\nGET logins"), "+OK $\"3\"");
    assert_eq!(second.call(&["Q.SQL", "SELECT count(*) AS n, x'6162' AS b, 1.5 AS r, NULL AS z FROM t"]), {
        "*[*[$\"n\", :1, $\"b\", $\"ab\", $\"r\", $\"1.5\", $\"z\", $-1]]"
    });
    assert_eq!(second.call(&["Q.SQL", "INSERT INTO t (name) VALUES (?) RETURNING id", "bob"]), "*[*[$\"id\", :2]]");
    let as_key = "SELECT CAST(value AS TEXT) AS v FROM quorate_keys WHERE key = CAST(? AS BLOB)";
    assert_eq!(second.call(&["Q.SQL", as_key, "logins"]), "*[*[$\"v\", $\"3\"]]");
    assert!(second.call(&["Q.SQL", "SELECT * FROM none"]).starts_with("-ERR no such table: none"));
}

#[test]
fn versions_and_names_of_requests_hold_at_any_node() {
    let dev = Dev::start(3);
    let [mut first, mut second] = [1, 2].map(|id| connect(&dev, id));
    let version = number(&first.ask("Q.CAS a 0 x"));
    assert_eq!(second.ask("Q.LEVEL linearizable\nQ.GETV a"), format!("+OK *[:{version}, $\"x\"]"));
    assert!(number(&second.ask(&format!("Q.CAS a {version} y"))) > version);
    assert_eq!(first.ask(&format!("Q.CAS a {version} z\nQ.CAD a {version}\nGET a")), "$-1 :0 $\"y\"");
    let request = "Q.ID one RPUSH list x";
    assert_eq!((first.ask(request), second.ask(request)), (":1".to_owned(), ":1".to_owned()));
    assert_eq!(second.ask("LLEN list"), ":1");
    assert!(second.ask("Q.ID one RPUSH list y").starts_with("-ERR"));
    for client in [&mut first, &mut second] {
        assert_eq!(client.ask("MULTI\nINCR n\nINCR n\nQ.ID two EXEC"), "+OK +QUEUED +QUEUED *[:1, :2]");
    }
}

#[test]
fn a_lock_passes_to_the_client_that_waits() {
    let dev = Dev::start(3);
    let [mut first, mut second] = [1, 2].map(|id| connect(&dev, id));
    let held = first.ask("Q.LOCK jobs 60000 HOLDER ann NOTE first");
    assert!(held.ends_with(", $\"ann\"]"), "{held}");
    assert_eq!(second.ask("Q.LOCK jobs 60000 HOLDER bob\nQ.LOCK jobs 60000 HOLDER bob WAIT 50"), "*-1 *-1");
    second.send("Q.LOCK jobs 60000 HOLDER bob WAIT 60000").unwrap();
    wait_until("the wait", || first.ask("Q.LOCKINFO jobs").contains("$\"bob\""));
    assert_eq!(first.ask("Q.UNLOCK jobs ann"), ":1");
    assert!(second.reply().unwrap().to_string().ends_with(", $\"bob\"]"));
    // A client that has gone away does not wait any more.
    first.send("Q.LOCK jobs 60000 HOLDER eve WAIT 60000").unwrap();
    wait_until("the wait", || second.ask("Q.LOCKINFO jobs").contains("$\"eve\""));
    drop(first);
    wait_until("the end of the wait", || !second.ask("Q.LOCKINFO jobs").contains("$\"eve\""));
    let holders = "SELECT group_concat(CAST(holder AS TEXT)) FROM quorate_locks WHERE name = CAST('jobs' AS BLOB)";
    assert_eq!(dev.value(None, holders), "bob");
    succeeded(&dev.sql(&[], "SELECT 1"));
}
