//! Tests of the encodings of keys of requests, and of the replies to requests that have one.

use proptest::collection::vec;
use proptest::prelude::*;
use quorate_model::{DecodeError, FailureKind, Outcome, Proposal, REQUEST_KEYS_LEVEL, Reply, RequestKey, codec};

use super::{delete, golden, golden_outcomes, golden_proposal_of};

pub fn any_key() -> impl Strategy<Value = RequestKey> {
    (vec(any::<u8>(), 1..300), any::<[u8; RequestKey::HASH_BYTES]>()).prop_map(|(mut key, hash)| {
        // The longest key is as likely as all others together.
        key.truncate(256);
        RequestKey::new(key, hash).unwrap()
    })
}

fn golden_key() -> Proposal {
    golden_proposal_of(vec![delete()]).with_key(RequestKey::new("order 7", [7; RequestKey::HASH_BYTES]).unwrap())
}

#[test]
fn the_bytes_of_level_3_never_change() {
    assert_eq!(golden_key().level, REQUEST_KEYS_LEVEL);
    golden("proposal-key-3.hex", &codec::encode_proposal(&golden_key()).unwrap());
    let [reply, _] = golden_outcomes();
    let first: Outcome = reply.map(|reply| Reply { first: Some(300), ..reply });
    golden("reply-first-3.hex", &codec::encode_outcome(&first));
    for (kind, number) in [(FailureKind::KeyReused, 20), (FailureKind::KeysFull, 21)] {
        assert_eq!(FailureKind::from_number(number), Some(kind));
    }
}

#[test]
fn a_key_and_its_hash_have_their_lengths() {
    let proposal = |key: &[u8]| {
        let field = [&[0x42, u8::try_from(key.len()).unwrap()], key].concat();
        codec::decode_proposal(&[&[0x08, 3], field.as_slice()].concat().into())
    };
    let parts = |key: &[u8], hash: &[u8]| {
        let field = |tag: u8, bytes: &[u8]| [&[tag, u8::try_from(bytes.len()).unwrap()], bytes].concat();
        [field(0x0a, key), field(0x12, hash)].concat()
    };
    assert!(proposal(&parts(b"a", &[1; 32])).is_ok());
    assert!(matches!(proposal(&parts(b"", &[1; 32])), Err(DecodeError::Malformed(_))));
    assert_eq!(proposal(&parts(b"a", &[1; 31])), Err(DecodeError::Unknown));
    assert_eq!(proposal(&[0x0a, 1, b'a']), Err(DecodeError::Unknown));
    assert_eq!(proposal(&[0x12, 1, 1]), Err(DecodeError::Unknown));
}
