//! `wrk` with a script as huststore's are, on a real node: keys of 1 KB are written and read with a login, nothing
//! fails, and all that was acknowledged is there.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise; this one starts another program"
)]

mod common;

use std::io::ErrorKind;
use std::process::Command;

use common::Server;
use quorate::admin::Login;
use quorate::users::UserRole;
use quorate_http::Options;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hustdb/bench.lua");

/// Each thread has one connection, so it writes its keys in order.
const THREADS: u64 = 8;

/// The bytes of a value before its key.
const FILLER_BYTES: usize = 950;

/// What a run has done.
struct Run {
    /// The requests of the thread with the fewest.
    least: u64,
    total: u64,
}

/// Runs `wrk` for two seconds, so that a short stall of the machine leaves no thread without an answer; `None` if it is
/// not installed, which CI does not accept.
fn run(server: &Server, endpoint: &str, count: u64) -> Option<Run> {
    let threads = THREADS.to_string();
    let url = format!("http://{}", server.http.local_addr());
    let mut command = Command::new("wrk");
    command.args(["-t", &threads, "-c", &threads, "-d", "2s", "--timeout", "30s", "-s", SCRIPT, &url, "--"]);
    let output = match command.args([endpoint, &count.to_string()]).output() {
        Err(error) if error.kind() == ErrorKind::NotFound && std::env::var_os("CI").is_none() => {
            eprintln!("skipped: wrk is not installed");
            return None;
        }
        output => output.unwrap(),
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let result = text.lines().find_map(|line| line.strip_prefix("result "));
    let result: Vec<u64> = result.unwrap_or_default().split(' ').filter_map(|number| number.parse().ok()).collect();
    let [least, total, failed] = result[..] else { panic!("{endpoint}: {text}") };
    assert_eq!(failed, 0, "{endpoint}: {text}");
    assert!(least > 0, "{endpoint}: {text}");
    eprintln!("{endpoint}: {total} requests in two seconds");
    Some(Run { least, total })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_load_generator_of_huststore_meets_no_error_and_loses_nothing() {
    let (server, _) = Server::with_users_and(Options::default().with_huststore(true)).await;
    let login = Login::Password("huststore".to_owned());
    server.node.admin().add_user("huststore", UserRole::Write, login).await.unwrap();
    let (keys, tables) = (server.node.keys(), server.node.keys().space(1));
    for (write, reads) in [
        ("put", &["get", "get2", "exist"][..]),
        ("hset", &["hget", "hexist"]),
        ("sadd", &["sismember"]),
        ("zadd", &["zscore", "zismember"]),
    ] {
        let Some(written) = run(&server, write, 0) else { return };
        for read in reads {
            run(&server, read, written.least);
        }
        let mut found = 0;
        for thread in 1..=THREADS {
            found += match write {
                "put" => u64::try_from(
                    keys.scan().prefix(format!("bench_{thread}_")).limit(100_000).await.unwrap().rows.len(),
                )
                .unwrap(),
                "hset" => tables.hash(format!("bench_hash_{thread}")).len().await.unwrap(),
                "sadd" => tables.set_of(format!("bench_s_{thread}")).len().await.unwrap(),
                _ => tables.sorted_set(format!("bench_z_{thread}")).len().await.unwrap(),
            };
        }
        // The last request of each connection is not answered any more.
        assert!((written.total..=written.total + THREADS).contains(&found), "{write}: {} and {found}", written.total);
    }
    let value = keys.get("bench_1_0").await.unwrap().unwrap();
    assert_eq!((value.len(), &value[FILLER_BYTES..]), (FILLER_BYTES + 9, &b"bench_1_0"[..]));
}
