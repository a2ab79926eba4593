//! An operator changes the members of a running cluster: three nodes in one process, and a fourth one.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

mod support;

use std::time::Duration;

use bytes::Bytes;
use quorate::admin::{AdminError, Admission, Admitted};
use quorate::backup::BackupOptions;
use quorate::{Admin, Client, ClientConfig, Config, Ended, Error, Level, Node, SecretSource, StartError};
use support::{Cluster, PATIENCE, free_addr, remove, run, secret, until};
use tempfile::TempDir;

/// A node whose configuration lists the cluster and itself, and its address.
struct Fourth {
    config: Config,
    addr: String,
    _dir: TempDir,
}

impl Fourth {
    fn of(cluster: &Cluster) -> Self {
        let (dir, addr) = (TempDir::new().unwrap(), free_addr());
        let mut config = cluster.config("a").with_name("d");
        config.data_dir = dir.path().join("d");
        config.members.insert("d".to_owned(), addr.clone());
        Self { config, addr, _dir: dir }
    }

    fn admission(&self) -> Admission {
        Admission { name: "d".to_owned(), addr: self.addr.clone(), ..Admission::default() }
    }
}

async fn admin(cluster: &Cluster) -> Admin {
    Client::connect(ClientConfig::new(cluster.addrs(), secret())).await.unwrap().admin()
}

