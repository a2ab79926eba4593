//! Replies can be read by a client, and no input stops the reader.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests stop at the first surprise")]

use bytes::{Bytes, BytesMut};
use proptest::collection::vec;
use proptest::prelude::*;
use quorate_resp::{Frame, Protocol, Reader};

fn frame() -> impl Strategy<Value = Frame> {
    let leaf = prop_oneof![
        Just(Frame::OK),
        "[A-Z]{3} [a-z\r\n]{0,9}".prop_map(Frame::Error),
        any::<i64>().prop_map(Frame::Integer),
        vec(any::<u8>(), 0..20).prop_map(Frame::bulk),
        "[ -~\r\n]{0,20}".prop_map(Frame::Text),
        Just(Frame::Null),
        any::<f64>().prop_filter("a number", |number| !number.is_nan()).prop_map(Frame::Double),
        any::<bool>().prop_map(Frame::Flag),
    ];
    // The other crate wants members of sets and keys of maps that it can hash.
    let member = vec(any::<u8>(), 0..20).prop_map(Frame::bulk);
    leaf.prop_recursive(3, 30, 5, move |inner| {
        let pairs = vec((member.clone(), inner.clone()), 0..4);
        prop_oneof![
            vec(inner, 0..5).prop_map(Frame::Array),
            vec(member.clone(), 0..5).prop_map(Frame::Set),
            pairs.clone().prop_map(Frame::Pairs),
            pairs.prop_map(Frame::Map),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn clients_read_replies_of_version_2(frame in frame()) {
        let mut out = BytesMut::new();
        frame.write(Protocol::Two, &mut out);
        let (_, read) = redis_protocol::resp2::decode::decode(&out).unwrap().unwrap();
        prop_assert_eq!(read, out.len());
    }

    #[test]
    fn clients_read_replies_of_version_3(frame in frame()) {
        let mut out = BytesMut::new();
        frame.write(Protocol::Three, &mut out);
        let (_, read) = redis_protocol::resp3::decode::complete::decode(&out).unwrap().unwrap();
        prop_assert_eq!(read, out.len());
    }

    #[test]
    fn requests_are_read_in_any_pieces(requests in vec(vec(vec(any::<u8>(), 0..40), 1..5), 0..5), size in 1..30_usize) {
        let mut sent = Vec::new();
        for request in &requests {
            let bulks = request.iter().map(|word| Frame::bulk(word.clone())).collect();
            let mut out = BytesMut::new();
            Frame::Array(bulks).write(Protocol::Two, &mut out);
            sent.extend(out);
        }
        let (mut reader, mut input, mut found) = (Reader::default(), BytesMut::new(), Vec::new());
        for piece in sent.chunks(size) {
            input.extend_from_slice(piece);
            while let Some(request) = reader.next(&mut input, true).unwrap() {
                found.push(request.into_iter().map(Bytes::into).collect::<Vec<Vec<u8>>>());
            }
        }
        prop_assert_eq!(found, requests);
        prop_assert!(input.is_empty());
    }

    #[test]
    fn no_input_stops_the_reader(pieces in vec("[*$0-9a\"'\\\\\r\n-]{0,12}", 0..20)) {
        let (mut reader, mut input) = (Reader::default(), BytesMut::new());
        'pieces: for piece in pieces {
            input.extend_from_slice(piece.as_bytes());
            loop {
                match reader.next(&mut input, true) {
                    Ok(Some(request)) => prop_assert!(!request.is_empty()),
                    Ok(None) => break,
                    Err(_) => break 'pieces,
                }
            }
        }
    }
}
