//! The combiner's batches in a simulated world: who is in them, and that nobody can hold them up.

use std::pin::pin;
use std::sync::Mutex;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Either, join_all, poll_fn, select};
use quorate_env::{Instant, timeout};
use quorate_env_sim::SimWorld;

use super::cluster::{SOON, born};
use crate::Consensus;

const CALLERS: u64 = 8;
const ROUNDS: u64 = 50;

/// A caller that looks at what has woken it only some turns of the scheduler later.
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

async fn write_on(leader: &Consensus, caller: u64) {
    for round in 0..ROUNDS {
        let written = late(leader.propose(format!("{caller} {round}").into()), 1 + 3 * caller).await;
        assert!(written.is_ok(), "{written:?}");
    }
}

#[test]
fn callers_that_ask_again_at_once_are_all_in_the_next_batch() {
    let world = SimWorld::new(37);
    let done = world.run(async {
        let cluster = born(&world).await;
        let (_, leader) = cluster.leader().unwrap();
        let (mut traces, batches) = (leader.write_traces(), Mutex::new(Vec::new()));
        let watching = async {
            while traces.changed().await.is_ok() {
                batches.lock().unwrap().push(traces.borrow_and_update().as_ref().unwrap().batch);
            }
        };
        let writing = join_all((0..CALLERS).map(|caller| write_on(&leader, caller)));
        assert!(matches!(select(pin!(writing), pin!(watching)).await, Either::Left(_)));
        let batches = batches.into_inner().unwrap();
        // Before the first is proposed not all of them may be there.
        assert!(batches.len() as u64 >= ROUNDS - 1, "{batches:?}");
        assert!(batches[1..batches.len() - 1].iter().all(|batch| *batch == CALLERS), "{batches:?}");
    });
    done.unwrap();
}

#[test]
fn a_caller_that_does_not_take_its_answer_holds_nobody_up() {
    let world = SimWorld::new(41);
    let done = world.run(async {
        let cluster = born(&world).await;
        let (_, leader) = cluster.leader().unwrap();
        let mut idle = pin!(leader.propose("idle".into()));
        assert!(idle.as_mut().now_or_never().is_none());
        let begun = Instant::now();
        for round in 0..ROUNDS {
            let written = timeout(SOON, leader.propose(format!("busy {round}").into())).await;
            assert!(matches!(written, Ok(Ok(_))), "{written:?}");
        }
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
        assert!(idle.await.is_ok());
    });
    done.unwrap();
}
