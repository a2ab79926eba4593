//! Agreement: a table is changed behind a node's back, and the node finds out, serves nothing, and gets the right data
//! back, while those who had them keep theirs.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use quorate::{ClientConfig, Error, Level, Sql, verify};
use support::{Cluster, PATIENCE, events, run, secret, until};

/// Names the database that [`change`] changes.
const DATABASE: &str = "QUORATE_TEST_DATABASE";

/// What somebody does to a database that it should leave alone: not in the process of its node, whose locks it would
/// drop.
#[test]
#[ignore = "changes the database that a variable names, for the other tests"]
fn change() {
    let conn = rusqlite::Connection::open(std::env::var(DATABASE).unwrap()).unwrap();
    conn.busy_timeout(PATIENCE).unwrap();
    assert_eq!(conn.execute("UPDATE stock SET left = left + 1000 WHERE item = 'tea'", ()), Ok(1));
}

fn change_behind_its_back(cluster: &Cluster, name: &str) {
    let test = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "change", "--ignored"])
        .env(DATABASE, database(&cluster.config(name).data_dir))
        .output()
        .unwrap();
    assert!(test.status.success(), "{}", String::from_utf8_lossy(&test.stdout));
}

/// The database file of a node, of its latest generation.
fn database(data_dir: &Path) -> PathBuf {
    let items = std::fs::read_dir(data_dir.join("db")).unwrap().map(|item| item.unwrap().path());
    items.filter(|path| path.is_dir()).max().unwrap().join("quorate.db")
}

/// Makes the table, and returns when all nodes have it.
async fn stock(cluster: &Cluster) {
    let table = "CREATE TABLE stock (item TEXT PRIMARY KEY, left INTEGER NOT NULL) STRICT";
    let rows = "INSERT INTO stock VALUES ('tea', 10000), ('milk', 10000)";
    let position = cluster.sql("a").batch([table, rows]).await.unwrap().position;
    for node in cluster.nodes() {
        assert_eq!(left(&node.sql().at(Level::AtLeast(position))).await, Ok(10_000));
    }
}

/// Sells one, and says how many are left as the leader has it.
async fn sell(sql: &Sql) -> Result<i64, Error> {
    let sell = "UPDATE stock SET left = left - 1 WHERE item = 'tea' RETURNING left";
    Ok(sql.execute_returning(sell, ()).await?.rows.one()?)
}

async fn left(sql: &Sql) -> Result<i64, Error> {
    sql.query_one("SELECT left FROM stock WHERE item = 'tea'", ()).await
}

/// Whether a node has been healed so many times.
fn healed(cluster: &Cluster, name: &str, times: u64) -> bool {
    let metrics = cluster.node(name).metrics();
    metrics.node.divergences.get() == times && metrics.fault.is_none()
}

/// Changes the table of one node, lets it show, and waits until all have the same again.
async fn heals(cluster: &Cluster, name: &str, show: impl AsyncFn(&Sql)) {
    let sql = cluster.client().await.sql();
    let before = left(&sql).await.unwrap();
    change_behind_its_back(cluster, name);
    show(&sql).await;
    until("the node is healed", || healed(cluster, name, 1)).await;
    // A write that comes after shows the right number, on every node.
    let sold = sell(&sql).await.unwrap();
    assert!(sold < before);
    for other in ["a", "b", "c"] {
        assert_eq!(left(&cluster.sql(other).at(Level::Linearizable)).await, Ok(sold), "{other}");
        assert_eq!(cluster.node(other).metrics().node.divergences.get(), u64::from(other == name), "{other}");
    }
    let verification = verify(ClientConfig::new(cluster.addrs(), secret())).await.unwrap();
    assert!(verification.is_sound(), "{verification:?}");
}

/// A node that leads, or one that does not.
async fn some(cluster: &Cluster, leads: bool) -> String {
    let leader = cluster.leader().await;
    if leads { leader } else { ["a", "b", "c"].into_iter().find(|name| *name != leader).unwrap().to_owned() }
}

