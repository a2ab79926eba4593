//! Frames that arrive in pieces, are too large, or are damaged.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use proptest::prelude::*;
use tokio::io::ReadBuf;

use super::*;

const MAX: usize = 1 << 20;

/// Bytes that arrive in pieces.
struct Pieces(Vec<Vec<u8>>);

impl AsyncRead for Pieces {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let pieces = &mut self.get_mut().0;
        if let Some(first) = pieces.first_mut() {
            let count = first.len().min(buf.remaining());
            buf.put_slice(&first[..count]);
            first.drain(..count);
            if first.is_empty() {
                pieces.remove(0);
            }
        }
        Poll::Ready(Ok(()))
    }
}

fn in_pieces(bytes: &[u8], piece: usize) -> FrameReader<Pieces> {
    FrameReader::new(Pieces(bytes.chunks(piece).map(<[u8]>::to_vec).collect()), MAX)
}

fn next(reader: &mut FrameReader<Pieces>) -> Result<Option<(u8, Bytes)>, LinkError> {
    reader.next().now_or_never().unwrap()
}

proptest! {
    #[test]
    fn frames_round_trip_in_pieces_of_any_size(
        frames in prop::collection::vec((any::<u8>(), prop::collection::vec(any::<u8>(), 0..3000)), 0..20),
        piece in 1..5000_usize,
    ) {
        let bytes: Vec<u8> = frames.iter().flat_map(|(kind, body)| whole_frame(*kind, body)).collect();
        let mut reader = in_pieces(&bytes, piece);
        for (kind, body) in frames {
            prop_assert_eq!(next(&mut reader).unwrap(), Some((kind, Bytes::from(body))));
        }
        prop_assert_eq!(next(&mut reader).unwrap(), None);
    }

    #[test]
    fn a_flipped_bit_is_detected(
        body in prop::collection::vec(any::<u8>(), 0..200),
        bit in any::<prop::sample::Index>(),
    ) {
        let mut bytes = whole_frame(7, &body);
        let bit = bit.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(next(&mut in_pieces(&bytes, 64)).is_err());
    }

    #[test]
    fn memory_is_at_most_twice_the_bytes_received(
        len in any::<u32>(),
        bytes in prop::collection::vec(any::<u8>(), 0..100_000),
        piece in 1..40_000_usize,
    ) {
        check_memory(len, &bytes, piece)?;
    }
}

#[test]
fn a_buffer_is_not_doubled_for_its_last_bytes() {
    check_memory(131_064, &[1; 95_935], 20_146).unwrap();
}

fn check_memory(len: u32, bytes: &[u8], piece: usize) -> Result<(), TestCaseError> {
    let bytes = [&len.to_le_bytes()[..], bytes].concat();
    let mut reader = in_pieces(&bytes, piece);
    while let Ok(Some(_)) = next(&mut reader) {}
    prop_assert!(reader.capacity() <= 2 * (bytes.len() + READ_CHUNK), "{}", reader.capacity());
    Ok(())
}

#[test]
fn a_frame_above_the_limit_is_refused_by_its_header() {
    let mut frame = whole_frame(1, &vec![0; MAX + 1]);
    let header = frame.split_to(HEADER_LEN);
    let error = next(&mut in_pieces(&header, 64)).unwrap_err();
    assert!(matches!(error, LinkError::TooLarge { len, max: MAX } if len == MAX + 1));
    assert!(next(&mut in_pieces(&whole_frame(1, &vec![0; MAX]), 70_000)).is_ok());
}

#[test]
fn an_end_within_a_frame_is_an_error() {
    let frame = whole_frame(1, b"content");
    for len in 1..frame.len() {
        assert!(matches!(next(&mut in_pieces(&frame[..len], 64)), Err(LinkError::Truncated)));
    }
}
