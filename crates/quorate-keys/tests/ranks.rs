//! Ranks in large sorted sets: the blocks stay right, whatever is added and removed.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests stop at the first surprise")]

use std::collections::BTreeSet;
use std::ops::Bound;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use quorate_keys::*;

mod common;

use common::{invariants, run_at};

/// A change of many members. The members are numbers below [`MEMBERS`].
#[derive(Clone, Debug)]
enum Change {
    /// Adds members, each `step` after the other, with scores that repeat after `scores` of them.
    Add { from: u64, step: u64, count: u64, scores: u64 },
    /// Removes members, each `step` after the other.
    Remove { from: u64, step: u64, count: u64 },
    /// Removes members by their ranks, in parts of 1,000 of all.
    RemoveRange(u64, u64),
}

const MEMBERS: u64 = 4_000;

fn name(number: u64) -> Bytes {
    format!("{number:06}").into()
}

fn change() -> impl Strategy<Value = Change> {
    let place = || (0..MEMBERS, 1..9_u64, 0..1_500_u64);
    let scores = prop_oneof![Just(1), Just(3), Just(MEMBERS)];
    prop_oneof![
        3 => (place(), scores)
            .prop_map(|((from, step, count), scores)| Change::Add { from, step, count, scores }),
        2 => place().prop_map(|(from, step, count)| Change::Remove { from, step, count }),
        1 => [0..1_000_u64, 0..1_000_u64].prop_map(|mut ranks| {
            ranks.sort_unstable();
            Change::RemoveRange(ranks[0], ranks[1])
        }),
    ]
}

fn numbers(from: u64, step: u64, count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |number| (from + number * step) % MEMBERS)
}

/// The sorted set under test, with its members in their order.
#[derive(Default)]
struct Tested {
    tables: Memory,
    sorted: BTreeSet<(i64, Bytes)>,
}

impl Tested {
    fn run(&mut self, command: SortedSetCommand) -> KeysReply {
        run_at(&mut self.tables, 1, KeysCommand::SortedSet(command)).unwrap()
    }

    fn add(&mut self, members: Vec<(i64, Bytes)>) {
        for (score, member) in &members {
            if let KeysReply::Scores(old) = self.run(scores(member))
                && let Some(old) = old[0]
            {
                self.sorted.remove(&(old as i64, member.clone()));
            }
            self.sorted.insert((*score, member.clone()));
            let members = vec![(*score as f64, member.clone())];
            let options = AddOptions::default();
            self.run(SortedSetCommand::Add { key: "k".into(), members, options, count_changed: false });
        }
    }

    fn remove(&mut self, members: Vec<Bytes>) {
        self.sorted.retain(|(_, member)| !members.contains(member));
        self.run(SortedSetCommand::Remove { key: "k".into(), members });
    }

    fn change(&mut self, change: Change) {
        match change {
            Change::Add { from, step, count, scores } => {
                let member = |number| ((number % scores) as i64, name(number));
                self.add(numbers(from, step, count).map(member).collect());
            }
            Change::Remove { from, step, count } => self.remove(numbers(from, step, count).map(name).collect()),
            Change::RemoveRange(first, last) => {
                let rank = |part: u64| part * self.sorted.len() as u64 / 1_000;
                let (first, last) = (rank(first), rank(last));
                let range = Range::Rank(first as i64, last as i64 - 1);
                let kept = self.sorted.iter().enumerate().filter(|(rank, _)| !(first..last).contains(&(*rank as u64)));
                self.sorted = kept.map(|(_, place)| place.clone()).collect();
                self.run(SortedSetCommand::RemoveRange { key: "k".into(), range });
            }
        }
    }

    /// Returns the blocks of level 1.
    fn large_blocks(&mut self) -> Vec<(Place, u64)> {
        let id = self.tables.rows().next().unwrap().2.id;
        common::collect!(self.tables, blocks, id, 1, &common::ALL_PLACES, Order::Up)
    }

    /// Checks the blocks, and ranks and members at some places.
    fn check(&mut self, at: usize) {
        invariants::check(&mut self.tables);
        let sorted: Vec<_> = self.sorted.iter().cloned().collect();
        for rank in (at % 97..sorted.len()).step_by(97) {
            let (score, member) = sorted[rank].clone();
            let found = self.run(SortedSetCommand::Rank { key: "k".into(), member: member.clone(), reverse: false });
            assert_eq!(found, KeysReply::Rank(rank as u64, score as f64));
            let range = Range::Rank(rank as i64, rank as i64);
            let found = self.run(SortedSetCommand::Range {
                key: "k".into(),
                range,
                reverse: false,
                offset: 0,
                limit: u64::MAX,
            });
            assert_eq!(found, KeysReply::Scored(vec![(member, score as f64)]));
            let below = Range::Score(Bound::Unbounded, Bound::Excluded(score as f64));
            let found = self.run(SortedSetCommand::CountRange { key: "k".into(), range: below });
            assert_eq!(found, KeysReply::Count(sorted.partition_point(|place| place.0 < score) as u64));
        }
    }
}

