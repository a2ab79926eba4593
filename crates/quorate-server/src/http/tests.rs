//! Slow, silent, numerous and hostile clients in a simulated world. The port continues to serve others.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests stop at the first surprise")]

use std::time::Duration;

use quorate_env::net::BoxStream;
use quorate_env::{Env, Instant, sleep, timeout};
use quorate_env_sim::SimWorld;
use quorate_http::port::{HEAD_BYTES_MAX, HEAD_TIME_MAX, HEADERS_MAX, WRITE_STALL_MAX};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

const ADDR: &str = "server:80";

/// The tolerance for deadlines, because the net and the scheduler take some time.
const LATE_MAX: Duration = Duration::from_secs(1);

const HEALTH: &[u8] = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n";

/// Runs a scenario with an open port.
fn scenario<T: AsyncFnOnce(HttpServer, Clients)>(seed: u64, scenario: T) {
    let world = SimWorld::new(seed);
    let result = world.run(async {
        let server = serve_in(&world.node("server"), ADDR, None).await.unwrap();
        scenario(server, Clients(world.node("client"))).await;
    });
    result.unwrap();
}

struct Clients(Env);

impl Clients {
    async fn connect(&self) -> BoxStream {
        self.0.net().connect(ADDR).await.unwrap()
    }

    /// Sends bytes on a new connection and returns all that is answered.
    async fn exchange(&self, request: &[u8]) -> String {
        let mut stream = self.connect().await;
        // The port may answer and close before it has read everything.
        let _ = stream.write_all(request).await;
        let _ = stream.shutdown().await;
        rest(&mut stream).await
    }

    /// Checks that the port answers another client.
    async fn check(&self) {
        let request = [HEALTH.trim_ascii_end(), b"\r\nconnection: close\r\n\r\n"].concat();
        let answer = self.exchange(&request).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\nok\n"), "{answer}");
    }
}

/// Returns everything that arrives until the other end closes or breaks the connection.
async fn rest(stream: &mut BoxStream) -> String {
    let mut bytes = Vec::new();
    // A broken connection counts as an end.
    let _ = stream.read_to_end(&mut bytes).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the first answer that arrives.
async fn first(stream: &mut BoxStream) -> String {
    let mut bytes = vec![0; 4096];
    let count = stream.read(&mut bytes).await.unwrap();
    String::from_utf8_lossy(&bytes[..count]).into_owned()
}

#[test]
fn silent_and_slow_clients_are_disconnected() {
    scenario(1, async |_server, clients| {
        let begun = Instant::now();
        let mut silent = clients.connect().await;
        assert_eq!(rest(&mut silent).await, "");
        assert!(begun.elapsed() >= HEAD_TIME_MAX && begun.elapsed() < HEAD_TIME_MAX + LATE_MAX);

        let begun = Instant::now();
        let mut slow = clients.connect().await;
        // At one byte in three seconds the head would take longer than it may.
        for byte in HEALTH {
            let sent = slow.write_all(&[*byte]).await;
            sleep(Duration::from_secs(3)).await;
            if sent.is_err() {
                break;
            }
        }
        rest(&mut slow).await;
        assert!(begun.elapsed() < HEAD_TIME_MAX + 7 * LATE_MAX, "{:?}", begun.elapsed());
        clients.check().await;
    });
}

#[test]
fn an_idle_connection_is_kept_for_a_while() {
    scenario(2, async |_server, clients| {
        let mut stream = clients.connect().await;
        for _ in 0..3 {
            sleep(HEAD_TIME_MAX / 2).await;
            stream.write_all(HEALTH).await.unwrap();
            assert!(first(&mut stream).await.starts_with("HTTP/1.1 200"));
        }
        assert_eq!(rest(&mut stream).await, "", "then it is closed");
    });
}

#[test]
fn a_client_that_never_reads_is_disconnected() {
    scenario(3, async |_server, clients| {
        let mut deaf = clients.connect().await;
        let flood = HEALTH.repeat(64);
        let asking = async {
            while deaf.write_all(&flood).await.is_ok() {
                sleep(Duration::from_millis(1)).await;
            }
        };
        assert!(timeout(WRITE_STALL_MAX * 3, asking).await.is_ok(), "the connection breaks");
        clients.check().await;
    });
}

/// Ten thousand stalled connections, many more than there are places: other clients, and the same one, are served.
#[test]
fn stalled_connections_do_not_keep_others_out() {
    let world = SimWorld::new(4);
    let result = world.run(async {
        let server = world.node("server");
        let _port = serve_in(&server, ADDR, None).await.unwrap();
        let [slow, other, here] = [world.node("slow"), world.node("other"), server].map(Clients);
        let mut kept = other.connect().await;
        let mut stalled = Vec::new();
        for number in 0..10_000 {
            let mut stream = slow.connect().await;
            if number % 2 == 0 {
                stream.write_all(b"GET /hea").await.unwrap();
            }
            stalled.push(stream);
        }
        for clients in [&other, &here, &slow] {
            clients.check().await;
        }
        kept.write_all(HEALTH).await.unwrap();
        assert!(first(&mut kept).await.starts_with("HTTP/1.1 200"), "an idle connection of another client is kept");
        assert_eq!(rest(&mut stalled[0]).await, "", "the oldest is closed");
    });
    result.unwrap();
}

#[test]
fn request_heads_are_limited() {
    scenario(5, async |_server, clients| {
        let header = |count: usize, len: usize| format!("x: {}\r\n", "y".repeat(len)).repeat(count);
        let with = |headers: String| format!("GET /health HTTP/1.1\r\nconnection: close\r\n{headers}\r\n").into_bytes();
        assert!(clients.exchange(&with(header(1, HEAD_BYTES_MAX / 2))).await.starts_with("HTTP/1.1 200"));
        for request in [
            with(header(1, HEAD_BYTES_MAX)),
            with(header(HEADERS_MAX + 1, 1)),
            format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(HEAD_BYTES_MAX)).into_bytes(),
        ] {
            let answer = clients.exchange(&request).await;
            assert!(answer.starts_with("HTTP/1.1 431") || answer.starts_with("HTTP/1.1 414"), "{answer}");
        }
        clients.check().await;
    });
}

