//! What commands cost does not depend on the size of a collection, and is charged before it is done.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use bytes::Bytes;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use quorate_keys::suite::generate;
use quorate_keys::*;

mod common;

use common::counting::Counting;
use common::run_at;

const SIZE: u64 = 30_000;

fn name(number: u64) -> Bytes {
    format!("member {number:08}").into()
}

/// Runs a command and returns the rows that it touched.
fn rows(tables: &mut Counting, now: u64, command: KeysCommand) -> u64 {
    let before = tables.rows;
    run_at(tables, now, command).unwrap();
    tables.rows - before
}

/// Returns tables with a large collection of each kind, under keys named after them; elements expire at their number.
fn large() -> Counting {
    let mut tables = Counting::default();
    let all = || (0..SIZE).map(name);
    let fields = all().map(|field| (field, "v".into())).collect();
    let set = HashCommand::Set { key: "hash".into(), fields, condition: Condition::Always, expiry: Expiry::Never };
    run_at(&mut tables, 1, KeysCommand::Hash(set)).unwrap();
    let add = SetCommand::Add { key: "set".into(), members: all().collect(), expiry: Expiry::At(1_000) };
    run_at(&mut tables, 1, KeysCommand::Set(add)).unwrap();
    let push = ListCommand::Push { key: "list".into(), values: all().collect(), end: End::Right, existing: false };
    run_at(&mut tables, 1, KeysCommand::List(push)).unwrap();
    run_at(&mut tables, 1, KeysCommand::SortedSet(scores("sorted", 0..SIZE))).unwrap();
    tables
}

fn scores(key: &'static str, numbers: std::ops::Range<u64>) -> SortedSetCommand {
    let members = numbers.map(|number| (number as f64, name(number))).collect();
    SortedSetCommand::Add { key: key.into(), members, options: AddOptions::default(), count_changed: false }
}

#[test]
fn commands_on_one_place_touch_few_rows_of_a_large_collection() {
    use KeysCommand::{Element, Hash, Key, List, Set, SortedSet};
    let of_set = Collection::Set;
    let set = || Bytes::from("set");
    let list = || Bytes::from("list");
    let sorted = || Bytes::from("sorted");
    let mut tables = large();
    let few: Vec<(KeysCommand, u64)> = vec![
        (List(ListCommand::Index { key: list(), index: 15_000 }), 2),
        (List(ListCommand::Index { key: list(), index: -1 }), 2),
        (List(ListCommand::Pop { key: list(), count: 1, end: End::Left }), 5),
        (List(ListCommand::Range { key: list(), start: -3, stop: -1 }), 6),
        (List(ListCommand::Insert { key: list(), before: true, pivot: name(5), value: "new".into() }), 40),
        (List(ListCommand::Remove { key: list(), count: 1, value: name(5) }), 40),
        (List(ListCommand::Remove { key: list(), count: -1, value: name(29_995) }), 40),
        (List(ListCommand::Trim { key: list(), start: 0, stop: -3 }), 6),
        (List(ListCommand::Trim { key: list(), start: 100, stop: 103 }), 24),
        (List(find(End::Left)), 12),
        (List(find(End::Right)), 12),
        (Key(KeyCommand::Count { key: set(), kind: Kind::Set }), 5),
        (Key(KeyCommand::CountAll), 1),
        (Key(KeyCommand::Draw { seed: 7 }), 12),
        (Key(KeyCommand::Measure { key: list() }), 10),
        (Element(ElementCommand::Contains { of: of_set, key: set(), fields: vec![name(7)] }), 5),
        (Element(ElementCommand::Remove { of: of_set, key: set(), fields: vec![name(7)] }), 7),
        (Element(ElementCommand::Draw { of: of_set, key: set(), count: 3, repeats: false, seed: 7 }), 400),
        (Set(SetCommand::Pop { key: set(), count: 3, seed: 7 }), 400),
        (Hash(HashCommand::Get { key: "hash".into(), fields: vec![name(7)] }), 2),
        (Hash(HashCommand::Add { key: "hash".into(), field: "n".into(), by: 1 }), 7),
        (SortedSet(SortedSetCommand::Rank { key: sorted(), member: name(29_999), reverse: false }), 700),
        (SortedSet(SortedSetCommand::Rank { key: sorted(), member: name(15_300), reverse: true }), 700),
        (SortedSet(sorted_range(Range::Rank(20_000, 20_009))), 700),
        (SortedSet(sorted_range(Range::Score(bound(29_000.0), bound(29_009.0)))), 14),
        (SortedSet(count(Range::Score(bound(100.0), bound(29_009.0)))), 1_300),
        (SortedSet(SortedSetCommand::Pop { key: sorted(), count: 1, reverse: true }), 30),
        (SortedSet(SortedSetCommand::Scan { key: sorted(), from: name(7), limit: 10 }), 12),
        (SortedSet(SortedSetCommand::Draw { key: sorted(), count: 3, repeats: false, seed: 7 }), 2_100),
        (SortedSet(scores("sorted", 50_000..50_001)), 400),
        (SortedSet(SortedSetCommand::RemoveRange { key: sorted(), range: Range::Rank(0, -1) }), 6),
    ];
    for (command, most) in few {
        let text = format!("{command:?}");
        let touched = rows(&mut tables, 2, command);
        assert!(touched <= most, "{touched} rows by {text}");
    }
}

