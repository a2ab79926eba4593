//! Ends that send arbitrary bytes or messages at any stage. Nothing panics or waits for ever, and other clients are
//! served.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use proptest::prelude::*;
use quorate_env::{Env, Instant, timeout};
use quorate_env_sim::SimWorld;
use tokio::io::AsyncWriteExt;

use crate::handshake::{self, Gate, Introduction};
use crate::message::tests::{any_message, frame_of};
use crate::*;

const ADDR: &str = "server:1";

fn secret() -> Secret {
    Secret::new("0123456789abcdef").unwrap()
}

fn introduction(purpose: Purpose) -> Introduction {
    Introduction {
        identity: Identity::new(1, 2),
        secret: secret(),
        role: Role::Peer,
        purpose,
        expected: 0,
        binding: Bytes::new(),
    }
}

/// Replies at once (method 0), later (1), or never (2), and echoes streams.
struct Echo;

impl Handler for Echo {
    fn call(&self, _: &PeerInfo, method: u16, body: Bytes) -> BoxFuture<'static, Result<Bytes, CallFailure>> {
        async move {
            match method {
                0 => Ok(body),
                1 => {
                    quorate_env::sleep(Duration::from_millis(5)).await;
                    Ok(body)
                }
                2 => std::future::pending().await,
                _ => Err(CallFailure::new(FailureKind::UnknownMethod, "")),
            }
        }
        .boxed()
    }

    fn stream(&self, _: &PeerInfo, _: u16, mut tx: StreamSender, mut rx: StreamReceiver) -> BoxFuture<'static, ()> {
        async move {
            while let Ok(Some(item)) = rx.recv().await {
                if tx.send(item).await.is_err() {
                    return;
                }
            }
        }
        .boxed()
    }
}

async fn start(env: &Env) -> Server {
    let listener = env.net().listen(ADDR).await.unwrap();
    serve(env, listener, ServerConfig::new(Identity::new(1, 1), Keys::shared(secret())), Arc::new(Echo))
}

fn dialer(env: &Env) -> Dialer {
    let config = DialerConfig {
        addr: ADDR.to_owned(),
        identity: Identity::new(1, 2),
        secret: secret(),
        role: Role::Peer,
        purpose: Purpose::Data,
        expected: None,
        connect_limit: Duration::from_secs(3),
    };
    Dialer::new(env, config)
}

async fn call(client: &Client) -> Result<Bytes, CallError> {
    client.call(0, Bytes::from_static(b"well"), Instant::now() + Duration::from_secs(60)).await
}

/// What a hostile end sends, before or after the handshake.
#[derive(Clone, Debug)]
enum Input {
    Bytes(Vec<u8>),
    Messages(Vec<message::Message>),
}

impl Input {
    fn bytes(self) -> Vec<u8> {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Messages(messages) => messages.into_iter().flat_map(frame_of).collect(),
        }
    }
}

fn input() -> impl Strategy<Value = Input> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..2000).prop_map(Input::Bytes),
        prop::collection::vec(any_message(), 0..60).prop_map(Input::Messages),
    ]
}

/// Attacks a server with hostile clients, before and after a handshake, while an honest client uses it.
fn attack_a_server(seed: u64, inputs: Vec<(bool, Input)>) {
    let world = SimWorld::new(seed);
    let scenario = async {
        let _server = start(&world.node("server")).await;
        let (honest, hostile) = (world.node("honest"), world.node("hostile"));
        let client = dialer(&honest).client().await.unwrap();
        for (after_handshake, input) in inputs {
            let stream = hostile.net().connect(ADDR).await.unwrap();
            let (mut reader, mut sink) = link::split(stream);
            if after_handshake {
                let me = introduction(Purpose::Heartbeat);
                handshake::dial(&mut reader, &mut sink, &me, hostile.rng(), ADDR).await.unwrap();
            }
            let _ = sink.write_all(&input.bytes()).await;
            reader.set_content_max(1 << 20);
            // The hostile client reads for a while or disconnects at once.
            if hostile.rng().chance(0.5) {
                let _ = timeout(Duration::from_secs(1), async { while let Ok(Some(_)) = reader.next().await {} }).await;
            }
            assert_eq!(call(&client).await.unwrap(), "well");
        }
    };
    world.run(scenario).unwrap();
}

