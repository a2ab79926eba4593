//! Tests that a stalled client loses its snapshot, in a simulated world.

#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use std::sync::{Arc, Mutex};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use quorate_env::Instant;
use quorate_env_sim::SimWorld;
use quorate_wire::{Dialer, DialerConfig, Handler, Identity, Keys, PeerInfo, Purpose, Role, Secret, ServerConfig};

use super::*;

/// Sends pieces without end, and records the failure that ended this, and after what time.
#[derive(Clone, Default)]
struct Endless(Arc<Mutex<Option<(CallFailure, Duration)>>>);

impl Handler for Endless {
    fn call(&self, _: &PeerInfo, _: u16, body: Bytes) -> BoxFuture<'static, Result<Bytes, CallFailure>> {
        futures_util::future::ready(Ok(body)).boxed()
    }

    fn stream(&self, _: &PeerInfo, _: u16, mut sender: StreamSender, _: StreamReceiver) -> BoxFuture<'static, ()> {
        let ended = Arc::clone(&self.0);
        async move {
            let begun = Instant::now();
            let rows = || Rows::new(["a".to_owned()].into(), vec![quorate_model::Value::from(vec![0; 64 << 10])]);
            loop {
                let piece: Result<Option<Rows>, Error> = Ok(Some(rows()));
                if let Err(failure) = send(&mut sender, piece).await {
                    *ended.lock().unwrap() = Some((failure.clone(), begun.elapsed()));
                    return sender.fail(failure);
                }
            }
        }
        .boxed()
    }
}

#[test]
fn a_stalled_client_loses_its_snapshot() {
    let world = SimWorld::new(1);
    let secret = Secret::new("sixteen bytes or more").unwrap();
    let outcome = world.run(async {
        let (server, client) = (world.node("server"), world.node("client"));
        let listener = server.net().listen("server:1").await.unwrap();
        let endless = Endless::default();
        let config = ServerConfig::new(Identity::new(1, 2), Keys::shared(secret.clone()));
        let _server = quorate_wire::serve(&server, listener, config, Arc::new(endless.clone()));
        let config = DialerConfig {
            addr: "server:1".to_owned(),
            identity: Identity::default(),
            secret,
            role: Role::ReadOnly,
            purpose: Purpose::Client,
            expected: None,
            connect_limit: Duration::from_secs(2),
        };
        let stalled = Dialer::new(&client, config).client().await.unwrap();
        let (_sender, mut receiver) = stalled.open_stream(1).unwrap();
        quorate_env::sleep(STALL_MAX + Duration::from_secs(5)).await;
        let (failure, after) = endless.0.lock().unwrap().clone().unwrap();
        assert!(failure.text.contains("no part of the result was read for 60 s"), "{failure}");
        assert!(after >= STALL_MAX && after < STALL_MAX + Duration::from_secs(5), "{after:?}");
        // A client that reads again later gets the reason.
        let why = loop {
            match receiver.recv().await {
                Ok(piece) => assert!(piece.is_some()),
                Err(why) => break why,
            }
        };
        assert!(why.to_string().contains("read its pieces faster"), "{why}");
    });
    outcome.unwrap();
}
