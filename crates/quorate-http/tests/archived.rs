//! `Quorate-Acknowledge: archived`: writes that are answered when they are in the archive.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Door, Reply, Server, execute, step};
use quorate::archive::objects::{Memory, Trouble};
use quorate::archive::{Archive, Objects, Plan, Target, only_cluster};
use quorate::{Config, Node};
use quorate_env::Env;
use quorate_http::Options;
use serde_json::{Value, json};
use tempfile::TempDir;

const INSERT: &str = "INSERT INTO t VALUES (1)";

fn send(door: &Door, more: &[(&str, &str)], path: &str, body: &Value) -> Reply {
    let mut headers = vec![("quorate-acknowledge", "archived"), ("content-type", "application/json")];
    headers.extend(more);
    door.send("POST", path, &headers, body.to_string().as_bytes())
}

fn pipeline(request: Value) -> Value {
    json!({ "requests": [request, { "type": "close" }] })
}

/// One request of each kind that writes.
fn requests() -> Vec<(&'static str, Value)> {
    let batch = json!([step("BEGIN"), step(INSERT), step(INSERT), step("COMMIT")]);
    vec![
        ("/db/execute", json!([INSERT])),
        ("/db/execute?transaction", json!([INSERT, INSERT])),
        ("/db/request", json!([INSERT, "SELECT 1"])),
        ("/v2/pipeline", pipeline(execute(INSERT, json!([])))),
        ("/v3/pipeline", pipeline(json!({ "type": "batch", "batch": { "steps": batch } }))),
        ("/v1/execute", json!({ "stmt": { "sql": INSERT } })),
    ]
}

struct Archived {
    node: Node,
    door: Door,
    memory: Memory,
    _dir: TempDir,
}

impl Archived {
    async fn start() -> Self {
        let (dir, memory) = (tempfile::tempdir().unwrap(), Memory::new());
        let archive = Archive::new(Arc::new(memory.clone())).with_interval(Duration::from_millis(20));
        let node = Node::start(Config::single(dir.path()).with_archive(archive)).await.unwrap();
        let door = Door::open(node.sql(), Options::default()).await;
        node.sql().with_archived_writes().execute("CREATE TABLE t (a)", ()).await.unwrap();
        Self { node, door, memory, _dir: dir }
    }

    /// Whether everything that is applied is in the store.
    async fn is_all_there(&self) -> bool {
        let objects: Arc<dyn Objects> = Arc::new(self.memory.clone());
        let cluster = only_cluster(&*objects, None).await.unwrap();
        let target = Target::Entry(self.node.status().applied.index);
        Plan::make(&Env::real(), &objects, cluster, target).await.is_ok()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_is_answered_when_it_is_archived() {
    let archived = Archived::start().await;
    for (path, body) in requests() {
        let done = send(&archived.door, &[], path, &body);
        assert_eq!(done.status, 200, "{path}: {done:?}");
        assert!(archived.is_all_there().await, "{path}");
    }
    // The request that commits decides, whoever began.
    let (baton, _) = archived.door.pipeline(None, json!([execute("BEGIN", json!([])), execute(INSERT, json!([]))]));
    let commit = json!({ "baton": baton, "requests": [execute("COMMIT", json!([])), { "type": "close" }] });
    let done = send(&archived.door, &[], "/v2/pipeline", &commit);
    assert_eq!((done.status, &done.json()["results"][0]["type"]), (200, &json!("ok")), "{done:?}");
    assert!(archived.is_all_there().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_is_not_archived_says_where_it_is() {
    let archived = Archived::start().await;
    // Long enough for the write itself on a slow disk.
    let short = archived.node.sql().with_deadline(Duration::from_secs(10));
    let door = Door::open(short, Options::default()).await;
    archived.memory.set_troubles(|_, _| Trouble { is_refused: true, ..Trouble::default() });
    let key = [("idempotency-key", "k")];
    let late = send(&door, &key, "/db/execute", &json!([INSERT]));
    assert_eq!((late.status, &late.json()["code"]), (500, &json!("NOT_ARCHIVED")), "{late:?}");
    let position = late.headers.get("quorate-position").unwrap().clone();
    assert_eq!(send(&door, &key, "/db/execute", &json!([INSERT])).headers.get("quorate-position"), Some(&position));
    archived.memory.end_troubles();
    let done = send(&archived.door, &key, "/db/execute", &json!([INSERT]));
    assert_eq!((done.status, done.headers.get("quorate-position")), (200, Some(&position)), "{done:?}");
    let count: i64 = archived.node.sql().query_one("SELECT count(*) FROM t", ()).await.unwrap();
    assert_eq!(count, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_promised_is_refused() {
    let server = Server::start().await;
    server.run("CREATE TABLE t (a)").await;
    let headers = [("quorate-acknowledge", "leader")];
    let unknown = server.send("POST", "/db/execute", &headers, json!([INSERT]).to_string().as_bytes());
    assert_eq!(unknown.status, 400, "{unknown:?}");
    assert!(unknown.text.contains("Quorate-Acknowledge is 'archived', or absent"), "{unknown:?}");
    let refused = send(&server, &[], "/db/execute", &json!([INSERT]));
    assert!(refused.text.contains("no node archives"), "{refused:?}");
    assert_eq!(server.count("t").await, 0);
}
