//! Streams: order, windows, ends.
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
fn items_come_back_in_order_however_large() {
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
        assert_eq!(receiver.recv().await, Ok(None), "the end stays");
    });
}

#[test]
fn a_reader_that_does_not_read_stops_its_sender_and_nobody_else() {
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
fn each_end_of_a_stream_is_told_to_the_other() {
    each_seed(10, async |world| {
        let _server = common::start(&world.node("server"), Echo).await;
        let client = connect(&world.node("caller"), Purpose::Data).await;

        let (_sender, mut receiver) = client.open_stream(99).unwrap();
        let Err(StreamError::Failed(failure)) = receiver.recv().await else { panic!("it was served") };
        assert_eq!(failure, CallFailure::new(FailureKind::UnknownMethod, "no such stream"));

        // The echo ends by the loss of its reader.
        let (mut sender, receiver) = client.open_stream(ECHO).unwrap();
        drop(receiver);
        sender.send(item(1, 1)).await.unwrap();
        assert_eq!(timeout(seconds(1), sender.stopped()).await.unwrap(), StreamError::Stopped);
        assert_eq!(sender.send(item(1, 1)).await, Err(StreamError::Stopped));

        // The echo abandons its direction when it hears of a failure.
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
fn streams_are_counted_and_counted_back() {
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
fn a_stream_keeps_its_connection_and_ends_with_it() {
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
fn what_was_sent_before_a_hang_up_arrives() {
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
