//! Locks through their handles, on a node, remotely, and while a leader is killed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use quorate::locks::{Lease, LockGuard, LockInfo, LocksCommand, LocksReply, Token};
use quorate::{Config, Error, FailureKind, Level, Locks, Node, Sql, params, steps};
use quorate_env::{Instant, lock};
use support::dying::DyingDisk;
use support::{Cluster, PATIENCE, on_both, run, until};
use tempfile::TempDir;

/// Longer than a test takes.
const LONG: Duration = Duration::from_secs(3600);

/// As short as may be.
const SHORT: Duration = Duration::from_millis(100);

/// Returns a handle whose reads see its writes.
fn locks(sql: &Sql) -> Locks {
    sql.locks().with_own_writes()
}

async fn held(locks: &Locks, name: &str) -> Option<LockInfo> {
    locks.inspect(name).await.unwrap()
}

/// Waits until a number of callers wait for a lock.
async fn waiting(locks: &Locks, name: &str, count: usize) {
    let begun = Instant::now();
    while held(locks, name).await.map_or(0, |lock| lock.waiters.len()) != count {
        assert!(begun.elapsed() < PATIENCE, "{count} do not wait");
        quorate_env::sleep(Duration::from_millis(2)).await;
    }
}

/// Waits until nobody holds a lock.
async fn free(locks: &Locks, name: &str) {
    let begun = Instant::now();
    while held(locks, name).await.is_some() {
        assert!(begun.elapsed() < PATIENCE, "the lock is held");
        quorate_env::sleep(Duration::from_millis(2)).await;
    }
}

fn failure(result: Result<impl Sized, Error>) -> FailureKind {
    match result {
        Err(Error::Failed(failure)) => failure.kind,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it succeeded"),
    }
}

/// Acquires a lock as a holder whom nobody renews.
async fn without_guard(locks: &Locks, name: &'static str, ttl: Duration) -> LocksReply {
    let (name, holder, note) = (name.into(), "gone".into(), "".into());
    let ttl = u64::try_from(ttl.as_nanos()).unwrap();
    locks.run(LocksCommand::Acquire { name, holder, ttl, permits: 1, wait: None, note }).await.unwrap()
}

#[test]
fn a_lock_is_held_by_one_and_given_back() {
    on_both(|sql| async move {
        let locks = locks(&sql);
        let guard = locks.acquire("a").ttl(LONG).note("first").await?;
        assert!(guard.is_sure());
        assert!(guard.lost().now_or_never().is_none());
        assert!(locks.try_acquire("a").await?.is_none());
        let lock = held(&locks, "a").await.unwrap();
        assert_eq!((lock.permits, lock.holders[0].note.as_ref()), (1, &b"first"[..]));
        assert_eq!(lock.holders[0].token, guard.token());
        let first = guard.token();
        assert!(guard.release().await?);
        assert_eq!(held(&locks, "a").await, None);
        let second = locks.try_acquire("a").await?.unwrap();
        assert!(second.token() > first);
        drop(second);
        free(&locks, "a").await;
        Ok(())
    });
}

#[test]
fn those_who_wait_get_the_lock_in_their_order() {
    on_both(|sql| async move {
        let locks = locks(&sql);
        let mut guard = locks.acquire("a").ttl(LONG).await?;
        let mut waiting_tasks = Vec::new();
        for number in 0..4 {
            let acquire = locks.acquire("a").ttl(LONG).note(number.to_string());
            waiting_tasks.push(tokio::spawn(acquire.into_future()));
            waiting(&locks, "a", number + 1).await;
        }
        for task in waiting_tasks {
            let token = guard.token();
            assert!(guard.release().await?);
            let begun = Instant::now();
            guard = task.await.unwrap()?;
            assert!(guard.token() > token);
            // Woken, and not only when its wait was to be renewed.
            assert!(begun.elapsed() < PATIENCE);
        }
        Ok(())
    });
}

#[test]
fn a_wait_ends_with_its_time_and_with_its_future() {
    on_both(|sql| async move {
        let locks = locks(&sql);
        let _guard = locks.acquire("a").ttl(LONG).await?;
        let error = locks.acquire("a").ttl(LONG).wait(SHORT).await.unwrap_err();
        assert!(matches!(error, Error::TimedOut(_)), "{error}");
        assert_eq!(held(&locks, "a").await.unwrap().waiters, []);
        let task = tokio::spawn(locks.acquire("a").ttl(LONG).into_future());
        waiting(&locks, "a", 1).await;
        task.abort();
        waiting(&locks, "a", 0).await;
        Ok(())
    });
}

