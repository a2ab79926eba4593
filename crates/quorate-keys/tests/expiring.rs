//! Members of large sorted sets that expire: every reading command gives what a plain list gives, from which they are
//! removed when their time comes, whether or not they are swept.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests stop at the first surprise")]

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use quorate_keys::*;

mod common;

use common::{invariants, run_at};

/// The members are numbers below this: several blocks of them.
const MEMBERS: u64 = 2_500;

/// Something that happens. Members are each `step` after the other.
#[derive(Clone, Debug)]
enum Change {
    /// Adds members, or moves them, to scores that repeat after `scores` of them.
    Add { from: u64, step: u64, count: u64, scores: u64 },
    /// Has members expire within so many nanoseconds, not all at once; or never, if that is 0.
    Expire { from: u64, step: u64, count: u64, within: u64 },
    /// Removes members by their ranks, in parts of 1,000 of all.
    RemoveRange(u64, u64),
    /// Removes the first members, or the last ones.
    Pop(u64, bool),
    /// Lets time pass.
    Wait(u64),
    /// Sweeps at most so many rows.
    Sweep(usize),
}

fn change() -> impl Strategy<Value = Change> {
    let place = || (0..MEMBERS, 1..9_u64, 0..1_200_u64);
    let scores = prop_oneof![Just(1), Just(7), Just(MEMBERS)];
    prop_oneof![
        3 => (place(), scores).prop_map(|((from, step, count), scores)| Change::Add { from, step, count, scores }),
        4 => (place(), 0..60_u64)
            .prop_map(|((from, step, count), within)| Change::Expire { from, step, count, within }),
        1 => [0..1_000_u64, 0..1_000_u64].prop_map(|mut ranks| {
            ranks.sort_unstable();
            Change::RemoveRange(ranks[0], ranks[1])
        }),
        1 => (0..300_u64, any::<bool>()).prop_map(|(count, reverse)| Change::Pop(count, reverse)),
        4 => (0..30_u64).prop_map(Change::Wait),
        1 => (0..400_usize).prop_map(Change::Sweep),
    ]
}

fn name(number: u64) -> Bytes {
    format!("{number:05}").into()
}

/// The sorted set under test, and what it has to hold: scores, and when the members expire.
#[derive(Default)]
struct Tested {
    tables: Memory,
    members: BTreeMap<Bytes, (i64, Option<u64>)>,
    now: u64,
}

fn key() -> Bytes {
    "k".into()
}

fn range(range: Range, reverse: bool, offset: u64, limit: u64) -> SortedSetCommand {
    SortedSetCommand::Range { key: key(), range, reverse, offset, limit }
}

impl Tested {
    fn run(&mut self, command: SortedSetCommand) -> KeysReply {
        run_at(&mut self.tables, self.now, command.into()).unwrap()
    }

    /// Returns the members in their order.
    fn sorted(&self) -> Vec<(Bytes, f64)> {
        let mut sorted: Vec<_> = self.members.iter().map(|(member, (score, _))| (*score, member.clone())).collect();
        sorted.sort_unstable();
        sorted.into_iter().map(|(score, member)| (member, score as f64)).collect()
    }

