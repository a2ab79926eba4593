//! Errors of nodes that are unreachable, stopped or cut off, or that refuse a client.

use std::time::{Duration, Instant};

use quorate::admin::{AdminError, VerifyError};
use quorate::config::DEADLINE_DEFAULT;
use quorate::sim::SimHooks;
use quorate::{Client, ClientConfig, ConnectError, Error, Level, SecretSource, Sql, verify};
use quorate_env::Env;

use crate::support::{Cluster, Single, run, secret};
use crate::{aborted, error_of, fails, fails_for_now, unavailable, unknown};

const SHORT: Duration = Duration::from_millis(400);

const CLOSED: &str = "closed: the node or this handle was stopped; start the node or connect again";

async fn connect(config: ClientConfig) -> Result<Client, Error> {
    Client::connect(config).await.map_err(|error| match error {
        ConnectError::Cluster(error) => error,
        other => panic!("{other}"),
    })
}

/// Starts a cluster of three and kills two nodes; the leader is one of them, unless it is the remaining node. Returns
/// the remaining node's handle, and the former leader's address.
async fn left_alone(leads: bool) -> (Cluster, Sql, String) {
    // So long that no other node leads in the meantime, and that a leader does not give up yet.
    let mut cluster = Cluster::start_in(Box::new(|_, config| {
        (config.timing.election_min, config.timing.election_max) = (Duration::from_secs(3), Duration::from_secs(5));
        (Env::real(), SimHooks::default())
    }))
    .await;
    let leader = cluster.leader().await;
    let left = ["a", "b", "c"].into_iter().find(|name| (*name == leader) == leads).unwrap();
    let addr = cluster.config(left).members[&leader].clone();
    cluster.sql(left).execute("CREATE TABLE t (a)", ()).await.unwrap();
    for name in ["a", "b", "c"].into_iter().filter(|name| *name != left) {
        cluster.kill(name);
    }
    let sql = cluster.sql(left).with_deadline(SHORT);
    (cluster, sql, format!("{leader} at {addr}"))
}

#[test]
fn a_follower_without_a_majority() {
    run(async {
        let (mut cluster, sql, leader) = left_alone(false).await;
        let gone = "the call was not sent: the connection is closed";
        let no_majority =
            unavailable(&format!("no leader with a majority answered: {gone} (reads at the level Local need none)"));
        let mut read = error_of(sql.at(Level::Linearizable).query("SELECT 1", ()).await);
        // A call that was pending when the leader was killed has another error.
        while read.0 != no_majority {
            read = error_of(sql.at(Level::Linearizable).query("SELECT 1", ()).await);
        }
        assert!(read.1);
        let away = unavailable(&format!("{leader} can't be reached"));
        // A write may still be sent over a connection that ends only then, so its outcome is not known.
        let mut write = error_of(sql.execute("DELETE FROM t", ()).await);
        while write == (unknown("there was no answer in time"), false) {
            write = error_of(sql.execute("DELETE FROM t", ()).await);
        }
        assert_eq!(write, (away.clone(), true));
        fails_for_now(sql.begin().await, &away);
        assert!(sql.at(Level::Local).query("SELECT 1", ()).await.is_ok());
        cluster.stop_all().await;
    });
}

#[test]
fn a_leader_that_lost_its_majority() {
    run(async {
        let (mut cluster, sql, _) = left_alone(true).await;
        fails(sql.execute("DELETE FROM t", ()).await, &unknown("there was no answer in time"));
        let no_majority = "the read took too long: no majority answered in time; check that a majority of the nodes is \
                           up and reachable, wait longer (with_deadline), or read at the level Local";
        fails_for_now(sql.at(Level::Linearizable).query("SELECT 1", ()).await, no_majority);
        cluster.stop_all().await;
    });
}

