//! Which connections a server accepts, and the errors for those that it refuses.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use bytes::Bytes;
use common::{ADDR, CALLER, CLUSTER, ECHO, Echo, SERVER, connect, dialer_config, each_seed, in_seconds, seconds};
use quorate_env::{Env, sleep, timeout};
use quorate_env_sim::SimWorld;
use quorate_wire::{
    CallError, Client, ConnectError, Dialer, DialerConfig, HandshakeError, Identity, Keys, Purpose, Role, Secret,
    ServerConfig,
};
use tokio::io::AsyncReadExt;

fn other_secret() -> Secret {
    Secret::new("another secret of some length").unwrap()
}

/// Dials a server with a changed configuration.
async fn dial(world: &SimWorld, change: impl FnOnce(&mut DialerConfig)) -> Result<Client, ConnectError> {
    let mut config = dialer_config(Purpose::Client);
    change(&mut config);
    Dialer::new(&world.node("caller"), config).client().await
}

fn refused(result: Result<Client, ConnectError>) -> HandshakeError {
    match result {
        Err(ConnectError::Handshake { error, .. }) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn both_ends_learn_the_identity_of_the_other() {
    each_seed(20, async |world| {
        let _server = common::start(&world.node("server"), Echo).await;
        let client = connect(&world.node("caller"), Purpose::Data).await;
        assert_eq!((client.peer().cluster, client.peer().node), (CLUSTER, SERVER));
        assert_eq!(client.call(ECHO, Bytes::from_static(b"hello"), in_seconds(1)).await.unwrap(), "hello");
    });
}

#[test]
fn each_refusal_has_its_own_error() {
    each_seed(20, async |world| {
        let _server = common::start(&world.node("server"), Echo).await;
        let error = refused(dial(world, |config| config.secret = other_secret()).await);
        assert_eq!(error, HandshakeError::WrongSecret);

        let error = refused(dial(world, |config| config.identity = Identity::new(0xBAD, CALLER)).await);
        assert_eq!(error, HandshakeError::OtherCluster { theirs: CLUSTER, ours: 0xBAD });

        let error = refused(dial(world, |config| config.expected = Some(9)).await);
        assert_eq!(error, HandshakeError::NotTheNode { expected: 9, found: SERVER });

        let both = |config: &mut DialerConfig| {
            config.secret = other_secret();
            config.identity = Identity::new(0xBAD, CALLER);
        };
        let error = refused(dial(world, both).await);
        assert_eq!(error, HandshakeError::WrongSecret, "a client without the secret learns nothing else");

        let foreign = |config: &mut DialerConfig| (config.role, config.purpose) = (Role::Admin, Purpose::Data);
        assert!(matches!(refused(dial(world, foreign).await), HandshakeError::Malformed(_)));
    });
}

#[test]
fn a_role_is_proved_by_its_own_secret() {
    each_seed(10, async |world| {
        let mut config = common::server_config();
        config.keys = Keys::peers_only(common::secret()).with(Role::ReadOnly, other_secret());
        let _server = common::start_with(&world.node("server"), config, Echo).await;
        let dial_as = async |role, secret| {
            let change = |config: &mut DialerConfig| (config.role, config.secret) = (role, secret);
            dial(world, change).await
        };
        assert_eq!(dial_as(Role::ReadOnly, other_secret()).await.unwrap().peer().role, Role::ReadOnly);
        assert_eq!(refused(dial_as(Role::ReadOnly, common::secret()).await), HandshakeError::WrongSecret);
        assert_eq!(refused(dial_as(Role::Admin, common::secret()).await), HandshakeError::WrongSecret);
        assert_eq!(refused(dial_as(Role::Peer, other_secret()).await), HandshakeError::WrongSecret);
    });
}

#[test]
fn a_node_without_a_cluster_can_connect() {
    each_seed(10, async |world| {
        let mut config = common::server_config();
        let identity = Identity::default();
        config.identity = identity.clone();
        let _server = common::start_with(&world.node("server"), config, Echo).await;
        let client = dial(world, |config| config.expected = None).await.unwrap();
        assert_eq!((client.peer().cluster, client.peer().node), (0, 0));
        identity.set(CLUSTER, SERVER);
        let newborn = |config: &mut DialerConfig| config.identity = Identity::default();
        assert_eq!(dial(world, newborn).await.unwrap().peer().cluster, CLUSTER);
        identity.set(0xBAD, SERVER);
        assert!(matches!(refused(dial(world, |_| {}).await), HandshakeError::OtherCluster { .. }));
    });
}

#[test]
fn a_silent_handshake_times_out_at_both_ends() {
    each_seed(10, async |world| {
        let _server = common::start(&world.node("server"), Echo).await;
        let mut stream = world.node("caller").net().connect(ADDR).await.unwrap();
        let mut received = Vec::new();
        timeout(seconds(6), stream.read_to_end(&mut received)).await.unwrap().unwrap();

        let mute = world.node("mute");
        let listener = mute.net().listen("mute:1").await.unwrap();
        mute.spawn(async move {
            let _held = listener.accept().await;
            std::future::pending::<()>().await;
        });
        let result = dial(world, |config| config.addr = "mute:1".to_owned()).await;
        assert!(matches!(result, Err(ConnectError::TimedOut { .. })), "{result:?}");
        let result = dial(world, |config| config.addr = "mute:2".to_owned()).await;
        assert!(matches!(result, Err(ConnectError::Unreachable { .. })), "{result:?}");
    });
}

#[test]
fn places_are_limited_and_released() {
    each_seed(10, async |world| {
        let mut config = common::server_config();
        (config.unproven_max, config.clients_max, config.peers_max) = (2, 1, 1);
        let _server = common::start_with(&world.node("server"), config, Echo).await;
        let env = world.node("caller");
        let dial_as = async |env: &Env, role| {
            let config = DialerConfig { role, ..dialer_config(Purpose::Client) };
            Dialer::new(env, config).connect().await
        };
        let client = dial_as(&env, Role::Admin).await.unwrap();
        assert_eq!(refused(dial_as(&env, Role::Admin).await), HandshakeError::Busy);
        let peer = dial_as(&env, Role::Peer).await.unwrap();
        drop(client);
        sleep(seconds(1)).await;
        dial_as(&env, Role::Admin).await.unwrap();
        assert_eq!(refused(dial_as(&env, Role::Peer).await), HandshakeError::Busy);
        drop(peer);
        sleep(seconds(1)).await;
        dial_as(&env, Role::Peer).await.unwrap();
    });
}

/// Each second more silent connections than there are places: a handshake still gets one.
#[test]
fn strangers_do_not_keep_others_out() {
    each_seed(10, async |world| {
        let config = ServerConfig { unproven_max: 8, ..common::server_config() };
        let server = common::start_with(&world.node("server"), config, Echo).await;
        let (stranger, caller) = (world.node("stranger"), world.node("caller"));
        let mut silent = Vec::new();
        for second in 0..10 {
            for _ in 0..20 {
                silent.push(stranger.net().connect(ADDR).await.unwrap());
            }
            let client = Dialer::new(&caller, dialer_config(Purpose::Data)).connect().await;
            assert!(client.is_ok(), "second {second}: {client:?}");
            sleep(seconds(1)).await;
        }
        assert!(server.connections().refused > 150, "{:?}", server.connections());
    });
}

#[test]
fn callers_share_one_connection_and_one_error() {
    each_seed(20, async |world| {
        let server = common::start(&world.node("server"), Echo).await;
        let dialer = Dialer::new(&world.node("caller"), dialer_config(Purpose::Data));
        let (one, two) = tokio::join!(biased; dialer.client(), dialer.client());
        let (one, two) = (one.unwrap(), two.unwrap());
        drop(server);
        timeout(seconds(1), one.closed()).await.unwrap();
        assert!(!two.is_open() && dialer.present().is_none());
        let gone = two.call(ECHO, Bytes::new(), in_seconds(1)).await.unwrap_err();
        assert!(matches!(gone, CallError::NotSent(_)) && gone.is_retryable());
        world.kill("server").await;
        let (one, two) = tokio::join!(biased; dialer.client(), dialer.client());
        assert_eq!(one.unwrap_err(), two.unwrap_err());
    });
}

#[test]
fn a_secret_is_not_printed() {
    let config = format!("{:?} {:?}", dialer_config(Purpose::Data), common::server_config());
    assert!(!config.contains("sixteen") && config.contains("Secret(..)"), "{config}");
    assert!(Secret::new("fifteen bytes..").is_err());
}