/// Attacks a client with a hostile server. A call always returns in time.
fn attack_a_client(seed: u64, after_handshake: bool, input: Input) {
    let world = SimWorld::new(seed);
    let scenario = async {
        let (server, env) = (world.node("server"), world.node("caller"));
        let listener = server.net().listen(ADDR).await.unwrap();
        let rng = server.rng().clone();
        server.spawn(async move {
            let (mut reader, mut sink) = link::split(listener.accept().await.unwrap().0);
            if after_handshake {
                let keys = Keys::shared(secret());
                let gate = Gate { identity: Identity::new(1, 1), keys, handler: Arc::new(Echo), security: None };
                handshake::accept(&mut reader, &mut sink, &gate, &rng, "", |_| Some(())).await.unwrap();
            }
            let _ = sink.write_all(&input.bytes()).await;
            std::future::pending::<()>().await;
        });
        let Ok(client) = dialer(&env).client().await else { return };
        let stream = client.open_stream(0);
        let (one, two) = tokio::join!(biased; call(&client), call(&client));
        // The results don't matter: a server that knows the secret may send any reply.
        drop((one, two));
        if let Ok((mut sender, mut receiver)) = stream {
            let _ = timeout(Duration::from_secs(9), sender.send(Bytes::from_static(b"item"))).await;
            let _ = timeout(Duration::from_secs(9), receiver.recv()).await;
        }
    };
    world.run_within(Duration::from_secs(600), scenario).unwrap();
}

proptest! {
    #[test]
    fn a_hostile_client_does_not_affect_others(
        seed in any::<u64>(),
        inputs in prop::collection::vec((any::<bool>(), input()), 1..6),
    ) {
        attack_a_server(seed, inputs);
    }

    #[test]
    fn a_hostile_server_never_blocks_a_client(
        seed in any::<u64>(),
        after_handshake in any::<bool>(),
        input in input(),
    ) {
        attack_a_client(seed, after_handshake, input);
    }
}

#[test]
fn a_protocol_violation_closes_the_connection() {
    use message::Message;
    let limits = Limits::of(Purpose::Heartbeat);
    let item = |id, len: usize| Message::Item { id, body: vec![0; len].into() };
    let quarter = usize::try_from(limits.stream_window / 4).unwrap();
    let call = |id| Message::Call { id, millis: 1000, method: 2, body: Bytes::new() };
    let open = Message::Open { id: 1, method: 0 };
    let never_read = 4 * limits.stream_window / 1000;
    let cases = [
        vec![call(1), call(1)],
        vec![call(2), call(1)],
        vec![open.clone(), open.clone()],
        vec![open.clone(), Message::End { id: 1 }, item(1, 1)],
        vec![open.clone(), Message::Credit { id: 1, amount: 1 }],
        vec![Message::Reply { id: 1, body: Bytes::new() }],
        vec![Message::Goodbye { last_call: 1 }],
        std::iter::once(open.clone()).chain((0..never_read).map(|_| item(1, quarter))).collect(),
        (0..100_000).map(|_| Message::Ping).collect(),
    ];
    for (number, messages) in cases.into_iter().enumerate() {
        let world = SimWorld::new(u64::try_from(number).unwrap());
        let scenario = async {
            let _server = start(&world.node("server")).await;
            let hostile = world.node("hostile");
            let (mut reader, mut sink) = link::split(hostile.net().connect(ADDR).await.unwrap());
            let me = introduction(Purpose::Heartbeat);
            handshake::dial(&mut reader, &mut sink, &me, hostile.rng(), ADDR).await.unwrap();
            let input = Input::Messages(messages).bytes();
            // The hostile client reads nothing until it has sent everything or can't send more.
            let _ = timeout(Duration::from_secs(60), sink.write_all(&input)).await;
            let closed = timeout(Duration::from_secs(60), until_closed(&mut sink)).await;
            assert!(closed.is_ok(), "case {number}");
        };
        world.run(scenario).unwrap();
    }
}

async fn until_closed(sink: &mut link::Sink) {
    while sink.write_all(&frame_of(message::Message::Pong)).await.is_ok() {
        quorate_env::sleep(Duration::from_millis(10)).await;
    }
}
