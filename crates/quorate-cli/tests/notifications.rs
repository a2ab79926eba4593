//! Notifications of the key space at the port for the clients of Redis, on clusters of real processes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::panic,
    clippy::print_stderr,
    reason = "tests run real processes and stop at the first surprise"
)]

mod support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use quorate_resp::differential::Value;
use support::door::Door;
use support::redis::Redis;
use support::{Dev, Ends, succeeded, wait_until};

fn connect(dev: &Dev, id: u64) -> Redis {
    let addr = dev.nodes()[usize::try_from(id).unwrap() - 1]["resp_addr"].as_str().unwrap().to_owned();
    let mut client = Redis::connect(&addr);
    wait_until("everything that keys need", || client.ask("Q.LOCK ready 100").starts_with("*["));
    client
}

/// Returns a client that listens to what matches a pattern, at a node that publishes what these letters stand for.
fn listen(dev: &Dev, id: u64, letters: &str, pattern: &str) -> Redis {
    let mut client = connect(dev, id);
    assert_eq!(client.call(&["CONFIG", "SET", "notify-keyspace-events", letters]), "+OK");
    assert!(client.ask(&format!("PSUBSCRIBE {pattern}")).contains(pattern));
    client
}

/// Returns the channel of the next message, and what it says.
fn heard(client: &mut Redis) -> (String, String) {
    let Value::Parts(_, parts) = client.reply().unwrap() else { panic!("no message") };
    let text = |part: &Value| match part {
        Value::Bulk(_, bytes) => String::from_utf8(bytes.clone()).unwrap(),
        other => panic!("{other}"),
    };
    (text(&parts[2]), text(&parts[3]))
}

/// Asserts that the next events are these: `event:key`, in another space `event:key@space`. Of each comes the message
/// by its key, and then that by its event.
fn hears(client: &mut Redis, events: &str) {
    for expected in events.split(' ') {
        let (event, key) = expected.split_once(':').unwrap();
        let (key, space) = key.split_once('@').unwrap_or((key, "0"));
        let by_key = (format!("__keyspace@{space}__:{key}"), event.to_owned());
        let by_event = (format!("__keyevent@{space}__:{event}"), key.to_owned());
        assert_eq!([heard(client), heard(client)], [by_key, by_event], "{events}");
    }
}

#[test]
fn changes_by_every_door_are_published_at_every_node() {
    let dev = Dev::start(3);
    let mut listening: Vec<Redis> = dev.ids().iter().map(|id| listen(&dev, *id, "KEAn", "__key*")).collect();
    let mut client = connect(&dev, 2);
    let atomic = "MULTI\nQ.ATOMIC\nSET no 1\nINCR no\nLPUSH no x\nEXEC";
    let door = Door::of(&dev, 2);
    let put = || assert_eq!(door.send("PUT", "/keys/http", &[], "1").unwrap().0 / 100, 2);
    assert_eq!(client.ask("SET a 1 EX 100\nGET a\nRPUSH l x y\nLMOVE l m LEFT RIGHT\nRPOP l"), {
        "+OK $\"1\" :2 $\"x\" $\"y\""
    });
    assert!(client.ask("MULTI\nINCR a\nLPUSH a x\nRENAME a b\nEXEC").contains("-WRONGTYPE"));
    // A transaction that fails as a whole has changed nothing.
    assert!(client.ask(atomic).contains("EXECABORT"));
    assert_ne!(client.ask("Q.CAS c 0 x"), "$-1");
    put();
    assert_eq!(client.ask("MULTI"), "+OK");
    for statement in ["CREATE TABLE t (x)", "INSERT INTO t VALUES (1)"] {
        assert_eq!(client.call(&["Q.SQL", statement]), "+QUEUED");
    }
    assert_eq!(
        client.ask("HSET h f v\nFLUSHDB\nSELECT 3\nSADD s a\nMOVE s 0\nEXEC").split(' ').next(),
        Some("+QUEUED")
    );
    assert_eq!(client.ask("SELECT 0\nSET e 1 PX 20\nHSET h f v\nHPEXPIRE h 20 FIELDS 1 f"), "+OK +OK :1 *[:1]");
    for client in &mut listening {
        hears(client, "new:a set:a expire:a new:l rpush:l new:m rpush:m lpop:l rpop:l del:l");
        hears(client, "incrby:a new:b rename_from:a rename_to:b new:c set:c new:http set:http");
        hears(client, "new:h hset:h new:s@3 sadd:s@3 new:s move_from:s@3 move_to:s");
        hears(client, "new:e set:e expire:e new:h hset:h hexpire:h");
        // Nobody has written anything since: the cluster has let time pass.
        hears(client, "expired:e hexpired:h del:h");
    }
}

