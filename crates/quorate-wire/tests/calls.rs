//! Calls: concurrency, deadlines, limits, and the meaning of their errors.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use common::{DOUBLE_ECHO, ECHO, Echo, FAIL, NEVER, connect, each_seed, in_seconds, seconds};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use quorate_env::{Instant, sleep, timeout};
use quorate_wire::{CallError, CallFailure, FailureKind, Handler, Limits, NotSent, PeerInfo, Purpose};

/// Replies after as many seconds as the call asks for, and counts the calls that it began and completed.
#[derive(Clone, Default)]
struct Slow {
    begun: Arc<AtomicU64>,
    done: Arc<AtomicU64>,
}

impl Handler for Slow {
    fn call(&self, _peer: &PeerInfo, _method: u16, body: Bytes) -> BoxFuture<'static, Result<Bytes, CallFailure>> {
        let this = self.clone();
        this.begun.fetch_add(1, Ordering::Relaxed);
        async move {
            sleep(seconds(u64::from(body[0]))).await;
            this.done.fetch_add(1, Ordering::Relaxed);
            Ok(body)
        }
        .boxed()
    }
}

impl Slow {
    fn counts(&self) -> (u64, u64) {
        (self.begun.load(Ordering::Relaxed), self.done.load(Ordering::Relaxed))
    }
}

fn for_seconds(count: u8) -> Bytes {
    vec![count].into()
}

#[test]
fn concurrent_calls_get_their_own_replies() {
    each_seed(20, async |world| {
        let _server = common::start(&world.node("server"), Echo).await;
        let client = connect(&world.node("caller"), Purpose::Data).await;
        let calls = (0..300_u32).map(|i| {
            let size = world.rng().below(if i % 50 == 0 { 300_000 } else { 300 });
            let body = Bytes::from(vec![u8::try_from(i % 251).unwrap(); usize::try_from(size).unwrap()]);
            let client = &client;
            async move { assert!(client.call(ECHO, body.clone(), in_seconds(99)).await.unwrap() == body) }
        });
        join_all(calls).await;
    });
}

#[test]
fn a_slow_call_does_not_delay_others() {
    each_seed(10, async |world| {
        let _server = common::start(&world.node("server"), Slow::default()).await;
        let client = connect(&world.node("caller"), Purpose::Data).await;
        let start = Instant::now();
        let calls = [3, 1, 2].map(|time| {
            let client = &client;
            async move {
                client.call(0, for_seconds(time), in_seconds(9)).await.unwrap();
                start.elapsed().as_secs()
            }
        });
        assert_eq!(join_all(calls).await, [3, 1, 2]);
    });
}

#[test]
fn a_deadline_ends_a_call_at_both_ends() {
    each_seed(20, async |world| {
        let slow = Slow::default();
        let _server = common::start(&world.node("server"), slow.clone()).await;
        let client = connect(&world.node("caller"), Purpose::Data).await;
        let error = client.call(0, for_seconds(9), in_seconds(2)).await.unwrap_err();
        assert!(error == CallError::TimedOut && error.is_outcome_unknown() && !error.is_retryable());
        let abandoned = client.call(0, for_seconds(9), in_seconds(99));
        assert!(timeout(seconds(1), abandoned).await.is_err());
        sleep(seconds(60)).await;
        assert_eq!(slow.counts(), (2, 0), "the server dropped both calls");
    });
}

#[test]
fn a_call_beyond_the_limit_is_not_sent() {
    each_seed(20, async |world| {
        let slow = Slow::default();
        let _server = common::start(&world.node("server"), slow.clone()).await;
        let client = connect(&world.node("caller"), Purpose::Heartbeat).await;
        let most = Limits::of(Purpose::Heartbeat).calls;
        let caller = client.clone();
        let first = world
            .node("other")
            .spawn(async move { join_all((0..most).map(|_| caller.call(0, for_seconds(9), in_seconds(99)))).await });
        sleep(seconds(1)).await;
        let error = client.call(0, for_seconds(0), in_seconds(2)).await.unwrap_err();
        assert!(error == CallError::NotSent(NotSent::TimedOut) && error.is_retryable());
        assert_eq!(slow.counts(), (most.into(), 0));
        assert!(first.await.unwrap().iter().all(Result::is_ok));
        client.call(0, for_seconds(0), in_seconds(2)).await.unwrap();
    });
}

