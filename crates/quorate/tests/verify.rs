//! Verification of three nodes in one process: sound while clients write, and reporting differences.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

mod support;

use quorate::admin::Difference;
use quorate::{ClientConfig, Level, verify};
use support::{Cluster, run, secret};
use tokio::sync::watch;

const NAMES: [&str; 3] = ["a", "b", "c"];

fn config(cluster: &Cluster) -> ClientConfig {
    ClientConfig::new(cluster.addrs(), secret())
}

#[test]
fn nodes_under_work_are_compared_at_one_position() {
    run(async {
        let mut cluster = Cluster::start().await;
        cluster.sql("a").execute("CREATE TABLE t (id INTEGER PRIMARY KEY, x)", ()).await.unwrap();
        let stop = watch::Sender::new(false);
        let writers: Vec<_> = (0..8_usize)
            .map(|writer| {
                let (sql, stopped) = (cluster.sql(NAMES[writer % 3]), stop.subscribe());
                tokio::spawn(async move {
                    let (mut position, mut count) = (None, 0);
                    while !*stopped.borrow() || count < 50 {
                        let written = sql.execute("INSERT INTO t (x) VALUES (randomblob(200))", ()).await.unwrap();
                        (position, count) = (Some(written.position), count + 1);
                    }
                    position
                })
            })
            .collect();
        let mut last = None;
        for _ in 0..5 {
            let verification = verify(config(&cluster)).await.unwrap();
            assert!(verification.is_sound(), "{verification:?}");
            assert_eq!(verification.nodes.len(), 3);
            assert!(verification.nodes.iter().all(|node| node.tables.as_ref().unwrap().contains_key("t")));
            assert!(Some(verification.position) > last);
            last = Some(verification.position);
        }
        stop.send_replace(true);
        for writer in writers {
            assert!(writer.await.unwrap().is_some());
        }
        cluster.stop_all().await;
    });
}

#[test]
fn a_changed_row_and_a_lost_node_are_reported() {
    run(async {
        let mut cluster = Cluster::start().await;
        cluster.sql("a").execute("CREATE TABLE t (x)", ()).await.unwrap();
        cluster.sql("a").execute("CREATE TABLE u (x)", ()).await.unwrap();
        for _ in 0..20 {
            cluster.sql("a").execute("INSERT INTO t VALUES (1)", ()).await.unwrap();
        }
        // A linearizable read waits until the node has applied all of them.
        let b = cluster.sql("b").at(Level::Linearizable);
        assert_eq!(b.query_one::<i64>("SELECT count(*) FROM t", ()).await.unwrap(), 20);
        cluster.stop("b").await;
        let alone = verify(config(&cluster)).await.unwrap();
        assert!(!alone.is_sound() && alone.differences().is_empty());
        let silent: Vec<&str> =
            alone.nodes.iter().filter(|node| node.tables.is_err()).map(|node| node.name.as_str()).collect();
        assert_eq!(silent, ["b"]);
        let why = alone.nodes[1].tables.clone().unwrap_err();
        let addr = &cluster.config("b").members["b"];
        assert_eq!(why, format!("cannot connect to {addr}: Connection refused (os error 111)"));

        let conn = rusqlite::Connection::open(cluster.database("b")).unwrap();
        assert_eq!(conn.execute("UPDATE t SET x = 2 WHERE rowid = 7", ()), Ok(1));
        drop(conn);
        cluster.restart("b").await;
        let verification = verify(config(&cluster)).await.unwrap();
        let versions = vec![vec!["a".to_owned(), "c".to_owned()], vec!["b".to_owned()]];
        let differences = verification.differences();
        assert_eq!(differences, [Difference { table: "t".to_owned(), versions }], "{verification:?}");
        assert!(!verification.is_sound());
        cluster.stop_all().await;
    });
}
