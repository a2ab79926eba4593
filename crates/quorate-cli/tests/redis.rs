//! Real clients of Redis, unmodified, and a plain one, on clusters of real processes. `.ci/clients` installs them; one
//! that is not installed is skipped, with a message; in CI that is an error.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests run real processes and stop at the first surprise"
)]

mod support;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use quorate_server::resp::CONNECTIONS_MAX;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use support::clients::{Running, node, or_skipped, program, python};
use support::redis::Redis;
use support::servers::{Servers, free_ports};
use support::{Dev, Ends, quorate, quorate_reads, succeeded, wait_until};

const PASSWORD: &str = "correct horse";

#[test]
fn redis_and_sql_see_the_same_keys_at_every_node() {
    let dev = Dev::start(3);
    let mut clients: Vec<Redis> = dev.ids().iter().map(|id| Redis::connect_ready(&dev.resp_addr(*id))).collect();
    for (client, id) in clients.iter_mut().zip(dev.ids()) {
        let space = id;
        assert_eq!(client.ask(&format!("SELECT {space}\nSET a 1\nINCR a\nGET a\nHSET h f v\nHGETALL h\nDBSIZE")), {
            "+OK +OK :2 $\"2\" :1 *[$\"f\", $\"v\"] :2"
        });
        let value = format!("SELECT CAST(value AS TEXT) FROM quorate_keys WHERE space = {space} AND value IS NOT NULL");
        assert_eq!(dev.value(Some(id), &value), "2");
    }
    let client = &mut clients[0];
    assert_eq!(client.ask("MULTI\nSET b x\nINCR b\nGET b\nEXEC"), {
        "+OK +QUEUED +QUEUED +QUEUED *[+OK, -ERR value is not an integer or out of range, $\"x\"]"
    });
    assert_eq!(client.ask("SET b y\nLPUSH b z\nGET b"), {
        "+OK -WRONGTYPE Operation against a key holding the wrong kind of value $\"y\""
    });
    assert!(client.ask("SELECT 8").contains("no cache is configured"));
    assert_eq!(client.ask("CONFIG GET appendfsync"), "*[$\"appendfsync\", $\"always\"]");
    // The port renews what it knows of the members.
    wait_until("the members among the facts", || client.ask("WAIT 1 0") == ":1");
    wait_until("the leader among the facts", || {
        let leader = dev.leader();
        client.ask("INFO quorate").contains(&format!("leader:{leader}\\r\\n"))
    });
    assert!(client.ask("CLIENT LIST").contains("cmd=client|list"), "{}", client.ask("CLIENT LIST"));
    let mut other = Redis::connect_ready(&dev.resp_addr(1));
    assert_eq!(other.ask("SELECT 3\nCONFIG SET slowlog-log-slower-than 0\nSET c slow"), "+OK +OK +OK");
    let list = client.ask("CLIENT LIST");
    assert!(list.contains("db=3") && list.contains("cmd=set"), "{list}");
    let slow = client.ask("SLOWLOG GET 1");
    assert!(slow.contains("*[$\"SET\", $\"c\", $\"slow\"]"), "{slow}");
    assert_eq!(client.ask("SLOWLOG RESET\nCONFIG SET slowlog-log-slower-than -1\nGET a\nSLOWLOG LEN"), {
        "+OK +OK $\"2\" :0"
    });
}