#[test]
fn errors_tell_sent_calls_from_unsent_ones() {
    each_seed(50, async |world| {
        let slow = Slow::default();
        let _server = common::start(&world.node("server"), slow.clone()).await;
        let client = connect(&world.node("caller"), Purpose::Data).await;
        world.net().cut("caller", "server");
        // More than the network buffers: the first calls are in flight, the last wait to be sent.
        let body = Bytes::from(vec![0; 2 << 20]);
        let calls = join_all((0..9).map(|_| client.call(0, body.clone(), in_seconds(5)))).await;
        let unsent = calls.iter().filter(|call| **call == Err(CallError::NotSent(NotSent::TimedOut))).count();
        let unknown = calls.iter().filter(|call| **call == Err(CallError::TimedOut)).count();
        assert_eq!(unsent + unknown, 9, "{calls:?}");
        assert!(unsent > 0 && unknown > 0 && calls[0] == Err(CallError::TimedOut), "{calls:?}");
        sleep(seconds(60)).await;
        assert!(!client.is_open(), "a silent connection is closed");
        assert_eq!(slow.counts(), (0, 0));
        let late = client.call(0, for_seconds(0), in_seconds(5)).await;
        assert_eq!(late, Err(CallError::NotSent(NotSent::Closed)));
    });
}

#[test]
fn an_idle_connection_stays_open() {
    each_seed(5, async |world| {
        let _server = common::start(&world.node("server"), Echo).await;
        let client = connect(&world.node("caller"), Purpose::Data).await;
        sleep(seconds(3600)).await;
        client.call(ECHO, Bytes::new(), in_seconds(1)).await.unwrap();
    });
}

#[test]
fn a_broken_connection_leaves_the_outcome_unknown() {
    each_seed(20, async |world| {
        let _server = common::start(&world.node("server"), Echo).await;
        let client = connect(&world.node("caller"), Purpose::Data).await;
        let (call, ()) = tokio::join!(biased; client.call(NEVER, Bytes::new(), in_seconds(99)), async {
            sleep(seconds(1)).await;
            world.kill("server").await;
        });
        assert_eq!(call, Err(CallError::Broken));
        assert!(!call.unwrap_err().is_retryable());
    });
}

#[test]
fn exceeding_a_limit_keeps_the_connection() {
    each_seed(2, async |world| {
        let _server = common::start(&world.node("server"), Echo).await;
        let client = connect(&world.node("caller"), Purpose::Heartbeat).await;
        let max = usize::try_from(Limits::of(Purpose::Heartbeat).body_bytes).unwrap();
        let call = async |method, len: usize| client.call(method, vec![1; len].into(), in_seconds(9)).await;
        assert_eq!(call(ECHO, max).await.unwrap().len(), max);
        let error = call(ECHO, max + 1).await.unwrap_err();
        assert!(error == CallError::NotSent(NotSent::TooLarge { len: max + 1, max }) && !error.is_retryable());
        let error = call(DOUBLE_ECHO, max).await.unwrap_err();
        assert!(matches!(&error, CallError::Failed(failure) if failure.kind == FailureKind::Internal), "{error:?}");
        let Err(CallError::Failed(failure)) = call(FAIL, 0).await else { panic!("no failure") };
        assert_eq!(failure, CallFailure::new(FailureKind::Unavailable, "not today"));
        assert!(matches!(call(77, 0).await, Err(CallError::Failed(f)) if f.kind == FailureKind::UnknownMethod));
        assert!(call(ECHO, 5).await.is_ok());
    });
}

#[test]
fn a_stopping_server_answers_the_calls_it_began() {
    each_seed(50, async |world| {
        let slow = Slow::default();
        let server = common::start(&world.node("server"), slow.clone()).await;
        let client = connect(&world.node("caller"), Purpose::Data).await;
        let begun = client.call(0, for_seconds(2), in_seconds(99));
        let meanwhile = async {
            sleep(seconds(1)).await;
            let later = async {
                sleep(std::time::Duration::from_millis(world.rng().below(5))).await;
                join_all((0..5).map(|_| client.call(0, for_seconds(0), in_seconds(99)))).await
            };
            tokio::join!(biased; server.stop(seconds(30)), later).1
        };
        let (begun, later) = tokio::join!(biased; begun, meanwhile);
        assert!(begun.is_ok(), "{begun:?}");
        let served = later.iter().filter(|call| call.is_ok()).count();
        let unsent = later.iter().filter(|call| **call == Err(CallError::NotSent(NotSent::Closed))).count();
        assert_eq!(served + unsent, 5, "{later:?}");
        assert_eq!(slow.counts(), (1 + u64::try_from(served).unwrap(), 1 + u64::try_from(served).unwrap()));
    });
}

#[test]
fn a_stopping_server_waits_no_longer_than_its_limit() {
    each_seed(5, async |world| {
        let server = common::start(&world.node("server"), Echo).await;
        let client = connect(&world.node("caller"), Purpose::Data).await;
        let start = Instant::now();
        let call = client.call(NEVER, Bytes::new(), in_seconds(99));
        let stop = async {
            sleep(seconds(1)).await;
            server.stop(seconds(2)).await;
        };
        let (call, ()) = tokio::join!(biased; call, stop);
        assert_eq!(call, Err(CallError::Broken));
        assert!(start.elapsed() < seconds(4));
    });
}
