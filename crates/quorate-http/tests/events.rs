//! Events over HTTP: listeners get them as Server-Sent Events, and go on after the last one that they got.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

mod common;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use common::{PATIENCE, Server};
use serde_json::{Value, json};

/// A listener, as a program would write one.
struct Listener(BufReader<TcpStream>);

impl Listener {
    /// Listens, and reads up to the end of the head of the answer.
    fn open(addr: &str, query: &str, headers: &str) -> Self {
        let mut stream = TcpStream::connect(addr).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET /v1/events?{query} HTTP/1.1\r\nhost: x\r\n{headers}\r\n").unwrap();
        let mut listener = Self(BufReader::new(stream));
        assert!(listener.line().starts_with("HTTP/1.1 200"));
        while !listener.line().is_empty() {}
        listener
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.0.read_line(&mut line).unwrap() > 0, "the answer goes on");
        line.trim_end_matches(['\r', '\n']).to_owned()
    }

    /// Returns the id and the data of the next message that has data.
    fn next(&mut self) -> (String, Value) {
        let mut id = String::new();
        loop {
            // The lines between are the lengths of pieces.
            let line = self.line();
            if let Some(found) = line.strip_prefix("id: ") {
                found.clone_into(&mut id);
            }
            if let Some(data) = line.strip_prefix("data: ") {
                return (id, serde_json::from_str(data).unwrap());
            }
        }
    }
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

fn event(channel: &str, payload: &str) -> Value {
    json!({ "channel": channel, "payload": payload })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_gets_events_as_they_come_and_goes_on_after_the_last_one() {
    let server = Server::start().await;
    let add = |channel: &str, payload: &str| {
        let reply = server.send("POST", &format!("/v1/events?channel={channel}"), &[], payload.as_bytes());
        assert_eq!(reply.status, 200, "{}", reply.text);
        assert!(reply.headers.contains_key("quorate-position"));
        reply.json()["id"].as_str().unwrap().to_owned()
    };
    let first = add("orders", "one\ntwo");
    let addr = server.http.local_addr().to_owned();
    let mut listener = Listener::open(&addr, "channel=orders&pattern=log.*", "");
    add("unheard", "x");
    let second = add("log.a", "two");
    assert_eq!(listener.next(), (second.clone(), event("log.a", "two")));
    server.run("CREATE TABLE t (a)").await;
    server.run("CREATE TRIGGER tell AFTER INSERT ON t BEGIN SELECT notify('orders', new.a); END").await;
    server.run("INSERT INTO t VALUES (x'00ff')").await;
    assert_eq!(listener.next().1, json!({ "channel": "orders", "base64": "AP8" }));
    drop(listener);
    let third = add("orders", "three");
    let mut again = Listener::open(&addr, "channel=orders&pattern=log.*", &format!("last-event-id: {second}\r\n"));
    assert_eq!(again.next().1["base64"], "AP8");
    assert_eq!(again.next(), (third, event("orders", "three")));
    let mut all = Listener::open(&addr, "pattern=*&after=0-0", "");
    assert_eq!(all.next(), (first, event("orders", "one\ntwo")));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_event_or_no_place_is_refused() {
    let server = Server::start().await;
    let status = |method: &str, path: &str, headers: &[(&str, &str)]| server.send(method, path, headers, b"x").status;
    for (method, path) in [
        ("POST", "/v1/events"),
        ("POST", "/v1/events?channel=a&channel=b"),
        ("POST", "/v1/events?channel="),
        ("GET", "/v1/events"),
        ("GET", "/v1/events?chanel=a"),
        ("GET", "/v1/events?channel=a&after=yesterday"),
        ("GET", "/v1/events?channel="),
    ] {
        assert_eq!(status(method, path, &[]), 400, "{method} {path}");
    }
    assert_eq!(status("GET", "/v1/events?channel=a", &[("last-event-id", "x")]), 400);
    assert_eq!(status("DELETE", "/v1/events?channel=a", &[]), 405);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_only_read_listens_and_adds_nothing() {
    let (server, [read, write, _]) = Server::with_users().await;
    let add = |token: &str| {
        let login = bearer(token);
        server.send("POST", "/v1/events?channel=c", &[("authorization", &login)], b"x").status
    };
    assert_eq!((add(&read), add(&write)), (403, 200));
    let login = format!("authorization: {}\r\n", bearer(&read));
    let mut listener = Listener::open(server.http.local_addr(), "channel=c&after=0-0", &login);
    assert_eq!(listener.next().1, event("c", "x"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_with_a_key_adds_one_event() {
    let server = Server::start().await;
    let add = || server.send("POST", "/v1/events?channel=c", &[("idempotency-key", "k")], b"x").json();
    assert_eq!(add(), add());
    let mut listener = Listener::open(server.http.local_addr(), "channel=c&after=0-0", "");
    listener.next();
    server.send("POST", "/v1/events?channel=c", &[], b"y");
    assert_eq!(listener.next().1, event("c", "y"));
}