#[test]
fn each_node_has_its_own_setting() {
    let dev = Dev::start(3);
    let [mut first, mut second] = [1, 2].map(|id| connect(&dev, id));
    let [mut one, mut two] = [1, 2].map(|id| listen(&dev, id, "", "__key*"));
    assert_eq!(first.ask("CONFIG GET notify-keyspace-events"), "*[$\"notify-keyspace-events\", $\"\"]");
    assert_eq!(first.ask("SET a 1"), "+OK");
    assert_eq!(first.ask("CONFIG SET notify-keyspace-events KElg$\nSET b 1\nHSET h f v\nDEL b"), "+OK +OK :1 :1");
    hears(&mut one, "set:b del:b");
    assert_eq!(first.ask("CONFIG GET notify-keyspace-events"), "*[$\"notify-keyspace-events\", $\"g$lKE\"]");
    assert_eq!(second.ask("CONFIG GET notify-keyspace-events"), "*[$\"notify-keyspace-events\", $\"\"]");
    let wrong = first.ask("CONFIG SET notify-keyspace-events KEo");
    assert!(wrong.contains("Invalid event class character. Use 'Ag$lshzxeKEtmdn'"), "{wrong}");
    assert_eq!(first.ask("CONFIG SET notify-keyspace-events Kg\nDEL h"), "+OK :1");
    assert_eq!(heard(&mut one), ("__keyspace@0__:h".to_owned(), "del".to_owned()));
    assert_eq!(first.call(&["CONFIG", "SET", "notify-keyspace-events", ""]), "+OK");
    // What is not published does not come later; nothing was published at the other node.
    assert_eq!(first.ask("SET a 2"), "+OK");
    // A setting holds for what its node applies afterwards, so the second has to apply this before.
    assert_eq!(second.ask("Q.LEVEL linearizable\nGET a"), "+OK $\"2\"");
    for (client, asking) in [(&mut one, &mut first), (&mut two, &mut second)] {
        assert!(asking.ask("CONFIG SET notify-keyspace-events KE$\nAPPEND a 3").starts_with("+OK :"));
        hears(client, "append:a");
    }
}

/// Sets different keys, one after the other, until it is to end. Returns those that were acknowledged.
fn set(mut client: Redis, number: usize, done: &AtomicUsize, has_ended: &AtomicBool) -> Vec<String> {
    let mut acknowledged = Vec::new();
    for item in 0.. {
        if has_ended.load(Ordering::Relaxed) {
            break;
        }
        let key = format!("{number}-{item}");
        if client.ask(&format!("SET {key} x")) == "+OK" {
            done.fetch_add(1, Ordering::Relaxed);
            acknowledged.push(key);
        }
    }
    acknowledged
}

#[test]
fn a_subscriber_hears_each_change_once_and_in_order_while_a_leader_is_killed() {
    const CLIENTS: usize = 4;
    const WRITES_BETWEEN: usize = 200;
    let dev = Dev::start(3);
    let leader = dev.leader();
    let others: Vec<u64> = dev.ids().into_iter().filter(|id| *id != leader).collect();
    let (done, has_ended) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (acknowledged, told) = thread::scope(|scope| {
        let _ends = Ends(&has_ended);
        let listening: Vec<_> = others
            .iter()
            .map(|id| {
                let mut client = listen(&dev, *id, "E$", "__keyevent@0__:set");
                scope.spawn(move || -> Vec<String> {
                    let keys = std::iter::from_fn(|| Some(heard(&mut client).1));
                    keys.take_while(|key| key != "end").collect()
                })
            })
            .collect();
        let writing: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let (client, done, has_ended) = (connect(&dev, others[number % others.len()]), &done, &has_ended);
                scope.spawn(move || set(client, number, done, has_ended))
            })
            .collect();
        let more = |what| {
            let before = done.load(Ordering::Relaxed);
            wait_until(what, || done.load(Ordering::Relaxed) >= before + WRITES_BETWEEN);
        };
        more("writes");
        dev.kill(leader);
        more("writes without the leader");
        succeeded(&dev.restart(leader));
        more("writes with it again");
        has_ended.store(true, Ordering::Relaxed);
        let acknowledged: Vec<Vec<String>> = writing.into_iter().map(|client| client.join().unwrap()).collect();
        assert_eq!(connect(&dev, others[0]).ask("SET end 1"), "+OK");
        (acknowledged, listening.into_iter().map(|client| client.join().unwrap()).collect::<Vec<_>>())
    });
    assert_eq!(told[0], told[1], "nodes publish in the order of entries");
    let places: BTreeMap<&str, usize> = told[0].iter().enumerate().map(|(place, key)| (key.as_str(), place)).collect();
    assert_eq!(places.len(), told[0].len(), "a subscriber hears each change once");
    for keys in &acknowledged {
        let found: Vec<usize> = keys.iter().map(|key| places[key.as_str()]).collect();
        assert!(found.is_sorted(), "{found:?}");
    }
    let mut observer = connect(&dev, others[0]);
    for key in &told[0] {
        assert_eq!(observer.ask(&format!("EXISTS {key}")), ":1", "{key}");
    }
}

#[test]
fn events_come_while_keys_change_all_the_time() {
    const EVENTS: usize = 20;
    let dev = Dev::start(1);
    let mut listening = listen(&dev, 1, "E$", "c");
    let mut client = connect(&dev, 1);
    let (done, has_ended) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let _ends = Ends(&has_ended);
        for number in 0..4 {
            let (client, done, has_ended) = (connect(&dev, 1), &done, &has_ended);
            scope.spawn(move || set(client, number, done, has_ended));
        }
        for number in 0..EVENTS {
            assert_eq!(client.call(&["PUBLISH", "c", &number.to_string()]), ":1");
            assert_eq!(heard(&mut listening), ("c".to_owned(), number.to_string()));
        }
    });
}
