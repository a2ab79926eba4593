//! `Idempotency-Key`: a request that is sent again takes effect once, at any door, over any protocol.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

mod common;

use common::{Door, Reply, Server, execute, step};
use quorate_http::Options;
use serde_json::{Value, json};

fn send(door: &Door, key: &str, path: &str, body: &Value) -> Reply {
    let headers = [("idempotency-key", key), ("content-type", "application/json")];
    door.send("POST", path, &headers, body.to_string().as_bytes())
}

fn pipeline(requests: Value) -> Value {
    let Value::Array(mut requests) = requests else { panic!("a list") };
    requests.push(json!({ "type": "close" }));
    json!({ "requests": requests })
}

/// The same request three times, the last time at another door.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_sent_again_is_answered_again() {
    let server = Server::start().await;
    let other = Door::open(server.node.sql(), Options::default()).await;
    server.run("CREATE TABLE t (a INTEGER PRIMARY KEY, b DEFAULT (random()))").await;
    let insert = "INSERT INTO t DEFAULT VALUES RETURNING b";
    let batch = json!([step("BEGIN"), step(insert), step(insert), step("COMMIT")]);
    let requests = [
        ("/db/execute", json!([insert])),
        ("/db/execute?transaction", json!([insert, insert])),
        ("/db/request", json!([insert, insert])),
        ("/v2/pipeline", pipeline(json!([execute(insert, json!([])), execute(insert, json!([]))]))),
        ("/v3/pipeline", pipeline(json!([{ "type": "batch", "batch": { "steps": batch } }]))),
        ("/v1/execute", json!({ "stmt": { "sql": insert } })),
    ];
    for (number, (path, body)) in requests.iter().enumerate() {
        let key = format!("key {number}");
        let before = server.count("t").await;
        let first = send(&server, &key, path, body);
        let written = server.count("t").await;
        assert!(first.status == 200 && written > before, "{path}: {first:?}");
        for door in [&*server, &other] {
            let again = send(door, &key, path, body);
            assert_eq!(again.text, first.text, "{path}");
            assert_eq!(again.headers.get("quorate-position"), first.headers.get("quorate-position"), "{path}");
        }
        assert_eq!(server.count("t").await, written, "{path}");
        assert_ne!(send(&server, "another", path, body).text, first.text, "{path}");
        server.run("DELETE FROM t").await;
        let reused = send(&server, &key, path, &json!(["DELETE FROM t WHERE a = 7"]));
        if path.starts_with("/db") {
            assert!(reused.text.contains("the key was used for another request"), "{path}: {reused:?}");
        }
    }
}

/// A failure is an outcome too: the same request fails again, although it would succeed now.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_failed_fails_again() {
    let server = Server::start().await;
    server.run("CREATE TABLE t (a UNIQUE)").await;
    server.run("INSERT INTO t VALUES (1)").await;
    let steps = json!([step("BEGIN"), step("INSERT INTO t VALUES (1)"), step("COMMIT")]);
    let body = pipeline(json!([{ "type": "batch", "batch": { "steps": steps } }]));
    let failed = send(&server, "k", "/v2/pipeline", &body);
    assert_eq!(failed.json()["results"][0]["error"]["code"], "SQLITE_CONSTRAINT_UNIQUE", "{failed:?}");
    server.run("DELETE FROM t").await;
    assert_eq!(send(&server, "k", "/v2/pipeline", &body).text, failed.text);
    assert_eq!(server.count("t").await, 0);
}

/// Interactive transactions read, so they can't be recognised. They are refused, not done twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_with_a_key_is_refused() {
    let server = Server::start().await;
    server.run("CREATE TABLE t (a)").await;
    let refused = send(&server, "k", "/db/request", &json!(["INSERT INTO t VALUES (1)", "SELECT count(*) FROM t"]));
    assert_eq!((refused.status, &refused.json()["code"]), (422, &json!("NOT_OFFERED")));
    for begin in ["BEGIN IMMEDIATE", "BEGIN"] {
        let requests = json!([execute(begin, json!([])), execute("INSERT INTO t VALUES (1)", json!([]))]);
        let results = send(&server, "k", "/v2/pipeline", &pipeline(requests)).json();
        assert_eq!(results["results"][1]["error"]["code"], "NOT_OFFERED", "{begin}: {results}");
    }
    let (baton, _) = server.pipeline(None, json!([execute("BEGIN IMMEDIATE", json!([]))]));
    let commit = json!({ "baton": baton, "requests": [execute("COMMIT", json!([])), { "type": "close" }] });
    assert_eq!(send(&server, "k", "/v2/pipeline", &commit).json()["results"][0]["error"]["code"], "NOT_OFFERED");
    assert_eq!(server.count("t").await, 0);
}

/// Two users may choose the same key.
#[tokio::test(flavor = "multi_thread")]
async fn users_do_not_share_keys() {
    let (server, [_, write, admin]) = Server::with_users().await;
    server.run("CREATE TABLE t (a)").await;
    for token in [&write, &admin] {
        let login = format!("Bearer {token}");
        let headers = [("idempotency-key", "k"), ("authorization", login.as_str())];
        for _ in 0..2 {
            let done = server.send("POST", "/db/execute", &headers, b"[\"INSERT INTO t VALUES (1)\"]");
            assert_eq!(done.status, 200, "{done:?}");
        }
    }
    assert_eq!(server.count("t").await, 2);
}
