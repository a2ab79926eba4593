//! Agreement: another process changes a table in a node's database. The node detects the difference, stops serving, and
//! gets the right data again, while the nodes with the right data keep theirs.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

mod support;

use std::process::Command;

use quorate::{ClientConfig, Error, Level, Sql, verify};
use support::{Cluster, PATIENCE, events, run, secret, until};

/// The variable that names the database for [`change`].
const DATABASE: &str = "QUORATE_TEST_DATABASE";

/// Changes a node's database directly. It runs in another process, because in the node's process it would drop the
/// node's file locks.
#[test]
#[ignore = "changes the database that a variable names, for the other tests"]
fn change() {
    let conn = rusqlite::Connection::open(std::env::var(DATABASE).unwrap()).unwrap();
    conn.busy_timeout(PATIENCE).unwrap();
    assert_eq!(conn.execute("UPDATE stock SET left = left + 1000 WHERE item = 'tea'", ()), Ok(1));
}

fn change_directly(cluster: &Cluster, name: &str) {
    let test = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "change", "--ignored"])
        .env(DATABASE, cluster.database(name))
        .output()
        .unwrap();
    assert!(test.status.success(), "{}", String::from_utf8_lossy(&test.stdout));
}

/// Creates the table, and returns when all nodes have it.
async fn stock(cluster: &Cluster) {
    let table = "CREATE TABLE stock (item TEXT PRIMARY KEY, left INTEGER NOT NULL) STRICT";
    let rows = "INSERT INTO stock VALUES ('tea', 10000), ('milk', 10000)";
    let position = cluster.sql("a").batch([table, rows]).await.unwrap().position;
    for node in cluster.nodes() {
        assert_eq!(left(&node.sql().at(Level::AtLeast(position))).await, Ok(10_000));
    }
}

/// Sells one item, and returns how many are left on the leader.
async fn sell(sql: &Sql) -> Result<i64, Error> {
    let sell = "UPDATE stock SET left = left - 1 WHERE item = 'tea' RETURNING left";
    Ok(sql.execute_returning(sell, ()).await?.rows.one()?)
}

async fn left(sql: &Sql) -> Result<i64, Error> {
    sql.query_one("SELECT left FROM stock WHERE item = 'tea'", ()).await
}

/// Returns whether a node has been healed this many times. It counts a divergence once it serves nothing, so the count
/// is read before the fault.
fn healed(cluster: &Cluster, name: &str, times: u64) -> bool {
    let node = cluster.node(name);
    node.metrics().node.divergences.get() == times && node.metrics().fault.is_none()
}

/// Changes the table of one node, makes the difference visible, and waits until all nodes are equal again.
async fn heals(cluster: &Cluster, name: &str, show: impl AsyncFn(&Sql)) {
    let sql = cluster.client().await.sql();
    let before = left(&sql).await.unwrap();
    change_directly(cluster, name);
    show(&sql).await;
    until("the node is healed", || healed(cluster, name, 1)).await;
    // A later write shows the right number on every node.
    let sold = sell(&sql).await.unwrap();
    assert!(sold < before);
    for other in ["a", "b", "c"] {
        assert_eq!(left(&cluster.sql(other).at(Level::Linearizable)).await, Ok(sold), "{other}");
        assert_eq!(cluster.node(other).metrics().node.divergences.get(), u64::from(other == name), "{other}");
    }
    let verification = verify(ClientConfig::new(cluster.addrs(), secret())).await.unwrap();
    assert!(verification.is_sound(), "{verification:?}");
}

/// Returns the name of the leader, or of a follower.
async fn some(cluster: &Cluster, leads: bool) -> String {
    let leader = cluster.leader().await;
    if leads { leader } else { ["a", "b", "c"].into_iter().find(|name| *name != leader).unwrap().to_owned() }
}

#[test]
fn a_difference_in_outcomes_is_healed() {
    for leads in [false, true] {
        run(async {
            let mut cluster = Cluster::start().await;
            stock(&cluster).await;
            let name = some(&cluster, leads).await;
            // The other nodes continue to acknowledge writes meanwhile.
            heals(&cluster, &name, async |client| {
                for _ in 0..50 {
                    sell(client).await.unwrap();
                }
            })
            .await;
            if leads {
                assert_ne!(cluster.leader().await, name, "it has handed over");
            }
            cluster.stop_all().await;
        });
    }
}