#[test]
fn events_reach_the_subscribers_of_every_node_in_order() {
    let dev = Dev::start(3);
    let [mut first, mut second, mut third] = [1, 2, 3].map(|id| Redis::connect_ready(&dev.resp_addr(id)));
    wait_until("events", || first.ask("PUBLISH ready x") == ":0");
    assert_eq!(second.ask("SUBSCRIBE news"), "*[$\"subscribe\", $\"news\", :1]");
    assert_eq!(third.ask("PSUBSCRIBE n* *s"), "*[$\"psubscribe\", $\"n*\", :1]");
    assert_eq!(third.reply().unwrap().to_string(), "*[$\"psubscribe\", $\"*s\", :2]");
    assert_eq!(second.ask("UNSUBSCRIBE none"), "*[$\"unsubscribe\", $\"none\", :1]");
    let mut asking = Redis::connect_ready(&dev.resp_addr(3));
    assert_eq!(asking.ask("PUBSUB CHANNELS\nPUBSUB NUMPAT\nPUBLISH zoos x\nPUBLISH zoo x"), "*[] :2 :1 :0");
    assert_eq!(third.reply().unwrap().to_string(), "*[$\"pmessage\", $\"*s\", $\"zoos\", $\"x\"]");
    for payload in ["a", "b", "c"] {
        assert!(first.ask(&format!("PUBLISH news {payload}\nPUBLISH other {payload}")).starts_with(':'));
    }
    succeeded(&dev.sql(&[], "CREATE TABLE told (x); INSERT INTO told SELECT notify('news', 'd')"));
    for payload in ["a", "b", "c", "d"] {
        let heard = second.reply().unwrap().to_string();
        assert_eq!(heard, format!("*[$\"message\", $\"news\", $\"{payload}\"]"));
        for pattern in ["*s", "n*"] {
            let heard = third.reply().unwrap().to_string();
            assert_eq!(heard, format!("*[$\"pmessage\", $\"{pattern}\", $\"news\", $\"{payload}\"]"));
        }
    }
    assert_eq!(second.ask("UNSUBSCRIBE\nGET none"), "*[$\"unsubscribe\", $\"news\", :0] $-1");
    // Shard channels have names of their own, which no pattern matches.
    assert_eq!(second.ask("SSUBSCRIBE news"), "*[$\"ssubscribe\", $\"news\", :1]");
    assert_eq!(first.ask("SPUBLISH news e\nPUBLISH news f"), ":0 :0");
    assert_eq!(second.reply().unwrap().to_string(), "*[$\"smessage\", $\"news\", $\"e\"]");
    assert_eq!(third.reply().unwrap().to_string(), "*[$\"pmessage\", $\"*s\", $\"news\", $\"f\"]");
}

#[test]
fn a_transaction_depends_on_what_it_watches_at_any_node() {
    let dev = Dev::start(3);
    let [mut first, mut second] = [1, 2].map(|id| Redis::connect_ready(&dev.resp_addr(id)));
    // The level that EXEC after WATCH needs follows the founding, too.
    wait_until("the format level", || !first.ask("WATCH level\nMULTI\nPING\nEXEC").contains("format level"));
    assert_eq!(first.ask("SET a 1\nWATCH a\nMULTI\nSET a 2\nINCR b\nLPUSH a x\nEXEC"), {
        "+OK +OK +OK +QUEUED +QUEUED +QUEUED *[+OK, :1, -WRONGTYPE Operation against a key holding the wrong kind of \
         value]"
    });
    assert_eq!(first.ask("WATCH a none"), "+OK");
    assert_eq!(second.ask("SET a 3"), "+OK");
    assert_eq!(first.ask("MULTI\nSET a 4\nEXEC\nGET b"), "+OK +QUEUED *-1 $\"1\"");
    assert_eq!(first.ask("WATCH a\nUNWATCH\nWATCH none\nMULTI\nEXEC"), "+OK +OK +OK +OK *[]");
}

