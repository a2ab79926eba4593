//! Locks over HTTP: acquired, waited for, renewed, given back and taken, and what is refused.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

mod common;

use std::thread;

use common::{Reply, Server, wait_until};
use serde_json::{Value, json};

/// The calls of a test.
#[derive(Clone, Copy)]
struct Locks<'a>(&'a Server);

impl Locks<'_> {
    fn send(&self, method: &str, path: &str) -> Reply {
        self.0.send(method, path, &[], b"")
    }

    /// Acquires a lock; returns its holder and its token.
    fn acquire(&self, path: &str) -> (String, u64) {
        let reply = self.send("POST", path);
        assert_eq!(reply.status, 200, "{path}: {}", reply.text);
        assert!(reply.headers.contains_key("quorate-position"));
        let lease = reply.json();
        let left = lease["left"].as_f64().unwrap();
        assert!(left > 0.0, "{lease}");
        (lease["holder"].as_str().unwrap().to_owned(), token(&lease))
    }

    fn inspect(&self, path: &str) -> Value {
        let reply = self.send("GET", path);
        assert_eq!(reply.status, 200, "{path}: {}", reply.text);
        reply.json()
    }

    /// Waits until a number of holders wait for a lock.
    fn until_waiting(&self, path: &str, count: usize) {
        wait_until("the wait", || self.inspect(path)["waiters"].as_array().unwrap().len() == count);
    }
}

fn token(lease: &Value) -> u64 {
    lease["token"].as_str().unwrap().parse().unwrap()
}

