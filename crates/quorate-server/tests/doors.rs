//! Real nodes behind a real HTTP port: what it reports while they run, lose each other and end.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

mod common;
#[path = "../../quorate/tests/support/mod.rs"]
mod support;

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{exchange, get, raised, show};
use quorate::admin::Login;
use quorate::sim::SimHooks;
use quorate::users::UserRole;
use quorate_env::signal::Signal;
use quorate_env::worker::{Ended, Worker};
use quorate_env::{BoxTask, Env, Host, Priority, RealHost};
use quorate_http::Options;
use quorate_server::http::{ASKS_MAX, CONNECTIONS_MAX, HttpServer, serve, serve_in};
use serde_json::{Value, json};
use support::{Cluster, Single, run, until};

/// Returns the status code and the JSON of a page.
fn json_of(server: &HttpServer, path: &str) -> (u16, Value) {
    let (code, body) = get(server, path);
    (code, serde_json::from_str(&body).unwrap_or_else(|_| panic!("{body}")))
}

fn is_ready(server: &HttpServer) -> bool {
    json_of(server, "/ready") == (200, json!({ "ready": true }))
}

/// Returns the reasons why a node is not ready, joined into one text.
fn reasons(server: &HttpServer) -> String {
    let (code, body) = json_of(server, "/ready");
    assert_eq!((code, &body["ready"]), (503, &json!(false)));
    body["reasons"].as_array().unwrap().iter().map(|reason| reason.as_str().unwrap()).collect::<Vec<_>>().join("; ")
}

#[test]
fn a_port_follows_the_life_of_its_node() {
    run(async {
        let server = serve("127.0.0.1:0", None).await.unwrap();
        assert_eq!(get(&server, "/health"), (200, "ok\n".to_owned()));
        assert_eq!(reasons(&server), "the node is starting");
        assert_eq!(get(&server, "/metrics").0, 503);
        assert_eq!(json_of(&server, "/status"), (503, json!({ "error": "the node is starting" })));

        let Single { dir, node } = Single::start().await;
        server.show(&node);
        until("readiness", || is_ready(&server)).await;
        raised(&node).await;
        node.sql().execute("CREATE TABLE t (x)", ()).await.unwrap();
        let (code, status) = json_of(&server, "/status");
        let shown = node.status();
        assert_eq!((code, &status["name"], &status["member"]), (200, &json!("node"), &json!(true)));
        assert_eq!((&status["leader"], &status["cluster"]), (&json!("node"), &json!(shown.cluster.to_string())));
        assert_eq!((&status["applied"], &status["lag"]), (&json!(shown.applied.index), &json!(0)));
        assert_eq!(status["members"].as_array().unwrap().len(), 1);
        assert_eq!(status["members"][0]["addr"], json!(node.local_addr()));

        node.stop().await;
        assert_eq!(reasons(&server), "the node has ended: it was stopped");
        assert_eq!(json_of(&server, "/status"), (503, json!({ "error": "the node has ended" })));
        assert_eq!(get(&server, "/health").0, 200);

        // The port does not keep the node alive: its directory can be opened again.
        let again = quorate::Node::start(Single::config(&dir)).await.unwrap();
        server.show(&again);
        until("readiness", || is_ready(&server)).await;
        server.stop().await;
        again.stop().await;
    });
}

#[test]
fn an_address_in_use_is_an_error() {
    run(async {
        let server = serve("127.0.0.1:0", None).await.unwrap();
        let error = serve(server.local_addr(), None).await.unwrap_err();
        assert!(error.is_retryable() && error.to_string().contains(server.local_addr()), "{error}");
    });
}

#[test]
fn a_node_without_a_majority_is_not_ready() {
    run(async {
        // Nodes exchange their status more often, so that silence is noticed sooner.
        let mut cluster = Cluster::start_in(Box::new(|_, config| {
            config.timing.status = Duration::from_millis(100);
            (Env::real(), SimHooks::default())
        }))
        .await;
        cluster.sql("a").execute("CREATE TABLE t (x)", ()).await.unwrap();
        for survivor in ["a", &cluster.leader().await] {
            let node = cluster.nodes().find(|node| node.status().name == survivor).unwrap();
            let server = show(node).await;
            until("readiness", || is_ready(&server)).await;
            let others: Vec<&str> = ["a", "b", "c"].into_iter().filter(|name| *name != survivor).collect();
            cluster.kill(others[0]);
            // The loss of one of three nodes does not affect readiness.
            until("silence", || json_of(&server, "/status").1["members"].to_string().contains("\"reachable\":false"))
                .await;
            until("another leader", || is_ready(&server)).await;

            cluster.kill(others[1]);
            // At first there may be another reason, such as an election.
            let known = ["has not been heard from for", "without a majority", "no leader is known"];
            until("the loss to be noticed", || {
                let why = json_of(&server, "/ready").1["reasons"].to_string();
                known.iter().any(|known| why.contains(known))
            })
            .await;
            assert!(!is_ready(&server));
            assert_eq!(get(&server, "/health").0, 200, "the process should not be restarted");

            cluster.restart(others[0]).await;
            until("a majority", || is_ready(&server)).await;
            cluster.restart(others[1]).await;
            until("all", || {
                json_of(&server, "/status").1["members"].to_string().matches("\"reachable\":true").count() == 3
            })
            .await;
        }
        cluster.stop_all().await;
    });
}