#[test]
fn clients_that_wait_are_served_by_pushes_at_any_node() {
    let dev = Dev::start(3);
    let mut waiting: Vec<Redis> = [2, 2, 3].map(|id| Redis::connect_ready(&dev.resp_addr(id))).into();
    for client in &mut waiting {
        client.send("BLPOP none queue 0").unwrap();
    }
    let mut pushing = Redis::connect_ready(&dev.resp_addr(1));
    assert_eq!(pushing.ask("RPUSH queue a b c"), ":3");
    let mut found: Vec<String> = waiting.iter_mut().map(|client| client.reply().unwrap().to_string()).collect();
    found.sort();
    assert_eq!(found, ["a", "b", "c"].map(|item| format!("*[$\"queue\", $\"{item}\"]")));
    let mut client = waiting.remove(0);
    assert_eq!(client.ask("BLPOP queue 0.05\nBZPOPMIN scores 0.05"), "*-1 *-1");
    client.send("BZPOPMIN scores 0").unwrap();
    assert_eq!(pushing.ask("ZADD scores 1 one"), ":1");
    assert_eq!(client.reply().unwrap().to_string(), "*[$\"scores\", $\"one\", $\"1\"]");
    let mut observer = Redis::connect_ready(&dev.resp_addr(2));
    client.send("BLPOP queue 0").unwrap();
    wait_until("the wait", || observer.ask("INFO clients").contains("blocked_clients:1"));
    let number = Redis::connect_ready(&dev.resp_addr(2)).ask("CLIENT LIST");
    let number = number.split("id=").filter(|line| line.contains("cmd=blpop")).find_map(|line| line.split(' ').next());
    let number = number.unwrap();
    assert_eq!(observer.ask(&format!("CLIENT UNBLOCK {number}")), ":1");
    assert_eq!(client.reply().unwrap().to_string(), "*-1");
    wait_until("its end", || observer.ask("INFO clients").contains("blocked_clients:0"));
    client.send("BLPOP queue 0").unwrap();
    wait_until("the next wait", || observer.ask("INFO clients").contains("blocked_clients:1"));
    assert_eq!(observer.ask(&format!("CLIENT KILL ID {number}")), ":1");
    assert!(client.reply().is_err());
    wait_until("its end by a kill", || observer.ask("INFO clients").contains("blocked_clients:0"));
    let mut client = Redis::connect_ready(&dev.resp_addr(2));
    client.send("BLPOP queue 0").unwrap();
    wait_until("one more wait", || observer.ask("INFO clients").contains("blocked_clients:1"));
    drop(client);
    // A client that has gone takes nothing.
    wait_until("the end of the wait", || observer.ask("INFO clients").contains("blocked_clients:0"));
    assert_eq!(pushing.ask("RPUSH queue d\nLRANGE queue 0 -1"), ":1 *[$\"d\"]");
}

/// What a client of the trial by kills was told.
#[derive(Default)]
struct Told {
    done: Vec<String>,
    /// Those that may have been done.
    unknown: Vec<String>,
}

/// Pushes different items, several at a time, until it is to end. Sends nothing twice.
fn push(addr: &str, number: usize, has_ended: &AtomicBool) -> Told {
    let mut told = Told::default();
    let mut items = (0..).map(|item| format!("{number}-{item}"));
    let mut client = None;
    while !has_ended.load(Ordering::Relaxed) {
        let Ok(mut connected) = client.take().map_or_else(|| Redis::try_connect(addr), Ok) else {
            // Its node is away. Others need the processor.
            thread::park_timeout(Duration::from_millis(20));
            continue;
        };
        let sent: Vec<String> = items.by_ref().take(8).collect();
        let requests: Vec<String> = sent.iter().map(|item| format!("RPUSH list {item}")).collect();
        let mut is_broken = connected.send(&requests.join("\n")).is_err();
        for item in sent {
            match connected.reply() {
                Ok(reply) if !is_broken && !reply.is_error() => told.done.push(item),
                Ok(_) => told.unknown.push(item),
                Err(_) => {
                    is_broken = true;
                    told.unknown.push(item);
                }
            }
        }
        client = (!is_broken).then_some(connected);
    }
    told
}