    fn change(&mut self, change: Change) {
        let numbers = |from, step, count| (0..count).map(move |number| (from + number * step) % MEMBERS);
        match change {
            Change::Add { from, step, count, scores } => {
                let added: Vec<_> =
                    numbers(from, step, count).map(|number| ((number % scores) as i64, name(number))).collect();
                for (score, member) in &added {
                    self.members.entry(member.clone()).or_default().0 = *score;
                }
                let members = added.into_iter().map(|(score, member)| (score as f64, member)).collect();
                let options = AddOptions::default();
                self.run(SortedSetCommand::Add { key: key(), members, options, count_changed: false });
            }
            Change::Expire { from, step, count, within } => {
                for (later, number) in (1..).zip(numbers(from, step, count)) {
                    let at = (within > 0).then(|| self.now + later % within + 1);
                    if let Some((_, expires_at)) = self.members.get_mut(&name(number)) {
                        *expires_at = at;
                    }
                    let (members, condition, relative) = (vec![name(number)], ExpiryCondition::Always, false);
                    self.run(SortedSetCommand::Expire { key: key(), members, at, condition, relative });
                }
            }
            Change::RemoveRange(first, last) => {
                let rank = |part: u64| (part * self.members.len() as u64 / 1_000) as usize;
                let (first, last) = (rank(first), rank(last));
                self.sorted()[first..last].iter().for_each(|(member, _)| _ = self.members.remove(member));
                let range = Range::Rank(first as i64, last as i64 - 1);
                if first < last {
                    self.run(SortedSetCommand::RemoveRange { key: key(), range });
                }
            }
            Change::Pop(count, reverse) => {
                let mut popped = self.sorted();
                if reverse {
                    popped.reverse();
                }
                popped.truncate(count as usize);
                popped.iter().for_each(|(member, _)| _ = self.members.remove(member));
                assert_eq!(self.run(SortedSetCommand::Pop { key: key(), count, reverse }), KeysReply::Scored(popped));
            }
            Change::Wait(nanos) => {
                self.now += nanos;
                self.members.retain(|_, (_, at)| at.is_none_or(|at| at > self.now));
            }
            Change::Sweep(rows) => {
                _ = sweep(&mut self.tables, &mut Context::new(self.now, Version(0), 0), rows).unwrap();
            }
        }
    }

    /// Checks what each command that reads returns, at some places.
    fn check(&mut self, at: usize) {
        let sorted = self.sorted();
        let count = KeysCommand::Key(KeyCommand::Count { key: key(), kind: Kind::SortedSet });
        assert_eq!(run_at(&mut self.tables, self.now, count), Ok(KeysReply::Count(sorted.len() as u64)));
        let all = Range::Rank(0, -1);
        assert_eq!(self.run(range(all.clone(), false, 0, u64::MAX)), KeysReply::Scored(sorted.clone()));
        let reversed = sorted.iter().rev().cloned().collect();
        assert_eq!(self.run(range(all, true, 0, u64::MAX)), KeysReply::Scored(reversed));
        for rank in (at % 97..sorted.len()).step_by(97) {
            self.check_place(&sorted, rank);
        }
        for number in (0..MEMBERS).step_by(31) {
            self.check_member(&sorted, &name(number));
        }
        self.check_scan(&sorted);
        self.check_draws(&sorted);
    }

    fn check_place(&mut self, sorted: &[(Bytes, f64)], rank: usize) {
        let (one, score) = (rank as i64, sorted[rank].1);
        assert_eq!(self.run(range(Range::Rank(one, one), false, 0, 1)), KeysReply::Scored(vec![sorted[rank].clone()]));
        let back = sorted.iter().rev().skip(rank).take(3).cloned().collect();
        assert_eq!(self.run(range(Range::Rank(one, one + 2), true, 0, u64::MAX)), KeysReply::Scored(back));
        let least = Range::Score(Bound::Included(score), Bound::Unbounded);
        let from = sorted.partition_point(|(_, other)| *other < score);
        for offset in [0, 5] {
            let found = sorted[from..].iter().skip(offset).take(4).cloned().collect();
            assert_eq!(self.run(range(least.clone(), false, offset as u64, 4)), KeysReply::Scored(found));
        }
        let counted = SortedSetCommand::CountRange { key: key(), range: least };
        assert_eq!(self.run(counted), KeysReply::Count((sorted.len() - from) as u64));
    }

