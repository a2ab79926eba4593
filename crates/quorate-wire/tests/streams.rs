//! Streams: order of items, windows, and how they end.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use bytes::Bytes;
use common::{ECHO, Echo, NEVER, connect, each_seed, seconds};
use quorate_env::{sleep, timeout};
use quorate_wire::{CallFailure, FailureKind, Limits, Purpose, StreamError};

fn item(number: u32, len: usize) -> Bytes {
    let mut item = number.to_le_bytes().to_vec();
    item.resize(len.max(4), 0);
    item.into()
}

#[test]
fn items_of_any_size_arrive_in_order() {
    each_seed(20, async |world| {
        let _server = common::start(&world.node("server"), Echo).await;
        let env = world.node("caller");
        let client = connect(&env, Purpose::Heartbeat).await;
        let max = u64::from(Limits::of(Purpose::Heartbeat).body_bytes);
        let sizes: Vec<usize> = (0..200)
            .map(|i| world.rng().below(if i % 20 == 0 { max } else { 2000 }))
            .map(|len| usize::try_from(len).unwrap())
            .collect();
        let (mut sender, mut receiver) = client.open_stream(ECHO).unwrap();
        let to_send = sizes.clone();
        env.spawn(async move {
            for (number, len) in to_send.into_iter().enumerate() {
                sender.send(item(u32::try_from(number).unwrap(), len)).await.unwrap();
            }
            sender.finish();
        });
        for (number, len) in sizes.into_iter().enumerate() {
            assert!(receiver.recv().await.unwrap().unwrap() == item(u32::try_from(number).unwrap(), len));
        }
        assert_eq!(receiver.recv().await, Ok(None));
        assert_eq!(receiver.recv().await, Ok(None), "the end is permanent");
    });
}

#[test]
fn a_stalled_reader_blocks_only_its_own_sender() {
    each_seed(10, async |world| {
        let _server = common::start(&world.node("server"), Echo).await;
        let client = connect(&world.node("caller"), Purpose::Image).await;
        let (mut stuck, _stuck_too) = client.open_stream(NEVER).unwrap();
        let window = usize::try_from(Limits::of(Purpose::Image).stream_window).unwrap();
        let mut sent = 0;
        while timeout(seconds(5), stuck.send(item(0, 100_000))).await.is_ok() {
            sent += 100_000;
        }
        assert!(sent <= window && sent > window / 2, "{sent}");
        let (mut sender, mut receiver) = client.open_stream(ECHO).unwrap();
        sender.send(item(5, 9)).await.unwrap();
        assert_eq!(receiver.recv().await.unwrap().unwrap(), item(5, 9));
    });
}

#[test]
fn each_end_learns_how_the_other_ended() {
    each_seed(10, async |world| {
        let _server = common::start(&world.node("server"), Echo).await;
        let client = connect(&world.node("caller"), Purpose::Data).await;

        let (_sender, mut receiver) = client.open_stream(99).unwrap();
        let Err(StreamError::Failed(failure)) = receiver.recv().await else { panic!("it was served") };
        assert_eq!(failure, CallFailure::new(FailureKind::UnknownMethod, "no such stream"));

        // The echo ends when its reader is dropped.
        let (mut sender, receiver) = client.open_stream(ECHO).unwrap();
        drop(receiver);
        sender.send(item(1, 1)).await.unwrap();
        assert_eq!(timeout(seconds(1), sender.stopped()).await.unwrap(), StreamError::Stopped);
        assert_eq!(sender.send(item(1, 1)).await, Err(StreamError::Stopped));

        // The echo drops its sender when it receives a failure.
        let (sender, mut receiver) = client.open_stream(ECHO).unwrap();
        drop(sender);
        let Err(StreamError::Failed(failure)) = receiver.recv().await else { panic!("it ended well") };
        assert_eq!(failure.kind, FailureKind::Abandoned);

        let (mut sender, _receiver) = client.open_stream(NEVER).unwrap();
        let max = client.peer().limits.body_bytes.try_into().unwrap();
        let too_large = sender.send(vec![0; max + 1].into()).await;
        assert_eq!(too_large, Err(StreamError::TooLarge { len: max + 1, max }));
        sender.send(item(1, 1)).await.unwrap();
    });
}

#[test]
fn open_streams_are_limited() {
    each_seed(10, async |world| {
        let _server = common::start(&world.node("server"), Echo).await;
        let client = connect(&world.node("caller"), Purpose::Image).await;
        for _ in 0..10 {
            let most = Limits::of(Purpose::Image).streams;
            let open: Vec<_> = (0..most).map(|_| client.open_stream(ECHO).unwrap()).collect();
            assert_eq!(client.open_stream(ECHO).unwrap_err(), StreamError::TooMany);
            drop(open);
            sleep(seconds(1)).await;
        }
    });
}

#[test]
fn a_stream_keeps_its_connection_open() {
    each_seed(20, async |world| {
        let _server = common::start(&world.node("server"), Echo).await;
        let client = connect(&world.node("caller"), Purpose::Data).await;
        let (mut sender, mut receiver) = client.open_stream(ECHO).unwrap();
        drop(client);
        sleep(seconds(1)).await;
        sender.send(item(1, 5)).await.unwrap();
        assert_eq!(receiver.recv().await.unwrap().unwrap(), item(1, 5));
        world.kill("server").await;
        assert_eq!(timeout(seconds(1), receiver.recv()).await.unwrap(), Err(StreamError::Broken));
        assert_eq!(sender.send(item(1, 5)).await, Err(StreamError::Broken));
    });
}

#[test]
fn items_sent_before_the_client_is_dropped_arrive() {
    each_seed(20, async |world| {
        let _server = common::start(&world.node("server"), Echo).await;
        let client = connect(&world.node("caller"), Purpose::Data).await;
        let (mut sender, mut receiver) = client.open_stream(ECHO).unwrap();
        drop(client);
        for number in 0..100 {
            sender.send(item(number, 1000)).await.unwrap();
        }
        sender.finish();
        let mut got = 0;
        while let Some(next) = receiver.recv().await.unwrap() {
            assert_eq!(next, item(got, 1000));
            got += 1;
        }
        assert_eq!(got, 100);
    });
}
