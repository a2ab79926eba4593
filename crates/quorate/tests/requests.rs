//! Writes with a key: each takes effect once, whatever handle, node or history it comes through.

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

use futures_util::future::join_all;
use quorate::backup::BackupOptions;
use quorate::config::Timing;
use quorate::restore::RestoreOptions;
use quorate::sim::SimHooks;
use quorate::types::Epoch;
use quorate::{Client, ClientConfig, Error, Failure, FailureKind, Level, Node, Sql, params, restore, verify};
use quorate_env::Env;
use quorate_model::REQUEST_KEYS_LEVEL;
use support::{Cluster, Single, on_both, run, secret, until};
use tempfile::TempDir;

const INSERT: &str = "INSERT INTO t (b) VALUES (?) RETURNING a, b";

/// Waits until all nodes may use keys.
async fn know_keys(cluster: &Cluster) {
    let knows = |node: &Node| node.status().format_level >= REQUEST_KEYS_LEVEL;
    until("the format level is raised", || cluster.nodes().all(knows)).await;
}

/// Makes the table, once the cluster may use keys.
async fn make_table(sql: &Sql) -> Result<(), Error> {
    loop {
        let made = sql.with_key("table").execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b)", ()).await;
        match made {
            Err(Error::Failed(failure)) if failure.kind == FailureKind::Unsupported => {
                assert!(failure.message.contains("this needs format level 3"), "{failure}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            made => return made.map(drop),
        }
    }
}

async fn count(sql: &Sql) -> i64 {
    sql.at(Level::Linearizable).query_one("SELECT count(*) FROM t", ()).await.unwrap()
}

fn failure<T>(result: Result<T, Error>) -> Failure {
    match result {
        Err(Error::Failed(failure)) => failure,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it succeeded"),
    }
}

#[test]
fn every_kind_of_write_may_have_a_key() {
    on_both(|sql| async move {
        make_table(&sql).await?;
        for _ in 0..2 {
            make_table(&sql).await?;
        }
        let first = sql.with_key("1").execute("INSERT INTO t (b) VALUES (?)", (1,)).await?;
        let rows = [(2,), (3,)];
        let many = sql.with_key(vec![0_u8, 255]).execute_many("INSERT INTO t (b) VALUES (?)", rows).await?;
        let batch = [("INSERT INTO t (b) VALUES (?)", params![4]), ("DELETE FROM t WHERE b = ?", params![1])];
        let batched = sql.with_key("3").batch(batch.clone()).await?;
        let steps = [("INSERT INTO t (a) VALUES (?)", params![9]), ("INSERT INTO t (a) VALUES (?)", params![9])];
        let piped = sql.with_key("4").pipeline(steps.clone()).await?;
        let returned = sql.with_key("5").execute_returning(INSERT, (5,)).await?;
        let before = count(&sql).await;
        sql.end_session().await;
        assert_eq!(sql.with_key("1").execute("INSERT INTO t (b) VALUES (?)", (1,)).await?, first);
        assert_eq!(sql.with_key([0, 255]).execute_many("INSERT INTO t (b) VALUES (?)", rows).await?, many);
        assert_eq!(sql.with_key("3").batch(batch).await?, batched);
        let again = sql.with_key("4").with_budget(1_000_000).pipeline(steps.clone()).await?;
        assert_eq!(again, piped);
        assert_eq!(sql.with_key("5").execute_returning(INSERT, (5,)).await?, returned);
        assert_eq!(count(&sql).await, before);
        // A pipeline is another request than a batch of the same statements.
        assert_eq!(failure(sql.with_key("4").batch(steps).await).kind, FailureKind::KeyReused);
        Ok(())
    });
}

#[test]
fn a_key_belongs_to_one_request() {
    on_both(|sql| async move {
        make_table(&sql).await?;
        let keyed = sql.with_key("k");
        keyed.execute("INSERT INTO t VALUES (1, 1)", ()).await?;
        let reused = failure(keyed.execute("INSERT INTO t VALUES (2, 1)", ()).await);
        let text = "the key was used for another request; use a new key for each request";
        assert_eq!((reused.kind, reused.message.as_str()), (FailureKind::KeyReused, text));
        assert_eq!(count(&keyed).await, 1, "reads take no notice of the key");

        // A failure is remembered like a result.
        let taken = sql.with_key("l");
        let insert = "INSERT INTO t VALUES (?, 1)";
        let first = failure(taken.execute(insert, (1,)).await);
        assert!(first.is_unique_violation());
        sql.execute("DELETE FROM t", ()).await?;
        assert_eq!(failure(taken.execute(insert, (1,)).await), first);
        assert_eq!(failure(taken.execute(insert, (2,)).await).kind, FailureKind::KeyReused);

        let large = "INSERT INTO t (b) VALUES (zeroblob(100000)) RETURNING b";
        assert_eq!(failure(sql.with_key("m").execute_returning(large, ()).await).kind, FailureKind::TooBig);
        assert_eq!(count(&sql).await, 0);

        let text = "a key belongs to one write, and a transaction that reads can't have one";
        let transacted = keyed.transact(|_| async { Ok::<_, Error>(()) }).await;
        for refused in [failure(keyed.begin().await), failure(transacted)] {
            assert_eq!(refused.kind, FailureKind::Refused);
            assert!(refused.message.starts_with(text), "{refused}");
        }
        let with = |key: &str| {
            let sql = sql.with_key(key);
            async move { failure(sql.execute("DELETE FROM t", ()).await).kind }
        };
        assert_eq!((with("").await, with(&"x".repeat(257)).await), (FailureKind::Refused, FailureKind::TooBig));
        Ok(())
    });
}

#[test]
fn a_key_outlives_the_node() {
    run(async {
        let single = Single::start().await;
        make_table(&single.node.sql()).await.unwrap();
        let first = single.node.sql().with_key("k").execute_returning(INSERT, (1,)).await.unwrap();
        single.node.sql().execute("INSERT INTO t (b) VALUES (2)", ()).await.unwrap();
        single.node.stop().await;
        let node = Node::start(Single::config(&single.dir)).await.unwrap();
        assert_eq!(node.sql().with_key("k").execute_returning(INSERT, (1,)).await.unwrap(), first);
        assert_eq!(count(&node.sql()).await, 2);
        node.stop().await;
    });
}

/// Requests whose leader dies under them are sent again to another node; the caller knows nothing but the key.
#[test]
fn a_request_takes_effect_once_although_leaders_die() {
    run(async {
        let mut cluster = Cluster::start().await;
        know_keys(&cluster).await;
        make_table(&cluster.sql("a")).await.unwrap();
        for round in 0..4_i64 {
            let leader = cluster.leader().await;
            let keys: Vec<(String, i64)> = (0..40).map(|number| (format!("{round} {number}"), number)).collect();
            let sql = cluster.sql(&leader);
            let sent = keys.iter().map(|(key, number)| {
                let sql = sql.with_key(key.as_str());
                let number = *number;
                tokio::spawn(async move { sql.execute_returning(INSERT, (number,)).await })
            });
            let sent: Vec<_> = sent.collect();
            // At another moment each time: before, while and after they are applied.
            tokio::time::sleep(Duration::from_millis(u64::try_from(round).unwrap() * 3)).await;
            cluster.kill(&leader);
            let other = ["a", "b", "c"].into_iter().find(|name| *name != leader).unwrap();
            let (member, remote) = (cluster.sql(other), cluster.client().await);
            let checks = keys.iter().zip(sent).map(|((key, number), sent)| {
                let (one, other) = (member.with_key(key.as_str()), remote.sql().with_key(key.as_str()));
                async move {
                    let first = one.execute_returning(INSERT, (*number,)).await.unwrap();
                    let second = other.execute_returning(INSERT, (*number,)).await.unwrap();
                    assert_eq!(first, second);
                    if let Ok(answered) = sent.await.unwrap() {
                        assert_eq!(answered, first, "it was answered, and done again");
                    }
                }
            });
            join_all(checks).await;
            assert_eq!(count(&member).await, 40 * (round + 1));
            cluster.restart(&leader).await;
        }
        cluster.stop_all().await;
    });
}

/// A node that gets the image instead of the log knows the keys too, and answers the same when it leads.
#[test]
fn an_image_holds_the_keys() {
    run(async {
        let mut cluster = Cluster::start_in(Box::new(|_, config| {
            config.timing =
                Timing { silence: Duration::from_secs(1), status: Duration::from_millis(100), ..Timing::default() };
            // So small that the beginning of the log is soon purged: each entry takes a page at least.
            config.keep_log_bytes = 8 << 10;
            (Env::real(), SimHooks { log_segment_bytes: Some(64 << 10), ..SimHooks::default() })
        }))
        .await;
        know_keys(&cluster).await;
        make_table(&cluster.sql("a")).await.unwrap();
        let first = cluster.sql("b").with_key("k").execute_returning(INSERT, (1,)).await.unwrap();
        cluster.stop("c").await;
        cluster.wipe("c").await;
        let log = |name| cluster.config(name).data_dir.join("log/0000000001.wal");
        let noise = "UPDATE t SET b = b || randomblob(5000)";
        while ["a", "b"].iter().any(|name| log(name).exists()) {
            cluster.sql("a").execute(noise, ()).await.unwrap();
            cluster.sql("a").execute("UPDATE t SET b = 1", ()).await.unwrap();
        }
        cluster.restart("c").await;
        let remote = cluster.client().await;
        // The node that has lost its directory gets a new id, and its old id leaves the members.
        let votes = |node: &Node| {
            let status = node.status();
            let is_own = status.members.iter().any(|member| member.id == status.node);
            is_own && status.members.len() == 3 && status.members.iter().all(|member| member.voter)
        };
        until("all members vote", || cluster.nodes().all(votes)).await;
        remote.admin().transfer(Some("c")).await.unwrap();
        for sql in [remote.sql(), cluster.sql("c"), cluster.sql("a")] {
            assert_eq!(sql.with_key("k").execute_returning(INSERT, (1,)).await.unwrap(), first);
            assert_eq!(count(&sql).await, 1);
        }
        let verification = verify(ClientConfig::new(cluster.addrs(), secret())).await.unwrap();
        assert!(verification.is_sound(), "{verification:?}");
        cluster.stop_all().await;
    });
}

/// The backup has the effect of the request, and therefore its key.
#[test]
fn a_restore_keeps_the_keys() {
    run(async {
        let dir = TempDir::new().unwrap();
        let single = Single::start().await;
        let sql = single.node.sql();
        make_table(&sql).await.unwrap();
        let first = sql.with_key("k").execute_returning(INSERT, (1,)).await.unwrap();
        let file = dir.path().join("backup.db");
        single.node.backup(&file, &BackupOptions::default()).await.unwrap();
        sql.with_key("later").execute_returning(INSERT, (2,)).await.unwrap();
        single.node.stop().await;

        let config = Single::config(&single.dir);
        let options = RestoreOptions { replace: true, ..RestoreOptions::default() };
        let restored = restore(&file, &config, &options).await.unwrap();
        let node = Node::start(config).await.unwrap();
        let sql = node.sql().with_own_writes();
        let again = sql.with_key("k").execute_returning(INSERT, (1,)).await.unwrap();
        assert_eq!(again.rows, first.rows);
        assert_eq!((again.position.epoch, again.position.index), (Epoch(2), first.position.index));
        assert!(again.position < restored.position);
        assert_eq!(sql.query_one::<i64>("SELECT count(*) FROM t", ()).await, Ok(1), "its position can be read at");
        // What came after the backup is lost, with its key, so it is done again.
        sql.with_key("later").execute_returning(INSERT, (2,)).await.unwrap();
        assert_eq!(count(&sql).await, 2);
        node.stop().await;
    });
}

#[test]
fn a_client_may_send_a_request_to_one_node_after_the_other() {
    run(async {
        let mut cluster = Cluster::start().await;
        know_keys(&cluster).await;
        make_table(&cluster.sql("a")).await.unwrap();
        let mut answers = Vec::new();
        for addr in cluster.addrs() {
            let client = Client::connect(ClientConfig::pinned(addr, secret())).await.unwrap();
            answers.push(client.sql().with_key("k").execute_returning(INSERT, (1,)).await.unwrap());
            client.close().await;
        }
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
        assert_eq!(count(&cluster.sql("b")).await, 1);
        cluster.stop_all().await;
    });
}
