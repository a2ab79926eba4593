//! Large transactions and large values on three nodes: they take effect on all nodes, small writes continue meanwhile,
//! no leader is lost because of them, and the error for exceeding a limit names the limit.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

mod support;

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures_util::future::{join, join_all};
use quorate::{Error, Level, Sql};
use quorate_model::{Command, Param, Proposal, SqlCommand, Statement, Value, codec};
use quorate_wire::Role;
use support::{Cluster, PATIENCE, run};

/// The most bytes of a value, and of a row.
const VALUE_BYTES_MAX: usize = 16 << 20;

/// The most bytes of an encoded transaction.
const TRANSACTION_BYTES_MAX: usize = 32 << 20;

const INSERT: &str = "INSERT INTO files (name, content) VALUES (?, ?)";

/// Runs something on the leader during small writes, all of which must succeed in one term.
async fn beside_small_writes<T>(cluster: &Cluster, large: impl AsyncFnOnce(Sql) -> T) -> T {
    let leader = cluster.node(&cluster.leader().await);
    let (sql, term) = (leader.sql().with_deadline(PATIENCE), leader.status().term);
    let is_over = AtomicBool::new(false);
    let small = async {
        let mut written = 0;
        while !is_over.load(Ordering::Relaxed) {
            sql.execute("UPDATE small SET n = n + 1", ()).await.unwrap();
            written += 1;
        }
        written
    };
    let large = async {
        let done = large(sql.clone()).await;
        is_over.store(true, Ordering::Relaxed);
        done
    };
    let (done, written) = join(large, small).await;
    assert!(written > 0 && leader.is_leader());
    assert_eq!(leader.status().term, term, "the leader was deposed");
    done
}

async fn cluster() -> Cluster {
    let cluster = Cluster::start().await;
    let sql = cluster.sql(&cluster.leader().await);
    sql.execute("CREATE TABLE small (n INTEGER NOT NULL)", ()).await.unwrap();
    sql.execute("INSERT INTO small VALUES (0)", ()).await.unwrap();
    sql.execute("CREATE TABLE files (name TEXT PRIMARY KEY, content BLOB NOT NULL)", ()).await.unwrap();
    cluster
}

/// Returns the result of a query on each node, once the node has applied all acknowledged writes.
async fn everywhere(cluster: &Cluster, query: &'static str) -> Vec<i64> {
    let reads = cluster.nodes().map(|node| {
        let sql = node.sql().at(Level::Linearizable).with_deadline(PATIENCE);
        async move { sql.query_one::<i64>(query, ()).await.unwrap() }
    });
    join_all(reads).await
}

#[test]
fn a_batch_of_25_000_statements_is_one_transaction() {
    run(async {
        let mut cluster = cluster().await;
        let done = beside_small_writes(&cluster, async |sql| {
            sql.batch((0..25_000).map(|n| (INSERT, (format!("{n}"), vec![7_u8; 100])))).await.unwrap()
        });
        assert_eq!(done.await.results.len(), 25_000);
        assert_eq!(everywhere(&cluster, "SELECT count(*) FROM files").await, [25_000; 3]);
        // A batch that fails at its end leaves nothing.
        let sql = cluster.sql(&cluster.leader().await);
        let again = sql.batch((25_000..50_001).rev().chain([0]).map(|n| (INSERT, (format!("{n}"), vec![7_u8; 100]))));
        let error = again.await.unwrap_err().to_string();
        assert!(error.contains("UNIQUE constraint failed: files.name"), "{error}");
        assert_eq!(everywhere(&cluster, "SELECT count(*) FROM files").await, [25_000; 3]);
        cluster.stop_all().await;
    });
}

