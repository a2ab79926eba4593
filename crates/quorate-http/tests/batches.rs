//! Batches of Hrana: their conditions, and what a transaction in them costs.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests stop at the first surprise")]

mod common;

use common::{Server, integer, step, step_if, text};
use serde_json::{Value, json};

const USERS: &str = "CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT UNIQUE)";

fn ok(step: u32) -> Value {
    json!({ "type": "ok", "step": step })
}

fn not(cond: Value) -> Value {
    json!({ "type": "not", "cond": cond })
}

/// A transaction as the clients of libSQL send it.
fn transaction(mode: &str, statements: &[&str], knows_autocommit: bool) -> Value {
    let last = u32::try_from(statements.len()).unwrap();
    let under = |step: u32| {
        let is_open = not(json!({ "type": "is_autocommit" }));
        if knows_autocommit { json!({ "type": "and", "conds": [ok(step), is_open] }) } else { ok(step) }
    };
    let mut steps = vec![step(mode)];
    steps.extend(statements.iter().zip(0..).map(|(sql, number)| step_if(under(number), sql)));
    steps.push(step_if(under(last), "COMMIT"));
    steps.push(step_if(not(ok(last + 1)), "ROLLBACK"));
    Value::from(steps)
}

/// Returns `r` for each step with a result, `e` for each with an error, and `-` for each that did not run.
fn shape(result: &Value) -> String {
    let (results, errors) = (result["step_results"].as_array().unwrap(), result["step_errors"].as_array().unwrap());
    assert_eq!(results.len(), errors.len());
    let of = |(result, error): (&Value, &Value)| match (result.is_null(), error.is_null()) {
        (false, true) => 'r',
        (true, false) => 'e',
        (true, true) => '-',
        (false, false) => '?',
    };
    results.iter().zip(errors).map(of).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_run_under_all_conditions() {
    let server = Server::start().await;
    let error = |step: u32| json!({ "type": "error", "step": step });
    let all = |conds: &[Value]| json!({ "type": "and", "conds": conds });
    let any = |conds: &[Value]| json!({ "type": "or", "conds": conds });
    let auto = json!({ "type": "is_autocommit" });
    let mut steps = vec![step("SELECT 1"), step("SELECT nonsense"), step_if(error(0), "SELECT 'skipped'")];
    let mut expected = "re-".to_owned();
    for (condition, runs) in [
        (ok(0), true),
        (ok(1), false),
        (ok(2), false),
        (error(0), false),
        (error(1), true),
        (error(2), false),
        (not(ok(0)), false),
        (not(ok(2)), true),
        (all(&[]), true),
        (any(&[]), false),
        (all(&[ok(0), error(1)]), true),
        (all(&[ok(0), ok(1)]), false),
        (any(&[ok(1), error(1)]), true),
        (any(&[ok(1), ok(2)]), false),
        (auto.clone(), true),
        (not(auto.clone()), false),
        (Value::Null, true),
    ] {
        steps.push(step_if(condition, "SELECT 2"));
        expected.push(if runs { 'r' } else { '-' });
    }
    steps.extend([step("BEGIN"), step_if(auto.clone(), "SELECT 3"), step_if(not(auto), "COMMIT")]);
    expected.push_str("r-r");
    assert_eq!(shape(&server.batch(Value::from(steps))), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_of_writes_is_one_entry() {
    let server = Server::start().await;
    server.run(USERS).await;
    server.raised();
    let inserts = ["INSERT INTO users (name) VALUES ('ann') RETURNING id", "INSERT INTO users (name) VALUES ('bob')"];
    for (knows_autocommit, mode) in [(false, "BEGIN IMMEDIATE"), (true, "BEGIN DEFERRED")] {
        server.run("DELETE FROM users").await;
        let before = server.node.status().applied.index;
        let result = server.batch(transaction(mode, &inserts, knows_autocommit));
        assert_eq!(shape(&result), "rrrr-");
        assert_eq!(result["step_results"][1]["rows"], json!([[integer(1)]]));
        assert_eq!(result["step_results"][2]["last_insert_rowid"], "2");
        // The first write of a handle opens its session, which is an entry too.
        let entries = server.node.status().applied.index - before;
        assert!((1..=2).contains(&entries), "{entries} entries");
    }
    assert_eq!(server.count("users").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_with_a_failing_statement_has_no_effect_and_tells_which() {
    let server = Server::start().await;
    server.run(USERS).await;
    for knows_autocommit in [false, true] {
        let result = server.batch(transaction(
            "BEGIN",
            &[
                "INSERT INTO users (name) VALUES ('ann')",
                "INSERT INTO users (name) VALUES ('bob') RETURNING name",
                "INSERT INTO users (name) VALUES ('ann')",
                "INSERT INTO users (name) VALUES ('cid')",
            ],
            knows_autocommit,
        ));
        assert_eq!(shape(&result), "rrre--r");
        assert_eq!(result["step_results"][2]["rows"], json!([[text("bob")]]));
        assert_eq!(result["step_errors"][3]["code"], "SQLITE_CONSTRAINT_UNIQUE");
        assert_eq!(server.count("users").await, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_violated_deferred_foreign_key_is_the_error_of_commit() {
    let server = Server::start().await;
    server.run("CREATE TABLE p (id INTEGER PRIMARY KEY)").await;
    server.run("CREATE TABLE c (p REFERENCES p DEFERRABLE INITIALLY DEFERRED)").await;
    let result = server.batch(transaction("BEGIN", &["INSERT INTO c VALUES (1)"], false));
    assert_eq!(shape(&result), "rree");
    assert_eq!(result["step_errors"][2]["code"], "SQLITE_CONSTRAINT_FOREIGNKEY");
    let result = server.batch(transaction("BEGIN", &["INSERT INTO c VALUES (1)", "INSERT INTO p VALUES (1)"], true));
    assert_eq!(shape(&result), "rrrr-");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_of_reads_and_writes_sees_its_own_writes() {
    let server = Server::start().await;
    server.run(USERS).await;
    let statements = ["INSERT INTO users (name) VALUES ('ann')", "SELECT count(*) FROM users", "DELETE FROM users"];
    let result = server.batch(transaction("BEGIN", &statements, false));
    assert_eq!(shape(&result), "rrrrr-");
    assert_eq!(result["step_results"][2]["rows"], json!([[integer(1)]]));
    let reads = server.batch(transaction("BEGIN READONLY", &["SELECT 1", "SELECT count(*) FROM users"], true));
    assert_eq!(shape(&reads), "rrrr-");
    let wrong = server.batch(transaction("BEGIN READONLY", &["SELECT 1", "DELETE FROM users"], true));
    assert_eq!((shape(&wrong).as_str(), &wrong["step_errors"][2]["code"]), ("rre-r", &json!("SQLITE_READONLY")));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_needs_foreign_keys_to_be_off_is_refused() {
    let server = Server::start().await;
    server.run("CREATE TABLE p (id INTEGER PRIMARY KEY)").await;
    server.run("CREATE TABLE c (p REFERENCES p ON DELETE CASCADE)").await;
    server.run("INSERT INTO p VALUES (1)").await;
    server.run("INSERT INTO c VALUES (1)").await;
    let mut steps = vec![step("PRAGMA foreign_keys=off"), step("BEGIN")];
    steps.push(step_if(ok(1), "CREATE TABLE q (id INTEGER PRIMARY KEY)"));
    steps.push(step_if(ok(2), "DROP TABLE p"));
    steps.extend([step_if(ok(3), "COMMIT"), step_if(not(ok(4)), "ROLLBACK"), step("PRAGMA foreign_keys=on")]);
    let result = server.batch(Value::from(steps));
    assert_eq!(
        (shape(&result).as_str(), &result["step_errors"][3]["code"]),
        ("rrre-rr", &json!("FOREIGN_KEYS_ENFORCED"))
    );
    assert_eq!(server.count("c").await, 1, "no row was removed by a cascade");
}

/// Otherwise a small request could have a stored text copied as often as it has steps.
#[tokio::test(flavor = "multi_thread")]
async fn a_stored_text_that_is_repeated_too_often_runs_step_by_step() {
    let server = Server::start().await;
    // Together the copies have more bytes than the body of a request may have.
    let copies = 40;
    let long = format!("SELECT 1 /*{}*/", "x".repeat(500_000));
    let mut steps = vec![step("BEGIN READONLY")];
    steps.extend(std::iter::repeat_n(json!({ "stmt": { "sql_id": 1 } }), copies));
    steps.push(step("COMMIT"));
    let requests = json!([
        { "type": "store_sql", "sql_id": 1, "sql": long },
        { "type": "batch", "batch": { "steps": steps } },
    ]);
    let (_, results) = server.pipeline(None, requests);
    assert_eq!(shape(&results[1]["response"]["result"]), "r".repeat(copies + 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_has_the_same_results_line_by_line() {
    let server = Server::start().await;
    let steps =
        json!([step("SELECT 1 AS a UNION SELECT 2"), step("SELECT x"), step_if(ok(1), "SELECT 3"), step("SELECT 4")]);
    let reply = server.post("/v3/cursor", &json!({ "baton": null, "batch": { "steps": steps } }));
    assert_eq!((reply.status, reply.headers["content-type"].as_str()), (200, "application/x-ndjson"));
    let lines: Vec<Value> = reply.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines[0]["baton"].is_string());
    let kinds: Vec<_> = lines[1..].iter().map(|line| line["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["step_begin", "row", "row", "step_end", "step_error", "step_begin", "row", "step_end"]);
    assert_eq!((&lines[2]["row"], &lines[5]["step"], &lines[6]["step"]), (&json!([integer(1)]), &json!(1), &json!(3)));
    let baton = lines[0]["baton"].as_str();
    assert_eq!(server.pipeline(baton, json!([{ "type": "close" }])).1[0]["type"], "ok");
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_version_one_are_served() {
    let server = Server::start().await;
    let one = server.post("/v1/execute", &json!({ "stmt": { "sql": "SELECT 1" } }));
    assert_eq!(one.json()["result"]["rows"], json!([[integer(1)]]));
    let steps = transaction("BEGIN", &["CREATE TABLE t (a)", "INSERT INTO t VALUES (1)"], false);
    let batch = server.post("/v1/batch", &json!({ "batch": { "steps": steps } }));
    assert_eq!(shape(&batch.json()["result"]), "rrrr-");
    let wrong = server.post("/v1/execute", &json!({ "stmt": { "sql": "SELECT x" } }));
    assert_eq!((wrong.status, &wrong.json()["code"]), (400, &json!("SQLITE_ERROR")));
}
