//! Connections over TLS on real sockets: who is let in, and that a proof counts for one channel alone.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests; they write files")]

mod common;

use std::fs;
use std::sync::Arc;

use bytes::Bytes;
use common::{ECHO, Echo, dialer_config, in_seconds, seconds, server_config};
use futures_util::future::join;
use quorate_env::{Env, Instant, timeout, yield_now};
use quorate_tls::authority::Authority;
use quorate_tls::{Ca, IdentityFiles, Keychain, TlsFiles, TlsNet};
use quorate_wire::{
    Client, ConnectError, Dialer, DialerConfig, HandshakeError, Purpose, Role, Server, ServerConfig, serve,
    tls_only_frame,
};
use tempfile::TempDir;
use tokio::io::copy_bidirectional;

const HOST: &str = "127.0.0.1";

/// The environments of a node and of a client, under one CA.
struct Parties {
    node: Env,
    client: Env,
    plain: Env,
    _dir: TempDir,
}

fn parties() -> Parties {
    let (dir, plain) = (tempfile::tempdir().unwrap(), Env::real());
    let authority = Authority::new(&plain, "a CA for tests").unwrap();
    let issued = authority.issue("node", &[HOST.to_owned()]).unwrap();
    let write = |name: &str, text: String| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let ca = Ca::File(write("ca.crt", authority.certificate()));
    let identity =
        IdentityFiles { certificate: write("node.crt", issued.certificate), key: write("node.key", issued.key) };
    let over_tls = |identity| {
        let keychain = Keychain::open(&plain, TlsFiles { ca: ca.clone(), identity }).unwrap();
        TlsNet::new(&plain, keychain).with_answer_to_plain(&tls_only_frame()).env(&plain)
    };
    Parties { node: over_tls(Some(identity)), client: over_tls(None), plain: plain.clone(), _dir: dir }
}

async fn start(env: &Env) -> Server {
    let listener = env.net().listen("127.0.0.1:0").await.unwrap();
    // A handshake over TLS takes a while on a busy machine.
    let config = ServerConfig { handshake_limit: seconds(30), ..server_config() };
    serve(env, listener, config, Arc::new(Echo))
}

async fn dial(env: &Env, addr: &str, role: Role) -> Result<Client, ConnectError> {
    let purpose = if role == Role::Peer { Purpose::Data } else { Purpose::Client };
    let config = DialerConfig { addr: addr.to_owned(), role, connect_limit: seconds(30), ..dialer_config(purpose) };
    Dialer::new(env, config).client().await
}

async fn refused(env: &Env, addr: &str, role: Role) -> HandshakeError {
    match dial(env, addr, role).await {
        Err(ConnectError::Handshake { error, .. }) => error,
        other => panic!("{other:?}"),
    }
}

async fn echoes(client: &Client) -> bool {
    let body = Bytes::from(vec![7; 3 << 20]);
    client.call(ECHO, body.clone(), in_seconds(30)).await.is_ok_and(|reply| reply == body)
}

#[tokio::test]
async fn nodes_need_a_certificate_and_clients_do_not() {
    let Parties { node, client, plain, _dir } = parties();
    let server = start(&node).await;
    assert!(echoes(&dial(&node, server.local_addr(), Role::Peer).await.unwrap()).await);
    assert!(echoes(&dial(&client, server.local_addr(), Role::Admin).await.unwrap()).await);
    assert_eq!(refused(&client, server.local_addr(), Role::Peer).await, HandshakeError::Uncertified);
    assert_eq!(refused(&plain, server.local_addr(), Role::Admin).await, HandshakeError::NeedsTls);
    let deadline = in_seconds(30);
    while server.connections().refused != 2 {
        assert!(Instant::now() < deadline, "{:?}", server.connections());
        yield_now().await;
    }
}

#[tokio::test]
async fn a_client_of_tls_learns_that_the_other_end_speaks_none() {
    let Parties { client, plain, _dir, .. } = parties();
    let server = start(&plain).await;
    let error = refused(&client, server.local_addr(), Role::Admin).await;
    assert!(matches!(error, HandshakeError::Tls(_)) && error.to_string().contains("does not speak TLS"), "{error}");
    assert!(!error.is_retryable());
}

/// Dials a node through a relay that ends TLS on the one side and begins it on the other.
async fn relayed(from: &Env, near: &Env, far: &Env, to: &Env) -> HandshakeError {
    let (server, listener) = (start(to).await, near.net().listen("127.0.0.1:0").await.unwrap());
    let addr = listener.local_addr();
    let relay = async {
        let (mut near, _) = listener.accept().await.unwrap();
        let mut far = far.net().connect(server.local_addr()).await.unwrap();
        // It ends when the node has refused the client.
        let _ = copy_bidirectional(&mut near, &mut far).await;
    };
    timeout(seconds(30), join(refused(from, &addr, Role::Peer), relay)).await.unwrap().0
}

#[tokio::test]
async fn a_proof_cannot_be_relayed_to_another_channel() {
    let Parties { node, plain, _dir, .. } = parties();
    for (from, near, far, to) in [(&node, &node, &node, &node), (&node, &node, &plain, &plain)] {
        assert_eq!(relayed(from, near, far, to).await, HandshakeError::OtherChannel);
    }
}