/// What has expired is passed over by a search among it, not by reading the set.
#[test]
fn members_that_have_expired_cost_few_rows_of_a_large_sorted_set() {
    let mut tables = large();
    let rank = |number| SortedSetCommand::Rank { key: "sorted".into(), member: name(number), reverse: false };
    let expire = |numbers: std::ops::Range<u64>, at| {
        let (members, condition) = (numbers.map(name).collect(), ExpiryCondition::Always);
        SortedSetCommand::Expire { key: "sorted".into(), members, at: Some(at), condition, relative: false }
    };
    let before = rows(&mut tables, 2, KeysCommand::SortedSet(rank(15_300)));
    run_at(&mut tables, 2, KeysCommand::SortedSet(expire(0..64, 5))).unwrap();
    run_at(&mut tables, 2, KeysCommand::SortedSet(expire(64..20_000, 1_000))).unwrap();
    assert!(rows(&mut tables, 4, KeysCommand::SortedSet(rank(15_300))) <= before + 3, "none has expired yet");
    assert!(rows(&mut tables, 5, KeysCommand::SortedSet(rank(15_300))) <= before + 3 * 64 + 10);
    let mut context = Context::new(5, Version(0), 1 << 40);
    Keys::new(&mut tables, &mut context, 0).run(&KeysCommand::SortedSet(rank(15_300))).unwrap();
    assert!((1 << 40) - context.budget_left() <= 3_000 + 64 * 200, "those that have not expired cost no steps");
    let range = sorted_range(Range::Rank(15_300, 15_309));
    assert!(rows(&mut tables, 5, KeysCommand::SortedSet(range)) <= 700 * 8 + 3 * 64);
}

fn find(from: End) -> ListCommand {
    ListCommand::Find { key: "list".into(), value: "none".into(), from, skip: 0, limit: 1, within: 10 }
}

fn sorted_range(range: Range) -> SortedSetCommand {
    SortedSetCommand::Range { key: "sorted".into(), range, reverse: false, offset: 0, limit: 10 }
}

fn count(range: Range) -> SortedSetCommand {
    SortedSetCommand::CountRange { key: "sorted".into(), range }
}

fn bound(score: f64) -> std::ops::Bound<f64> {
    std::ops::Bound::Included(score)
}

#[test]
fn a_large_collection_is_deleted_or_replaced_at_once_and_swept_in_pieces() {
    for kind in ["hash", "set", "list", "sorted"] {
        let mut tables = large();
        let delete = KeyCommand::Delete { keys: vec![kind.into()], condition: Condition::Always };
        assert!(rows(&mut tables, 2, KeysCommand::Key(delete)) <= 8, "{kind}");
        let add = HashCommand::Add { key: kind.into(), field: "n".into(), by: 1 };
        assert!(rows(&mut tables, 2, KeysCommand::Hash(add)) <= 9, "{kind}");
        let mut pieces = 0;
        while next_due(&mut tables).unwrap() == Some(0) {
            let before = tables.rows;
            assert!(sweep(&mut tables, &mut Context::new(2, Version(0), 0), usize::MAX).unwrap() <= 1_000);
            assert!(tables.rows - before <= 1_010);
            pieces += 1;
        }
        assert!(pieces >= SIZE / 1_000, "{kind}");
    }
}

