//! Frameworks on clients of Redis, and the tools of Redis, unmodified, on clusters of real processes. `.ci/clients`
//! installs the frameworks. What is not installed is skipped, with a message; in CI that is an error.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests run real processes and stop at the first surprise"
)]

mod support;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use support::clients::{Running, node, or_skipped, program, python};
use support::redis::Redis;
use support::{Dev, succeeded, wait_until};

/// What `redis-benchmark` measures.
const MEASURED: &str = "set,get,incr,lpush,rpush,lpop,rpop,sadd,hset,spop,zadd,zpopmin,lrange,mset";

/// Where a program is while the leader is killed.
#[derive(PartialEq)]
enum Place {
    /// At the node that is killed.
    There,
    /// At the two others.
    Elsewhere,
}

/// Runs a program, which gets the URLs of its nodes, while the leader is killed and started again. The program checks
/// that nothing that it was promised is lost, and all results.
fn survives(name: &str, place: &Place, command: Option<Command>) {
    let Some(mut command) = or_skipped(name, command) else { return };
    let dev = Dev::start(3);
    let leader = dev.leader();
    for id in dev.ids().into_iter().filter(|id| (*id == leader) == (*place == Place::There)) {
        let addr = dev.resp_addr(id);
        Redis::connect_ready(&addr);
        command.arg(format!("redis://{addr}"));
    }
    let mut running = Running::start(&mut command);
    running.says("working");
    dev.kill(leader);
    wait_until("another leader", || dev.led_by().is_some_and(|id| id != leader));
    succeeded(&dev.restart(leader));
    running.ends();
    running.says("passed");
}

#[test]
fn celery_does_all_tasks_while_the_leader_is_killed() {
    survives("Celery", &Place::Elsewhere, python("python", "celery", "frameworks/celery_app.py"));
}

#[test]
fn huey_does_all_tasks_while_the_leader_is_killed() {
    survives("Huey", &Place::Elsewhere, python("python", "huey", "frameworks/huey_app.py"));
}

#[test]
fn arq_does_all_tasks_while_the_leader_is_killed() {
    survives("arq", &Place::Elsewhere, python("arq", "arq", "frameworks/arq_app.py"));
}

#[test]
fn rq_does_all_jobs_while_the_leader_is_killed() {
    survives("RQ", &Place::Elsewhere, python("python", "rq", "frameworks/rq_app.py"));
}

#[test]
fn flask_caching_loses_nothing_while_the_leader_is_killed() {
    survives("Flask-Caching", &Place::Elsewhere, python("python", "flask_caching", "frameworks/flask_app.py"));
}

#[test]
fn django_loses_nothing_while_the_leader_is_killed() {
    survives("Django", &Place::Elsewhere, python("python", "django", "frameworks/django_app.py"));
}

#[test]
fn sessions_and_limits_of_express_hold_while_the_leader_is_killed() {
    survives("Express", &Place::Elsewhere, node("connect-redis", "frameworks/express.cjs"));
}

#[test]
fn redis_rs_loses_nothing_while_the_leader_is_killed() {
    survives("redis-rs", &Place::Elsewhere, program("rust/debug/redis-rs"));
}

#[test]
fn redis_py_goes_on_when_its_node_is_killed_and_started_again() {
    survives("redis-py", &Place::There, python("python", "redis", "frameworks/redis_py.py"));
}

#[test]
fn ioredis_goes_on_when_its_node_is_killed_and_started_again() {
    survives("ioredis", &Place::There, node("ioredis", "frameworks/ioredis.cjs"));
}

#[test]
fn go_redis_goes_on_when_its_node_is_killed_and_started_again() {
    // CI need not have Go.
    let Some(mut command) = program("go/go-redis") else {
        eprintln!("skipped: go-redis is not installed");
        return;
    };
    command.arg("restart");
    survives("go-redis", &Place::There, Some(command));
}

/// Returns a tool of Redis at a node, if it is installed.
fn tool(name: &str, addr: &str) -> Option<Command> {
    let is_installed = Command::new(name).arg("--version").stdout(Stdio::null()).status().is_ok();
    // It writes each line at once, also to a pipe.
    let mut command = or_skipped(name, is_installed.then(|| Command::new("stdbuf")))?;
    let (host, port) = addr.split_once(':').unwrap();
    command.args(["-oL", name, "-h", host, "-p", port]).stdin(Stdio::piped()).stdout(Stdio::piped());
    Some(command)
}

/// Runs `redis-cli` with a text as its standard input, and returns its output.
fn redis_cli(addr: &str, arguments: &[&str], input: &str) -> Option<String> {
    let mut process = tool("redis-cli", addr)?.args(arguments).spawn().unwrap();
    process.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    Some(succeeded(&process.wait_with_output().unwrap()))
}