/// Asks until the node is a voter; returns the stages in between.
async fn admit(admin: &Admin, admission: &Admission) -> Vec<&'static str> {
    let mut stages = Vec::new();
    loop {
        let stage = match admin.admit(admission.clone()).await {
            Ok(Admitted::Waiting(_)) => "waiting",
            Ok(Admitted::Learner { .. }) => "learner",
            Ok(_) => "voter",
            // On a busy machine the node may not answer within a second.
            Err(AdminError::Refused(why)) if why.to_string().contains("no node answers") => "waiting",
            Err(error) => {
                assert!(error.is_retryable(), "{error}");
                "waiting"
            }
        };
        if stages.last() != Some(&stage) {
            stages.push(stage);
        }
        if stage == "voter" {
            return stages;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn adding_a_node_and_removing_the_leader_is_lossless() {
    run(async {
        let mut cluster = Cluster::start().await;
        let remote = cluster.client().await;
        remote.sql().execute("CREATE TABLE t (x INTEGER PRIMARY KEY)", ()).await.unwrap();
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let writing = tokio::spawn({
            let sql = remote.sql();
            async move {
                let mut written = 0_i64;
                while !*stopped.borrow() {
                    sql.execute("INSERT INTO t VALUES (?)", (written,)).await.unwrap();
                    written += 1;
                }
                written
            }
        });
        let admin = admin(&cluster).await;
        let fourth = Fourth::of(&cluster);
        let node = Node::start(fourth.config.clone()).await.unwrap();
        assert_eq!(admit(&admin, &fourth.admission()).await.last(), Some(&"voter"));

        let leads = admin.transfer(Some("d")).await.unwrap();
        assert_eq!(leads, node.status().node);
        remove(&admin, "d").await;
        let Ended::Removed(why) = node.ended().await else { panic!("the node ended for another reason") };
        let id = node.status().node;
        let removed = format!(
            "the node 'd' with the id {id} was removed from the cluster, and a removed id never comes back; move its \
             data directory away to start 'd' as a new member"
        );
        assert_eq!(why, removed);
        let read = node.sql().query("SELECT count(*) FROM t", ()).await;
        assert_eq!(read, Err(Error::Removed(why.as_str().into())), "it serves no old data");
        let written = node.sql().execute("INSERT INTO t VALUES (-1)", ()).await;
        assert_eq!(written.map(drop), Err(Error::Removed(why.into())));
        node.stop().await;
        let again = Node::start(fourth.config.clone()).await;
        let is_removed = matches!(&again, Err(error @ StartError::Consensus(_)) if error.to_string() == removed);
        assert!(is_removed, "{again:?}");

        let old = cluster.leader().await;
        remove(&admin, &old).await;
        stop.send_replace(true);
        let written = writing.await.unwrap();
        let count: i64 = remote.sql().query_one("SELECT count(*) FROM t", ()).await.unwrap();
        assert_eq!(count, written, "every write was acknowledged and is there once");
        let names: Vec<String> = admin.members().await.unwrap().members.into_iter().map(|member| member.name).collect();
        assert!(names.len() == 2 && !names.contains(&old), "{names:?}");
        cluster.kill(&old);
        for name in names {
            let sql = cluster.sql(&name).at(Level::Linearizable);
            assert_eq!(sql.query_one::<i64>("SELECT count(*) FROM t", ()).await, Ok(written));
        }
    });
}

#[test]
fn a_node_that_has_not_joined_serves_no_reads() {
    run(async {
        let cluster = Cluster::start().await;
        cluster.sql("a").execute("CREATE TABLE t (x)", ()).await.unwrap();
        let (admin, fourth) = (admin(&cluster).await, Fourth::of(&cluster));
        let node = Node::start(fourth.config.clone()).await.unwrap();
        // The table does not exist there yet.
        let at_once = node.sql().at(Level::Local).with_deadline(Duration::from_millis(300));
        let error = at_once.query("SELECT count(*) FROM t", ()).await.unwrap_err();
        assert!(
            matches!(&error, Error::Unavailable(why) if why.to_string().contains("not a member of the cluster yet")),
            "{error}"
        );
        assert!(error.is_retryable());
        assert!(at_once.snapshot().await.is_err());
        let file = fourth._dir.path().join("backup.db");
        let options = BackupOptions { level: Level::Local, ..BackupOptions::default() };
        let backup = tokio::time::timeout(Duration::from_millis(500), node.backup(&file, &options)).await;
        assert!(!matches!(backup, Ok(Ok(_))), "it would be empty");
        assert!(!node.observer().not_ready().is_empty());
        // A read with a longer deadline gets the rows.
        let waiting = tokio::spawn({
            let sql = node.sql().at(Level::Local).with_deadline(PATIENCE);
            async move { sql.query_one::<i64>("SELECT count(*) FROM t", ()).await }
        });
        admit(&admin, &fourth.admission()).await;
        assert_eq!(waiting.await.unwrap(), Ok(0));
        until("the node reports that it is ready", || node.observer().not_ready().is_empty()).await;
        node.stop().await;
    });
}

#[test]
fn one_node_replaces_another() {
    run(async {
        let mut cluster = Cluster::start().await;
        cluster.sql("a").execute("CREATE TABLE t (x)", ()).await.unwrap();
        let admin = admin(&cluster).await;
        let (fourth, old) = (Fourth::of(&cluster), cluster.leader().await);
        let node = Node::start(fourth.config.clone()).await.unwrap();
        let admission = Admission { replaces: Some(old.clone()), ..fourth.admission() };
        assert_eq!(admit(&admin, &admission).await.last(), Some(&"voter"));
        let status = admin.members().await.unwrap();
        let mut voters: Vec<&str> = status.members.iter().filter(|m| m.voter).map(|m| m.name.as_str()).collect();
        voters.sort_unstable();
        let expected: Vec<&str> = ["a", "b", "c", "d"].into_iter().filter(|name| *name != old).collect();
        assert_eq!(voters, expected);
        cluster.kill(&old);
        let sql = node.sql().at(Level::Linearizable);
        assert_eq!(sql.query_one::<i64>("SELECT count(*) FROM t", ()).await, Ok(0));
        node.stop().await;
    });
}

#[test]
fn invalid_requests_are_refused_with_the_reason() {
    run(async {
        let cluster = Cluster::start().await;
        cluster.sql("a").execute("CREATE TABLE t (x)", ()).await.unwrap();
        until("all know the members", || cluster.nodes().all(|node| node.status().members.len() == 3)).await;
        let mut admins = Vec::new();
        // Whichever node is asked, by a client or through its own handle, the leader decides.
        for node in cluster.nodes() {
            let client = Client::connect(ClientConfig::pinned(node.local_addr(), secret())).await.unwrap();
            admins.extend([client.admin(), node.admin()]);
        }
        for admin in admins {
            let refusal = |error: Option<AdminError>| match error {
                Some(AdminError::Refused(why)) => why.to_string(),
                other => panic!("not refused: {other:?}"),
            };
            assert_eq!(admin.members().await.unwrap().members.len(), 3);
            assert!(refusal(admin.remove("x", false).await.err()).contains("no member 'x'"));
            assert!(refusal(admin.transfer(Some("x")).await.err()).contains("no member 'x'"));
            let nobody = Admission { name: "x".to_owned(), addr: "127.0.0.1:1".to_owned(), ..Admission::default() };
            assert!(refusal(admin.admit(nobody).await.err()).contains("no node answers at 127.0.0.1:1"));
            let probed = admin.probe().await.unwrap();
            assert_eq!(probed.version, env!("CARGO_PKG_VERSION"));
            assert!(probed.clock_offset.unsigned_abs() <= u64::try_from(probed.round_trip.as_nanos()).unwrap());
        }
    });
}

#[test]
fn only_administrators_change_the_members() {
    run(async {
        let cluster = Cluster::start().await;
        let wrong = SecretSource::Inline("another secret for tests".to_owned());
        assert!(Client::connect(ClientConfig::new(cluster.addrs(), wrong)).await.is_err());
        for role in [quorate_wire::Role::ReadWrite, quorate_wire::Role::ReadOnly] {
            for method in 70..=73 {
                let failure = support::call(&cluster.addrs()[0], role, method, Bytes::new()).await.unwrap_err();
                assert!(failure.to_string().contains("administrator"), "{failure}");
            }
        }
    });
}
