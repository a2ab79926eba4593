//! The metrics of consensus match what happened, in the simulated world.

use std::time::Duration;

use futures_util::future::join_all;
use quorate_env::metrics::Histogram;
use quorate_env::{Instant, sleep};
use quorate_env_sim::SimWorld;

use super::cluster::{SOON, born};

#[test]
fn the_stages_of_writes_have_no_gaps() {
    let world = SimWorld::new(23);
    let done = world.run(async {
        let cluster = born(&world).await;
        let (_, leader) = cluster.leader().unwrap();
        let before = leader.main().metrics().writes;
        let mut traces = leader.main().write_traces();
        for round in 0..20 {
            let writes = (0..5).map(|number| leader.main().propose(format!("{round} {number}").into()));
            assert!(join_all(writes).await.iter().all(Result::is_ok));
        }

        // Callers get their responses before the batch is recorded.
        let recorded = || leader.main().metrics().writes.total.count() - before.total.count() == 100;
        cluster.until("the last batch", recorded).await;
        let after = leader.main().metrics().writes;
        assert_eq!(after.done.get() - before.done.get(), 100);
        let stages = [&after.queue, &after.append, &after.replicate, &after.apply];
        assert!(stages.iter().all(|stage| stage.count() == after.total.count()));
        let sum: Duration = stages.into_iter().map(Histogram::sum).sum();
        assert_eq!(sum, after.total.sum());
        assert!(after.replicate.sum() > before.replicate.sum(), "the net takes time");

        let trace = traces.borrow_and_update().expect("a write was traced");
        assert!(trace.index > 0 && trace.batch > 0 && trace.replicate > Duration::ZERO);
        drop(traces);
        cluster.until("the end of syncs", || leader.main().metrics().writes.fsync.count() == after.total.count()).await;
    });
    done.unwrap();
}

#[test]
fn only_the_leader_measures_stages() {
    let world = SimWorld::new(29);
    let done = world.run(async {
        let cluster = born(&world).await;
        let (name, leader) = cluster.leader().unwrap();
        cluster.until("all nodes", || cluster.others(name).len() == 2).await;
        let others = cluster.others(name);
        cluster.until("news of the leader", || others.iter().all(|node| node.main().leader().is_some())).await;
        for _ in 0..20 {
            // The followers write too, so that they also have batches in flight.
            let forwarded = others.iter().map(|node| node.main().propose("forwarded".into()));
            let (done, forwarded) = futures_util::join!(leader.main().propose("done".into()), join_all(forwarded));
            assert!(done.is_ok() && forwarded.iter().all(Result::is_ok));
        }
        for node in others {
            let writes = node.main().metrics().writes;
            assert_eq!((writes.forwarded.get(), writes.done.get(), writes.not_leader.get()), (20, 0, 0));
            let stages = [writes.total, writes.queue, writes.append, writes.fsync, writes.replicate, writes.apply];
            assert!(stages.iter().all(|stage| stage.count() == 0));
        }
    });
    done.unwrap();
}

#[test]
fn elections_and_reads_are_counted() {
    let world = SimWorld::new(31);
    let done = world.run(async {
        let cluster = born(&world).await;
        cluster.write("one").await;
        let (name, old) = cluster.leader().unwrap();
        cluster.until("all nodes", || cluster.others(name).len() == 2).await;
        let before: Vec<_> = cluster.others(name).iter().map(|node| node.main().metrics()).collect();
        old.transfer_leadership(None).await.unwrap();
        cluster.write("two").await;
        for (node, before) in cluster.others(name).iter().zip(before) {
            cluster
                .until("the news", || node.main().metrics().leader_changes.get() > before.leader_changes.get())
                .await;
            assert!(node.main().metrics().terms.get() > before.terms.get());
        }
        let (_, leader) = cluster.leader().unwrap();
        leader.main().wait_leader(Instant::now() + SOON).await.unwrap();
        let before = leader.main().metrics();
        leader.main().read_position().await.unwrap();
        assert_eq!(leader.main().metrics().read_rounds.count(), before.read_rounds.count() + 1);
        // Waits until the nodes have exchanged their statuses.
        let known = || leader.clock_offsets().len() == 2 && leader.connections().peers > 0;
        cluster.until("peers", known).await;
        world.net().isolate(name);
        sleep(leader.silence_max() + Duration::from_secs(1)).await;
        assert_eq!(leader.clock_offsets().len(), 1, "the clock of a silent node is unknown");
    });
    done.unwrap();
}