#[test]
fn misbehaving_clients_do_not_affect_others() {
    run(async {
        let Single { dir: _dir, node } = Single::start().await;
        let server = show(&node).await;
        for garbage in [&b"\0\xff\0\xff\r\n\r\n"[..], b"GET /metrics\r\n\r\n", &[b'a'; 1 << 20]] {
            let answer = exchange(&server, garbage);
            assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
        }
        // Connections that stall in the middle of a request.
        let connect = |_| TcpStream::connect(server.local_addr()).unwrap();
        let mut left: Vec<TcpStream> = (0..CONNECTIONS_MAX / 2).map(connect).collect();
        left.iter_mut().for_each(|stream| stream.write_all(b"GET /metr").unwrap());
        assert_eq!(get(&server, "/metrics").0, 200);
        // Dropped connections release their places.
        for _ in 0..3 {
            drop((0..CONNECTIONS_MAX / 2).map(connect).collect::<Vec<_>>());
        }
        until("places", || exchange(&server, b"GET /health HTTP/1.0\r\n\r\n").ends_with("ok\n")).await;
        drop(left);
        assert!(node.sql().query_one::<i64>("SELECT 1", ()).await.is_ok());
        node.stop().await;
    });
}

/// Reads the next answer of a connection that stays open; returns its head.
fn next_head(stream: &mut BufReader<TcpStream>) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(stream.read_line(&mut head).unwrap() > 0, "{head}");
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    stream.read_exact(&mut vec![0; length.parse().unwrap()]).unwrap();
    head
}

#[test]
fn concurrent_clients_are_all_answered() {
    run(async {
        let Single { dir: _dir, node } = Single::start().await;
        let server = show(&node).await;
        std::thread::scope(|scope| {
            for _ in 0..32 {
                scope.spawn(|| {
                    let mut stream = BufReader::new(TcpStream::connect(server.local_addr()).unwrap());
                    for _ in 0..20 {
                        stream.get_mut().write_all(b"GET /status HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
                        assert!(next_head(&mut stream).starts_with("HTTP/1.1 200"));
                    }
                });
            }
        });
        node.stop().await;
    });
}

/// A host on which every blocking call hangs for ever.
#[derive(Default)]
struct Hanging(Mutex<Vec<Box<dyn FnOnce() + Send>>>);

impl Host for Hanging {
    fn run_task(&self, env: &Env, name: &str, priority: Priority, task: BoxTask) -> io::Result<()> {
        RealHost.run_task(env, name, priority, task)
    }

    fn run_worker(&self, env: &Env, name: &str, worker: Box<dyn Worker>, bell: Signal, end: Ended) -> io::Result<()> {
        RealHost.run_worker(env, name, worker, bell, end)
    }

    fn run_blocking(&self, call: Box<dyn FnOnce() + Send>) {
        self.0.lock().unwrap().push(call);
    }
}

impl std::fmt::Debug for Hanging {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hanging")
    }
}

#[test]
fn a_node_whose_disk_hangs_is_alive_but_not_ready() {
    run(async {
        let Single { dir: _dir, node } = Single::start().await;
        let hanging = Arc::new(Hanging::default());
        let host: Arc<dyn Host> = Arc::clone(&hanging) as _;
        let server = serve_in(&Env::real().with_host(host), "127.0.0.1:0", None).await.unwrap();
        server.show(&node);
        std::thread::scope(|scope| {
            for _ in 0..ASKS_MAX * 3 {
                scope.spawn(|| assert!(reasons(&server).contains("its disk may hang")));
            }
            assert_eq!(get(&server, "/health").0, 200);
        });
        assert!(hanging.0.lock().unwrap().len() <= ASKS_MAX, "too many threads wait for the disk");
        node.stop().await;
    });
}

