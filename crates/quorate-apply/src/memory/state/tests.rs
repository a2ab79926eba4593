//! The bytes of the engine's data: pinned by a golden file, the inverse of decoding, and harmless when damaged.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use proptest::collection::vec;
use proptest::prelude::*;

use quorate_model::{TokenHash, User, UserRole, UserToken, Verifier};

use super::*;
use crate::Engine;

/// Two digits for each byte.
const GOLDEN: &str = include_str!("../../../tests/golden/memory-state-1.hex");
const GOLDEN_2: &str = include_str!("../../../tests/golden/memory-state-2.hex");
const GOLDEN_3: &str = include_str!("../../../tests/golden/memory-state-3.hex");

fn some_bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..12).prop_map(Bytes::from)
}

fn a_log_id() -> impl Strategy<Value = LogId> {
    any::<(u64, u64, u64)>().prop_map(|(term, node, index)| LogId { term, node: NodeId(node), index })
}

fn an_applied_row() -> impl Strategy<Value = AppliedRow> {
    let identity = any::<(u128, u64, u32)>().prop_map(|(cluster, epoch, group)| StoreIdentity {
        cluster,
        epoch: Epoch(epoch),
        group: GroupId(group),
    });
    let membership = proptest::option::of((a_log_id(), some_bytes()));
    let applied = (proptest::option::of(a_log_id()), membership, any::<u32>(), proptest::option::of(any::<u64>()));
    let applied = applied.prop_map(|(log_id, membership, level, due)| Applied { log_id, membership, level, due });
    let archiver = any::<(u64, u64)>().prop_map(|(node, token)| Archiver { node: NodeId(node), token });
    (identity, applied, any::<u64>(), any::<u64>(), proptest::option::of(archiver)).prop_map(
        |(identity, applied, now, outcome_hash, archiver)| AppliedRow {
            identity,
            applied,
            now,
            outcome_hash,
            archiver,
        },
    )
}

fn a_record() -> impl Strategy<Value = (Key, Record)> {
    let session = (any::<(u64, u64, u64, u64)>(), some_bytes()).prop_map(|((id, used, floor, highest), recent)| {
        (Key::Session(id), Record::Session(SessionRecord { id, used, floor, highest, recent: recent.to_vec() }))
    });
    let outcome = (0..3_u64, any::<u64>(), proptest::option::of(some_bytes())).prop_map(|(id, sequence, outcome)| {
        (Key::Outcome(id, sequence), Record::Outcome(outcome.map(|bytes| bytes.to_vec())))
    });
    prop_oneof![
        session,
        outcome,
        any::<u64>().prop_map(|index| (Key::Rejection(index), Record::Rejection)),
        (0..3_u8, some_bytes(), some_bytes())
            .prop_map(|(table, key, value)| (Key::Row(table, key), Record::Row(value))),
        "[a-c]{1,2}".prop_map(|name| {
            let user = User { name, role: UserRole::Write, verifier: None, tokens: Vec::new() };
            (Key::User(user.name.clone()), Record::User(user))
        }),
        (any::<[u64; 5]>(), any::<[u8; 32]>(), some_bytes(), some_bytes()).prop_map(|(numbers, hash, key, outcome)| {
            let [number, low, high, used, entry] = numbers;
            let place = RequestPlace { number, low, high, used };
            (Key::Request(number), Record::Request(RequestRecord { place, entry, key, hash, outcome }))
        }),
    ]
}

/// Data with these records, and the requests in the order of their keys.
fn of_records(mut map: BTreeMap<Key, Record>) -> Memory {
    let by_key = |record: &Record| match record {
        Record::Request(request) => Some(Key::RequestOf(request.key.clone(), request.place.number)),
        _ => None,
    };
    let by_key: Vec<_> = map.values().filter_map(by_key).collect();
    map.extend(by_key.into_iter().map(|key| (key, Record::RequestOf)));
    Memory { map, ..Memory::default() }
}

fn a_memory() -> impl Strategy<Value = Memory> {
    (an_applied_row(), vec(a_record(), 0..20)).prop_map(|(row, records)| {
        let first = (Key::Applied, Record::Applied(row));
        of_records(records.into_iter().chain([first]).collect())
    })
}

/// Puts the length and the checksum right, so that damage to records reaches what decodes them.
fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
    let len = (bytes.len() - HEAD_BYTES - SUM_BYTES) as u64;
    bytes[HEAD_BYTES - 8..HEAD_BYTES].copy_from_slice(&len.to_le_bytes());
    sum(bytes)
}

/// Puts the checksum right.
fn sum(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.truncate(bytes.len() - SUM_BYTES);
    let sum = xxh3_64(&bytes);
    [&bytes[..], &sum.to_le_bytes()].concat()
}

