//! The limits of commands, and pages: where they end, and where they go on.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests stop at the first surprise")]

use std::collections::BTreeSet;

use bytes::Bytes;
use quorate_keys::limits::*;
use quorate_keys::*;

mod common;

use common::{invariants, run_at};

fn name(number: u64) -> Bytes {
    format!("{number:08}").into()
}

fn run(tables: &mut Memory, command: KeysCommand) -> Result<KeysReply, KeysError> {
    run_at(tables, 1, command)
}

/// Makes a list with so many items.
fn list(tables: &mut Memory, count: u64) {
    let values = (0..count).map(name).collect();
    let push = ListCommand::Push { key: "list".into(), values, end: End::Right, existing: false };
    assert_eq!(run(tables, KeysCommand::List(push)), Ok(KeysReply::Count(count)));
}

fn set(tables: &mut Memory, key: &'static str, numbers: std::ops::Range<u64>) {
    let add = SetCommand::Add { key: key.into(), members: numbers.map(name).collect(), expiry: Expiry::Never };
    run(tables, KeysCommand::Set(add)).unwrap();
}

fn hash_set(key: Bytes, field: Bytes, value: Bytes) -> KeysCommand {
    let fields = vec![(field, value)];
    KeysCommand::Hash(HashCommand::Set { key, fields, condition: Condition::Always, expiry: Expiry::Never })
}

#[test]
fn a_list_keeps_few_of_its_items_or_loses_few() {
    let mut tables = Memory::default();
    let half = CHANGED_ROWS_MAX as i64 + 1;
    list(&mut tables, 2 * half as u64);
    let trim = |start, stop| KeysCommand::List(ListCommand::Trim { key: "list".into(), start, stop });
    let index = |index| KeysCommand::List(ListCommand::Index { key: "list".into(), index });
    let refused = Err(KeysError::TooManyRows { rows: half as u64, max: CHANGED_ROWS_MAX });
    assert_eq!(run(&mut tables, trim(0, half - 1)), refused);
    let expire =
        KeyCommand::Expire { key: "list".into(), at: Some(1_000), condition: ExpiryCondition::Always, relative: false };
    run(&mut tables, KeysCommand::Key(expire)).unwrap();
    assert_eq!(run(&mut tables, trim(half, -2)), Ok(KeysReply::Done));
    assert_eq!(run(&mut tables, index(0)), Ok(KeysReply::Value(name(half as u64))));
    invariants::check(&mut tables);
    assert_eq!(tables.trash().count(), 1, "the others are left to the sweep");
    assert_eq!(tables.rows().next().unwrap().2.expires_at, Some(1_000));
    assert_eq!(run(&mut tables, trim(1, -2)), Ok(KeysReply::Done));
    assert_eq!(run(&mut tables, index(-1)), Ok(KeysReply::Value(name(2 * half as u64 - 3))));
    assert_eq!(tables.trash().count(), 1);
    invariants::sweep_all(&mut tables, 1, &[777]);
}

#[test]
fn items_are_moved_on_the_shorter_side_only() {
    let mut tables = Memory::default();
    list(&mut tables, 3 * CHANGED_ROWS_MAX);
    let insert = |pivot| {
        let (pivot, value) = (name(pivot), Bytes::from("new"));
        KeysCommand::List(ListCommand::Insert { key: "list".into(), before: true, pivot, value })
    };
    let remove = |number| KeysCommand::List(ListCommand::Remove { key: "list".into(), count: 1, value: name(number) });
    let middle = CHANGED_ROWS_MAX * 3 / 2;
    assert!(matches!(run(&mut tables, insert(middle)), Err(KeysError::TooManyRows { .. })));
    assert!(matches!(run(&mut tables, remove(middle)), Err(KeysError::TooManyRows { .. })));
    for number in [5, 3 * CHANGED_ROWS_MAX - 5] {
        assert!(matches!(run(&mut tables, insert(number)), Ok(KeysReply::Count(_))));
        assert_eq!(run(&mut tables, remove(number)), Ok(KeysReply::Count(1)));
        invariants::check(&mut tables);
    }
}

#[test]
fn what_needs_too_many_rows_is_refused() {
    let mut tables = Memory::default();
    set(&mut tables, "large", 0..CHANGED_ROWS_MAX + 1);
    let refused = Err(KeysError::TooManyRows { rows: CHANGED_ROWS_MAX + 1, max: CHANGED_ROWS_MAX });
    let copy = KeyCommand::Copy { key: "large".into(), to_space: 1, to: "copy".into(), replace: false };
    assert_eq!(run(&mut tables, KeysCommand::Key(copy)), refused);
    let pop = SetCommand::Pop { key: "large".into(), count: u64::MAX, seed: 1 };
    assert_eq!(run(&mut tables, KeysCommand::Set(pop)), refused);
    let union = |store| SetCommand::Combine { operation: SetOperation::Union, keys: vec!["large".into()], store };
    assert_eq!(run(&mut tables, KeysCommand::Set(union(Some("to".into())))), refused);
    assert!(matches!(run(&mut tables, KeysCommand::Set(union(None))), Ok(KeysReply::Members(_))));
    let scored = |store| SortedSetCommand::Combine {
        operation: SetOperation::Union,
        sources: vec![("large".into(), 1.0)],
        aggregate: Aggregate::Sum,
        store,
    };
    assert_eq!(run(&mut tables, KeysCommand::SortedSet(scored(Some("to".into())))), refused);
    assert!(matches!(run(&mut tables, KeysCommand::SortedSet(scored(None))), Ok(KeysReply::Scored(_))));
    assert_eq!(tables.rows().count(), 1);
}