#[test]
fn input_that_is_not_http_is_refused() {
    scenario(6, async |_server, clients| {
        for request in
            [&b"\x16\x03\x01\x02\x00\x01\x00"[..], b"HELLO\r\n\r\n", b"GET /health HTTP/9.9\r\n\r\n", b"\0\0\0\0\r\n"]
        {
            let answer = clients.exchange(request).await;
            assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
        }
        let endless = [b"POST /health HTTP/1.1\r\ncontent-length: 1000000000\r\n\r\n", &[b'x'; 100_000][..]].concat();
        let mut stream = clients.connect().await;
        // The port may answer and close before it has read everything.
        let _ = stream.write_all(&endless).await;
        assert!(rest(&mut stream).await.starts_with("HTTP/1.1 405"), "the port does not wait for a body");
        clients.check().await;
    });
}

#[test]
fn each_path_and_method_has_its_answer() {
    scenario(7, async |_server, clients| {
        let ask = async |method: &str, path: &str| {
            let request = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
            clients.exchange(request.as_bytes()).await
        };
        assert!(ask("GET", "/health?verbose=1").await.ends_with("ok\n"));
        let head = ask("HEAD", "/health").await;
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("content-length: 3") && head.ends_with("\r\n\r\n"));
        assert!(ask("GET", "/").await.starts_with("HTTP/1.1 404"));
        assert!(ask("POST", "/nowhere").await.starts_with("HTTP/1.1 404"));
        for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
            let answer = ask(method, "/metrics").await;
            assert!(answer.starts_with("HTTP/1.1 405") && answer.contains("allow: GET, HEAD"), "{answer}");
        }
        let ready = ask("GET", "/ready").await;
        assert!(ready.starts_with("HTTP/1.1 503") && ready.contains(r#"{"ready":false,"reasons":["#), "{ready}");
        assert!(ready.contains("the node is starting"));
        for page in ["/status", "/metrics"] {
            assert!(ask("GET", page).await.starts_with("HTTP/1.1 503"));
        }
    });
}

#[test]
fn closing_or_dropping_a_port_closes_its_connections() {
    scenario(8, async |server, clients| {
        let mut idle = clients.connect().await;
        idle.write_all(HEALTH).await.unwrap();
        assert!(first(&mut idle).await.starts_with("HTTP/1.1 200"));
        server.stop().await;
        assert_eq!(rest(&mut idle).await, "");
        assert!(clients.0.net().connect(ADDR).await.is_err());

        let server = serve_in(&clients.0, "client:80", None).await.unwrap();
        let mut idle = clients.0.net().connect("client:80").await.unwrap();
        drop(server);
        assert_eq!(rest(&mut idle).await, "");
    });
}