#[test]
fn a_large_space_is_flushed_at_once_and_swept_in_pieces() {
    let mut tables = large();
    let set = |number| {
        let (key, value, expiry) = (name(number), "v".into(), Expiry::At(1_000));
        StringCommand::Set { key, value, condition: Condition::Always, expiry, get: false }
    };
    (0..5_000).for_each(|number| _ = run_at(&mut tables, 1, KeysCommand::String(set(number))).unwrap());
    assert!(rows(&mut tables, 2, KeysCommand::Key(KeyCommand::Flush)) <= 2);
    assert_eq!(run_at(&mut tables, 2, KeysCommand::Key(KeyCommand::CountAll)), Ok(KeysReply::Count(0)));
    run_at(&mut tables, 2, KeysCommand::String(set(7))).unwrap();
    while next_due(&mut tables).unwrap() == Some(0) {
        let before = tables.rows;
        assert!(sweep(&mut tables, &mut Context::new(2, Version(0), 0), 1_000).unwrap() <= 1_000);
        assert!(tables.rows - before <= 4_100);
    }
    assert_eq!(run_at(&mut tables, 2, KeysCommand::Key(KeyCommand::CountAll)), Ok(KeysReply::Count(1)));
    assert_eq!((tables.tables.ids().count(), tables.tables.due().count()), (0, 1));
}

#[test]
fn elements_that_expire_at_once_are_swept_in_pieces_and_are_gone_before() {
    let mut tables = large();
    let exists = KeysCommand::Key(KeyCommand::Exists { keys: vec!["set".into()] });
    assert_eq!(run_at(&mut tables, 999, exists.clone()), Ok(KeysReply::Count(1)));
    let before = tables.rows;
    assert_eq!(run_at(&mut tables, 1_000, exists), Ok(KeysReply::Count(0)));
    assert!(tables.rows - before <= 4);
    let mut pieces = 0;
    while next_due(&mut tables).unwrap().is_some_and(|due| due <= 1_000) {
        let before = tables.rows;
        assert_eq!(sweep(&mut tables, &mut Context::new(1_000, Version(0), 0), 100), Ok(100));
        assert!(tables.rows - before <= 320);
        pieces += 1;
    }
    assert_eq!(pieces, SIZE / 100);
    assert_eq!(tables.tables.rows().count(), 3);
}

/// A budget that does not suffice stops a command before it has written anything, and before it did much work: the
/// steps that it has are worth more than the rows that it touches.
#[test]
fn work_is_charged_before_it_is_done() {
    check_charges(generate::command(), 0);
    check_charges(generate::expiring_scores(), 2);
}

/// Runs a stream of commands, each at so many nanoseconds after the one before.
fn check_charges(command: impl Strategy<Value = KeysCommand>, later: u64) {
    let mut runner = TestRunner::deterministic();
    let stream = proptest::collection::vec(command, 3_000).new_tree(&mut runner).unwrap().current();
    let mut tables = Counting::default();
    for (number, command) in stream.into_iter().enumerate() {
        let version = Version::new(number as u64, 0);
        let now = generate::NOW + number as u64 * later;
        let mut enough = Context::new(now, version, 1 << 40);
        let before = tables.tables.clone();
        let rows = tables.rows;
        let reply = Keys::new(&mut tables, &mut enough, 0).run(&command);
        let used = (1 << 40) - enough.budget_left();
        assert!(tables.rows - rows <= 12 + used / 10, "{command:?} charged {used} for {} rows", tables.rows - rows);
        for less in [0, used / 2, used - 1].into_iter().filter(|_| reply.is_ok()) {
            let mut again = Counting { tables: before.clone(), rows: 0 };
            let mut scarce = Context::new(now, version, less);
            let refused = Keys::new(&mut again, &mut scarce, 0).run(&command);
            assert_eq!(refused, Err(KeysError::OutOfBudget), "{command:?}");
            assert_eq!(again.tables, before, "{command:?}");
        }
    }
}
