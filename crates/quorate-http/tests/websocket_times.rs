//! WebSockets of clients that are silent or slow, in a simulated world, whose clock is virtual.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use quorate::{Config, Node};
use quorate_env::net::BoxStream;
use quorate_env::{Env, Instant, sleep};
use quorate_env_sim::SimWorld;
use quorate_http::options::{HELLO_TIME_MAX, SOCKET_SILENCE_MAX};
use quorate_http::port::{CONNECTION_TIME_MAX, WRITE_STALL_MAX, serve_in};
use quorate_http::{Options, Port};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::{WebSocketStream, client_async};

const ADDR: &str = "server:80";
const HELLO: &str = "{\"type\":\"hello\",\"jwt\":null}";

/// The tolerance for deadlines, because the net and the scheduler take some time.
const LATE_MAX: Duration = Duration::from_secs(1);

struct Clients(Env);

impl Clients {
    async fn connect(&self) -> WebSocketStream<BoxStream> {
        let stream = self.0.net().connect(ADDR).await.unwrap();
        client_async(format!("ws://{ADDR}/"), stream).await.unwrap().0
    }

    async fn greeted(&self) -> WebSocketStream<BoxStream> {
        let mut socket = self.connect().await;
        socket.send(HELLO.into()).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), Message::from("{\"type\":\"hello_ok\"}"));
        socket
    }
}

/// Runs a scenario with an open port. No statement runs in it, so its node may be outside of the simulated world.
fn scenario<T: AsyncFnOnce(Port, Clients)>(seed: u64, scenario: T) {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let node = runtime.block_on(Node::start(Config::single(dir.path()))).unwrap();
    let world = SimWorld::new(seed);
    let result = world.run(async {
        let options = Options::default().with_insecure(true);
        let port = serve_in(&world.node("server"), ADDR, node.sql(), options).await.unwrap();
        scenario(port, Clients(world.node("client"))).await;
    });
    result.unwrap();
}

/// Waits for the frame that closes; answers pings until then.
async fn closed(socket: &mut WebSocketStream<BoxStream>) -> CloseCode {
    loop {
        match socket.next().await.unwrap().unwrap() {
            Message::Close(Some(frame)) => return frame.code,
            Message::Ping(_) => {}
            other => panic!("{other}"),
        }
    }
}

#[track_caller]
fn took(begun: Instant, time: Duration) {
    let took = begun.elapsed();
    assert!(took + LATE_MAX >= time && took < time + LATE_MAX, "{took:?} instead of {time:?}");
}

#[test]
fn who_says_no_hello_is_disconnected() {
    scenario(1, async |_port, clients| {
        let begun = Instant::now();
        let mut silent = clients.connect().await;
        assert_eq!(closed(&mut silent).await, CloseCode::Policy);
        took(begun, HELLO_TIME_MAX);

        let begun = Instant::now();
        let mut talks = clients.connect().await;
        for _ in 0..9 {
            talks.send(Message::Ping("x".into())).await.unwrap();
            assert!(matches!(talks.next().await.unwrap().unwrap(), Message::Pong(_)));
            sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(closed(&mut talks).await, CloseCode::Policy);
        took(begun, HELLO_TIME_MAX);
    });
}

#[test]
fn who_answers_pings_is_kept_until_its_age_is_reached() {
    scenario(2, async |_port, clients| {
        let begun = Instant::now();
        let mut socket = clients.greeted().await;
        assert_eq!(closed(&mut socket).await, CloseCode::Away);
        took(begun, CONNECTION_TIME_MAX);
    });
}

#[test]
fn who_answers_no_ping_is_disconnected() {
    scenario(3, async |_port, clients| {
        let begun = Instant::now();
        let mut socket = clients.greeted().await;
        let mut bytes = Vec::new();
        let _ = socket.get_mut().read_to_end(&mut bytes).await;
        took(begun, 2 * SOCKET_SILENCE_MAX);
    });
}

#[test]
fn a_message_that_trickles_in_is_given_up() {
    scenario(4, async |_port, clients| {
        let begun = Instant::now();
        let mut socket = clients.greeted().await;
        // The head of a text of 1 MiB.
        let head = [0x81, 0xff, 0, 0, 0, 0, 0, 0x10, 0, 0, 1, 2, 3, 4];
        let stream = socket.get_mut();
        stream.write_all(&head).await.unwrap();
        while stream.write_all(&[0; 4 << 10]).await.is_ok() {
            sleep(Duration::from_secs(1)).await;
        }
        assert!(begun.elapsed() < 2 * SOCKET_SILENCE_MAX + 5 * LATE_MAX, "{:?}", begun.elapsed());
    });
}

#[test]
fn who_reads_nothing_is_disconnected() {
    scenario(5, async |_port, clients| {
        let mut socket = clients.greeted().await;
        let begun = Instant::now();
        // It is answered at once, and the answers fill what may wait for the client.
        let request = r#"{"type":"request","request_id":1,"request":{"type":"close_stream","stream_id":1}}"#;
        while socket.send(request.into()).await.is_ok() {}
        assert!(begun.elapsed() < WRITE_STALL_MAX + 5 * LATE_MAX, "{:?}", begun.elapsed());
    });
}
