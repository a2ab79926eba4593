//! The doors of three nodes and of a remote client: one database, whichever of them a client uses.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests stop at the first surprise")]

mod common;
#[path = "../../quorate/tests/support/mod.rs"]
mod support;

use std::time::Duration;

use common::{Door, execute, integer, text};
use quorate::sim::SimHooks;
use quorate_env::Env;
use quorate_http::Options;
use serde_json::json;
use support::{Cluster, run};

const INSERT: &str = "INSERT INTO users (name) VALUES (?) RETURNING id";
const COUNT: &str = "SELECT count(*) FROM users";

#[test]
fn what_one_door_has_written_every_other_reads() {
    run(async {
        let mut cluster = Cluster::start().await;
        let client = cluster.client().await;
        let mut doors = vec![Door::open(client.sql(), Options::default()).await];
        for name in ["a", "b", "c"] {
            doors.push(Door::open(cluster.sql(name), Options::default()).await);
        }
        doors[0].one(execute("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT UNIQUE)", json!([])));
        for (number, door) in (1..).zip(&doors) {
            let inserted = door.one(execute(INSERT, json!([text(&number.to_string())])));
            assert_eq!(inserted["result"]["rows"][0][0], integer(number));
            for other in &doors {
                assert_eq!(other.one(execute(COUNT, json!([])))["result"]["rows"][0][0], integer(number));
                let rows = other.get("/db/query?level=weak&q=SELECT%20count(*)%20FROM%20users").json();
                assert_eq!(rows["results"][0]["values"], json!([[number]]));
            }
        }
        // Each door returns the declared types, in a transaction that only reads and outside of one.
        for door in &doors {
            let read = "SELECT id, name, 1 FROM users";
            let sent = [execute("BEGIN READONLY", json!([])), execute(read, json!([])), execute("COMMIT", json!([]))];
            let (_, results) = door.pipeline(None, json!(sent));
            for result in [&door.one(execute(read, json!([])))["result"], &results[1]["response"]["result"]] {
                let cols = result["cols"].as_array().unwrap();
                let declared: Vec<_> = cols.iter().map(|col| col["decltype"].as_str()).collect();
                assert_eq!(declared, [Some("INTEGER"), Some("TEXT"), None]);
            }
        }
        // A position makes even the weakest read see the write, on every node.
        let body = json!({ "requests": [execute(INSERT, json!([text("last")]))] });
        let position = doors[1].post("/v3/pipeline", &body).headers["quorate-position"].clone();
        let level = format!("at-least={position}");
        let body = json!({ "requests": [execute(COUNT, json!([]))] }).to_string();
        for door in &doors {
            let seen = door.send("POST", "/v3/pipeline", &[("quorate-level", &level)], body.as_bytes()).json();
            assert_eq!(seen["results"][0]["response"]["result"]["rows"][0][0], integer(5));
        }
        client.close().await;
        cluster.stop_all().await;
    });
}

#[test]
fn a_transaction_survives_no_leader_and_its_client_is_told() {
    run(async {
        // The leader that the transaction runs on must not be another one by itself.
        let mut cluster = Cluster::start_in(Box::new(|_, config| {
            (config.timing.election_min, config.timing.election_max) = (Duration::from_secs(2), Duration::from_secs(4));
            (Env::real(), SimHooks::default())
        }))
        .await;
        let leader = cluster.leader().await;
        let follower = ["a", "b", "c"].into_iter().find(|name| *name != leader).unwrap();
        let door = Door::open(cluster.sql(follower), Options::default()).await;
        door.one(execute("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT UNIQUE)", json!([])));
        let insert = |name: &str| execute(INSERT, json!([text(name)]));
        let (baton, results) = door.pipeline(None, json!([execute("BEGIN IMMEDIATE", json!([])), insert("ann")]));
        assert_eq!(results[1]["response"]["result"]["rows"][0][0], integer(1), "it runs on the leader");

        cluster.kill(&leader);
        let (baton, results) = door.pipeline(baton.as_deref(), json!([insert("bob"), insert("cid")]));
        let codes: Vec<_> = results.iter().map(|result| result["error"]["code"].as_str().unwrap()).collect();
        assert_eq!(codes, ["TRANSACTION_ABORTED", "TRANSACTION_ABORTED"]);
        let (_, results) = door.pipeline(baton.as_deref(), json!([execute("ROLLBACK", json!([])), insert("dan")]));
        assert_eq!(results[1]["type"], "ok", "the next leader takes it: {}", results[1]);
        assert_eq!(door.one(execute(COUNT, json!([])))["result"]["rows"][0][0], integer(1));
        cluster.stop_all().await;
    });
}
