//! What the clients of Redis send.

use bytes::{Bytes, BytesMut};
use quorate_resp::Reader;
use quorate_resp::differential::{MemoryDoor, Value};

/// The time of all requests, in nanoseconds since 1970.
const NOW: u64 = 1_700_000_000_000_000_000;

/// Checks that the same requests are read however their bytes arrive, up to the same error, and that they hold no more
/// bytes than arrived.
pub fn requests(data: &[u8]) {
    let Some((place, data)) = data.split_first() else { return };
    for is_user in [false, true] {
        let whole = read(&[data], is_user);
        let (head, tail) = data.split_at(usize::from(*place).min(data.len()));
        assert_eq!(read(&[head, tail], is_user), whole, "in two pieces");
        let bytes: usize = whole.0.iter().flatten().map(Bytes::len).sum();
        assert!(bytes <= data.len(), "{bytes} bytes of requests in {}", data.len());
    }
}

/// Returns the requests in these pieces, and the error after them.
fn read(pieces: &[&[u8]], is_user: bool) -> (Vec<Vec<Bytes>>, Option<String>) {
    let (mut reader, mut input, mut requests) = (Reader::default(), BytesMut::new(), Vec::new());
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            match reader.next(&mut input, is_user) {
                Ok(Some(request)) => requests.push(request),
                Ok(None) => break,
                Err(error) => return (requests, Some(error.to_string())),
            }
        }
    }
    (requests, None)
}

/// Checks that there are as many replies however the bytes of requests arrive, and that each can be read.
pub fn door(data: &[u8]) {
    let Some((place, data)) = data.split_first() else { return };
    let (head, tail) = data.split_at(usize::from(*place).min(data.len()));
    assert_eq!(replies(&[head, tail]), replies(&[data]), "in two pieces");
}

/// Returns how many replies there are to these pieces, and whether the connection was closed.
fn replies(pieces: &[&[u8]]) -> (usize, bool) {
    let mut door = MemoryDoor::new(1);
    let sent: Vec<BytesMut> = pieces.iter().map(|piece| door.send(piece, NOW)).collect();
    let (sent, mut count, mut from) = (sent.concat(), 0, 0);
    while let Ok(Some((_, read))) = Value::read(sent.get(from..).unwrap_or_default()) {
        (count, from) = (count + 1, from + read);
    }
    assert_eq!(from, sent.len(), "a reply can't be read");
    (count, door.is_closed())
}
