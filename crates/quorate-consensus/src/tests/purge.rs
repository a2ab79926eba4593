//! An idle log shrinks to a small file once no member needs more of it.

use std::time::Duration;

use quorate_env::sleep;
use quorate_env_sim::SimWorld;

use super::cluster::{Cluster, LOG_SEGMENT_BYTES, born};
use crate::Consensus;

/// The maximum number of bytes of an idle log that has shrunk.
pub(super) const RESTING_BYTES: u64 = 2 * LOG_SEGMENT_BYTES;

pub(super) async fn write_much(cluster: &Cluster, name: &str) {
    for number in 0..40 {
        cluster.write(&format!("{name} {number} {}", "x".repeat(10_000))).await;
    }
}

pub(super) async fn until_all_rest(cluster: &Cluster, nodes: &[Consensus]) {
    cluster.until("rest", || nodes.iter().all(|node| node.log_bytes() <= RESTING_BYTES)).await;
}

#[test]
fn an_idle_log_keeps_what_an_absent_member_needs() {
    let world = SimWorld::new(43);
    let done = world.run(async {
        let cluster = born(&world).await;
        let (name, leader) = cluster.leader().unwrap();
        cluster.until("all nodes", || cluster.others(name).len() == 2).await;
        let away = if name == "a" { "b" } else { "a" };
        let present: Vec<Consensus> = cluster.others(away);
        write_much(&cluster, "with all").await;
        assert!(leader.log_bytes() > 2 * RESTING_BYTES, "{}", leader.log_bytes());
        let all: Vec<Consensus> = cluster.others("");
        until_all_rest(&cluster, &all).await;

        cluster.crash(away).await;
        write_much(&cluster, "with two").await;
        sleep(Duration::from_secs(60)).await;
        assert!(present.iter().all(|node| node.log_bytes() > 2 * RESTING_BYTES));
        cluster.start(away);
        cluster.until("its return", || cluster.node(away).is_some()).await;
        cluster.check().await;
        let all: Vec<Consensus> = cluster.others("");
        until_all_rest(&cluster, &all).await;
        assert!(all.iter().all(|node| node.main().metrics().images_sent.get() == 0), "the log was enough");
        cluster.write("more").await;
        cluster.check().await;
    });
    done.unwrap();
}