#[test]
fn a_port_serves_sql_once_it_is_told_to() {
    run(async {
        let Single { dir: _dir, node } = Single::start().await;
        let server = show(&node).await;
        let pipeline = r#"{"requests":[{"type":"execute","stmt":{"sql":"SELECT 7"}},{"type":"close"}]}"#;
        let post = || {
            let head = "POST /v2/pipeline HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length:";
            exchange(&server, format!("{head} {}\r\n\r\n{pipeline}", pipeline.len()).as_bytes())
        };
        assert!(post().starts_with("HTTP/1.1 404"), "it was not told to yet");
        server.open_doors(&node, node.sql(), Options::default());
        until("readiness", || is_ready(&server)).await;
        let answer = post();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(r#""value":"7""#), "{answer}");
        let (code, nodes) = json_of(&server, "/nodes");
        let name = node.status().name;
        assert_eq!((code, &nodes[&name]["leader"], &nodes[&name]["reachable"]), (200, &json!(true), &json!(true)));
        assert_eq!(get(&server, "/readyz").0, 200);
        assert_eq!(json_of(&server, "/status").1["name"], name, "the page for operators");
        assert_eq!(get(&server, "/nothing").0, 404);

        node.stop().await;
        let answer = post();
        assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("UNAVAILABLE"), "{answer}");
    });
}

/// A frame of a client with a short text. Its mask is zero, so the text stays as it is.
fn frame(text: &str) -> Vec<u8> {
    let head = [0x81, 0x80 | u8::try_from(text.len()).unwrap(), 0, 0, 0, 0];
    assert!(text.len() < 126, "a longer text has another head");
    [&head, text.as_bytes()].concat()
}

#[test]
fn the_port_serves_web_sockets() {
    run(async {
        let Single { dir: _dir, node } = Single::start().await;
        let server = show(&node).await;
        server.open_doors(&node, node.sql(), Options::default());
        until("readiness", || is_ready(&server)).await;
        let request = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
            sec-websocket-version: 13\r\nsec-websocket-key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\
            sec-websocket-protocol: hrana3\r\n\r\n";
        let hello = frame(r#"{"type":"hello","jwt":null}"#);
        let open = frame(r#"{"type":"request","request_id":1,"request":{"type":"open_stream","stream_id":1}}"#);
        let ask = r#"{"type":"execute","stream_id":1,"stmt":{"sql":"SELECT 7"}}"#;
        let ask = frame(&format!(r#"{{"type":"request","request_id":2,"request":{ask}}}"#));
        let mut stream = TcpStream::connect(server.local_addr()).unwrap();
        stream.set_read_timeout(Some(support::PATIENCE)).unwrap();
        // The client does not wait for answers, not even for that of HTTP.
        stream.write_all(&[request.as_slice(), &hello, &open, &ask].concat()).unwrap();
        let (mut heard, mut part) = (String::new(), [0; 1_024]);
        while !heard.contains(r#""value":"7""#) {
            let count = stream.read(&mut part).unwrap();
            assert!(count > 0, "{heard}");
            heard.push_str(&String::from_utf8_lossy(&part[..count]));
        }
        assert!(heard.starts_with("HTTP/1.1 101") && heard.contains("hello_ok"), "{heard}");
        server.stop().await;
        let mut end = Vec::new();
        stream.read_to_end(&mut end).unwrap();
        // A frame that closes, because the server goes away.
        assert_eq!(end[..1], [0x88]);
        assert_eq!(end[2..4], 1_001_u16.to_be_bytes());
    });
}

/// A port that other machines can reach is closed while there are no users, and asks for one afterwards.
#[test]
fn a_port_lets_in_users_only() {
    run(async {
        let Single { dir: _dir, node } = Single::start().await;
        let server = serve("0.0.0.0:0", None).await.unwrap();
        server.show(&node);
        server.open_doors(&node, node.sql(), Options::default());
        until("readiness", || is_ready(&server)).await;
        let ask = |path: &str, login: &str| {
            let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{login}\r\n");
            exchange(&server, request.as_bytes())
        };
        let refused = ask("/db/query?q=SELECT%207", "");
        assert!(refused.starts_with("HTTP/1.1 403") && refused.contains("quorate users add"), "{refused}");
        let token = node.admin().add_user("root", UserRole::Admin, Login::Token).await.unwrap().unwrap();
        for path in ["/db/query?q=SELECT%207", "/status", "/metrics"] {
            let refused = ask(path, "");
            assert!(refused.starts_with("HTTP/1.1 401") && refused.contains("www-authenticate: Bearer"), "{refused}");
            assert!(ask(path, &format!("authorization: Bearer {}\r\n", token.text())).starts_with("HTTP/1.1 200"));
        }
        for path in ["/health", "/ready", "/readyz"] {
            assert!(ask(path, "").starts_with("HTTP/1.1 200"), "{path}");
        }
        node.stop().await;
    });
}
