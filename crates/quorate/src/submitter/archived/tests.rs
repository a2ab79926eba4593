//! Tests of the wait that many writes share.

#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use futures_util::future::join_all;
use quorate_model::{Epoch, GroupId};

use super::*;

fn position(epoch: u64, index: u64) -> Position {
    Position { epoch: Epoch(epoch), group: GroupId::MAIN, index }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

#[tokio::test]
async fn one_request_asks_for_all_that_wait() {
    let (archived, asked, archive) = (Archived::default(), AtomicUsize::new(0), AtomicU64::new(0));
    let ask = |next: Position| {
        asked.fetch_add(1, Ordering::Relaxed);
        let index = archive.fetch_add(10, Ordering::Relaxed) + 10;
        async move { Ok(index.max(next.index)) }
    };
    let waits = (1..=30).map(|index| archived.reach(position(1, index), soon(), ask));
    let reached: Vec<u64> = join_all(waits).await.into_iter().map(Result::unwrap).collect();
    assert!(reached.iter().zip(1..).all(|(reached, index)| *reached >= index), "{reached:?}");
    assert_eq!(asked.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn an_archive_of_another_history_does_not_count() {
    let archived = Archived::default();
    let at = |index| move |_| async move { Ok::<_, Error>(index) };
    assert_eq!(archived.reach(position(1, 5), soon(), at(100)).await, Ok(100));
    assert_eq!(archived.reach(position(2, 5), soon(), at(7)).await, Ok(7));
    let early = archived.reach(position(3, 5), soon(), at(0)).await;
    assert!(matches!(early, Err(Error::Unavailable(_))), "{early:?}");
}

#[tokio::test]
async fn those_that_wait_are_bounded_in_number_and_in_time() {
    let archived = Archived::default();
    let never = |_| std::future::pending::<Result<u64, Error>>();
    let waits = (0..ARCHIVE_WAITERS_MAX).map(|_| archived.reach(position(1, 1), Instant::now(), never).boxed());
    let late = join_all(waits).await;
    assert!(late.iter().all(|late| matches!(late, Err(Error::TimedOut(_)))));
    let waits: Vec<_> = (0..ARCHIVE_WAITERS_MAX).map(|_| archived.waiters.try_acquire().unwrap()).collect();
    let refused = archived.reach(position(1, 1), soon(), never).await;
    assert!(matches!(refused, Err(Error::Overloaded(_))), "{refused:?}");
    drop(waits);
}