#[test]
fn a_batch_of_a_late_holder_fails() {
    on_both(|sql| async move {
        let locks = locks(&sql);
        sql.execute("CREATE TABLE t (a)", ()).await?;
        let guard = locks.acquire("a").ttl(LONG).await?;
        let done = sql.batch(steps![guard.holds(), ("INSERT INTO t VALUES (1)", ())]).await?;
        assert_eq!(done.replies.of_lock::<Lease>(0).unwrap().token, guard.token());
        assert_eq!(locks.force("a", None).await?, [guard.token()]);
        let late = sql.batch(steps![guard.holds(), ("INSERT INTO t VALUES (2)", ())]).await;
        assert_eq!(failure(late), FailureKind::NotHeld);
        assert_eq!(sql.at(Level::Linearizable).query_one::<i64>("SELECT count(*) FROM t", ()).await?, 1);
        assert!(!guard.release().await?);
        Ok(())
    });
}

#[test]
fn a_guard_renews_its_lease_and_notices_its_loss() {
    on_both(|sql| async move {
        let locks = locks(&sql);
        // The lease is longer than a slow disk takes to renew it, and the guard has to outlast it.
        let guard = locks.acquire("a").ttl(Duration::from_secs(12)).await?;
        let until = Instant::now() + Duration::from_secs(13);
        while Instant::now() < until {
            assert!(guard.is_sure());
            quorate_env::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(guard.holds().await?.token, guard.token());
        locks.force("a", Some(guard.token())).await?;
        guard.lost().await;
        assert!(!guard.is_sure());
        Ok(())
    });
}

#[test]
fn a_lease_that_nobody_renews_ends() {
    on_both(|sql| async move {
        let locks = locks(&sql);
        let LocksReply::Held(Lease { token, .. }) = without_guard(&locks, "a", SHORT).await else { panic!("not held") };
        // Nothing else is written: the tick of the leader grants it.
        let guard = locks.acquire("a").ttl(LONG).await?;
        assert!(guard.token() > token);
        assert_eq!(failure(locks.holds("a", token).await), FailureKind::NotHeld);
        Ok(())
    });
}

#[test]
fn a_semaphore_has_so_many_holders() {
    on_both(|sql| async move {
        let locks = locks(&sql);
        let acquire = || locks.acquire("s").ttl(LONG).permits(2);
        let (first, _second) = (acquire().await?, acquire().await?);
        assert!(acquire().attempt().await?.is_none());
        assert_eq!(failure(locks.acquire("s").attempt().await), FailureKind::InvalidValue);
        assert_eq!(failure(locks.acquire("s").permits(0).await), FailureKind::InvalidValue);
        first.release().await?;
        assert!(acquire().attempt().await?.is_some());
        Ok(())
    });
}

#[test]
fn who_has_a_name_takes_over_what_it_held() {
    on_both(|sql| async move {
        let locks = locks(&sql);
        let LocksReply::Held(Lease { token, .. }) = without_guard(&locks, "a", LONG).await else { panic!("not held") };
        let guard = locks.acquire("a").holder("gone").await?;
        assert_eq!((guard.token(), guard.holder().as_ref(), guard.name().as_ref()), (token, &b"gone"[..], &b"a"[..]));
        Ok(())
    });
}

#[test]
fn a_guard_gives_back_nothing_that_its_holder_got_later() {
    on_both(|sql| async move {
        let locks = locks(&sql);
        let acquire = || locks.acquire("a").holder("h").ttl(LONG);
        let late = acquire().await?;
        locks.force("a", Some(late.token())).await?;
        let guard = acquire().await?;
        assert!(guard.token() > late.token());
        assert!(!late.release().await?);
        assert_eq!(guard.holds().await?.token, guard.token());
        assert!(guard.release().await?);
        Ok(())
    });
}

#[test]
fn a_handle_with_a_key_gets_no_grant_that_has_ended() {
    on_both(|sql| async move {
        let acquire = || sql.with_key("k").locks().acquire("a").holder("h").ttl(LONG);
        assert!(acquire().await?.release().await?);
        let _other = sql.locks().acquire("a").ttl(LONG).await?;
        assert!(acquire().attempt().await?.is_none());
        Ok(())
    });
}

#[test]
fn a_leader_leads_until_it_loses_its_lock() {
    on_both(|sql| async move {
        let locks = locks(&sql);
        let lead = |work: Duration| {
            let locks = &locks;
            // Longer than a slow disk takes; the loss is noticed after a quarter of it.
            locks.acquire("leader").ttl(Duration::from_secs(12)).lead(move |fence| async move {
                let token = fence.holds().await.unwrap().token;
                assert_eq!(token, fence.token());
                if work == LONG {
                    locks.force("leader", None).await.unwrap();
                }
                quorate_env::sleep(work).await;
                token
            })
        };
        let first = lead(Duration::ZERO).await?.unwrap();
        assert_eq!(lead(LONG).await?, None);
        assert!(lead(Duration::ZERO).await?.unwrap() > first);
        Ok(())
    });
}

#[test]
fn locks_are_listed_by_prefix_in_pages() {
    on_both(|sql| async move {
        let locks = locks(&sql);
        let acquire = |name: &'static str| locks.acquire(name).ttl(LONG);
        let _guards: Vec<LockGuard> = vec![acquire("a/1").await?, acquire("a/2").await?, acquire("b").await?];
        let names = |rows: Vec<LockInfo>| rows.into_iter().map(|lock| lock.name).collect::<Vec<_>>();
        let page = locks.list("a/").await?;
        assert_eq!((names(page.rows), page.next), (vec!["a/1".into(), "a/2".into()], None));
        assert_eq!(names(locks.list_from("a/", "a/2").await?.rows), ["a/2"]);
        assert_eq!(names(locks.list("").await?.rows).len(), 3);
        let listed: i64 = sql
            .with_own_writes()
            .query_one("SELECT count(*) FROM quorate_locks WHERE state = 'held' AND permits = 1", ())
            .await?;
        assert_eq!(listed, 3);
        Ok(())
    });
}

/// What counters under one lock share.
#[derive(Default)]
struct Counting {
    tokens: Mutex<Vec<Token>>,
    has_ended: AtomicBool,
}

impl Counting {
    fn count(&self) -> usize {
        lock(&self.tokens).len()
    }

    /// Waits until this many more writes were acknowledged.
    async fn goes_on(&self, more: usize) {
        let before = self.count();
        until("writes under the lock go on", || self.count() >= before + more).await;
    }

    /// Writes the token of the lock again and again, and notes those that were acknowledged.
    async fn write(self: Arc<Self>, sql: Sql) {
        while !self.has_ended.load(Ordering::Relaxed) {
            // A grant that takes a quarter of the lease to arrive is asked for again: longer than a slow disk takes.
            let Ok(guard) = sql.locks().acquire("counter").ttl(Duration::from_secs(8)).await else { continue };
            let token = i64::try_from(guard.token().0).unwrap();
            match sql.batch(steps![guard.holds(), ("INSERT INTO log (token) VALUES (?)", params![token])]).await {
                Ok(_) => lock(&self.tokens).push(guard.token()),
                Err(Error::Failed(failure)) => assert_eq!(failure.kind, FailureKind::NotHeld, "{failure}"),
                Err(_) => {}
            }
            let _ = guard.release().await;
        }
    }
}

#[test]
fn tokens_of_what_was_written_never_go_back_while_leaders_are_killed() {
    run(async {
        let mut cluster = Cluster::start().await;
        let client = cluster.client().await;
        let sql = client.sql();
        sql.execute("CREATE TABLE log (number INTEGER PRIMARY KEY, token INTEGER NOT NULL)", ()).await.unwrap();
        let counting = Arc::new(Counting::default());
        let tasks: Vec<_> = (0..4).map(|_| tokio::spawn(Arc::clone(&counting).write(sql.clone()))).collect();
        for _ in 0..2 {
            counting.goes_on(5).await;
            let leader = cluster.leader().await;
            cluster.kill(&leader);
            counting.goes_on(5).await;
            cluster.restart(&leader).await;
        }
        counting.has_ended.store(true, Ordering::Relaxed);
        join_all(tasks).await.into_iter().for_each(Result::unwrap);
        let written: Vec<i64> = sql.query_as("SELECT token FROM log ORDER BY number", ()).await.unwrap();
        // Each grant writes once, so tokens rise from row to row.
        assert!(written.is_sorted_by(|first, second| first < second), "a token went back: {written:?}");
        let acknowledged = lock(&counting.tokens).clone();
        for token in acknowledged {
            assert!(written.contains(&i64::try_from(token.0).unwrap()), "an acknowledged write is lost: {token:?}");
        }
        client.close().await;
        cluster.stop_all().await;
    });
}

#[test]
fn a_lease_that_is_granted_late_again_and_again_is_refused() {
    run(async {
        let (disk, dir) = (DyingDisk::after(i64::MAX), TempDir::new().unwrap());
        let node = Node::start_in(disk.env(), Config::single(dir.path())).await.unwrap();
        // With its sync, each entry takes longer than a quarter of the shortest lease.
        disk.slow_down(50);
        let locks = node.sql().locks();
        let ask = || locks.acquire("slow").ttl(Duration::from_millis(100));
        for asked in [ask().await.map(drop), ask().attempt().await.map(drop), ask().wait(PATIENCE).await.map(drop)] {
            let error = asked.unwrap_err();
            assert!(
                matches!(error, Error::TimedOut(_)) && error.to_string().contains("choose a longer one"),
                "{error}"
            );
        }
        drop(locks.acquire("slow").ttl(PATIENCE).await.unwrap());
        node.stop().await;
    });
}
