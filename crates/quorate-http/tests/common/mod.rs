//! A node of one member with its doors, and a plain HTTP client.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::ops::Deref;
use std::time::{Duration, Instant};

use quorate::admin::Login;
use quorate::limits::FORMAT_LEVEL;
use quorate::users::UserRole;
use quorate::{Config, Node, Sql};
use quorate_http::{Options, Port, serve};
use serde_json::{Value, json};
use tempfile::TempDir;

/// How long a test waits for a state.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A port with the doors, and a client of it.
pub struct Door {
    pub http: Port,
}

/// A node and its port.
pub struct Server {
    pub node: Node,
    door: Door,
    _dir: TempDir,
}

impl Deref for Server {
    type Target = Door;

    fn deref(&self) -> &Door {
        &self.door
    }
}

/// An answer.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub text: String,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }
}

impl Server {
    pub async fn start() -> Self {
        Self::with(Options::default()).await
    }

    pub async fn with(options: Options) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::start(Config::single(dir.path())).await.unwrap();
        let door = Door::open(node.sql(), options).await;
        Self { node, door, _dir: dir }
    }

    /// Starts a server that asks who the users of its cluster are, which has none.
    pub async fn without_users() -> Self {
        let mut server = Self::start().await;
        // Until it has done something, the node may not know its users.
        server.run("DROP TABLE IF EXISTS missing").await;
        server.door = Door::open(server.node.sql(), Options::default().with_users(server.node.users())).await;
        server
    }

    /// Starts a server whose cluster has a user of each role; returns their tokens, in the order of the roles.
    pub async fn with_users() -> (Self, [String; 3]) {
        Self::with_users_and(Options::default()).await
    }

    /// Does so with options.
    pub async fn with_users_and(options: Options) -> (Self, [String; 3]) {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::start(Config::single(dir.path())).await.unwrap();
        let mut tokens = [UserRole::Admin, UserRole::Write, UserRole::Read].map(|role| (role, String::new()));
        for (role, token) in &mut tokens {
            let added = node.admin().add_user(role.name(), *role, Login::Token).await.unwrap();
            *token = added.unwrap().text().to_owned();
        }
        let [admin, write, read] = tokens.map(|(_, token)| token);
        let door = Door::open(node.sql(), options.with_users(node.users())).await;
        (Self { node, door, _dir: dir }, [read, write, admin])
    }

    /// Runs a statement by the library.
    pub async fn run(&self, sql: &'static str) {
        self.node.sql().execute(sql, ()).await.unwrap();
    }

    /// Waits until the node has raised the format level, about a second after its start. That is an entry too, and the
    /// last one that it adds by itself.
    pub fn raised(&self) {
        wait_until("the format level", || self.node.status().format_level == FORMAT_LEVEL);
    }

    pub async fn count(&self, table: &str) -> i64 {
        self.node.sql().query_one(format!("SELECT count(*) FROM {table}"), ()).await.unwrap()
    }
}

impl Door {
    pub async fn open(sql: Sql, options: Options) -> Self {
        Self { http: serve("127.0.0.1:0", sql, options).await.unwrap() }
    }

    /// Sends a request. It blocks, which only the thread of the test notices.
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
        let mut stream = TcpStream::connect(self.http.local_addr()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // The port may answer and close before it has read everything.
        let _ = stream.write_all(head.as_bytes());
        let _ = stream.write_all(body);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("an answer");
        let (head, body) = (String::from_utf8(answer[..end].to_vec()).unwrap(), answer[end + 4..].to_vec());
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines.filter_map(|line| line.split_once(": "));
        let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
        Reply { status, headers, text: String::from_utf8_lossy(&body).into_owned(), body }
    }

    pub fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], b"")
    }

    pub fn post(&self, path: &str, body: &Value) -> Reply {
        self.send("POST", path, &[("content-type", "application/json")], body.to_string().as_bytes())
    }

    /// Sends requests on a stream; returns the baton of the next request and the results.
    pub fn pipeline(&self, baton: Option<&str>, requests: Value) -> (Option<String>, Vec<Value>) {
        let reply = self.post("/v3/pipeline", &json!({ "baton": baton, "requests": requests }));
        assert_eq!(reply.status, 200, "{}", reply.text);
        let mut body = reply.json();
        let baton = body["baton"].as_str().map(str::to_owned);
        let Value::Array(results) = body["results"].take() else { panic!("no results: {body}") };
        (baton, results)
    }

    /// Runs one request on a stream of its own; returns its response.
    pub fn one(&self, request: Value) -> Value {
        let (_, results) = self.pipeline(None, json!([request, { "type": "close" }]));
        assert_eq!(results[0]["type"], "ok", "{}", results[0]);
        results[0]["response"].clone()
    }

    /// Runs a batch on a stream of its own; returns its result.
    pub fn batch(&self, steps: Value) -> Value {
        self.one(json!({ "type": "batch", "batch": { "steps": steps } }))["result"].clone()
    }
}

/// A request to execute a statement with arguments by position.
pub fn execute(sql: &str, args: Value) -> Value {
    json!({ "type": "execute", "stmt": { "sql": sql, "args": args } })
}

/// A step of a batch.
pub fn step(sql: &str) -> Value {
    json!({ "stmt": { "sql": sql } })
}

/// A step of a batch that runs under a condition.
pub fn step_if(condition: Value, sql: &str) -> Value {
    json!({ "stmt": { "sql": sql }, "condition": condition })
}

pub fn integer(value: i64) -> Value {
    json!({ "type": "integer", "value": value.to_string() })
}

pub fn text(value: &str) -> Value {
    json!({ "type": "text", "value": value })
}

/// Waits until a state is reached.
pub fn wait_until(what: &str, mut is_reached: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_reached() {
        assert!(Instant::now() < deadline, "{what} did not happen");
        std::thread::yield_now();
    }
}

/// A seeded generator, good enough to choose requests.
pub struct Draw(pub u64);

impl Draw {
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }

    pub fn of<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }
}