fn fault_of(bytes: &[u8]) -> StoreFault {
    Memory::decode(bytes).map(|memory| memory.dump()).unwrap_err()
}

/// Data with every kind of record, and each optional field both there and absent.
fn example() -> Memory {
    let log_id = |index| LogId { term: 4, node: NodeId(5), index };
    let identity = StoreIdentity { cluster: (1 << 100) + 7, epoch: Epoch(2), group: GroupId(3) };
    let membership = Some((log_id(6), Bytes::from_static(b"members")));
    let applied = Applied { log_id: Some(log_id(8)), membership, level: 2, due: Some(9) };
    let row = AppliedRow { identity, applied, now: 10, outcome_hash: u64::MAX - 1, archiver: None };
    let session = SessionRecord { id: 11, used: 12, floor: 13, highest: 14, recent: vec![15, 16] };
    let row_of = |table, key, value| (Key::Row(table, Bytes::from_static(key)), Record::Row(Bytes::from_static(value)));
    let records = [
        (Key::Applied, Record::Applied(row)),
        (Key::Session(11), Record::Session(session)),
        (Key::Outcome(11, 17), Record::Outcome(Some(vec![18, 19]))),
        (Key::Outcome(11, 20), Record::Outcome(None)),
        (Key::Rejection(21), Record::Rejection),
        row_of(1, b"key", b"value"),
        row_of(2, b"", b""),
    ];
    Memory { map: records.into(), ..Memory::default() }
}

/// The same with two users.
fn example_with_users() -> Memory {
    let token = UserToken { hash: TokenHash::new([22; TokenHash::BYTES]), created: 23 };
    let verifier = Some(Verifier::new("$argon2id$v=19$m=19456,t=2,p=1$c2FsdA$aGFzaA"));
    let ann = User { name: "ann".to_owned(), role: UserRole::Admin, verifier, tokens: vec![token] };
    let bob = User { name: "bob".to_owned(), role: UserRole::Read, verifier: None, tokens: Vec::new() };
    let mut memory = example();
    memory.map.extend([ann, bob].map(|user| (Key::User(user.name.clone()), Record::User(user))));
    memory
}

/// The same with two requests of one key.
fn example_with_requests() -> Memory {
    let request = |number, outcome: &'static [u8]| {
        let place = RequestPlace { number, low: 32, high: 33, used: 34 };
        let (key, outcome) = (Bytes::from_static(b"order"), Bytes::from_static(outcome));
        (Key::Request(number), Record::Request(RequestRecord { place, entry: 35, key, hash: [36; 32], outcome }))
    };
    let records = [request(31, b"outcome"), request(37, b"")];
    of_records(example_with_users().map.into_iter().chain(records).collect())
}

/// The same with an archiver.
fn with_archiver(mut memory: Memory) -> Memory {
    if let Some(Record::Applied(row)) = memory.map.get_mut(&Key::Applied) {
        row.archiver = Some(Archiver { node: NodeId(38), token: 39 });
    }
    memory
}

#[test]
fn the_format_is_pinned() {
    let hex = |memory: &Memory| memory.encode().unwrap().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let written = format!("{}\n{}\n", hex(&Memory::new(StoreIdentity::default())), hex(&example()));
    assert_eq!(written, GOLDEN, "\n{written}");
    let written = format!("{}\n{}\n", hex(&example_with_users()), hex(&example_with_requests()));
    assert_eq!(written, GOLDEN_2, "\n{written}");
    let written = format!("{}\n{}\n", hex(&with_archiver(example())), hex(&with_archiver(example_with_requests())));
    assert_eq!(written, GOLDEN_3, "\n{written}");
}

#[test]
fn any_damage_is_found() {
    let bytes = with_archiver(example_with_requests()).encode().unwrap();
    for at in 0..bytes.len() {
        let mut other = bytes.to_vec();
        other[at] ^= 0x10;
        for bytes in [&other, &bytes[..at], &[&bytes[..], &bytes[at..]].concat()] {
            let fault = fault_of(bytes);
            assert!(matches!(fault, StoreFault::Damaged(_)), "{at}: {fault}");
        }
    }
}

#[test]
fn a_newer_version_is_not_damage() {
    let mut bytes = example().encode().unwrap().to_vec();
    bytes[MAGIC.len()] = 4;
    let fault = fault_of(&seal(bytes));
    assert!(matches!(fault, StoreFault::Unsupported(_)), "{fault}");
}

