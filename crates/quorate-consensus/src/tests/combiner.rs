//! The combiner's batches in the simulated world: which proposals they hold, that no caller delays them, and how they
//! get to the leader.

use std::pin::pin;
use std::sync::Mutex;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Either, join_all, poll_fn, select};
use quorate_env::{Instant, sleep, timeout};
use quorate_env_sim::SimWorld;
use quorate_wire::Purpose;

use super::cluster::{SOON, born};
use super::store::Trouble;
use crate::Consensus;
use crate::combiner::returns::RETURN_MAX;
use crate::error::ProposeError;
use crate::peer::messages::{Forward, ForwardAnswerKind, Forwarded, decode, encode, method};

const CALLERS: u64 = 8;
const ROUNDS: u64 = 50;

/// Polls a future only some turns of the scheduler after it was woken.
async fn late<T>(future: impl Future<Output = T>, turns: u64) -> T {
    let (mut future, mut left) = (pin!(future), 0);
    let poll = poll_fn(move |cx| {
        if left > 1 {
            left -= 1;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        left = turns;
        future.as_mut().poll(cx)
    });
    poll.await
}

async fn write_on(node: &Consensus, caller: u64, absence: Duration) {
    for round in 0..ROUNDS {
        sleep(absence).await;
        let written = late(node.main().propose(format!("{caller} {round}").into()), 1 + 3 * caller).await;
        assert!(written.is_ok(), "{written:?}");
    }
}

/// Returns the sizes of the batches that the leader proposes while callers on a node write. Before each write, a caller
/// stays away for so long times its number.
async fn batches_of_writes_on(node: &Consensus, leader: &Consensus, absence: Duration) -> Vec<u64> {
    let (mut traces, batches) = (leader.main().write_traces(), Mutex::new(Vec::new()));
    let watching = async {
        while traces.changed().await.is_ok() {
            batches.lock().unwrap().push(traces.borrow_and_update().as_ref().unwrap().batch);
        }
    };
    let writing = join_all((0..CALLERS).map(|caller| write_on(node, caller, absence * caller as u32)));
    assert!(matches!(select(pin!(writing), pin!(watching)).await, Either::Left(_)));
    batches.into_inner().unwrap()
}

/// Checks that each batch but the first and the last holds a proposal of each caller.
fn check_complete(batches: &[u64]) {
    assert!(batches.len() as u64 >= ROUNDS - 1, "{batches:?}");
    assert!(batches[1..batches.len() - 1].iter().all(|batch| *batch == CALLERS), "{batches:?}");
}

#[test]
fn callers_that_repeat_at_once_share_the_next_batch() {
    let world = SimWorld::new(37);
    let done = world.run(async {
        let cluster = born(&world).await;
        let (_, leader) = cluster.leader().unwrap();
        check_complete(&batches_of_writes_on(&leader, &leader, Duration::ZERO).await);
    });
    done.unwrap();
}

/// As clients at the other ends of connections do it.
#[test]
fn callers_that_come_back_soon_share_the_next_batch() {
    let world = SimWorld::new(41);
    let done = world.run(async {
        let cluster = born(&world).await;
        let (_, leader) = cluster.leader().unwrap();
        let absence = RETURN_MAX / (2 * CALLERS as u32);
        let batches = batches_of_writes_on(&leader, &leader, absence).await;
        // The first ones find each other.
        let together = batches.iter().skip_while(|batch| **batch < CALLERS);
        let whole = together.filter(|batch| **batch == CALLERS).count() as u64;
        assert!(whole >= ROUNDS - 3, "{batches:?}");
    });
    done.unwrap();
}

#[test]
fn callers_on_a_follower_share_a_batch() {
    let world = SimWorld::new(43);
    let done = world.run(async {
        let cluster = born(&world).await;
        let (name, leader) = cluster.leader().unwrap();
        let follower = cluster.others(name).remove(0);
        follower.main().wait_leader(Instant::now() + SOON).await.unwrap();
        check_complete(&batches_of_writes_on(&follower, &leader, Duration::ZERO).await);
        let writes = follower.main().metrics().writes;
        assert_eq!((writes.forwarded.get(), writes.done.get()), (CALLERS * ROUNDS, 0));
    });
    done.unwrap();
}

#[test]
fn a_follower_does_not_forward_a_forwarded_batch() {
    let world = SimWorld::new(47);
    let done = world.run(async {
        let cluster = born(&world).await;
        let (name, leader) = cluster.leader().unwrap();
        let others = cluster.others(name);
        let (one, other) = (&others[0], &others[1]);
        let knows = |node: &Consensus| node.main().leader().is_some() && node.0.service.peers.members().len() == 3;
        cluster.until("news of the leader", || knows(one) && knows(other)).await;
        let peers = &one.0.service.peers;
        let stream = peers.open_stream(other.status().node.0, Purpose::Data, method::FORWARD).await;
        let (mut sender, mut receiver) = stream.unwrap();
        sender.send(encode(&Forward { proposals: vec!["lost".into()], group: 1 })).await.unwrap();
        let forwarded: Forwarded = decode(receiver.recv().await.unwrap().unwrap()).unwrap();
        let kinds: Vec<_> = forwarded.answers.into_iter().map(|answer| answer.kind.unwrap()).collect();
        assert_eq!(kinds, [ForwardAnswerKind::NotLeader(leader.status().node.0)]);
    });
    done.unwrap();
}

#[test]
fn a_forwarded_write_waits_for_one_slow_batch_only() {
    let world = SimWorld::new(53);
    let done = world.run(async {
        let cluster = born(&world).await;
        let (name, leader) = cluster.leader().unwrap();
        let follower = cluster.others(name).remove(0);
        follower.main().wait_leader(Instant::now() + SOON).await.unwrap();
        let store = cluster.store(name);
        store.fail_at("long", Trouble::Long);
        let mut first = pin!(follower.main().propose("long 1".into()));
        assert!(first.as_mut().now_or_never().is_none());
        cluster.until("the long one to run", || store.is_held()).await;
        let waiting = || leader.main().combiner.waiting_bytes();
        let before = waiting();
        let mut between = pin!(follower.main().propose("short".into()));
        assert!(between.as_mut().now_or_never().is_none());
        cluster.until("the short one to wait at the leader", || waiting() > before).await;
        let mut last = pin!(leader.main().propose("long 2".into()));
        assert!(last.as_mut().now_or_never().is_none());
        store.go_on();
        assert!(first.await.is_ok() && between.await.is_ok() && last.await.is_ok());
        let texts: Vec<_> = store.kept().proposals.into_iter().map(|(_, text)| text).collect();
        assert_eq!(texts, ["long 1", "short", "long 2"]);
    });
    done.unwrap();
}

#[test]
fn a_former_leader_forwards_despite_pending_writes() {
    let world = SimWorld::new(59);
    let done = world.run(async {
        let cluster = born(&world).await;
        let (name, old) = cluster.leader().unwrap();
        let store = cluster.store(name);
        store.fail_at("long", Trouble::Long);
        let mut own = pin!(old.main().propose("long".into()));
        assert!(own.as_mut().now_or_never().is_none());
        cluster.until("the long one to run", || store.is_held()).await;
        let new = old.transfer_leadership(None).await.unwrap();
        cluster.until("news of the new leader", || old.main().leader().is_some_and(|leader| leader.0 == new)).await;
        let written = timeout(SOON, old.main().propose("short".into())).await;
        assert!(matches!(written, Ok(Ok(_))), "{written:?}");
        let written = timeout(SOON, own).await;
        assert!(matches!(written, Ok(Err(ProposeError::Unknown(_)))), "{written:?}");
        store.go_on();
    });
    done.unwrap();
}

#[test]
fn an_idle_caller_does_not_delay_the_others() {
    let world = SimWorld::new(41);
    let done = world.run(async {
        let cluster = born(&world).await;
        let (_, leader) = cluster.leader().unwrap();
        let mut idle = pin!(leader.main().propose("idle".into()));
        assert!(idle.as_mut().now_or_never().is_none());
        let begun = Instant::now();
        for round in 0..ROUNDS {
            let written = timeout(SOON, leader.main().propose(format!("busy {round}").into())).await;
            assert!(matches!(written, Ok(Ok(_))), "{written:?}");
        }
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
        assert!(idle.await.is_ok());
    });
    done.unwrap();
}
