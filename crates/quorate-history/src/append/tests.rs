//! Hand-written anomalies of each kind, and random histories of a correct database.

use super::*;
use crate::Nanos;

fn append(key: u64, value: u64) -> Step {
    Step::Append { key, value }
}

fn read(key: u64, values: &[u64]) -> Step {
    Step::Read { key, values: values.to_vec() }
}

fn at<const N: usize>(begun: Nanos, ended: Nanos, steps: [Step; N]) -> Op<Transaction> {
    Op { begun, ended, outcome: Outcome::Done, what: steps.into() }
}

/// A transaction that is concurrent with all others, so that time implies no order.
fn concurrent<const N: usize>(steps: [Step; N]) -> Op<Transaction> {
    at(0, 1000, steps)
}

fn with_outcome(outcome: Outcome, op: Op<Transaction>) -> Op<Transaction> {
    Op { outcome, ..op }
}

fn kinds(history: &[Op<Transaction>]) -> Vec<Kind> {
    let mut kinds: Vec<Kind> = anomalies(history).into_iter().map(|anomaly| anomaly.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

#[track_caller]
fn right(history: &[Op<Transaction>]) {
    assert_eq!(anomalies(history), []);
    assert_eq!(check(history), Verdict::Right);
}

#[track_caller]
fn only(kind: Kind, history: &[Op<Transaction>]) {
    assert_eq!(kinds(history), [kind], "{:?}", anomalies(history));
    assert!(matches!(check(history), Verdict::Wrong(_)));
}

#[test]
fn sequential_transactions_pass() {
    right(&[]);
    right(&[
        at(0, 1, [append(1, 1), read(2, &[])]),
        at(2, 3, [read(1, &[1]), append(1, 2), append(2, 3), read(1, &[1, 2])]),
        at(4, 5, [append(1, 4), append(1, 5), read(1, &[1, 2, 4, 5])]),
        at(6, 7, [read(1, &[1, 2, 4, 5]), read(2, &[3])]),
    ]);
}

#[test]
fn concurrent_transactions_pass_in_any_order() {
    right(&[
        concurrent([append(1, 1), read(2, &[2])]),
        concurrent([append(2, 2), read(1, &[])]),
        concurrent([read(1, &[1])]),
    ]);
    // The second value was never read, so it comes after all that were.
    right(&[at(0, 1, [append(1, 1)]), at(2, 9, [append(1, 2)]), at(3, 8, [read(1, &[1])])]);
}

#[test]
fn g0_dirty_write() {
    only(
        Kind::G0,
        &[
            concurrent([append(1, 1), append(2, 2)]),
            concurrent([append(1, 3), append(2, 4)]),
            concurrent([read(1, &[1, 3]), read(2, &[4, 2])]),
        ],
    );
    // A value of another transaction between two values of one.
    only(
        Kind::G0,
        &[concurrent([append(1, 1), append(1, 2)]), concurrent([append(1, 3)]), concurrent([read(1, &[1, 3, 2])])],
    );
}

#[test]
fn g1a_aborted_read() {
    only(Kind::G1a, &[with_outcome(Outcome::Failed, concurrent([append(1, 1)])), concurrent([read(1, &[1])])]);
}

#[test]
fn g1b_intermediate_read() {
    only(Kind::G1b, &[concurrent([append(1, 1), append(1, 2)]), concurrent([read(1, &[1])])]);
    right(&[concurrent([append(1, 1), append(1, 2)]), concurrent([read(1, &[1, 2])])]);
}

#[test]
fn g1c_circular_information() {
    only(Kind::G1c, &[concurrent([append(1, 1), read(2, &[2])]), concurrent([append(2, 2), read(1, &[1])])]);
}

#[test]
fn g_single_read_skew() {
    only(Kind::GSingle, &[concurrent([append(1, 1), append(2, 2)]), concurrent([read(1, &[1]), read(2, &[])])]);
    // A lost update: both read the same and append.
    only(
        Kind::GSingle,
        &[
            concurrent([read(1, &[]), append(1, 1)]),
            concurrent([read(1, &[]), append(1, 2)]),
            concurrent([read(1, &[1, 2])]),
        ],
    );
}

#[test]
fn g2_write_skew() {
    only(Kind::G2, &[concurrent([read(1, &[]), append(2, 2)]), concurrent([read(2, &[]), append(1, 1)])]);
    // Two transactions that each saw only one of two independent writes.
    only(
        Kind::G2,
        &[
            concurrent([append(1, 1)]),
            concurrent([append(2, 2)]),
            concurrent([read(1, &[1]), read(2, &[])]),
            concurrent([read(1, &[]), read(2, &[2])]),
        ],
    );
}

#[test]
fn real_time_anomalies_are_found() {
    only(Kind::GSingleRealTime, &[at(0, 1, [append(1, 1)]), at(2, 3, [read(1, &[])])]);
    only(Kind::GSingleRealTime, &[at(0, 1, [append(1, 1)]), at(2, 3, [read(1, &[])]), at(4, 5, [read(1, &[1])])]);
    only(Kind::G0RealTime, &[at(0, 1, [append(1, 1)]), at(2, 3, [append(1, 2)]), at(4, 5, [read(1, &[2, 1])])]);
    only(Kind::G1cRealTime, &[at(0, 1, [read(1, &[1])]), at(2, 3, [append(1, 1)])]);
    // Each of two reads misses a write. They form a cycle only with the time order of one write and the other read.
    only(
        Kind::G2RealTime,
        &[
            at(0, 100, [append(1, 1)]),
            at(5, 10, [append(2, 2)]),
            at(0, 100, [read(1, &[1]), read(2, &[])]),
            at(11, 20, [read(1, &[])]),
        ],
    );
}

#[test]
fn a_lost_append_is_found() {
    only(Kind::GSingleRealTime, &[at(0, 1, [append(1, 1)]), at(2, 3, [append(2, 2)]), at(4, 5, [read(1, &[])])]);
    // The first value was never read, so it comes after the second, which contradicts time.
    only(Kind::G0RealTime, &[at(0, 1, [append(1, 1)]), at(2, 3, [append(1, 2)]), at(4, 5, [read(1, &[2])])]);
}

#[test]
fn a_half_visible_transaction_is_found() {
    let half = with_outcome(Outcome::Unknown, concurrent([append(1, 1), append(2, 2)]));
    only(Kind::GSingle, &[half.clone(), concurrent([read(1, &[1]), read(2, &[])])]);
    only(Kind::GSingleRealTime, &[half.clone(), at(2, 3, [read(1, &[1])]), at(4, 5, [read(2, &[])])]);
    right(&[half.clone(), concurrent([read(1, &[]), read(2, &[])])]);
    right(&[half, at(2, 3, [read(1, &[]), read(2, &[])]), at(4, 5, [read(1, &[1]), read(2, &[2])])]);
}

#[test]
fn contradictory_lists_are_found() {
    let appends = [concurrent([append(1, 1)]), concurrent([append(1, 2)])];
    let and = |reads: [Op<Transaction>; 2]| appends.iter().cloned().chain(reads).collect::<Vec<_>>();
    only(Kind::IncompatibleOrder, &and([concurrent([read(1, &[1, 2])]), concurrent([read(1, &[2])])]));
    only(Kind::Duplicate, &and([concurrent([read(1, &[1, 2, 1])]), concurrent([read(1, &[1])])]));
    only(Kind::Garbage, &and([concurrent([read(1, &[1, 2, 3])]), concurrent([read(1, &[1])])]));
    only(Kind::Internal, &and([concurrent([append(1, 3), read(1, &[1, 2])]), concurrent([read(1, &[1, 2])])]));
    only(Kind::Internal, &and([concurrent([read(1, &[1]), read(1, &[1, 2])]), concurrent([read(1, &[1, 2])])]));
}

/// A pseudo-random number generator, because this crate has no dependencies.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// A random history of a correct database, in which transactions take effect one at a time.
fn random_history(seed: u64, count: u64) -> Vec<Op<Transaction>> {
    let mut numbers = Numbers(seed);
    let mut lists: HashMap<u64, Vec<u64>> = HashMap::new();
    let mut value = 0;
    let mut history = Vec::new();
    for moment in (1..=count).map(|n| 100 * n) {
        let happens = numbers.below(10) > 0;
        let mut steps = Vec::new();
        for _ in 0..1 + numbers.below(4) {
            let key = numbers.below(4);
            if numbers.below(2) == 0 {
                value += 1;
                steps.push(append(key, value));
                lists.entry(key).or_default().extend(happens.then_some(value));
            } else {
                steps.push(read(key, lists.get(&key).map_or(&[][..], Vec::as_slice)));
            }
        }
        let begun = moment.saturating_sub(numbers.below(600));
        let mut op = Op { begun, ended: moment + numbers.below(600), outcome: Outcome::Done, what: steps };
        if !happens || numbers.below(10) == 0 {
            op.outcome = if happens || numbers.below(2) == 0 { Outcome::Unknown } else { Outcome::Failed };
        }
        history.push(op);
    }
    history
}

#[test]
fn histories_of_a_correct_database_pass() {
    for seed in 0..200 {
        right(&random_history(seed, 200));
    }
}

#[test]
fn a_stale_list_is_found() {
    for seed in 0..50 {
        let mut history = random_history(seed, 200);
        // The last read of a long list loses all but three values, most of which were acknowledged long before.
        let history_end = 100 * 150;
        let stale = history.iter_mut().rev().find_map(|op| {
            let is_late = op.is_done() && op.begun > history_end;
            op.what.iter_mut().find_map(|step| match step {
                Step::Read { values, .. } if is_late && values.len() > 20 => Some(values),
                _ => None,
            })
        });
        stale.unwrap().truncate(3);
        assert!(!anomalies(&history).is_empty(), "seed {seed}");
    }
}
