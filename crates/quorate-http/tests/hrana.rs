//! Hrana over HTTP, request by request, on a real node.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests stop at the first surprise")]

mod common;

use std::time::Duration;

use common::{Server, execute, integer, step, step_if, text, wait_until};
use quorate_http::Options;
use serde_json::{Value, json};

const USERS: &str = "CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT UNIQUE)";

fn error_code(result: &Value) -> &str {
    result["error"]["code"].as_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_two_and_three_are_offered_with_json_only() {
    let server = Server::start().await;
    for (path, status) in [("/v2", 200), ("/v3", 200), ("/v3-protobuf", 404), ("/v4", 404)] {
        assert_eq!(server.get(path).status, status, "{path}");
    }
    let wrong = server.get("/v3/pipeline");
    assert_eq!((wrong.status, wrong.headers["allow"].as_str()), (405, "POST"));
}

#[tokio::test(flavor = "multi_thread")]
async fn values_come_back_as_they_were_sent() {
    let server = Server::start().await;
    let values = [
        integer(0),
        integer(i64::MAX),
        integer(i64::MIN),
        integer((1 << 53) + 1),
        json!({ "type": "float", "value": 0.1 }),
        json!({ "type": "float", "value": -1.7976931348623157e308 }),
        json!({ "type": "float", "value": 3.0 }),
        text(""),
        text("a\u{0}b\"\\ \u{1F600}\n"),
        json!({ "type": "blob", "base64": "" }),
        json!({ "type": "blob", "base64": "AP/+" }),
        json!({ "type": "blob", "base64": "/w" }),
        json!({ "type": "null" }),
    ];
    for value in values {
        let shown = server.one(execute("SELECT ? AS x, typeof(?1)", json!([value])));
        assert_eq!(shown["result"]["rows"][0][0], value);
        assert_eq!(shown["result"]["cols"][0]["name"], "x");
    }
    let padded = server.one(execute("SELECT ?", json!([{ "type": "blob", "base64": "/w==" }])));
    assert_eq!(padded["result"]["rows"][0][0]["base64"], "/w");
    let reply = server.post("/v2/pipeline", &json!({ "requests": [execute("SELECT 9e999, -9e999", json!([]))] }));
    assert!(reply.text.contains("1e999") && reply.text.contains("-1e999"), "{}", reply.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_are_given_by_position_and_by_name() {
    let server = Server::start().await;
    let named = |sql: &str, names: &[(&str, i64)], args: &[i64]| {
        let named: Vec<_> =
            names.iter().map(|(name, value)| json!({ "name": name, "value": integer(*value) })).collect();
        let args: Vec<_> = args.iter().copied().map(integer).collect();
        json!({ "type": "execute", "stmt": { "sql": sql, "args": args, "named_args": named } })
    };
    for (request, expected) in [
        (named("SELECT :a, @b, $c", &[("c", 3), (":a", 1), ("@b", 2)], &[]), [1, 2, 3]),
        (named("SELECT ?, :a, ?3", &[("a", 5)], &[1, 2, 3]), [1, 5, 3]),
        (named("SELECT ?3, ?1, ?2", &[], &[1, 2, 3]), [3, 1, 2]),
    ] {
        let row = server.one(request)["result"]["rows"][0].clone();
        assert_eq!(row, Value::from(expected.map(integer).to_vec()));
    }
    let wrong = [named("SELECT :a", &[("b", 1)], &[]), named("SELECT ?", &[], &[]), named("SELECT ?", &[], &[1, 2])];
    let (_, results) = server.pipeline(None, Value::from(wrong.to_vec()));
    assert!(results.iter().all(|result| error_code(result) == "ARGS_INVALID"), "{results:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_tell_what_they_changed_and_where_they_stand() {
    let server = Server::start().await;
    server.run(USERS).await;
    let sql = "INSERT INTO users (name) VALUES (?), (?) RETURNING id, name";
    let body = json!({ "requests": [execute(sql, json!([text("ann"), text("bob")]))] });
    let reply = server.post("/v2/pipeline", &body);
    let result = reply.json()["results"][0]["response"]["result"].clone();
    assert_eq!((&result["affected_row_count"], &result["last_insert_rowid"]), (&json!(2), &json!("2")));
    assert_eq!(result["rows"], json!([[integer(1), text("ann")], [integer(2), text("bob")]]));
    let position = reply.headers["quorate-position"].clone();
    assert_eq!(result["replication_index"], position.rsplit('.').next().unwrap());
    let level = format!("at-least={position}");
    let body = json!({ "requests": [execute("SELECT count(*) FROM users", json!([]))] }).to_string();
    let seen = server.send("POST", "/v3/pipeline", &[("Quorate-Level", &level)], body.as_bytes());
    assert_eq!(seen.json()["results"][0]["response"]["result"]["rows"][0][0], integer(2));
    assert!(!seen.headers.contains_key("quorate-position"), "a read has none");
    let unwanted = json!({ "type": "execute", "stmt": { "sql": "SELECT * FROM users", "want_rows": false } });
    let result = server.one(unwanted)["result"].clone();
    assert_eq!((&result["rows"], result["cols"].as_array().unwrap().len()), (&json!([]), 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_have_the_codes_of_sqlite() {
    let server = Server::start().await;
    server.run("CREATE TABLE p (id INTEGER PRIMARY KEY)").await;
    server.run("CREATE TABLE t (a TEXT PRIMARY KEY, b UNIQUE, c NOT NULL CHECK (c > 0), d REFERENCES p)").await;
    server.run("INSERT INTO t VALUES ('a', 1, 1, NULL)").await;
    for (sql, code) in [
        ("INSERT INTO t VALUES ('a', 2, 1, NULL)", "SQLITE_CONSTRAINT_PRIMARYKEY"),
        ("INSERT INTO t VALUES ('b', 1, 1, NULL)", "SQLITE_CONSTRAINT_UNIQUE"),
        ("INSERT INTO t VALUES ('b', 2, NULL, NULL)", "SQLITE_CONSTRAINT_NOTNULL"),
        ("INSERT INTO t VALUES ('b', 2, 0, NULL)", "SQLITE_CONSTRAINT_CHECK"),
        ("INSERT INTO t VALUES ('b', 2, 1, 7)", "SQLITE_CONSTRAINT_FOREIGNKEY"),
        ("SELEC 1", "SQLITE_ERROR"),
        ("SELECT * FROM missing", "SQLITE_ERROR"),
        ("SELECT 1; SELECT 2", "SQLITE_AUTH"),
        ("ATTACH 'x' AS y", "SQLITE_AUTH"),
        ("COMMIT", "SQLITE_ERROR"),
        ("SAVEPOINT a", "SQLITE_ERROR"),
        ("ROLLBACK TO a", "SQLITE_ERROR"),
    ] {
        let (_, results) = server.pipeline(None, json!([execute(sql, json!([]))]));
        assert_eq!((results[0]["type"].as_str(), error_code(&results[0])), (Some("error"), code), "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_has_savepoints() {
    let server = Server::start().await;
    server.run(USERS).await;
    let insert = |name: &str| execute("INSERT INTO users (name) VALUES (?)", json!([text(name)]));
    let run = |sql: &str| execute(sql, json!([]));
    let (_, results) = server.pipeline(
        None,
        json!([
            run("BEGIN"),
            run("SAVEPOINT sp1"),
            insert("ann"),
            run("SAVEPOINT \"sp 2\""),
            insert("bob"),
            run("ROLLBACK TO SAVEPOINT 'SP 2'"),
            run("RELEASE [sp 2]"),
            run("ROLLBACK TO missing"),
            insert("cid"),
            run("RELEASE sp1"),
            run("COMMIT"),
        ]),
    );
    let failed: Vec<_> = (0..).zip(&results).filter(|(_, result)| result["type"] != "ok").collect();
    assert!(matches!(failed[..], [(7, error)] if error_code(error) == "SQLITE_ERROR"), "{failed:?}");
    assert_eq!(server.count("users").await, 2, "ann and cid");
    let (_, results) = server.pipeline(
        None,
        json!([run("BEGIN READONLY"), run("SAVEPOINT a"), run("ROLLBACK TO a"), run("RELEASE a"), run("COMMIT")]),
    );
    assert!(results.iter().all(|result| result["type"] == "ok"), "{results:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_spans_requests_by_its_baton() {
    let server = Server::start().await;
    server.run(USERS).await;
    let auto = json!({ "type": "get_autocommit" });
    let (baton, results) = server.pipeline(
        None,
        json!([auto, execute("BEGIN", json!([])), auto, execute("INSERT INTO users (name) VALUES ('ann')", json!([]))]),
    );
    let is_auto = |result: &Value| result["response"]["is_autocommit"].as_bool().unwrap();
    assert!(is_auto(&results[0]) && !is_auto(&results[2]));
    assert_eq!(server.count("users").await, 0, "it is not committed");
    let (next, results) = server.pipeline(
        baton.as_deref(),
        json!([
            execute("INSERT INTO users (name) VALUES ('ann')", json!([])),
            execute("INSERT INTO users (name) VALUES ('bob') RETURNING id", json!([])),
            execute("SELECT count(*), last_insert_rowid() FROM users", json!([])),
        ]),
    );
    assert_eq!(error_code(&results[0]), "SQLITE_CONSTRAINT_UNIQUE", "the transaction goes on after an error");
    assert_eq!(results[2]["response"]["result"]["rows"][0], json!([integer(2), integer(2)]));
    assert_ne!(baton, next, "a baton is used once");
    let reply = server.post(
        "/v3/pipeline",
        &json!({ "baton": next, "requests": [execute("COMMIT", json!([])), auto, { "type": "close" }] }),
    );
    assert!(reply.headers.contains_key("quorate-position") && reply.json()["baton"].is_null(), "{}", reply.text);
    assert_eq!(server.count("users").await, 2);
    let requests = json!([execute("BEGIN IMMEDIATE", json!([])), execute("DELETE FROM users", json!([]))]);
    let (baton, _) = server.pipeline(None, requests);
    server.pipeline(baton.as_deref(), json!([execute("ROLLBACK", json!([]))]));
    assert_eq!(server.count("users").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_of_a_stream_that_closes_is_rolled_back() {
    let server = Server::start().await;
    server.run(USERS).await;
    let insert = execute("INSERT INTO users (name) VALUES ('ann')", json!([]));
    server.pipeline(None, json!([execute("BEGIN", json!([])), insert, { "type": "close" }]));
    assert_eq!(server.one(insert)["result"]["affected_row_count"], 1, "nothing holds other writes up");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_only_reads_keeps_one_state_and_holds_up_nobody() {
    let server = Server::start().await;
    server.run(USERS).await;
    let count = execute("SELECT count(*) FROM users", json!([]));
    let insert = execute("INSERT INTO users (name) VALUES ('ann')", json!([]));
    let (baton, _) = server.pipeline(None, json!([execute("BEGIN TRANSACTION READONLY", json!([])), count]));
    server.one(insert.clone());
    let (baton, results) = server.pipeline(baton.as_deref(), json!([count, insert, count]));
    assert_eq!(results[0]["response"]["result"]["rows"][0][0], integer(0));
    assert_eq!(error_code(&results[1]), "SQLITE_READONLY");
    assert_eq!(results[2]["type"], "ok", "the transaction goes on");
    let (_, results) = server.pipeline(baton.as_deref(), json!([execute("COMMIT", json!([])), count]));
    assert_eq!(results[1]["response"]["result"]["rows"][0][0], integer(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn batons_are_used_once_and_streams_expire() {
    let send = |server: &Server, baton: &str| {
        let reply = server.post("/v3/pipeline", &json!({ "baton": baton, "requests": [] }));
        (reply.status, reply.json()["code"].as_str().unwrap_or_default().to_owned())
    };
    let server = Server::start().await;
    let (old, _) = server.pipeline(None, json!([]));
    server.pipeline(old.as_deref(), json!([]));
    assert_eq!(send(&server, old.as_deref().unwrap()), (400, "BATON_INVALID".to_owned()));
    assert_eq!(send(&server, "no baton"), (400, "BATON_INVALID".to_owned()));
    let (closed, _) = server.pipeline(None, json!([{ "type": "close" }, { "type": "get_autocommit" }]));
    assert_eq!(closed, None);
    // An idle stream expires by itself; each look would use its baton, so another stream is looked at.
    let server = Server::with(Options::default().with_stream_idle(Duration::from_millis(300))).await;
    let (idle, _) = server.pipeline(None, json!([]));
    let insert = json!([execute("BEGIN IMMEDIATE", json!([]))]);
    let (held, _) = server.pipeline(None, insert);
    wait_until("the expiry of the transaction", || {
        let (_, results) = server.pipeline(None, json!([execute("CREATE TABLE IF NOT EXISTS a (b)", json!([]))]));
        results[0]["type"] == "ok"
    });
    assert_eq!(send(&server, idle.as_deref().unwrap()), (400, "STREAM_EXPIRED".to_owned()), "it is older");
    drop(held);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_transaction_never_goes_on_in_autocommit() {
    let server = Server::with(Options::default().with_transaction_time(Duration::from_secs(3))).await;
    server.run(USERS).await;
    let insert = execute("INSERT INTO users (name) VALUES ('ann')", json!([]));
    let (baton, results) = server.pipeline(None, json!([execute("BEGIN", json!([])), insert]));
    assert_eq!(results[1]["type"], "ok");
    // Another write gets its turn when the transaction has reached its limit.
    server.run("INSERT INTO users (name) VALUES ('bob')").await;
    let (_, results) = server
        .pipeline(baton.as_deref(), json!([insert, execute("COMMIT", json!([])), execute("ROLLBACK", json!([]))]));
    assert_eq!(error_code(&results[0]), "TRANSACTION_ABORTED");
    assert_eq!(error_code(&results[1]), "TRANSACTION_ABORTED", "{}", results[1]);
    assert_eq!(error_code(&results[2]), "SQLITE_ERROR", "COMMIT has ended it");
    assert_eq!(server.count("users").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_run_until_a_statement_fails() {
    let server = Server::start().await;
    server.one(json!({ "type": "sequence", "sql": "CREATE TABLE t (a); INSERT INTO t VALUES (';'); -- end" }));
    let script = "INSERT INTO t VALUES (1); INSERT INTO missing VALUES (1); INSERT INTO t VALUES (2)";
    let (_, results) = server.pipeline(None, json!([{ "type": "sequence", "sql": script }]));
    assert_eq!(error_code(&results[0]), "SQLITE_ERROR");
    assert_eq!(server.count("t").await, 2);
    server.one(json!({ "type": "sequence", "sql": "BEGIN; INSERT INTO t VALUES (3); ROLLBACK;" }));
    assert_eq!(server.count("t").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_are_stored_in_their_stream() {
    let server = Server::start().await;
    let store = json!({ "type": "store_sql", "sql_id": 7, "sql": "SELECT 42" });
    let run = json!({ "type": "execute", "stmt": { "sql_id": 7 } });
    let (baton, results) = server.pipeline(None, json!([store, run, store]));
    assert_eq!(results[1]["response"]["result"]["rows"][0][0], integer(42));
    assert_eq!(error_code(&results[2]), "SQL_STORE_INVALID", "the id is in use");
    let close = json!({ "type": "close_sql", "sql_id": 7 });
    let (_, results) =
        server.pipeline(baton.as_deref(), json!([{ "type": "describe", "sql_id": 7 }, close, close, run]));
    let kinds: Vec<_> = results.iter().map(|result| result["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["ok", "ok", "ok", "error"]);
    assert_eq!(error_code(&server.pipeline(None, json!([run])).1[0]), "SQL_STORE_INVALID", "other streams lack it");
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_are_described_without_running() {
    let server = Server::start().await;
    server.run(USERS).await;
    let describe = |sql: &str| server.one(json!({ "type": "describe", "sql": sql }))["result"].clone();
    let query = describe("SELECT id, name AS n FROM users WHERE id > ?2 AND name = :name;");
    assert_eq!(query["params"], json!([{ "name": null }, { "name": "?2" }, { "name": ":name" }]));
    let names: Vec<_> = query["cols"].as_array().unwrap().iter().map(|col| col["name"].clone()).collect();
    assert_eq!(names, ["id", "n"]);
    assert_eq!((&query["is_readonly"], &query["is_explain"]), (&json!(true), &json!(false)));
    let write = describe("INSERT INTO users (name) VALUES (?)");
    assert_eq!((&write["is_readonly"], write["params"].as_array().unwrap().len()), (&json!(false), 1));
    let columns = |sql: &str| -> Vec<_> {
        describe(sql)["cols"].as_array().unwrap().iter().map(|col| col["name"].clone()).collect()
    };
    assert_eq!(columns("INSERT INTO users (name) VALUES (?) RETURNING id, upper(name || ?) AS n"), ["id", "n"]);
    assert_eq!(columns("UPDATE users AS u SET name = ? WHERE id = 1 RETURNING *, id + 1"), ["id", "name", "id + 1"]);
    assert_eq!(columns("DELETE FROM users"), [""; 0]);
    assert_eq!(columns("PRAGMA main.table_info(users)")[..2], ["cid", "name"]);
    assert_eq!(columns("PRAGMA temp.table_info(users)")[..2], ["cid", "name"]);
    assert_eq!(columns("PRAGMA read_uncommitted"), ["read_uncommitted"]);
    for changes in
        ["CREATE TABLE t (a)", "CREATE INDEX i ON users (name)", "ALTER TABLE users ADD a", "DROP TABLE users"]
    {
        let change = describe(changes);
        assert_eq!((&change["is_readonly"], &change["cols"]), (&json!(false), &json!([])), "{changes}");
    }
    assert_eq!(describe("EXPLAIN SELECT 1")["is_explain"], true);
    assert_eq!(describe("BEGIN")["is_readonly"], true);
    assert_eq!(server.count("users").await, 0);
    let (_, results) = server.pipeline(None, json!([{ "type": "describe", "sql": "SELECT * FROM missing" }]));
    assert_eq!(error_code(&results[0]), "SQLITE_ERROR");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_violates_the_protocol_is_refused_as_a_whole() {
    let server = Server::start().await;
    server.run(USERS).await;
    let insert = step("INSERT INTO users (name) VALUES ('ann')");
    let ok = |step: u32| json!({ "type": "ok", "step": step });
    for requests in [
        json!([{ "type": "fly" }]),
        json!([{ "type": "execute", "stmt": {} }]),
        json!([{ "type": "execute", "stmt": { "sql": "SELECT 1", "sql_id": 1 } }]),
        json!([{ "type": "batch", "batch": { "steps": [insert, step_if(ok(1), "SELECT 1")] } }]),
        json!([{ "type": "batch", "batch": { "steps": [insert, step_if(json!({ "type": "maybe" }), "SELECT 1")] } }]),
        json!([{ "type": "execute", "stmt": { "sql": "SELECT ?", "args": [{ "type": "integer", "value": "1.5" }] } }]),
        json!([{ "type": "execute", "stmt": { "sql": "SELECT ?", "args": [{ "type": "blob", "base64": "*" }] } }]),
        json!("x"),
    ] {
        let reply = server.post("/v3/pipeline", &json!({ "requests": requests }));
        assert_eq!((reply.status, &reply.json()["code"]), (400, &json!("MALFORMED_REQUEST")), "{requests}");
    }
    assert_eq!(server.count("users").await, 0, "nothing of them was done");
}
