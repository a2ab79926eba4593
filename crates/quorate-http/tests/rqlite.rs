//! The API of rqlite on a real node, and what all endpoints share.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests read real files and stop at the first surprise"
)]

mod common;

use common::{Door, Server};
use quorate_http::Options;
use serde_json::{Value, json};

const FOO: &str = "CREATE TABLE foo (id INTEGER PRIMARY KEY, name TEXT UNIQUE, data BLOB)";

fn results(server: &Server, path: &str, body: &Value) -> Vec<Value> {
    let reply = server.post(path, body);
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply.json()["results"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_and_queries_answer_as_rqlite_does() {
    let server = Server::start().await;
    let created = server.post("/db/execute", &json!([FOO]));
    assert_eq!(created.text, r#"{"results":[{}]}"#);
    let insert = json!([["INSERT INTO foo (name, data) VALUES (?, ?)", "fiona", [1, 255]]]);
    let inserted = server.post("/db/execute?timings&raft_index", &insert).json();
    assert_eq!(
        (&inserted["results"][0]["last_insert_id"], &inserted["results"][0]["rows_affected"]),
        (&json!(1), &json!(1))
    );
    assert!(inserted["time"].is_f64() && inserted["results"][0]["time"].is_f64() && inserted["raft_index"].is_u64());
    let plain = server.get("/db/query?q=SELECT+*+FROM+foo");
    let table = r#"{"columns":["id","name","data"],"types":["integer","text","blob"],"values":[[1,"fiona","Af8="]]}"#;
    assert_eq!(plain.text, format!("{{\"results\":[{table}]}}"));
    let shown = server.get("/db/query?associative&blob_array&pretty&q=SELECT%20name,data%20FROM%20foo");
    assert!(shown.text.lines().count() > 5, "{}", shown.text);
    assert_eq!(shown.json()["results"][0]["rows"], json!([{ "name": "fiona", "data": [1, 255] }]));
    let none = server.post("/db/query", &json!([["SELECT name FROM foo WHERE id = :id", { "id": 7 }]]));
    assert_eq!(none.text, r#"{"results":[{"columns":["name"],"types":["text"]}]}"#);
    let body = b"INSERT INTO foo (name) VALUES ('bob') RETURNING id";
    let raw = server.send("POST", "/db/execute", &[("content-type", "text/plain")], body);
    assert_eq!(raw.json()["results"][0]["values"], json!([[2]]));
    assert!(raw.headers.contains_key("quorate-position"));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_transaction_each_statement_stands_alone() {
    let server = Server::start().await;
    server.run(FOO).await;
    server.raised();
    let before = server.node.status().applied.index;
    let all = results(
        &server,
        "/db/execute",
        &json!([
            "INSERT INTO foo (name) VALUES ('a')",
            "INSRT INTO foo",
            ["INSERT INTO foo (name) VALUES (?)"],
            "INSERT INTO foo (name) VALUES ('a')",
            "INSERT INTO missing VALUES (1)",
            "BEGIN",
            "INSERT INTO foo (name) VALUES ('b')",
        ]),
    );
    let failed: Vec<_> = all.iter().map(|result| result.get("error").is_some()).collect();
    assert_eq!(failed, [false, true, true, true, true, true, false]);
    assert_eq!(all[3]["error"], "UNIQUE constraint failed: foo.name");
    assert_eq!(server.count("foo").await, 2);
    assert!(server.node.status().applied.index - before <= 2, "all writes are one entry, after that of the session");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_is_done_whole_or_not_at_all() {
    let server = Server::start().await;
    server.run(FOO).await;
    let body = json!(["INSERT INTO foo (name) VALUES ('a')", "INSERT INTO foo (name) VALUES ('a')", "DELETE FROM foo"]);
    for path in ["/db/execute?transaction", "/db/request?transaction"] {
        let all = results(&server, path, &body);
        assert_eq!((all.len(), all[1]["error"].as_str()), (2, Some("UNIQUE constraint failed: foo.name")), "{all:?}");
        assert_eq!(server.count("foo").await, 0);
    }
    let mixed = json!([
        "INSERT INTO foo (name) VALUES ('a')",
        "SELECT count(*) FROM foo",
        "INSERT INTO foo (name) VALUES ('a')"
    ]);
    let all = results(&server, "/db/request?transaction", &mixed);
    assert!(all[1]["values"] == json!([[1]]) && all[2].get("error").is_some(), "{all:?}");
    assert_eq!(server.count("foo").await, 0);
    let all = results(&server, "/db/request", &mixed);
    assert!(all[1]["values"] == json!([[1]]) && all[2].get("error").is_some(), "{all:?}");
    assert_eq!(server.count("foo").await, 1, "without `transaction` the others are done");
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_do_not_write_and_every_level_answers() {
    let server = Server::start().await;
    server.run(FOO).await;
    let refused = results(&server, "/db/query", &json!(["DELETE FROM foo", "SELECT 1"]));
    assert!(refused[0].get("error").is_some() && refused[1]["values"] == json!([[1]]), "{refused:?}");
    for level in ["none", "none&freshness=1s", "weak", "linearizable", "strong", "auto&redirect"] {
        let reply = server.get(&format!("/db/query?q=SELECT%201&level={level}"));
        assert_eq!((reply.status, &reply.json()["results"][0]["values"]), (200, &json!([[1]])), "{level}");
    }
    assert_eq!(server.get("/db/query?q=SELECT%201&level=eventual").status, 400);
    assert_eq!(server.get("/db/query").status, 400);
    let reads = results(&server, "/db/query?transaction", &json!(["SELECT 1", "SELECT 2"]));
    assert_eq!(reads.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queued_write_is_done_when_it_is_answered() {
    let server = Server::start().await;
    server.run(FOO).await;
    let reply = server.post("/db/execute?queue&wait", &json!(["INSERT INTO foo (name) VALUES ('a')"])).json();
    assert!(reply["sequence_number"].is_u64() && reply["results"] == json!([]), "{reply}");
    assert_eq!(server.count("foo").await, 1);
    let failed = results(&server, "/db/execute?queue", &json!(["INSERT INTO foo (name) VALUES ('a')"]));
    assert!(failed[0].get("error").is_some(), "what failed is said");
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_are_loaded_and_the_rest_is_refused_with_a_reason() {
    let server = Server::start().await;
    let dump =
        b"PRAGMA foreign_keys=OFF;\nBEGIN TRANSACTION;\nCREATE TABLE t (a);\nINSERT INTO t VALUES ('x;y');\nCOMMIT;\n";
    assert_eq!(server.send("POST", "/db/load", &[], dump).status, 200);
    assert_eq!(server.count("t").await, 1);
    assert_eq!(server.send("POST", "/db/load", &[], b"INSERT INTO t VALUES (1); nonsense").status, 400);
    assert_eq!(server.count("t").await, 1);
    for (method, path, body) in [
        ("POST", "/db/load", &b"SQLite format 3\0..."[..]),
        ("POST", "/boot", b""),
        ("GET", "/db/backup", b""),
        ("POST", "/leader", b""),
    ] {
        let reply = server.send(method, path, &[], body);
        assert!(reply.status == 422 && reply.json()["error"].as_str().unwrap().len() > 20, "{path}: {}", reply.text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_is_a_file_of_sqlite_at_a_position() {
    let server = Server::start().await;
    server.run(FOO).await;
    let many = "WITH n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 400) \
                INSERT INTO foo (name) SELECT hex(randomblob(2000)) FROM n";
    server.run(many).await;
    let door = Door::open(server.node.sql(), Options::default().with_backups(server.node.admin())).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    for query in ["", "?fmt=delete&noleader", "?fmt=binary&vacuum"] {
        let reply = door.get(&format!("/db/backup{query}"));
        assert_eq!((reply.status, &*reply.headers["content-type"]), (200, "application/vnd.sqlite3"), "{query}");
        assert_eq!(reply.headers["content-length"], reply.body.len().to_string());
        assert!(reply.headers.contains_key("quorate-position") && reply.body.len() > 1_000_000);
        std::fs::write(file.path(), &reply.body).unwrap();
        let database = rusqlite::Connection::open(file.path()).unwrap();
        let count: i64 = database.query_row("SELECT count(*) FROM foo", (), |row| row.get(0)).unwrap();
        let check: String = database.query_row("PRAGMA integrity_check", (), |row| row.get(0)).unwrap();
        assert_eq!((count, &*check), (400, "ok"));
    }
    for query in ["?compress", "?fmt=sql"] {
        assert_eq!(door.get(&format!("/db/backup{query}")).status, 422, "{query}");
    }
    let left = std::fs::read_dir(std::env::temp_dir()).unwrap().filter_map(Result::ok);
    let own = format!("quorate-backup-{}-", std::process::id());
    let left = left.filter(|item| item.file_name().to_string_lossy().starts_with(&own));
    assert_eq!(left.count(), 0, "nothing is left among the temporary files");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cluster_is_shown_as_clients_read_it() {
    let server = Server::with(Options::default().with_base_url("http://db.example:8080")).await;
    let ready = server.get("/readyz");
    assert_eq!((ready.status, ready.text.as_str()), (200, "[+]node ok\n[+]leader ok\n[+]store ok\n"));
    let nodes = server.get("/nodes").json();
    assert_eq!(nodes["quorate"]["api_addr"], "http://db.example:8080");
    assert_eq!(server.get("/nodes?ver=2").json()["nodes"][0]["leader"], true);
    assert_eq!(server.get("/status?key=store.raft").json(), json!({ "state": "Leader" }));
    assert_eq!(server.get("/leader").json()["id"], "quorate");
    assert!(server.get("/licenses").text.contains("Apache License"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_description_names_every_endpoint_and_its_methods() {
    let server = Server::start().await;
    let described = server.get("/openapi.json").json();
    assert_eq!(described["openapi"], "3.1.0");
    let paths = described["paths"].as_object().unwrap();
    assert!(paths.len() > 15, "{}", paths.len());
    // There is no answer for a key or a lock that is missing but 404.
    assert_eq!(server.send("PUT", "/keys/{key}", &[], b"value").status, 201);
    assert_eq!(server.send("POST", "/locks/{name}", &[], b"").status, 200);
    for (path, operations) in paths {
        for method in ["GET", "POST"] {
            let is_described = operations.get(method.to_ascii_lowercase()).is_some();
            let status = server.send(method, path, &[], b"").status;
            assert_ne!(status, 404, "{path}");
            assert_eq!(status != 405, is_described, "{method} {path}: {status}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_without_users_listens_only_where_no_one_else_is() {
    let server = Server::start().await;
    let sql = server.node.sql();
    let open = quorate_http::serve("0.0.0.0:0", sql.clone(), Options::default()).await;
    assert!(open.is_err_and(|error| !error.is_retryable() && error.to_string().contains("insecure")));
    let told = quorate_http::serve("0.0.0.0:0", sql, Options::default().with_insecure(true)).await.unwrap();
    told.stop().await;
}