#[test]
fn a_difference_that_an_outcome_shows_is_healed_on_a_follower_and_on_the_leader() {
    for leads in [false, true] {
        run(async {
            let mut cluster = Cluster::start().await;
            stock(&cluster).await;
            let name = some(&cluster, leads).await;
            // Under work: the writes that the others acknowledge go on.
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
fn a_difference_that_no_outcome_shows_is_found_by_a_verification_and_healed() {
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

#[track_caller]
fn is_told(text: &str) {
    assert!(events::is_told(text), "{text}\n{:#?}", events::all());
}

#[test]
fn what_differs_serves_nothing_and_what_differs_again_waits_for_a_person() {
    events::keep();
    run(async {
        let mut cluster = Cluster::start().await;
        stock(&cluster).await;
        let name = some(&cluster, false).await;
        heals(&cluster, &name, async |client| assert!(sell(client).await.is_ok())).await;
        change_behind_its_back(&cluster, &name);
        let leader = cluster.sql(&cluster.leader().await);
        let sold = sell(&leader).await.unwrap();
        until("it is set aside", || cluster.node(&name).metrics().fault.is_some()).await;
        let own = cluster.sql(&name).with_deadline(std::time::Duration::from_millis(300));
        let text = left(&own).await.unwrap_err().to_string();
        let differ =
            "the cluster is not available: the data differ from those of the other nodes: outcomes up to entry ";
        let todo = "; for the second time in a day: look at its disk and memory, then restart it; see that a majority \
                    of its nodes is up and reachable, and try again";
        assert!(text.starts_with(differ) && text.ends_with(todo), "{text}");
        let serves_nothing = "this node's data differ from those of a majority: it serves nothing";
        let outcomes = "event=\"diverged\" what=\"outcomes up to entry N\"";
        is_told(&format!("{serves_nothing} until it has a copy of theirs {outcomes}"));
        let other = "event=\"disagreement\" what=\"outcomes up to entry N: N differs from the majority\"";
        is_told(&format!("nodes of the cluster hold different data {other}"));
        is_told("this node has a copy of the majority's data event=\"healed\" index=N");
        let again = "for the second time in a day: look at its disk and memory, then restart it";
        is_told(&format!("{serves_nothing}; {again} {outcomes}"));
        assert!(cluster.node(&name).metrics().not_ready.iter().any(|why| why.to_string().contains("the data differ")));
        // It takes no copy by itself, votes on, and passes writes on.
        assert_eq!(sell(&cluster.sql(&name)).await, Ok(sold - 1));
        // A person starts it again: it comes back with the right data.
        cluster.kill(&name);
        cluster.restart(&name).await;
        assert_eq!(left(&cluster.sql(&name).at(Level::Linearizable)).await, Ok(sold - 1));
        cluster.stop_all().await;
    });
}

#[test]
fn without_a_majority_that_agrees_nothing_is_done() {
    events::keep();
    run(async {
        let mut cluster = Cluster::start().await;
        stock(&cluster).await;
        let leader = cluster.leader().await;
        let others: Vec<&str> = ["a", "b", "c"].into_iter().filter(|name| *name != leader).collect();
        // Three nodes, three opinions.
        change_behind_its_back(&cluster, others[0]);
        change_behind_its_back(&cluster, others[1]);
        change_behind_its_back(&cluster, others[1]);
        let sold = sell(&cluster.sql(&leader)).await.unwrap();
        until("it is told", || cluster.nodes().all(|node| node.metrics().node.disagreements.get() > 0)).await;
        let what = "outcomes up to entry N: no majority agrees, so it is not known whose data are right";
        let differ = format!("nodes of the cluster hold different data event=\"disagreement\" what=\"{what}\"");
        until("it is said", || events::is_told(&differ)).await;
        assert!(
            cluster.nodes().all(|node| node.metrics().node.divergences.get() == 0 && node.metrics().fault.is_none())
        );
        assert_eq!(sell(&cluster.sql(&leader)).await, Ok(sold - 1));
        cluster.stop_all().await;
    });
}
