//! What no endpoint takes: each is asked without a login, with too little of a role, by a wrong method, with bytes that
//! mean nothing, and with a byte or an item more than its limit. It answers 4xx, and the port serves on.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests stop at the first surprise")]

mod common;

use common::{Reply, Server};
use quorate_http::options::{BODY_BYTES_MAX, IDEMPOTENCY_KEY_BYTES_MAX, STATEMENTS_MAX};
use quorate_http::port::{HEAD_BYTES_MAX, HEADERS_MAX};
use serde_json::json;

/// The endpoints that answer everyone, whatever is in the body.
const PUBLIC: [&str; 5] = ["/", "/v2", "/v3", "/openapi.json", "/readyz"];

/// The endpoints that have no use for a body.
const WITHOUT_BODY: [&str; 6] = ["/boot", "/db/backup", "/leader", "/licenses", "/nodes", "/status"];

/// A server with users, all its endpoints with their methods, and the tokens of a reader and of an administrator.
struct Asked {
    server: Server,
    endpoints: Vec<(String, String)>,
    reader: String,
    admin: String,
}

impl Asked {
    async fn start() -> Self {
        let (server, [reader, _, admin]) = Server::with_users().await;
        let described = server.get("/openapi.json").json();
        let mut endpoints = Vec::new();
        for (path, operations) in described["paths"].as_object().unwrap() {
            for method in operations.as_object().unwrap().keys().filter(|name| ["get", "post"].contains(&name.as_str()))
            {
                endpoints.push((method.to_ascii_uppercase(), path.clone()));
            }
        }
        assert!(endpoints.len() > 20, "{}", endpoints.len());
        Self { server, endpoints, reader, admin }
    }

    /// The endpoints that ask who it is.
    fn closed(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = self.endpoints.iter().map(|(method, path)| (method.as_str(), path.as_str()));
        all.filter(|(_, path)| !PUBLIC.contains(path))
    }

    fn send(&self, token: &str, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        let login = format!("Bearer {token}");
        let headers: Vec<_> = [("authorization", login.as_str())].iter().chain(headers).copied().collect();
        self.server.send(method, path, &headers, body)
    }

    /// Sends a request as the administrator.
    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> u16 {
        self.send(&self.admin, method, path, headers, body).status
    }

    fn serves_on(&self) {
        assert_eq!(self.ask("GET", "/db/query?q=SELECT%201", &[], b""), 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_gets_in_by_a_large_body_or_a_wrong_method() {
    let asked = Asked::start().await;
    let too_long = vec![b' '; BODY_BYTES_MAX + 1];
    for (method, path) in asked.closed() {
        assert_eq!(asked.server.send(method, path, &[], &too_long).status, 401, "{method} {path}");
        assert_eq!(asked.ask("PATCH", path, &[], &too_long), 405, "{path}");
        let page = [("origin", "http://evil.example")];
        assert_eq!(asked.ask(method, path, &page, b"[]"), 403, "{method} {path} from a web page");
    }
    for path in ["/db/backup", "/boot"] {
        let (method, _) = asked.closed().find(|(_, known)| *known == path).unwrap();
        assert_eq!(asked.send(&asked.reader, method, path, &[], &too_long).status, 403, "{path} as a reader");
    }
    asked.serves_on();
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_mean_nothing_or_are_too_long_are_refused() {
    let asked = Asked::start().await;
    let too_long = vec![b' '; BODY_BYTES_MAX + 1];
    for (method, path) in asked.closed() {
        assert_eq!(asked.ask(method, path, &[], &too_long), 413, "{method} {path}");
        if method == "POST" && !WITHOUT_BODY.contains(&path) {
            // A script of nothing is done, and a note of a lock is any bytes.
            let status = if path == "/db/load" { 200 } else { 400 };
            assert_eq!(asked.ask(method, path, &[], &too_long[1..]), status, "{path}: spaces only");
            let status = if path == "/locks/{name}" { 200 } else { 400 };
            assert_eq!(asked.ask(method, path, &[], b"\xff\x00{["), status, "{path}");
        }
    }
    asked.serves_on();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_more_than_allowed_is_refused() {
    let asked = Asked::start().await;
    let statements = |count: usize| json!(vec!["SELECT 1"; count]).to_string();
    let requests = |count: usize| {
        let one = json!({ "type": "get_autocommit" });
        json!({ "requests": vec![one; count] }).to_string()
    };
    let steps = |count: usize| {
        let never = json!({ "type": "not", "cond": { "type": "ok", "step": 0 } });
        let mut steps = vec![json!({ "stmt": { "sql": "SELECT 1" }, "condition": never }); count];
        steps[0] = json!({ "stmt": { "sql": "SELECT 1" } });
        json!({ "batch": { "steps": steps } }).to_string()
    };
    let scripts = |count: usize| "SELECT 1;".repeat(count);
    let cases: [(&str, &dyn Fn(usize) -> String); 7] = [
        ("/db/execute", &statements),
        ("/db/query", &statements),
        ("/db/request", &statements),
        ("/db/load", &scripts),
        ("/v3/pipeline", &requests),
        ("/v3/cursor", &steps),
        ("/v1/batch", &steps),
    ];
    for (path, body) in cases {
        assert_eq!(asked.ask("POST", path, &[], body(STATEMENTS_MAX + 1).as_bytes()), 400, "{path}");
    }
    for path in ["/v3/pipeline", "/v3/cursor", "/v1/batch"] {
        let (_, body) = cases.iter().find(|(known, _)| *known == path).unwrap();
        assert_eq!(asked.ask("POST", path, &[], body(STATEMENTS_MAX).as_bytes()), 200, "{path}");
    }
    asked.serves_on();
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_beyond_their_limits_are_refused() {
    let asked = Asked::start().await;
    for (method, path) in asked.closed() {
        let key = "k".repeat(IDEMPOTENCY_KEY_BYTES_MAX + 1);
        assert_eq!(asked.ask(method, path, &[("idempotency-key", &key)], b"[]"), 400, "{method} {path}");
        assert_eq!(asked.ask(method, path, &[("quorate-level", "sometimes")], b"[]"), 400, "{method} {path}");
        let many = vec![("x", "y"); HEADERS_MAX + 1];
        assert_eq!(asked.ask(method, path, &many, b"[]"), 431, "{method} {path}");
        let long = "y".repeat(HEAD_BYTES_MAX + 1);
        assert_eq!(asked.ask(method, path, &[("x", &long)], b"[]"), 431, "{method} {path}");
        let target = format!("{path}?{}", "z".repeat(HEAD_BYTES_MAX + 1));
        assert!([414, 431].contains(&asked.ask(method, &target, &[], b"[]")), "{method} {path}");
    }
    asked.serves_on();
}