/// Encodes these records as they come.
fn encoded(records: &[(Key, Record)]) -> Vec<u8> {
    let mut bytes = Memory::default().encode().unwrap().to_vec();
    bytes.truncate(HEAD_BYTES);
    records.iter().for_each(|(key, record)| put_record(&mut bytes, key, record).unwrap());
    let has_users = records.iter().any(|(key, _)| matches!(key, Key::User(_)));
    bytes[MAGIC.len()] = if has_users { 2 } else { 1 };
    seal([&bytes[..], &[0; SUM_BYTES]].concat())
}

#[test]
fn what_no_encoder_writes_is_damage_even_under_a_right_checksum() {
    let all: Vec<_> = example_with_users().map.into_iter().collect();
    assert_eq!(encoded(&all), example_with_users().encode().unwrap());
    let mut wrong: Vec<Vec<u8>> = (0..all.len() - 1)
        .flat_map(|at| {
            let (mut swapped, mut twice) = (all.clone(), all.clone());
            swapped.swap(at, at + 1);
            twice.insert(at, all[at].clone());
            [encoded(&swapped), encoded(&twice)]
        })
        .collect();
    wrong.extend([encoded(&[]), encoded(&all[1..])]);
    // The version, a zero of the header, the length, and the flag of an outcome.
    let flag = encoded(&all[..2]).len() - SUM_BYTES + 17;
    for (at, byte) in [(MAGIC.len(), 1), (MAGIC.len(), 3), (MAGIC.len() + 2, 1), (HEAD_BYTES - 1, 1), (flag, 2)] {
        let mut bytes = encoded(&all);
        bytes[at] = byte;
        wrong.push(sum(bytes));
    }
    for (case, bytes) in wrong.iter().enumerate() {
        let fault = fault_of(bytes);
        assert!(matches!(fault, StoreFault::Damaged(_)), "{case}: {fault}");
    }
}

#[test]
fn the_hash_of_rows_tells_them_apart() {
    let hash = |rows: &[(u8, &'static str, &'static str)]| {
        let rows = rows.iter().map(|(table, key, value)| {
            (Key::Row(*table, Bytes::from_static(key.as_bytes())), Record::Row(Bytes::from_static(value.as_bytes())))
        });
        Memory { map: rows.collect(), ..Memory::default() }.rows_hash()
    };
    let hashes = [
        hash(&[]),
        hash(&[(1, "", "")]),
        hash(&[(2, "", "")]),
        hash(&[(1, "ab", "c")]),
        hash(&[(1, "a", "bc")]),
        hash(&[(1, "a", "b"), (1, "c", "")]),
        hash(&[(1, "a", ""), (1, "b", "c")]),
    ];
    assert_eq!(hashes.iter().collect::<std::collections::BTreeSet<_>>().len(), hashes.len());
}

#[test]
fn an_open_transaction_is_left_out() {
    let mut memory = example();
    let before = memory.encode().unwrap();
    memory.begin().unwrap();
    memory.put_row(1, Bytes::from_static(b"key"), Bytes::from_static(b"other")).unwrap();
    memory.remove_row(2, Bytes::new()).unwrap();
    assert_eq!(memory.encode().unwrap(), before);
    memory.commit().unwrap();
    let after = memory.encode().unwrap();
    assert!(after != before);
    assert_eq!(Memory::decode(&after).unwrap().map, memory.map);
}

proptest! {
    #[test]
    fn decoding_returns_what_was_encoded(memory in a_memory()) {
        let bytes = memory.encode().unwrap();
        prop_assert_eq!(Memory::decode(&bytes).unwrap().map, memory.map);
    }

    /// Each change is made twice: with a checksum that does not match, and with one that does.
    #[test]
    fn only_what_encoding_writes_is_decoded(
        memory in a_memory(),
        place in any::<prop::sample::Index>(),
        cut in 0..9_usize,
        added in vec(prop_oneof![0..6_u8, any::<u8>()], 0..9),
    ) {
        let bytes = memory.encode().unwrap();
        let from = HEAD_BYTES + place.index(bytes.len() - HEAD_BYTES - SUM_BYTES);
        let mut other = bytes.to_vec();
        other.splice(from..(from + cut).min(bytes.len() - SUM_BYTES), added);
        prop_assert_eq!(Memory::decode(&other).is_ok(), other == bytes);
        let other = seal(other);
        if let Ok(decoded) = Memory::decode(&other) {
            prop_assert_eq!(&decoded.encode().unwrap()[..], &other[..]);
        }
    }

    #[test]
    fn no_bytes_make_decoding_panic(bytes in vec(any::<u8>(), 0..300)) {
        let _ = Memory::decode(&bytes);
        let _ = Memory::decode(&seal([&MAGIC[..], &[1, 0, 0, 0, 0, 0, 0, 0], &[0; 16], &bytes].concat()));
    }
}
