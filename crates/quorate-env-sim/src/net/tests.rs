//! The behaviour of streams while the network fails.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use quorate_env::net::BoxStream;
use quorate_env::{Env, Instant, sleep, timeout};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::SimWorld;

const ADDR: &str = "b:1";

/// Returns both ends of a stream from `a` to `b`.
async fn connected(a: &Env, b: &Env) -> (BoxStream, BoxStream) {
    let listener = b.net().listen(ADDR).await.unwrap();
    let (dialed, accepted) = tokio::join!(biased; a.net().connect(ADDR), listener.accept());
    (dialed.unwrap(), accepted.unwrap().0)
}

fn each_seed(scenario: impl AsyncFn(&SimWorld, Env, Env)) {
    for seed in 0..200 {
        let world = SimWorld::new(seed);
        world.run(async { scenario(&world, world.node("a"), world.node("b")).await }).unwrap();
    }
}

/// Reads until the stream ends, fails, or is silent for a second.
async fn read_on(stream: &mut BoxStream) -> (Vec<u8>, &'static str) {
    let mut got = Vec::new();
    loop {
        match timeout(Duration::from_secs(1), stream.read_buf(&mut got)).await {
            Err(_) => return (got, "silent"),
            Ok(Err(_)) => return (got, "broken"),
            Ok(Ok(0)) => return (got, "ended"),
            Ok(Ok(_)) => {}
        }
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| u8::try_from(i * 7 % 251).unwrap()).collect()
}

#[test]
fn bytes_arrive_completely_and_in_order() {
    each_seed(async |_, a, b| {
        let (mut near, mut far) = connected(&a, &b).await;
        let writer = a.spawn(async move {
            near.write_all(&pattern(100_000)).await.unwrap();
            near.shutdown().await.unwrap();
            near
        });
        let (got, end) = read_on(&mut far).await;
        assert_eq!(end, "ended");
        assert!(got == pattern(100_000));
        writer.await.unwrap();
    });
}

#[test]
fn a_cut_holds_bytes_back_until_it_heals() {
    each_seed(async |world, a, b| {
        let (mut near, mut far) = connected(&a, &b).await;
        world.net().cut_way("a", "b");
        near.write_all(b"late").await.unwrap();
        assert_eq!(read_on(&mut far).await, (Vec::new(), "silent"));
        far.write_all(b"back").await.unwrap();
        assert_eq!(read_on(&mut near).await.0, b"back", "only one way is cut");
        world.net().heal("a", "b");
        let (got, end) = read_on(&mut far).await;
        assert!((got == b"late" && end == "silent") || (got.is_empty() && end == "broken"), "{got:?} {end}");
    });
}

#[test]
fn an_unacknowledged_sender_is_blocked() {
    each_seed(async |world, a, b| {
        let (mut near, mut far) = connected(&a, &b).await;
        world.net().cut_way("b", "a");
        let sending = a.spawn(async move {
            let sent = timeout(Duration::from_secs(5), near.write_all(&vec![0; 4 << 20])).await;
            sent.is_err()
        });
        read_on(&mut far).await;
        assert!(sending.await.unwrap(), "the writer sent more than any buffer holds");
    });
}

#[test]
fn connecting_waits_for_a_cut_to_heal() {
    each_seed(async |world, a, b| {
        let refused = a.net().connect("b:9").await.err().unwrap();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        let _listener = b.net().listen(ADDR).await.unwrap();
        world.net().cut("a", "b");
        assert!(timeout(Duration::from_secs(9), a.net().connect(ADDR)).await.is_err());
        let connecting = a.spawn(a.net().connect(ADDR));
        sleep(Duration::from_secs(1)).await;
        world.net().heal_all();
        let start = Instant::now();
        connecting.await.unwrap().unwrap();
        assert!(start.elapsed() < Duration::from_secs(1));
    });
}

#[test]
fn a_death_ends_breaks_or_silences_streams() {
    let seen = RefCell::new(BTreeSet::new());
    each_seed(async |world, a, b| {
        let (mut near, far) = connected(&a, &b).await;
        b.spawn(async move {
            let _far = far;
            std::future::pending::<()>().await;
        });
        sleep(Duration::from_millis(5)).await;
        let power = world.rng().chance(0.5);
        if power {
            world.crash("b").await
        } else {
            world.kill("b").await
        }
        let (_, end) = read_on(&mut near).await;
        seen.borrow_mut().insert((power, end));
        let again = timeout(Duration::from_secs(1), a.net().connect(ADDR)).await;
        assert!(again.is_err() || again.unwrap().is_err());
        if end == "silent" {
            world.node("b");
            assert_eq!(read_on(&mut near).await.1, "broken", "the restarted machine does not know the stream");
        }
    });
    let all = [(false, "broken"), (false, "ended"), (true, "broken"), (true, "silent")];
    assert_eq!(seen.into_inner(), BTreeSet::from(all));
}

#[test]
fn a_dropped_reader_fails_its_writer() {
    each_seed(async |_, a, b| {
        let (mut near, far) = connected(&a, &b).await;
        drop(far);
        let writing = async {
            while near.write_all(&pattern(1000)).await.is_ok() {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(Duration::from_secs(1), writing).await.unwrap();
        assert_eq!(read_on(&mut near).await.1, "ended");
    });
}

#[test]
fn a_previous_life_can_not_use_the_network() {
    each_seed(async |world, a, b| {
        let _listener = b.net().listen(ADDR).await.unwrap();
        world.kill("a").await;
        world.node("a");
        assert!(a.net().connect(ADDR).await.is_err());
        assert!(a.net().listen("a:1").await.is_err());
    });
}