fn refused(reply: &Reply) -> (u16, String) {
    (reply.status, reply.json()["code"].as_str().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_held_by_one_and_given_back() {
    let server = Server::start().await;
    let locks = Locks(&server);
    let free = (404, "LOCK_NOT_FOUND".to_owned());
    assert_eq!(refused(&locks.send("GET", "/locks/a/b")), free);
    let (holder, first) = locks.acquire("/locks/a/b?ttl=1h");
    assert_eq!(holder.len(), 32, "{holder} is random");
    assert_eq!(refused(&locks.send("POST", "/locks/a/b")), (409, "LOCK_BUSY".to_owned()));
    assert_eq!(refused(&locks.send("POST", "/locks/a/b?holder=me")), (409, "LOCK_BUSY".to_owned()));
    // The same holder has the same token, and the last note.
    let noted = server.send("POST", &format!("/locks/a/b?ttl=1h&holder={holder}"), &[], b"nightly\xff");
    assert_eq!(token(&noted.json()), first);
    let lock = locks.inspect("/locks/a%2Fb");
    assert_eq!((&lock["name"], &lock["permits"], &lock["waiters"]), (&json!("a/b"), &json!(1), &json!([])));
    assert_eq!(lock["holders"][0]["note"], json!({ "base64": "bmlnaHRsef8=" }));
    assert_eq!(refused(&locks.send("DELETE", "/locks/a/b?holder=me")), free);
    let released = locks.send("DELETE", &format!("/locks/a/b?holder={holder}"));
    assert_eq!((released.status, released.text.as_str()), (204, ""));
    let (_, second) = locks.acquire("/locks/a/b?ttl=1h&holder=me");
    assert!(second > first);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_renewed_with_its_token_only() {
    let server = Server::start().await;
    let locks = Locks(&server);
    let (_, first) = locks.acquire("/locks/a?holder=me&ttl=1h");
    let renew = |token: u64| locks.send("PUT", &format!("/locks/a?holder=me&token={token}&ttl=2h"));
    let renewed = renew(first).json();
    assert_eq!((renewed["holder"].as_str().unwrap(), token(&renewed)), ("me", first));
    assert!(renewed["left"].as_f64().unwrap() > 3_600.0, "{renewed}");
    assert_eq!(refused(&renew(first - 1)), (412, "LOCK_LOST".to_owned()));
    assert_eq!(locks.send("DELETE", "/locks/a?force&token=1").json(), json!({ "ended": [] }));
    let forced = locks.send("DELETE", "/locks/a?force").json();
    assert_eq!(forced, json!({ "ended": [first.to_string()] }));
    assert_eq!(refused(&renew(first)), (412, "LOCK_LOST".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_wait_in_their_order_and_for_a_time() {
    let server = Server::start().await;
    let locks = Locks(&server);
    let (_, mut last) = locks.acquire("/locks/a?holder=first&ttl=1h");
    assert_eq!(refused(&locks.send("POST", "/locks/a?wait=100ms&ttl=1h")), (409, "LOCK_BUSY".to_owned()));
    locks.until_waiting("/locks/a", 0);
    thread::scope(|scope| {
        let waiters = ["second", "third"].map(|holder| {
            let waiter = scope.spawn(move || locks.acquire(&format!("/locks/a?wait=30s&ttl=1h&holder={holder}")));
            let count = if holder == "second" { 1 } else { 2 };
            locks.until_waiting("/locks/a", count);
            waiter
        });
        for (before, waiter) in ["first", "second"].into_iter().zip(waiters) {
            assert_eq!(locks.send("DELETE", &format!("/locks/a?holder={before}")).status, 204);
            let (_, token) = waiter.join().unwrap();
            assert!(token > last);
            last = token;
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_lease_passes_to_the_waiter() {
    let server = Server::start().await;
    let locks = Locks(&server);
    // A lease that is granted later than a quarter of its time is refused, so only the renewal is so short.
    let (_, first) = locks.acquire("/locks/a?holder=gone&ttl=1h");
    assert_eq!(locks.send("PUT", &format!("/locks/a?holder=gone&token={first}&ttl=500ms")).status, 200);
    let (_, second) = locks.acquire("/locks/a?holder=next&wait=30s&ttl=1h");
    assert!(second > first);
    let lock = locks.inspect("/locks/a");
    assert_eq!((lock["holders"].as_array().unwrap().len(), &lock["holders"][0]["holder"]), (1, &json!("next")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_semaphore_has_as_many_holders_as_permits() {
    let server = Server::start().await;
    let locks = Locks(&server);
    for holder in ["a", "b"] {
        locks.acquire(&format!("/locks/pool?permits=2&ttl=1h&holder={holder}"));
    }
    assert_eq!(refused(&locks.send("POST", "/locks/pool?permits=2")), (409, "LOCK_BUSY".to_owned()));
    assert_eq!(refused(&locks.send("POST", "/locks/pool")), (422, "INVALID_VALUE".to_owned()));
    assert_eq!(locks.send("DELETE", "/locks/pool?holder=a").status, 204);
    locks.acquire("/locks/pool?permits=2&ttl=1h");
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_are_listed_in_pages() {
    let server = Server::start().await;
    let locks = Locks(&server);
    let names = ["job 1", "job 2", "job 3"];
    for name in ["a", "job 2", "job 1", "z", "job 3"] {
        locks.acquire(&format!("/locks/{}?ttl=1h", name.replace(' ', "%20")));
    }
    let (mut found, mut url) = (Vec::new(), Some("/locks?prefix=job+&limit=2".to_owned()));
    while let Some(page) = url {
        let page = locks.inspect(&page);
        found.extend(page["locks"].as_array().unwrap().iter().map(|lock| lock["name"].as_str().unwrap().to_owned()));
        url = page["next"].as_str().map(str::to_owned);
    }
    assert_eq!(found, names);
}

/// The token of a lock keeps a late holder from writing, in one statement.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_checks_the_token_of_a_lock() {
    let server = Server::start().await;
    let locks = Locks(&server);
    server.run("CREATE TABLE files (content)").await;
    let write = |token: u64| {
        let sql = "INSERT INTO files SELECT :content WHERE EXISTS (SELECT 1 FROM quorate_locks \
                   WHERE name = CAST(:lock AS BLOB) AND token = :token AND state = 'held')";
        let body = json!([[sql, { "content": "x", "lock": "files", "token": token }]]);
        let reply = server.post("/db/execute", &body).json();
        reply["results"][0]["rows_affected"].as_u64().unwrap_or(0)
    };
    let (_, first) = locks.acquire("/locks/files?ttl=1h");
    assert_eq!(write(first), 1);
    locks.send("DELETE", "/locks/files?force");
    let (_, second) = locks.acquire("/locks/files?ttl=1h");
    assert_eq!((write(first), write(second)), (0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_understood_is_refused() {
    let server = Server::start().await;
    let locks = Locks(&server);
    for (method, path, status) in [
        ("POST", "/locks/a?tll=5s", 400),
        ("POST", "/locks/a?ttl=soon", 400),
        ("POST", "/locks/a?wait=61s", 400),
        ("POST", "/locks/a?permits=many", 400),
        ("POST", "/locks/a?permits=0", 422),
        ("POST", "/locks/a?ttl=25h", 422),
        ("POST", "/locks/?ttl=5s", 422),
        ("POST", "/locks/a?holder=", 422),
        ("PUT", "/locks/a?holder=me", 400),
        ("PUT", "/locks/a?token=1", 400),
        ("DELETE", "/locks/a", 400),
        ("DELETE", "/locks/a?holder=me&token=1", 400),
        ("DELETE", "/locks/a?holder=me&force", 400),
        ("GET", "/locks/a?holder=me", 400),
        ("GET", "/locks?limit=0", 422),
        ("POST", "/locks", 405),
        ("PATCH", "/locks/a", 405),
    ] {
        let reply = locks.send(method, path);
        assert_eq!(reply.status, status, "{method} {path}: {}", reply.text);
    }
    let keyed = server.send("POST", "/locks/a", &[("idempotency-key", "k")], b"");
    assert_eq!(refused(&keyed), (422, "NOT_OFFERED".to_owned()));
    let long = server.send("POST", "/locks/a", &[], &[b'x'; 1_025]);
    assert_eq!(refused(&long), (400, "SQLITE_TOOBIG".to_owned()));
    assert_eq!(locks.send("GET", "/locks").json(), json!({ "locks": [], "next": null }));
}