#[test]
fn what_is_too_long_is_refused() {
    let mut tables = Memory::default();
    let long = |bytes| Bytes::from(vec![b'x'; bytes + 1]);
    for command in [
        hash_set(long(KEY_BYTES_MAX), "f".into(), "v".into()),
        hash_set("k".into(), long(FIELD_BYTES_MAX), "v".into()),
        hash_set("k".into(), "f".into(), long(VALUE_BYTES_MAX)),
        KeysCommand::Key(KeyCommand::Delete {
            keys: vec!["k".into(), long(KEY_BYTES_MAX)],
            condition: Condition::Always,
        }),
    ] {
        assert!(matches!(run(&mut tables, command), Err(KeysError::TooLong { .. })));
    }
    let late = Some(TIME_MAX + 1);
    let condition = ExpiryCondition::Always;
    let expire = KeyCommand::Expire { key: "k".into(), at: late, condition, relative: false };
    assert_eq!(run(&mut tables, KeysCommand::Key(expire)), Err(KeysError::InvalidExpiry));
    assert_eq!(tables, Memory::default());
}

#[test]
fn a_bit_is_set_up_to_the_longest_string_and_read_anywhere() {
    let mut tables = Memory::default();
    let behind = VALUE_BYTES_MAX as u64 * 8;
    let step = |bits, offset, action| {
        let steps = vec![BitStep { integer: BitInteger { signed: false, bits }, offset, action }];
        KeysCommand::Bits(BitCommand::Fields { key: "bits".into(), steps })
    };
    let set = BitAction::Set(1, Overflow::Wrap);
    for (bits, offset) in [(1, behind), (2, behind - 1), (1, u64::MAX)] {
        assert_eq!(run(&mut tables, step(bits, offset, set)), Err(KeysError::BitOffset));
        assert_eq!(run(&mut tables, step(bits, offset, BitAction::Get)), Ok(KeysReply::Integers(vec![Some(0)])));
    }
    assert_eq!(run(&mut tables, step(64, 0, set)), Err(KeysError::BitInteger));
    assert_eq!(run(&mut tables, step(0, 0, set)), Err(KeysError::BitInteger));
    assert_eq!(tables, Memory::default());
    assert_eq!(run(&mut tables, step(1, behind - 1, set)), Ok(KeysReply::Integers(vec![Some(0)])));
    let range = BitRange { start: 0, end: None, unit: BitUnit::Byte };
    let find = BitCommand::Find { key: "bits".into(), one: true, range };
    assert_eq!(run(&mut tables, KeysCommand::Bits(find)), Ok(KeysReply::Count(behind - 1)));
}

#[test]
fn a_reply_has_a_limit_and_a_page_ends_there() {
    let mut tables = Memory::default();
    let value = Bytes::from(vec![b'x'; REPLY_BYTES_MAX / 4]);
    for number in 0..6 {
        run(&mut tables, hash_set("hash".into(), name(number), value.clone())).unwrap();
    }
    let get = HashCommand::Get { key: "hash".into(), fields: (0..6).map(name).collect() };
    assert_eq!(run(&mut tables, KeysCommand::Hash(get)), Err(KeysError::ReplyTooLong { max: REPLY_BYTES_MAX }));
    let mut from = Some(Bytes::new());
    let mut pages = Vec::new();
    while let Some(next) = from {
        let scan = ElementCommand::Scan { of: Collection::Hash, key: "hash".into(), from: next, limit: 100 };
        let Ok(KeysReply::Elements(page)) = run(&mut tables, KeysCommand::Element(scan)) else { panic!() };
        pages.push(page.rows.len());
        from = page.next;
    }
    assert_eq!(pages, [4, 2]);
}