#[test]
fn a_node_that_was_stopped() {
    run(async {
        let single = Single::start().await;
        let (sql, addr) = (single.node.sql(), single.node.local_addr().to_string());
        let remote = single.client().await;
        remote.sql().execute("CREATE TABLE t (a)", ()).await.unwrap();
        let mut tx = remote.sql().begin().await.unwrap();
        let mut snapshot = remote.sql().snapshot().await.unwrap();
        let config = ClientConfig::new([addr.as_str()], secret()).with_deadline(SHORT);
        single.node.stop().await;
        let refused = unavailable(&format!("cannot connect to {addr}: Connection refused (os error 111)"));
        fails_for_now(connect(config.clone()).await, &refused);
        let verified = verify(config).await.map(drop).map_err(|error| match error {
            VerifyError::Cluster(error) => error,
            other => panic!("{other}"),
        });
        fails_for_now(verified, &refused);
        let late = remote.sql().with_deadline(SHORT);
        fails_for_now(late.query("SELECT 1", ()).await, &refused);
        fails_for_now(late.execute("DELETE FROM t", ()).await, &refused);
        // The error depends on how far the shutdown has come.
        let ends = ["the connection is closed", "the other end stopped reading", "the node ended the transaction"];
        let ends = ends.map(|end| format!("{addr}: {end}"));
        let (text, is_retryable) = error_of(tx.execute("DELETE FROM t", ()).await);
        assert!(ends.iter().any(|end| text == aborted(end)) && is_retryable, "{text}");
        let (text, is_retryable) = error_of(snapshot.query("SELECT 1", ()).await);
        assert!(ends.iter().any(|end| text == unavailable(end)) && is_retryable, "{text}");
        fails(sql.query("SELECT 1", ()).await, CLOSED);
        fails(sql.execute("DELETE FROM t", ()).await, CLOSED);
        fails(sql.begin().await, CLOSED);
        fails(sql.snapshot().await, CLOSED);
        fails(sql.transact(async |tx| tx.execute("DELETE FROM t", ()).map(drop)).await, CLOSED);
    });
}

/// Calls of a client that was closed fail at once, not at their deadline.
#[test]
fn a_client_that_was_closed() {
    run(async {
        let single = Single::start().await;
        let client = single.client().await;
        client.sql().execute("CREATE TABLE t (a)", ()).await.unwrap();
        let (clone, sql, admin) = (client.clone(), client.sql(), client.admin());
        let (mut tx, mut snapshot) = (sql.begin().await.unwrap(), sql.snapshot().await.unwrap());
        client.close().await;
        let begun = Instant::now();
        fails(sql.query("SELECT 1", ()).await, CLOSED);
        fails(sql.execute("DELETE FROM t", ()).await, CLOSED);
        fails(sql.begin().await, CLOSED);
        fails(sql.snapshot().await, CLOSED);
        fails(sql.transact(async |tx| tx.execute("DELETE FROM t", ()).map(drop)).await, CLOSED);
        fails(tx.execute("DELETE FROM t", ()).await, CLOSED);
        fails(snapshot.query("SELECT 1", ()).await, CLOSED);
        fails(clone.status().await, CLOSED);
        assert_eq!(admin.members().await, Err(AdminError::Closed));
        assert_eq!(admin.remove("x", false).await, Err(AdminError::Closed));
        assert!(begun.elapsed() < DEADLINE_DEFAULT, "{:?}", begun.elapsed());
        clone.close().await;
        single.node.stop().await;
    });
}

#[test]
fn clients_that_are_refused() {
    run(async {
        let single = Single::start().await;
        let addr = single.node.local_addr().to_string();
        let wrong = SecretSource::Inline("another secret, for tests too".to_owned());
        let differ = format!("refused: handshake with {addr}: the secrets differ: give both ends the same one");
        fails(connect(ClientConfig::new([addr.as_str()], wrong)).await, &differ);
        let config = ClientConfig::new([addr.as_str()], secret()).with_read_only(true);
        let reader = connect(config).await.unwrap();
        let only = format!(
            "refused: {addr}: forbidden: this client or user may only read; connect without 'read_only', or as a user \
             who may write"
        );
        fails(reader.sql().execute("CREATE TABLE t (a)", ()).await, &only);
        fails(reader.sql().begin().await, &only);
        assert!(reader.sql().query("SELECT 1", ()).await.is_ok());
        let none = Client::connect(ClientConfig::new(Vec::<String>::new(), secret())).await.map(drop).unwrap_err();
        assert_eq!((none.to_string().as_str(), none.is_retryable()), ("the configuration: 'addrs' is missing", false));
        reader.close().await;
        single.node.stop().await;
    });
}