    fn check_member(&mut self, sorted: &[(Bytes, f64)], member: &Bytes) {
        let rank = sorted.iter().position(|(found, _)| found == member);
        for reverse in [false, true] {
            let place = |rank| if reverse { sorted.len() - 1 - rank } else { rank };
            let expected = rank.map_or(KeysReply::Missing, |rank| KeysReply::Rank(place(rank) as u64, sorted[rank].1));
            let found = self.run(SortedSetCommand::Rank { key: key(), member: member.clone(), reverse });
            assert_eq!(found, expected);
        }
        let members = vec![member.clone()];
        let scores = self.run(SortedSetCommand::Scores { key: key(), members: members.clone() });
        assert_eq!(scores, KeysReply::Scores(vec![rank.map(|rank| sorted[rank].1)]));
        let described = self.run(SortedSetCommand::Describe { key: key(), members });
        let KeysReply::Described(found) = described else { panic!("{described:?}") };
        let expiries: Vec<_> = found.into_iter().map(|found| found.map(|(_, at)| at)).collect();
        assert_eq!(expiries, [self.members.get(member).map(|(_, at)| *at)]);
    }

    fn check_scan(&mut self, sorted: &[(Bytes, f64)]) {
        let (mut from, mut found) = (Some(Bytes::new()), Vec::new());
        while let Some(start) = from {
            let scan = SortedSetCommand::Scan { key: key(), from: start, limit: 100 };
            let scanned = self.run(scan);
            let KeysReply::ScoredPage(page) = scanned else { panic!("{scanned:?}") };
            found.extend(page.rows);
            from = page.next;
        }
        let mut expected = sorted.to_vec();
        expected.sort_by(|left, right| left.0.cmp(&right.0));
        assert_eq!(found, expected);
    }

    /// Few are drawn by their ranks, and many from all.
    fn check_draws(&mut self, sorted: &[(Bytes, f64)]) {
        for count in [2, 400] {
            let draw = SortedSetCommand::Draw { key: key(), count, repeats: false, seed: self.now };
            let reply = self.run(draw);
            let KeysReply::Scored(drawn) = reply else { panic!("{reply:?}") };
            assert_eq!(drawn.len(), sorted.len().min(count as usize));
            assert!(drawn.iter().all(|member| sorted.contains(member)));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn members_that_have_expired_are_not_seen_in_any_order(changes in vec(change(), 1..20), at in any::<usize>()) {
        let mut tested = Tested { now: 1, ..Tested::default() };
        tested.change(Change::Add { from: 0, step: 1, count: MEMBERS, scores: 50 });
        for change in changes {
            tested.change(change);
            tested.check(at);
        }
        invariants::check(&mut tested.tables);
        invariants::sweep_all(&mut tested.tables, tested.now, &[100]);
        tested.check(at);
    }
}

/// Returns the names of the events of a command, or of a sweep.
fn events(tables: &mut Memory, now: u64, command: Option<SortedSetCommand>) -> Vec<&'static str> {
    let mut context = Context::new(now, Version::new(now, 0), 1 << 40).noting(EventClasses::ALL);
    match command {
        Some(command) => _ = Keys::new(tables, &mut context, 0).run(&command.into()).unwrap(),
        None => _ = sweep(tables, &mut context, 100).unwrap(),
    }
    context.take_changes().into_iter().map(|change| change.event.name()).collect()
}

#[test]
fn expiries_of_members_have_events() {
    let mut tables = Memory::default();
    let add = |score, member: &'static str| {
        let (members, options) = (vec![(score, member.into())], AddOptions::default());
        Some(SortedSetCommand::Add { key: key(), members, options, count_changed: false })
    };
    let expire = |member: &'static str, at| {
        let (members, condition) = (vec![member.into()], ExpiryCondition::Always);
        Some(SortedSetCommand::Expire { key: key(), members, at, condition, relative: false })
    };
    assert_eq!(events(&mut tables, 1, add(1.0, "a")), ["new", "zadd"]);
    events(&mut tables, 1, add(2.0, "b"));
    events(&mut tables, 1, add(3.0, "c"));
    assert_eq!(events(&mut tables, 2, expire("a", Some(10))), ["zexpire"]);
    assert_eq!(events(&mut tables, 2, expire("a", None)), ["zpersist"]);
    assert_eq!(events(&mut tables, 2, expire("a", None)), [""; 0], "it had none");
    assert_eq!(events(&mut tables, 2, expire("a", Some(2))), ["zexpired"]);
    events(&mut tables, 2, expire("b", Some(10)));
    events(&mut tables, 2, expire("c", Some(20)));
    assert_eq!(events(&mut tables, 9, None), [""; 0]);
    assert_eq!(events(&mut tables, 10, None), ["zexpired"]);
    assert_eq!(events(&mut tables, 20, add(1.0, "d")), ["zexpired", "del", "new", "zadd"], "all had expired");
    events(&mut tables, 20, expire("d", Some(30)));
    assert_eq!(events(&mut tables, 30, None), ["zexpired", "del"]);
}