#[test]
fn no_acknowledged_write_is_lost_or_doubled_when_leaders_are_killed() {
    const CLIENTS: usize = 6;
    const WRITES_BETWEEN: usize = 200;
    let dev = Dev::start(3);
    let addrs: Vec<String> = dev.ids().iter().map(|id| dev.resp_addr(*id)).collect();
    let mut observer = Redis::connect_ready(&addrs[0]);
    let has_ended = AtomicBool::new(false);
    let length = |observer: &mut Redis| -> usize {
        let said = observer.ask("LLEN list");
        said.strip_prefix(':').and_then(|count| count.parse().ok()).unwrap_or_default()
    };
    let told: Vec<Told> = thread::scope(|scope| {
        let _ends = Ends(&has_ended);
        let pushing: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let (addr, has_ended) = (&addrs[number % addrs.len()], &has_ended);
                scope.spawn(move || push(addr, number, has_ended))
            })
            .collect();
        let mut written = 0;
        for _ in 0..2 {
            let leader = dev.leader();
            observer = Redis::connect_ready(&addrs[usize::from(leader == 1)]);
            wait_until("writes", || length(&mut observer) >= written + WRITES_BETWEEN);
            dev.kill(leader);
            let before = length(&mut observer);
            wait_until("writes without it", || length(&mut observer) >= before + WRITES_BETWEEN);
            written = length(&mut observer);
            succeeded(&dev.restart(leader));
        }
        has_ended.store(true, Ordering::Relaxed);
        pushing.into_iter().map(|client| client.join().unwrap()).collect()
    });
    // After a write at its node, a read there sees all that was acknowledged before it at any node.
    assert_eq!(observer.ask("SET ready 1"), "+OK");
    let all = observer.ask("LRANGE list 0 -1");
    let mut found = BTreeMap::<&str, usize>::new();
    for item in all.trim_start_matches("*[").trim_end_matches(']').split(", ") {
        *found.entry(item.trim_start_matches("$\"").trim_end_matches('"')).or_default() += 1;
    }
    let done: usize = told.iter().map(|told| told.done.len()).sum();
    for item in told.iter().flat_map(|told| &told.done) {
        assert_eq!(found.remove(item.as_str()), Some(1), "{item}, which was acknowledged");
    }
    for item in told.iter().flat_map(|told| &told.unknown) {
        assert!(found.remove(item.as_str()).unwrap_or(1) == 1, "{item} is there twice");
    }
    assert!(found.is_empty() && done > 0, "nobody has pushed {found:?}");
}

