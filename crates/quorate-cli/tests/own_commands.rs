//! Our own commands at the port for the clients of Redis, on clusters of real processes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests run real processes and stop at the first surprise"
)]

mod support;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use support::redis::Redis;
use support::{Dev, Ends, succeeded, wait_until};

/// Connects to a node, and waits until the cluster has everything that these commands need.
fn connect(dev: &Dev, id: u64) -> Redis {
    let mut client = Redis::connect(&dev.resp_addr(id));
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
    assert_eq!(first.call(&["Q.SQL", "UPDATE t SET name = name WHERE id = ? RETURNING *", "1"]), "+QUEUED");
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
    let token = number(held.trim_start_matches("*[").split(',').next().unwrap());
    let late = second.ask(&format!("MULTI\nQ.ATOMIC\nQ.HOLDS jobs {token}\nSET fenced 1\nEXEC\nEXISTS fenced"));
    assert!(late.contains("-EXECABORT Transaction discarded because of: the lock is not held"), "{late}");
    assert!(late.ends_with(" :0"), "{late}");
    // A client that has gone away does not wait any more.
    first.send("Q.LOCK jobs 60000 HOLDER eve WAIT 60000").unwrap();
    wait_until("the wait", || second.ask("Q.LOCKINFO jobs").contains("$\"eve\""));
    drop(first);
    wait_until("the end of the wait", || !second.ask("Q.LOCKINFO jobs").contains("$\"eve\""));
    let holders = "SELECT group_concat(CAST(holder AS TEXT)) FROM quorate_locks WHERE name = CAST('jobs' AS BLOB)";
    assert_eq!(dev.value(None, holders), "bob");
}

/// Runs a transaction of SQL and keys that has a name. Fails if the connection or the node does.
fn transact(client: &mut Redis, item: usize) -> std::io::Result<()> {
    let (item, name) = (item.to_string(), format!("item-{item}"));
    let insert = ["Q.SQL", "INSERT INTO t (item) VALUES (?)", &item];
    for words in [&["MULTI"][..], &insert, &["INCR", "n"], &["RPUSH", "items", &item]] {
        client.try_call(words)?;
    }
    let reply = client.try_call(&["Q.ID", &name, "EXEC"])?;
    if reply.is_error() { Err(std::io::Error::other(reply.to_string())) } else { Ok(()) }
}

#[test]
fn a_named_transaction_is_done_once_and_whole_when_leaders_are_killed() {
    const DONE_BETWEEN: usize = 30;
    let dev = Dev::start(3);
    let addrs: Vec<String> = dev.ids().iter().map(|id| dev.resp_addr(*id)).collect();
    connect(&dev, 1).call(&["Q.SQL", "CREATE TABLE t (item INTEGER)"]);
    let (done, has_ended) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _ends = Ends(&has_ended);
        scope.spawn(|| {
            let mut addrs = addrs.iter().cycle();
            let mut client = None;
            for item in 0.. {
                // Until it is answered, at whichever node.
                while transact(client.get_or_insert_with(|| next_node(&mut addrs)), item).is_err() {
                    client = None;
                }
                done.fetch_add(1, Ordering::Relaxed);
                if has_ended.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        for _ in 0..2 {
            let leader = dev.leader();
            let before = done.load(Ordering::Relaxed);
            wait_until("transactions", || done.load(Ordering::Relaxed) >= before + DONE_BETWEEN);
            dev.kill(leader);
            let before = done.load(Ordering::Relaxed);
            wait_until("transactions without it", || done.load(Ordering::Relaxed) >= before + DONE_BETWEEN);
            succeeded(&dev.restart(leader));
        }
        has_ended.store(true, Ordering::Relaxed);
    });
    let done = done.into_inner();
    let mut client = connect(&dev, 1);
    assert_eq!(client.ask("Q.LEVEL linearizable\nGET n\nLLEN items"), format!("+OK $\"{done}\" :{done}"));
    let counted = client.call(&["Q.SQL", "SELECT count(*) AS n, count(DISTINCT item) AS d FROM t"]);
    assert_eq!(counted, format!("*[*[$\"n\", :{done}, $\"d\", :{done}]]"));
}

/// Connects to the next node that is there.
fn next_node<'a>(addrs: &mut impl Iterator<Item = &'a String>) -> Redis {
    addrs.find_map(|addr| Redis::try_connect(addr).ok()).unwrap()
}