#[test]
fn a_verification_finds_and_heals_hidden_differences() {
    for leads in [false, true] {
        run(async {
            let mut cluster = Cluster::start().await;
            stock(&cluster).await;
            let name = some(&cluster, leads).await;
            heals(&cluster, &name, async |_| {
                let verification = verify(ClientConfig::new(cluster.addrs(), secret())).await.unwrap();
                assert!(!verification.is_sound(), "{verification:?}");
            })
            .await;
            cluster.stop_all().await;
        });
    }
}

/// Waits until an event is logged: each node compares by itself, about once a second.
async fn is_logged(text: &str) {
    until(text, || events::is_logged(text)).await;
}

#[test]
fn a_second_difference_waits_for_an_operator() {
    events::keep();
    run(async {
        let mut cluster = Cluster::start().await;
        stock(&cluster).await;
        let name = some(&cluster, false).await;
        heals(&cluster, &name, async |client| assert!(sell(client).await.is_ok())).await;
        change_directly(&cluster, &name);
        let leader = cluster.sql(&cluster.leader().await);
        // If the node itself leads at this moment, the answer is its wrong number.
        sell(&leader).await.unwrap();
        until("it is set aside", || cluster.node(&name).metrics().fault.is_some()).await;
        let own = cluster.sql(&name).with_deadline(std::time::Duration::from_millis(300));
        let text = left(&own).await.unwrap_err().to_string();
        let differ =
            "the cluster is not available: the data differ from those of the other nodes: outcomes up to entry ";
        let todo = "; for the second time in a day: look at its disk and memory, then restart it; check that a \
                    majority of its nodes is up and reachable, and try again";
        assert!(text.starts_with(differ) && text.ends_with(todo), "{text}");
        let serves_nothing = "this node's data differ from those of a majority: it serves nothing";
        let outcomes = "event=\"diverged\" what=\"outcomes up to entry N\"";
        is_logged(&format!("{serves_nothing} until it has a copy of theirs {outcomes}")).await;
        let other = "event=\"disagreement\" what=\"outcomes up to entry N: N differs from the majority\"";
        is_logged(&format!("nodes of the cluster hold different data {other}")).await;
        is_logged("this node has a copy of the majority's data event=\"healed\" index=N").await;
        let again = "for the second time in a day: look at its disk and memory, then restart it";
        is_logged(&format!("{serves_nothing}; {again} {outcomes}")).await;
        assert!(cluster.node(&name).metrics().not_ready.iter().any(|why| why.to_string().contains("the data differ")));
        // It takes no copy by itself, but still votes and passes writes on: this is the fourth sale.
        assert_eq!(sell(&cluster.sql(&name)).await, Ok(10_000 - 4));
        // An operator restarts it: it comes back with the right data.
        cluster.kill(&name);
        cluster.restart(&name).await;
        assert_eq!(left(&cluster.sql(&name).at(Level::Linearizable)).await, Ok(10_000 - 4));
        cluster.stop_all().await;
    });
}

#[test]
fn without_an_agreeing_majority_nothing_is_healed() {
    events::keep();
    run(async {
        let mut cluster = Cluster::start().await;
        stock(&cluster).await;
        let leader = cluster.leader().await;
        let others: Vec<&str> = ["a", "b", "c"].into_iter().filter(|name| *name != leader).collect();
        // Three nodes with three different states.
        change_directly(&cluster, others[0]);
        change_directly(&cluster, others[1]);
        change_directly(&cluster, others[1]);
        let sold = sell(&cluster.sql(&leader)).await.unwrap();
        until("the difference is reported", || cluster.nodes().all(|node| node.metrics().node.disagreements.get() > 0))
            .await;
        let what = "outcomes up to entry N: no majority agrees, so it is not known whose data are right";
        let differ = format!("nodes of the cluster hold different data event=\"disagreement\" what=\"{what}\"");
        is_logged(&differ).await;
        assert!(
            cluster.nodes().all(|node| node.metrics().node.divergences.get() == 0 && node.metrics().fault.is_none())
        );
        // Any node may lead now. The numbers of the three nodes differ by thousands.
        assert_eq!(sell(&cluster.sql(&leader)).await.unwrap() % 1000, sold % 1000 - 1);
        cluster.stop_all().await;
    });
}