#[test]
fn large_answers_come_through_a_follower_many_at_once() {
    const CONTENT_BYTES: usize = 12 << 20;
    run(async {
        let mut cluster = cluster().await;
        let leader = cluster.leader().await;
        let follower = cluster.nodes().map(|node| node.status().name).find(|name| *name != leader).unwrap();
        let sql = cluster.sql(&follower).with_deadline(PATIENCE);
        // Together they exceed the size of a message between nodes, by little: one whose answer takes over 4 s to come
        // is asked for again, and so large an answer is not kept for that.
        let writes = (0..4).map(|n| {
            let insert = format!("INSERT INTO files (name, content) VALUES ('{n}', zeroblob({CONTENT_BYTES}))");
            let sql = sql.clone();
            async move { sql.execute_returning(format!("{insert} RETURNING content"), ()).await.unwrap() }
        });
        for written in join_all(writes).await {
            assert_eq!(written.rows.one::<&[u8]>().unwrap().len(), CONTENT_BYTES);
        }
        assert_eq!(everywhere(&cluster, "SELECT count(*) FROM files").await, [4; 3]);
        cluster.stop_all().await;
    });
}

#[test]
fn values_go_up_to_their_limit_many_at_once() {
    run(async {
        let mut cluster = cluster().await;
        // The limit applies to rows too, so some bytes are left for the name and the header.
        let largest = || vec![7_u8; VALUE_BYTES_MAX - 100];
        beside_small_writes(&cluster, async |sql| {
            let writes = (0..6).map(|n| sql.execute(INSERT, (format!("{n}"), largest())));
            join_all(writes).await.into_iter().for_each(|done| assert!(done.is_ok()));
        })
        .await;
        let bytes = 6 * (VALUE_BYTES_MAX as i64 - 100);
        assert_eq!(everywhere(&cluster, "SELECT sum(length(content)) FROM files").await, [bytes; 3]);

        let sql = cluster.sql(&cluster.leader().await);
        let too_large = |error: Error| matches!(&error, Error::Failed(_)).then(|| error.to_string()).unwrap();
        let value = sql.execute(INSERT, ("large", vec![7_u8; VALUE_BYTES_MAX + 1])).await.unwrap_err();
        let value = too_large(value);
        assert!(value.contains("16777217 bytes of a value: the limit is 16777216; store it in pieces"), "{value}");
        let three = sql.batch((0..3).map(|n| (INSERT, (format!("large {n}"), largest())))).await.unwrap_err();
        let three = too_large(three);
        assert!(three.contains(&format!("the limit is {TRANSACTION_BYTES_MAX}")), "{three}");
        assert_eq!(everywhere(&cluster, "SELECT count(*) FROM files").await, [6; 3]);
        cluster.stop_all().await;
    });
}

/// A foreign client may send more than Quorate's own client would. No message between nodes could carry it, so it must
/// not get into the log.
#[test]
fn a_too_large_transaction_is_refused_from_any_client() {
    /// The number of the method that writes.
    const EXECUTE: u16 = 64;
    run(async {
        let mut cluster = Cluster::start().await;
        let leader = cluster.leader().await;
        let place = cluster.nodes().position(|node| node.status().name == leader).unwrap();
        // A well-formed proposal; the real encoder refuses to make one of this size.
        let blob = Param::Value(Value::from(vec![0; 11 << 20]));
        let command = || Statement {
            sql: "DELETE FROM t WHERE a = ?".into(),
            params: vec![blob.clone()],
            ..Statement::default()
        };
        let encoded = |count| {
            let commands = (0..count).map(|_| Command::Sql(SqlCommand::Statement(command()))).collect();
            codec::encode_proposal(&Proposal::new(None, commands)).unwrap()
        };
        let (none, one, two) = (encoded(0), encoded(1), encoded(2));
        let proposal = [&two[..], &one[none.len()..]].concat();
        let mut body = vec![0x0a];
        prost::encoding::encode_varint(proposal.len() as u64, &mut body);
        body.extend(&proposal);
        let reply = support::call(&cluster.addrs()[place], Role::ReadWrite, EXECUTE, Bytes::from(body)).await.unwrap();
        let text = String::from_utf8_lossy(&reply);
        let expected = format!("{} bytes of a transaction, encoded: the limit is 33554432; split it", proposal.len());
        assert!(text.contains(&expected), "{text}");
        cluster.sql(&leader).execute("CREATE TABLE after (a)", ()).await.unwrap();
        cluster.stop_all().await;
    });
}
