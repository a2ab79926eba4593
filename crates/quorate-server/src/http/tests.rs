//! Clients that are slow, silent, many or hostile, in a simulated world: whatever they do, the port serves on.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests stop at the first surprise")]

use quorate_env::net::BoxStream;
use quorate_env::{Env, Instant};
use quorate_env_sim::SimWorld;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

const ADDR: &str = "server:80";

/// What deadlines may be late by: the net and the scheduler take some time.
const LATE_MAX: Duration = Duration::from_secs(1);

const HEALTH: &[u8] = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n";

/// Tells a story of an open port.
fn story<T: AsyncFnOnce(HttpServer, Clients)>(seed: u64, story: T) {
    let world = SimWorld::new(seed);
    let told = world.run(async {
        let server = serve_in(&world.node("server"), ADDR).await.unwrap();
        story(server, Clients(world.node("client"))).await;
    });
    told.unwrap();
}

struct Clients(Env);

impl Clients {
    async fn connect(&self) -> BoxStream {
        self.0.net().connect(ADDR).await.unwrap()
    }

    /// What is answered to bytes on a connection of their own, until its end.
    async fn exchange(&self, request: &[u8]) -> String {
        let mut stream = self.connect().await;
        // The port may have said what it has to say before it heard all.
        let _ = stream.write_all(request).await;
        let _ = stream.shutdown().await;
        rest(&mut stream).await
    }

    /// The port serves others well.
    async fn check(&self) {
        let request = [HEALTH.trim_ascii_end(), b"\r\nconnection: close\r\n\r\n"].concat();
        let answer = self.exchange(&request).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\nok\n"), "{answer}");
    }
}

/// All that comes until the other end closes or breaks the connection.
async fn rest(stream: &mut BoxStream) -> String {
    let mut bytes = Vec::new();
    // A broken connection is an end too.
    let _ = stream.read_to_end(&mut bytes).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The first answer that comes.
async fn first(stream: &mut BoxStream) -> String {
    let mut bytes = vec![0; 4096];
    let count = stream.read(&mut bytes).await.unwrap();
    String::from_utf8_lossy(&bytes[..count]).into_owned()
}

#[test]
fn who_sends_nothing_or_too_slowly_is_let_go() {
    story(1, async |_server, clients| {
        let begun = Instant::now();
        let mut silent = clients.connect().await;
        assert_eq!(rest(&mut silent).await, "");
        assert!(begun.elapsed() >= HEAD_TIME_MAX && begun.elapsed() < HEAD_TIME_MAX + LATE_MAX);

        let begun = Instant::now();
        let mut slow = clients.connect().await;
        // One byte a second would take half a minute.
        for byte in HEALTH {
            let sent = slow.write_all(&[*byte]).await;
            sleep(Duration::from_secs(1)).await;
            if sent.is_err() {
                break;
            }
        }
        rest(&mut slow).await;
        assert!(begun.elapsed() < HEAD_TIME_MAX + 3 * LATE_MAX, "{:?}", begun.elapsed());
        clients.check().await;
    });
}

#[test]
fn an_idle_connection_is_kept_for_a_while() {
    story(2, async |_server, clients| {
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
fn who_asks_without_end_but_never_reads_is_let_go() {
    story(3, async |_server, clients| {
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

/// As many stalled connections as there are places, and more that dribble: others, and the same client, are served.
#[test]
fn stalled_connections_take_no_place_from_others() {
    let world = SimWorld::new(4);
    let told = world.run(async {
        let server = world.node("server");
        let _port = serve_in(&server, ADDR).await.unwrap();
        let [slow, other, here] = [world.node("slow"), world.node("other"), server].map(Clients);
        let mut kept = other.connect().await;
        let mut stalled = Vec::new();
        for number in 0..2 * CONNECTIONS_MAX {
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
        assert!(first(&mut kept).await.starts_with("HTTP/1.1 200"), "an idle connection of another is kept");
        assert_eq!(rest(&mut stalled[0]).await, "", "the oldest is closed");
    });
    told.unwrap();
}

#[test]
fn heads_are_bounded() {
    story(5, async |_server, clients| {
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
fn what_is_no_http_is_refused() {
    story(6, async |_server, clients| {
        for request in
            [&b"\x16\x03\x01\x02\x00\x01\x00"[..], b"HELLO\r\n\r\n", b"GET /health HTTP/9.9\r\n\r\n", b"\0\0\0\0\r\n"]
        {
            let answer = clients.exchange(request).await;
            assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
        }
        let endless = [b"POST /health HTTP/1.1\r\ncontent-length: 1000000000\r\n\r\n", &[b'x'; 100_000][..]].concat();
        let mut stream = clients.connect().await;
        stream.write_all(&endless).await.unwrap();
        assert!(rest(&mut stream).await.starts_with("HTTP/1.1 405"), "nobody waits for a body");
        clients.check().await;
    });
}

#[test]
fn paths_and_methods() {
    story(7, async |_server, clients| {
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
fn a_port_that_is_closed_or_dropped_lets_go_of_all_connections() {
    story(8, async |server, clients| {
        let mut idle = clients.connect().await;
        idle.write_all(HEALTH).await.unwrap();
        assert!(first(&mut idle).await.starts_with("HTTP/1.1 200"));
        server.stop().await;
        assert_eq!(rest(&mut idle).await, "");
        assert!(clients.0.net().connect(ADDR).await.is_err());

        let server = serve_in(&clients.0, "client:80").await.unwrap();
        let mut idle = clients.0.net().connect("client:80").await.unwrap();
        drop(server);
        assert_eq!(rest(&mut idle).await, "");
    });
}
