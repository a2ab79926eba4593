//! Promises to stop before an entry that some node can't apply.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join;
use quorate_env::timeout;
use quorate_model::{GroupId, StoreFault};

use super::cluster::{NAMES, SOON};
use super::store::Trouble;
use super::verdict::{POISON, by_rank, damaged, has_run, memory, poison, propose, run};
use crate::Ended;
use crate::peer::messages::StandAsk;

#[test]
fn a_voter_promises_to_stop_before_several_entries() {
    run(47, async |_, cluster| {
        let name = by_rank(&cluster)[1];
        let promises = async |index: u64, round: u64| {
            let node = cluster.node(name).unwrap();
            let ask = StandAsk { index, term: node.status().main.term, round, ..StandAsk::default() };
            node.main().verdicts.stand(&ask).await.promised
        };
        let promised =
            || cluster.node(name).map(|node| node.0.service.home.identity().notes(GroupId::MAIN).halts.len());
        // The voter may wait at the first entry for long. Meanwhile the others need its promise for the second.
        let last = cluster.store(name).kept().applied.index();
        assert!(promises(last + 2, 1).await && promises(last + 3, 2).await && promises(last + 2, 3).await);
        assert!(!promises(last + 2, 1).await, "the later promise stays");
        assert_eq!(promised(), Some(2));
        cluster.kill(name).await;
        cluster.start(name);
        cluster.until("the next life", || promised() == Some(2)).await;
        // The leader's log has no rejection of the entries, so it releases each promise when the node asks.
        cluster.write("one").await;
        cluster.write("two").await;
        cluster.write("three").await;
        cluster.until("the release", || promised() == Some(0)).await;
        cluster.check().await;
    });
}

/// The process may continue for a while, and the store may still finish the entry.
#[test]
fn a_stuck_node_does_not_promise() {
    run(48, async |_, cluster| {
        let name = by_rank(&cluster)[1];
        poison(&cluster, [name], &Trouble::Endless);
        let node = cluster.node(name).unwrap();
        let index = cluster.store(name).kept().applied.index() + 1;
        let _ = propose(&cluster).await;
        assert!(matches!(timeout(SOON, node.ended()).await, Ok(Ended::Store(StoreFault::Stuck(_)))));
        let ask = StandAsk { index, term: node.status().main.term, round: 1, ..StandAsk::default() };
        assert!(!node.main().verdicts.stand(&ask).await.promised);
    });
}

/// The promise is no longer needed once the node has a copy that holds the entry.
#[test]
fn a_node_that_promised_continues_with_a_copy() {
    run(48, async |_, cluster| {
        let name = by_rank(&cluster)[1];
        let node = cluster.node(name).unwrap();
        poison(&cluster, [name], &damaged());
        let promises = async {
            let blocked = || node.status().main.blocked;
            cluster.until("a node that stops", || blocked().is_some()).await;
            // The promise is to a leader of a later term that does not exist, so no leader releases the node.
            let ask = StandAsk { index: blocked().unwrap().index, term: 100, round: 1, ..StandAsk::default() };
            node.main().verdicts.stand(&ask).await.promised
        };
        let (rejected, promised) = join(propose(&cluster), promises).await;
        assert_eq!((rejected, promised), (Some(false), true));
        cluster.until("the copy", || has_run(&cluster.store(name))).await;
        cluster.write("after").await;
        cluster.check().await;
    });
}

#[test]
fn a_promise_outlives_its_process_and_its_leader() {
    for seed in 70..80 {
        run(seed, async |world, cluster| {
            poison(&cluster, NAMES, &memory());
            let (name, leader) = cluster.leader().unwrap();
            let asked = leader.clone();
            let proposing = async { asked.main().propose(Bytes::from_static(POISON.as_bytes())).await };
            let _ = timeout(Duration::from_millis(world.rng().below(400)), proposing).await;
            drop((leader, asked));
            let victim = if world.rng().below(2) == 0 { name } else { NAMES[(seed % 3) as usize] };
            cluster.kill(victim).await;
            cluster.start(victim);
            cluster.write("after").await;
            cluster.check().await;
            assert!(NAMES.iter().all(|name| !has_run(&cluster.store(name))));
        });
    }
}