#[test]
fn redis_cli_finds_what_it_has_written() {
    let dev = Dev::start(3);
    let addr = dev.resp_addr(2);
    Redis::connect_ready(&addr);
    let written = "FLUSHDB\nSET s value\nHSET h f v g w\nRPUSH l 1 2 3\nSADD m a\nZADD z 1 a\nMULTI\nINCR n\nEXEC\n";
    let Some(said) = redis_cli(&addr, &[], written) else { return };
    assert_eq!(said, "OK\nOK\n2\n3\n1\n1\nOK\nQUEUED\n1\n");
    let mut requests = String::new();
    for item in 0..1_000 {
        requests += &format!("SET k{item} {item}\r\n");
    }
    let ask = |arguments: &[&str], input: &str| redis_cli(&addr, arguments, input).unwrap();
    assert!(ask(&["--pipe"], &requests).ends_with("errors: 0, replies: 1000\n"));
    assert_eq!(ask(&["--scan"], "").lines().count(), 1_006);
    assert_eq!(ask(&["--scan", "--pattern", "h*"], ""), "h\n");
    for option in ["--bigkeys", "--memkeys"] {
        let said = ask(&[option], "");
        assert!(said.contains("Sampled 1006 keys") && said.contains("Biggest   hash found '\"h\"' has"), "{said}");
    }
    assert_eq!(ask(&["-r", "3", "INCR", "n"], ""), "2\n3\n4\n");
    assert_eq!(ask(&["-3", "--json", "HGETALL", "h"], ""), "{\"f\":\"v\",\"g\":\"w\"}\n");
}

#[test]
fn redis_cli_counts_on_while_the_leader_is_killed() {
    const STEPS: usize = 30;
    let dev = Dev::start(3);
    let leader = dev.leader();
    let id = dev.ids().into_iter().find(|id| *id != leader).unwrap();
    let addr = dev.resp_addr(id);
    Redis::connect_ready(&addr);
    let Some(mut command) = tool("redis-cli", &addr) else { return };
    let mut process = command.spawn().unwrap();
    let mut input = process.stdin.take().unwrap();
    let mut said = BufReader::new(process.stdout.take().unwrap()).lines();
    for step in 1..=STEPS {
        writeln!(input, "INCR n").unwrap();
        if step == STEPS / 3 {
            dev.kill(leader);
        } else if step == STEPS / 2 {
            succeeded(&dev.restart(leader));
        }
        assert_eq!(said.next().unwrap().unwrap(), step.to_string());
    }
    drop(input);
    assert!(process.wait().unwrap().success());
}

#[test]
fn redis_cli_shows_what_happens() {
    const LINES: usize = 5;
    let dev = Dev::start(1);
    let addr = dev.resp_addr(1);
    // It stays: the port may count it for a moment after its end.
    let _other = Redis::connect_ready(&addr);
    let Some(mut command) = tool("redis-cli", &addr) else { return };
    let mut process = command.args(["--stat", "-i", "0.05"]).spawn().unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
    // The first line is of dashes, and the second one has the names of the columns.
    let lines: Vec<String> = lines.skip(2).take(LINES).collect();
    process.kill().unwrap();
    process.wait().unwrap();
    assert_eq!(lines.len(), LINES);
    for line in lines {
        let columns: Vec<&str> = line.split_whitespace().collect();
        assert!(columns[1].ends_with('M') && columns[2] == "2" && columns[3] == "0", "{line}");
    }
}

#[test]
fn redis_benchmark_measures_without_errors() {
    let dev = Dev::start(3);
    let addr = dev.resp_addr(2);
    Redis::connect_ready(&addr);
    for more in [&[][..], &["-P", "8", "-r", "100"]] {
        let Some(mut command) = tool("redis-benchmark", &addr) else { return };
        let output =
            command.args(["--csv", "-q", "-n", "200", "-c", "10", "-t", MEASURED]).args(more).output().unwrap();
        let (said, errors) = (succeeded(&output), String::from_utf8_lossy(&output.stderr));
        assert!(!format!("{said}{errors}").to_lowercase().contains("err"), "{said}{errors}");
        let rates = said.lines().skip(1).map(|line| line.split(',').nth(1).unwrap().trim_matches('"').parse::<f64>());
        let rates: Vec<f64> = rates.map(Result::unwrap).collect();
        assert!(rates.len() >= MEASURED.split(',').count() && rates.iter().all(|rate| *rate > 0.0), "{said}");
    }
}