#[test]
fn pages_of_keys_have_each_key_once_in_both_orders_while_others_come_and_go() {
    for order in [Order::Up, Order::Down] {
        let mut tables = Memory::default();
        (0..100).for_each(|number| set(&mut tables, Box::leak(format!("key {number:03}").into_boxed_str()), 0..1));
        let mut span = Span::prefix(&"key ".into());
        let mut seen = Vec::new();
        for round in 0.. {
            let scan = KeyCommand::Scan { span: span.clone(), order, limit: 7, kind: None, values: false };
            let Ok(KeysReply::Keys(page)) = run(&mut tables, KeysCommand::Key(scan)) else { panic!() };
            seen.extend(page.rows.into_iter().map(|row| row.key));
            // A key that was returned goes, and one comes at a place that was passed.
            let gone = KeyCommand::Delete { keys: vec![seen.last().unwrap().clone()], condition: Condition::Always };
            run(&mut tables, KeysCommand::Key(gone)).unwrap();
            let passed = if order == Order::Up { "key 000!" } else { "key 099!" };
            run(&mut tables, hash_set(passed.into(), name(round), "v".into())).unwrap();
            match (page.next, order) {
                (None, _) => break,
                (Some(next), Order::Up) => span.from = next,
                (Some(next), Order::Down) => span.to = Some(next),
            }
        }
        let mut sorted = seen.clone();
        sorted.sort_unstable();
        if order == Order::Down {
            sorted.reverse();
        }
        assert_eq!(seen, sorted);
        assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 100);
        assert_eq!(seen.len(), 100);
    }
}

#[test]
fn a_prefix_spans_what_starts_with_it() {
    let spans = [("a", Some("b")), ("a\u{7f}", Some("a\u{80}")), ("", None)];
    for (prefix, to) in spans {
        let span = Span::prefix(&prefix.into());
        assert_eq!(span.from, prefix);
        // The last byte counts: U+0080 is two bytes, of which the first is below 0xff.
        assert_eq!(span.to.is_some(), to.is_some());
    }
    let high = Bytes::from_static(&[b'a', 0xff, 0xff]);
    assert_eq!(Span::prefix(&high), Span { from: high, to: Some("b".into()) });
    assert_eq!(Span::prefix(&Bytes::from_static(&[0xff])).to, None);
}

#[test]
fn draws_from_a_large_set_reach_all_parts_of_it() {
    let mut tables = Memory::default();
    set(&mut tables, "large", 0..20_000);
    let mut parts = BTreeSet::new();
    for seed in 0..300 {
        let draw = ElementCommand::Draw { of: Collection::Set, key: "large".into(), count: 2, repeats: false, seed };
        let Ok(KeysReply::Elements(page)) = run(&mut tables, KeysCommand::Element(draw.clone())) else { panic!() };
        assert_eq!(page.rows.iter().collect::<BTreeSet<_>>().len(), 2);
        assert_eq!(run(&mut tables, KeysCommand::Element(draw)), Ok(KeysReply::Elements(page.clone())));
        parts.extend(page.rows.iter().map(|(member, _)| member.slice(..5)));
    }
    assert!(parts.len() > 18, "only {} of 20 parts", parts.len());
    let pop = SetCommand::Pop { key: "large".into(), count: 10_000, seed: 1 };
    for left in [10_000, 0] {
        let Ok(KeysReply::Members(members)) = run(&mut tables, KeysCommand::Set(pop.clone())) else { panic!() };
        assert_eq!(members.iter().collect::<BTreeSet<_>>().len(), 10_000);
        invariants::check(&mut tables);
        let count = KeyCommand::Count { key: "large".into(), kind: Kind::Set };
        assert_eq!(run(&mut tables, KeysCommand::Key(count)), Ok(KeysReply::Count(left)));
    }
}

#[test]
fn draws_from_a_sorted_set_reach_all_members_alike() {
    for size in [40, 2_000] {
        let mut tables = Memory::default();
        let members = (0..size).map(|number| (number as f64, name(number))).collect();
        let options = AddOptions::default();
        let add = SortedSetCommand::Add { key: "sorted".into(), members, options, count_changed: false };
        run(&mut tables, KeysCommand::SortedSet(add)).unwrap();
        let mut drawn = [0_u64; 4];
        for seed in 0..1_000 {
            let draw = SortedSetCommand::Draw { key: "sorted".into(), count: 3, repeats: seed % 2 == 0, seed };
            let Ok(KeysReply::Scored(members)) = run(&mut tables, KeysCommand::SortedSet(draw)) else { panic!() };
            members.iter().for_each(|(_, score)| drawn[*score as usize * 4 / size as usize] += 1);
        }
        assert_eq!(drawn.iter().sum::<u64>(), 3_000);
        assert!(drawn.iter().all(|count| (650..850).contains(count)), "{drawn:?}");
    }
}

#[test]
fn all_of_few_keys_are_drawn() {
    let mut tables = Memory::default();
    let keys = ["a", "b", "ba", "bb", "bbb", "z"];
    keys.into_iter().for_each(|key| set(&mut tables, key, 0..1));
    let mut drawn = BTreeSet::new();
    for seed in 0..300 {
        let Ok(KeysReply::Value(key)) = run(&mut tables, KeysCommand::Key(KeyCommand::Draw { seed })) else { panic!() };
        drawn.insert(key);
    }
    assert!(drawn.iter().eq(keys.iter()), "{drawn:?}");
}