/// A score that is set anew keeps the expiry of a member that exists. One that has expired is missing for each option,
/// and the next one of its name does not expire.
#[test]
fn a_member_keeps_its_expiry_until_it_is_gone() {
    let mut tested = Tested { now: 1, ..Tested::default() };
    let increment = |which, compare| SortedSetCommand::Increment {
        key: key(),
        member: "a".into(),
        by: 1.0,
        options: AddOptions { which, compare },
    };
    let describe = || SortedSetCommand::Describe { key: key(), members: vec!["a".into()] };
    let members = vec![(1.0, "a".into()), (9.0, "b".into())];
    tested.run(SortedSetCommand::Add { key: key(), members, options: AddOptions::default(), count_changed: false });
    let (members, condition) = (vec!["a".into()], ExpiryCondition::Always);
    tested.run(SortedSetCommand::Expire { key: key(), members, at: Some(10), condition, relative: true });
    assert_eq!(tested.run(increment(Which::Exists, Compare::Greater)), KeysReply::Score(2.0));
    assert_eq!(tested.run(describe()), KeysReply::Described(vec![Some((Version::new(1, 0), Some(11)))]));
    tested.now = 11;
    assert_eq!(tested.run(increment(Which::Exists, Compare::Any)), KeysReply::NotApplied);
    assert_eq!(tested.run(increment(Which::Missing, Compare::Any)), KeysReply::Score(1.0));
    assert_eq!(tested.run(describe()), KeysReply::Described(vec![Some((Version::new(11, 0), None))]));
    invariants::check(&mut tested.tables);
}

/// The sweep removes them soon. What names members does not mind them.
#[test]
fn more_that_have_expired_than_a_command_may_read_are_an_error_until_they_are_swept() {
    let mut tested = Tested { now: 1, ..Tested::default() };
    let names: Vec<_> = (0..=limits::READ_ROWS_MAX).map(|number| Bytes::from(format!("{number:08}"))).collect();
    let members = names.iter().map(|member| (1.0, member.clone())).chain([(2.0, "z".into())]).collect();
    tested.run(SortedSetCommand::Add { key: key(), members, options: AddOptions::default(), count_changed: false });
    let condition = ExpiryCondition::Always;
    tested.run(SortedSetCommand::Expire { key: key(), members: names, at: Some(5), condition, relative: false });
    tested.now = 5;
    let first = range(Range::Rank(0, 0), false, 0, 1);
    assert_eq!(run_at(&mut tested.tables, 5, first.clone().into()), Err(KeysError::TooManyExpired));
    let scores = SortedSetCommand::Scores { key: key(), members: vec!["00000000".into(), "z".into()] };
    assert_eq!(tested.run(scores), KeysReply::Scores(vec![None, Some(2.0)]));
    tested.change(Change::Sweep(1_000));
    assert_eq!(tested.run(first), KeysReply::Scored(vec![("z".into(), 2.0)]));
}