fn scores(member: &Bytes) -> SortedSetCommand {
    SortedSetCommand::Scores { key: "k".into(), members: vec![member.clone()] }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ranks_are_places_in_the_order(changes in vec(change(), 1..12), at in any::<usize>()) {
        let mut tested = Tested::default();
        for change in changes {
            tested.change(change);
            tested.check(at);
        }
        tested.change(Change::RemoveRange(0, 1_000));
        prop_assert_eq!(tested.tables.rows().count(), 0);
        invariants::sweep_all(&mut tested.tables, 1, &[100]);
    }
}

/// Members go up and down in number through some blocks of the second level, from both ends and in the middle.
#[test]
fn blocks_of_the_second_level_split_and_merge() {
    let mut tested = Tested::default();
    let all = 160_000_u64;
    // A step that has no divisor in common with the number of members visits each once.
    let member = |number: u64| (number * 7_919 % all) as i64;
    tested.add((0..all).map(|number| (member(number), name(member(number) as u64))).collect());
    tested.check(0);
    assert!(tested.large_blocks().len() >= 3);
    for left in [120_000_usize, 60_000, 20_000, 3_000, 100] {
        while tested.sorted.len() > left {
            let length = tested.sorted.len() as i64;
            let first = [0, length / 2, length - 5_000].map(|first| first.max(0))[length as usize / 5_000 % 3];
            let last = (first + 4_999).min(first + length - left as i64 - 1);
            let removed: Vec<_> =
                tested.sorted.iter().skip(first as usize).take((last - first + 1) as usize).cloned().collect();
            removed.iter().for_each(|place| _ = tested.sorted.remove(place));
            tested.run(SortedSetCommand::RemoveRange { key: "k".into(), range: Range::Rank(first, last) });
        }
        tested.check(left);
    }
    assert_eq!(tested.large_blocks().len(), 1);
}

/// A block of level 1 beside a large one goes only with its last member, and so does the block of level 0 at its start.
#[test]
fn a_block_beside_a_large_one_goes_with_its_last_member() {
    let mut tested = Tested::default();
    tested.add((0..66_000).map(|number| (number as i64, name(number))).collect());
    tested.add((100_000..125_000).map(|number| (0, name(number))).collect());
    let first = tested.large_blocks()[0].1;
    assert_eq!(tested.large_blocks().len(), 2);
    assert!(first > BLOCK_MEMBERS_MAX[1] / 4 * 3);
    let members: Vec<_> = tested.sorted.iter().skip(first as usize).cloned().collect();
    let (last, others) = members.split_last().unwrap();
    for (part, blocks) in [(others, 2), (std::slice::from_ref(last), 1)] {
        part.iter().for_each(|place| _ = tested.sorted.remove(place));
        let members = part.iter().map(|(_, member)| member.clone()).collect();
        tested.run(SortedSetCommand::Remove { key: "k".into(), members });
        assert_eq!(tested.large_blocks().len(), blocks);
        tested.check(0);
    }
}

/// Few members of each block are left, so that there are far fewer blocks.
#[test]
fn blocks_that_are_thinned_out_are_merged() {
    for (from, step) in [(0, 1), (39_999, 39_999)] {
        let mut tested = Tested::default();
        tested.add((0..40_000).map(|number| (number as i64, name(number))).collect());
        let removed = (0..40_000_u64).map(|number| (from + number * step) % 40_000).filter(|number| number % 50 != 7);
        let removed: Vec<_> = removed.map(name).collect();
        tested.sorted.retain(|(score, _)| score % 50 == 7);
        tested.run(SortedSetCommand::Remove { key: "k".into(), members: removed });
        tested.check(0);
    }
}

#[test]
fn the_lowest_place_and_equal_scores_are_places_like_others() {
    let mut tables = Memory::default();
    let members: Vec<_> = (0..2_000).map(|number| (f64::NEG_INFINITY, name(number))).collect();
    let add = |members| SortedSetCommand::Add {
        key: "k".into(),
        members,
        options: AddOptions::default(),
        count_changed: false,
    };
    let mut run = |command| run_at(&mut tables, 1, KeysCommand::SortedSet(command)).unwrap();
    run(add(members));
    run(add(vec![(f64::NEG_INFINITY, Bytes::new()), (f64::INFINITY, "z".into())]));
    let rank = |member: Bytes| SortedSetCommand::Rank { key: "k".into(), member, reverse: false };
    assert_eq!(run(rank(Bytes::new())), KeysReply::Rank(0, f64::NEG_INFINITY));
    assert_eq!(run(rank(name(1_999))), KeysReply::Rank(2_000, f64::NEG_INFINITY));
    assert_eq!(run(rank("z".into())), KeysReply::Rank(2_001, f64::INFINITY));
    let count = |range| SortedSetCommand::CountRange { key: "k".into(), range };
    let of_members = Range::Member(Bound::Excluded(name(99)), Bound::Included(name(1_099)));
    assert_eq!(run(count(of_members)), KeysReply::Count(1_000));
    assert_eq!(run(count(Range::Member(Bound::Unbounded, Bound::Unbounded))), KeysReply::Count(2_001));
    let all = Range::Score(Bound::Included(f64::NEG_INFINITY), Bound::Included(f64::INFINITY));
    assert_eq!(run(count(all)), KeysReply::Count(2_002));
    assert_eq!(run(SortedSetCommand::Remove { key: "k".into(), members: vec![Bytes::new()] }), KeysReply::Count(1));
    invariants::check(&mut tables);
}