/// Returns the bytes of memory that a process has resident.
fn resident_bytes(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn hostile_clients_get_errors_and_disturb_nobody() {
    /// The connections that send half a command.
    const HALF: usize = 300;
    /// The clients that ask for more than they read.
    const SLOW: usize = 2;
    /// The memory that all of them together may take: each slow one has replies of four reads of 16 MiB.
    const MEMORY_MAX: u64 = 512 << 20;
    let dev = Dev::start(1);
    let addr = dev.resp_addr(1);
    let mut good = Redis::connect_ready(&addr);
    let before = resident_bytes(dev.pid(1));
    for (sent, error) in [
        ("*1\r\n".repeat(10_000), "expected '$', got '*'"),
        ("*1000000000\r\n".to_owned(), "invalid multibulk length"),
        ("*1\r\n$99999999999\r\n".to_owned(), "invalid bulk length"),
        ("x".repeat(100_000), "too big inline request"),
    ] {
        let mut client = Redis::connect(&addr);
        // The server may close the connection before it has read all.
        let _ = client.stream.write_all(sent.as_bytes());
        assert!(client.reply().unwrap().to_string().contains(error), "{error}");
        assert!(client.reply().is_err(), "the connection is closed");
    }
    let half: Vec<Redis> = (0..HALF)
        .map(|_| {
            let mut client = Redis::connect(&addr);
            client.stream.write_all(b"*2\r\n$3\r\nGET\r\n$1000000\r\nab").unwrap();
            client
        })
        .collect();
    assert_eq!(good.ask(&format!("SET large {}", "v".repeat(1 << 20))), "+OK");
    let slow: Vec<Redis> = (0..SLOW)
        .map(|_| {
            let mut client = Redis::connect(&addr);
            client.send(&"GET large\n".repeat(100)).unwrap();
            client
        })
        .collect();
    let mut meanwhile = 0;
    let open = format!("connected_clients:{}\\r\\n", HALF + 1);
    wait_until("the end of slow readers", || {
        assert_eq!(good.ask("INCR n\nECHO here").split_once(' ').unwrap().1, "$\"here\"");
        let are_gone = good.ask("INFO clients").contains(&open);
        meanwhile += usize::from(!are_gone);
        are_gone
    });
    // The slow ones are kept for 10 s.
    assert!(meanwhile > 3, "another client got {meanwhile} replies while the port waited for the slow ones");
    let taken = resident_bytes(dev.pid(1)).saturating_sub(before);
    assert!(taken < MEMORY_MAX, "the clients take {taken} bytes");
    drop((half, slow));
    assert_eq!(good.ask("PING"), "+PONG");
}

/// Lets this process open so many files, if it may, and returns how many it can open.
fn allow_files(count: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let count = limit.maximum.map_or(count, |most| most.min(count)).max(limit.current.unwrap_or(count));
    setrlimit(Resource::Nofile, Rlimit { current: Some(count), ..limit }).unwrap();
    count
}

#[test]
fn idle_connections_give_way_and_are_told_while_a_client_of_their_address_works() {
    const MEMORY_MAX: u64 = 512 << 20;
    /// The files that this process opens besides.
    const OTHERS: u64 = 1_000;
    let count = usize::try_from(allow_files(10_000 + OTHERS) - OTHERS).unwrap().min(10_000);
    if count <= CONNECTIONS_MAX {
        return eprintln!("skipped: a process may open too few files (`ulimit -Hn`)");
    }
    let dev = Dev::start(1);
    let addr = dev.resp_addr(1);
    let mut working = Redis::connect_ready(&addr);
    let before = resident_bytes(dev.pid(1));
    let has_ended = AtomicBool::new(false);
    let sets = thread::scope(|scope| {
        let ends = Ends(&has_ended);
        let sets = scope.spawn(|| {
            let mut sets = 0;
            while !has_ended.load(Ordering::Relaxed) {
                assert_eq!(working.ask("SET n 1"), "+OK", "a client that works is not disconnected");
                sets += 1;
            }
            sets
        });
        let mut idle: Vec<Redis> = (0..count).map(|_| Redis::connect(&addr)).collect();
        assert_eq!(idle[count - 1].ask("PING"), "+PONG", "the port has accepted all of them");
        let taken = resident_bytes(dev.pid(1)).saturating_sub(before);
        assert!(taken < MEMORY_MAX, "the connections take {taken} bytes");
        // Beside them there is one that works.
        let (closed, open) = idle.split_at_mut(count + 1 - CONNECTIONS_MAX);
        for client in closed {
            assert_eq!(client.reply().unwrap().to_string(), "-ERR max number of clients reached");
            assert!(client.reply().is_err(), "the connection is closed");
        }
        for client in open.iter_mut() {
            assert_eq!(client.ask("PING"), "+PONG");
        }
        assert_eq!(Redis::connect(&addr).ask("SET new 1"), "+OK");
        drop(ends);
        sets.join().unwrap()
    });
    assert!(sets > 0);
    assert_eq!(working.ask("GET new"), "$\"1\"");
}

/// Starts a cluster of `quorate init`, with the port for Redis at each node, and waits until its nodes know its users.
fn with_users(tls: bool) -> (Servers, Vec<String>) {
    let mut servers = Servers::init(3);
    let addrs: Vec<String> = free_ports(3).iter().map(|port| format!("127.0.0.1:{port}")).collect();
    for (name, addr) in ["a", "b", "c"].iter().zip(&addrs) {
        servers.configure(name, "redis.listen", &format!("\"{addr}\""));
        servers.configure(name, "redis.tls", &tls.to_string());
        servers.configure(name, "redis.notify_keyspace_events", "\"Kg\"");
        servers.serve(name);
    }
    let config = servers.config("a");
    let config = config.to_str().unwrap();
    let list = ["users", "list", "--config", config];
    wait_until("the administrator", || String::from_utf8_lossy(&quorate(&list).stdout).contains("admin  admin"));
    for (name, role) in [("app", "write"), ("guest", "read")] {
        let add = ["users", "add", name, "--role", role, "--config", config];
        succeeded(&quorate_reads(&add, &format!("{PASSWORD}\n")));
    }
    ["a", "b", "c"].iter().for_each(|name| servers.has_caught_up(name));
    (servers, addrs)
}

#[test]
fn users_log_in_by_password_or_token() {
    let (servers, addrs) = with_users(false);
    let config = servers.config("a");
    let config = config.to_str().unwrap();
    let token = succeeded(&quorate(&["users", "token", "app", "--config", config]));
    let mut client = Redis::connect(&addrs[0]);
    assert_eq!(client.ask("GET a\nPING"), "-NOAUTH Authentication required. -NOAUTH Authentication required.");
    assert!(client.ask("AUTH app wrong").starts_with("-WRONGPASS"));
    wait_until("the token at this node", || client.ask(&format!("AUTH {}", token.trim())) == "+OK");
    wait_until("keys", || client.ask("SET a 1") == "+OK");
    assert_eq!(client.ask("CONFIG GET notify-keyspace-events"), "*[$\"notify-keyspace-events\", $\"gK\"]");
    // The words of a request can't be written as a line here: the password has a space.
    let mut guest = Redis::connect(&addrs[1]);
    let auth = format!("*3\r\n$4\r\nAUTH\r\n$5\r\nguest\r\n${}\r\n{PASSWORD}\r\n", PASSWORD.len());
    guest.stream.write_all(auth.as_bytes()).unwrap();
    assert_eq!(guest.reply().unwrap().to_string(), "+OK");
    wait_until("the write at the other node", || guest.ask("GET a") == "$\"1\"");
    assert!(guest.ask("SET a 2").starts_with("-NOPERM"));
    // Another role holds for connections that are there already.
    succeeded(&quorate(&["users", "role", "guest", "write", "--config", config]));
    wait_until("the right to write", || guest.ask("SET b 1") == "+OK");
    succeeded(&quorate(&["users", "role", "guest", "read", "--config", config]));
    wait_until("the end of the right", || guest.ask("SET b 1").starts_with("-NOPERM"));
    succeeded(&quorate(&["users", "remove", "app", "--config", config]));
    wait_until("the end of the user", || client.ask("GET a").starts_with("-NOAUTH"));
}

#[test]
fn clients_work_over_tls_with_users_while_the_leader_is_killed() {
    let clients = [
        ("redis-py", python("python", "redis", "redis/redis.py")),
        ("ioredis", node("ioredis", "redis/ioredis.cjs")),
        ("go-redis", program("go/go-redis")),
    ];
    // CI need not have Go.
    if or_skipped("a client of Redis", clients.iter().find_map(|(_, command)| command.as_ref())).is_none() {
        return;
    }
    let (mut servers, addrs) = with_users(true);
    let config = servers.config("a").to_str().unwrap().to_owned();
    let token = succeeded(&quorate(&["users", "token", "app", "--config", &config]));
    let leader = || {
        let status = quorate(&["status", "--json", "--config", &config]);
        let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap_or_default();
        status["leader"].as_str().map(str::to_owned)
    };
    for (name, command) in clients {
        let Some(mut command) = command else {
            eprintln!("skipped: {name} is not installed");
            continue;
        };
        let mut led = None;
        wait_until("a leader", || {
            led = leader();
            led.is_some()
        });
        let led = led.unwrap();
        let at = usize::from(led == "a");
        let addr = &addrs[at];
        // It may have been started again after the client before, and has to know the token.
        servers.has_caught_up(["a", "b"][at]);
        drop(Redis::connect(addr));
        let ca = servers.dir.path().join("ca.crt");
        command.arg(format!("rediss://app:{}@{addr}", token.trim()));
        let running = Running::start(command.env("NODE_EXTRA_CA_CERTS", &ca).env("SSL_CERT_FILE", &ca));
        running.says("counting");
        servers.stop(&led, Signal::KILL);
        running.says("passed");
        servers.serve(&led);
        // The next leader is killed only then.
        servers.has_caught_up(&led);
    }
}
