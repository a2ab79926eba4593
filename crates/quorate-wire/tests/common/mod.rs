//! Helpers for the tests: a server, clients and a simulated world.
#![allow(clippy::unwrap_used, clippy::expect_used, dead_code, reason = "tests; not every test uses every helper")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use quorate_env::{Env, Instant};
use quorate_env_sim::SimWorld;
use quorate_wire::{
    CallFailure, Client, Dialer, DialerConfig, FailureKind, Handler, Identity, Keys, PeerInfo, Purpose, Role, Secret,
    Server, ServerConfig, StreamReceiver, StreamSender, serve,
};

pub const CLUSTER: u128 = 0xC1;
pub const SERVER: u64 = 0x5E;
pub const CALLER: u64 = 0xCA;
pub const ADDR: &str = "server:1";

pub fn secret() -> Secret {
    Secret::new("sixteen bytes or more").unwrap()
}

pub fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

pub fn in_seconds(count: u64) -> Instant {
    Instant::now() + seconds(count)
}

pub fn dialer_config(purpose: Purpose) -> DialerConfig {
    DialerConfig {
        addr: ADDR.to_owned(),
        identity: Identity::new(CLUSTER, CALLER),
        secret: secret(),
        role: Role::Peer,
        purpose,
        expected: Some(SERVER),
        connect_limit: seconds(2),
    }
}

pub fn server_config() -> ServerConfig {
    ServerConfig::new(Identity::new(CLUSTER, SERVER), Keys::shared(secret()))
}

pub async fn start_with(env: &Env, config: ServerConfig, handler: impl Handler) -> Server {
    let listener = env.net().listen(ADDR).await.unwrap();
    serve(env, listener, config, Arc::new(handler))
}

pub async fn start(env: &Env, handler: impl Handler) -> Server {
    start_with(env, server_config(), handler).await
}

pub async fn connect(env: &Env, purpose: Purpose) -> Client {
    Dialer::new(env, dialer_config(purpose)).client().await.unwrap()
}

/// Runs a scenario with each of `count` seeds.
pub fn each_seed(count: u64, scenario: impl AsyncFn(&SimWorld)) {
    for seed in 0..count {
        let world = SimWorld::new(seed);
        world.run(scenario(&world)).unwrap();
    }
}

pub const ECHO: u16 = 1;
pub const NEVER: u16 = 2;
pub const FAIL: u16 = 3;
pub const DOUBLE_ECHO: u16 = 4;

/// Replies with the body, with twice the body, never, or with a failure, depending on the method. Echoes streams.
pub struct Echo;

impl Handler for Echo {
    fn call(&self, _peer: &PeerInfo, method: u16, body: Bytes) -> BoxFuture<'static, Result<Bytes, CallFailure>> {
        match method {
            ECHO => async { Ok(body) }.boxed(),
            DOUBLE_ECHO => async move { Ok([&body[..], &body[..]].concat().into()) }.boxed(),
            NEVER => std::future::pending().boxed(),
            FAIL => async { Err(CallFailure::new(FailureKind::Unavailable, "not today")) }.boxed(),
            _ => async { Err(CallFailure::new(FailureKind::UnknownMethod, "no such method")) }.boxed(),
        }
    }

    fn stream(
        &self,
        _peer: &PeerInfo,
        method: u16,
        mut sender: StreamSender,
        mut receiver: StreamReceiver,
    ) -> BoxFuture<'static, ()> {
        async move {
            match method {
                ECHO => {
                    while let Ok(next) = receiver.recv().await {
                        let Some(item) = next else { return sender.finish() };
                        if sender.send(item).await.is_err() {
                            return;
                        }
                    }
                }
                NEVER => std::future::pending().await,
                _ => sender.fail(CallFailure::new(FailureKind::UnknownMethod, "no such stream")),
            }
        }
        .boxed()
    }
}
