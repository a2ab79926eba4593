//! Hand-written histories of registers, right and wrong, and random histories of a correct register.

use super::*;

const STEPS: u64 = 100_000;

fn op(begun: Nanos, ended: Nanos, action: Action) -> Op<Access> {
    Op { begun, ended, outcome: Outcome::Done, what: Access { key: 1, action } }
}

fn unknown(begun: Nanos, action: Action) -> Op<Access> {
    Op { outcome: Outcome::Unknown, ..op(begun, begun + 1, action) }
}

fn read(begun: Nanos, ended: Nanos, found: impl Into<Held>) -> Op<Access> {
    op(begun, ended, Action::Read(found.into()))
}

fn write(begun: Nanos, ended: Nanos, value: u64) -> Op<Access> {
    op(begun, ended, Action::Write(value))
}

fn swap(begun: Nanos, ended: Nanos, old: u64, new: u64, swapped: bool) -> Op<Access> {
    op(begun, ended, Action::Swap { old, new, swapped })
}

#[track_caller]
fn right(history: &[Op<Access>]) {
    assert_eq!(check(history, STEPS), Verdict::Right);
}

#[track_caller]
fn wrong(history: &[Op<Access>]) {
    assert!(matches!(check(history, STEPS), Verdict::Wrong(_)));
}

#[test]
fn sequential_operations_pass() {
    right(&[]);
    right(&[read(0, 1, None), write(2, 3, 1), read(4, 5, 1), swap(6, 7, 1, 2, true), read(8, 9, 2)]);
    right(&[write(2, 3, 1), swap(6, 7, 5, 2, false), read(8, 9, 1)]);
}

#[test]
fn a_stale_read_is_found() {
    wrong(&[write(0, 1, 1), write(2, 3, 2), read(4, 5, 1)]);
    wrong(&[write(0, 1, 1), read(2, 3, None)]);
    // Right while read and write overlap. Once the new value was read, the old one must not be read again.
    right(&[write(0, 1, 1), write(2, 9, 2), read(3, 4, 1), read(5, 6, 2)]);
    wrong(&[write(0, 1, 1), write(2, 9, 2), read(3, 4, 2), read(5, 6, 1)]);
}

#[test]
fn a_lost_update_is_found() {
    wrong(&[write(0, 1, 1), swap(2, 9, 1, 2, true), swap(3, 8, 1, 3, true)]);
    wrong(&[write(0, 1, 1), swap(2, 3, 1, 2, true), read(4, 5, 1)]);
    right(&[write(0, 1, 1), swap(2, 9, 1, 2, true), swap(3, 8, 1, 3, false)]);
}

#[test]
fn a_value_that_was_never_written_is_found() {
    wrong(&[write(0, 1, 1), read(2, 3, 7)]);
    wrong(&[read(0, 3, 1), write(4, 5, 1)]);
    let refused = Op { outcome: Outcome::Failed, ..write(0, 1, 1) };
    wrong(&[refused.clone(), read(2, 3, 1)]);
    right(&[refused, read(2, 3, None)]);
}

#[test]
fn a_write_applied_twice_is_found() {
    wrong(&[write(0, 1, 1), write(2, 3, 2), read(4, 5, 2), read(6, 7, 1)]);
    wrong(&[unknown(0, Action::Write(1)), read(2, 3, 1), write(4, 5, 2), read(6, 7, 2), read(8, 9, 1)]);
    wrong(&[
        write(0, 1, 1),
        unknown(2, Action::Swap { old: 1, new: 2, swapped: false }),
        read(4, 5, 2),
        write(6, 7, 1),
        read(8, 9, 2),
    ]);
}

#[test]
fn unknown_operations_may_happen_late_or_never() {
    let doubt = unknown(0, Action::Write(7));
    right(&[doubt.clone(), read(2, 3, None), read(4, 5, None)]);
    right(&[doubt.clone(), read(2, 3, None), write(4, 5, 1), read(6, 7, 1), read(8, 9, 7)]);
    wrong(&[doubt.clone(), read(2, 3, 7), read(4, 5, None)]);
    // It can't happen before it began.
    wrong(&[read(0, 1, 7), unknown(2, Action::Write(7))]);
    // A read without a result constrains nothing. A swap of unknown outcome may have had no effect.
    right(&[unknown(0, Action::Read(Some(9))), read(2, 3, None)]);
    right(&[write(0, 1, 1), unknown(2, Action::Swap { old: 5, new: 6, swapped: false }), read(4, 5, 1)]);
    right(&[write(0, 1, 5), unknown(2, Action::Swap { old: 5, new: 6, swapped: false }), read(4, 5, 6)]);
}

#[test]
fn keys_are_checked_independently() {
    let other = |op: Op<Access>| Op { what: Access { key: 2, ..op.what }, ..op };
    right(&[write(0, 1, 1), other(read(2, 3, None)), read(4, 5, 1)]);
    wrong(&[write(0, 1, 1), other(write(2, 3, 2)), other(read(4, 5, 1))]);
}

#[test]
fn exceeding_the_step_limit_is_unknown() {
    let many: Vec<_> = (0..40).map(|n| unknown(n, Action::Write(n))).chain([read(50, 51, 100)]).collect();
    assert!(matches!(check(&many, 1000), Verdict::Unknown(_)));
    let wrong = [write(0, 1, 1), read(2, 3, None)];
    assert!(matches!(check(&wrong, 1), Verdict::Unknown(_)));
}

/// A pseudo-random number generator, because this crate has no dependencies.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// A random history of a correct register. Each operation takes effect at a time of its own; its client starts it
/// earlier and receives the outcome later, or never.
fn random_history(seed: u64, count: u64) -> Vec<Op<Access>> {
    let mut numbers = Numbers(seed);
    let mut held = None;
    let mut history = Vec::new();
    for moment in (1..=count).map(|n| 100 * n) {
        let (old, new) = (held.unwrap_or(numbers.below(9)), numbers.below(9));
        let action = match numbers.below(3) {
            0 => Action::Read(held),
            1 => Action::Write(new),
            _ => Action::Swap { old, new, swapped: held == Some(old) },
        };
        let happens = numbers.below(20) > 0;
        let begun = moment.saturating_sub(numbers.below(600));
        let mut op = op(begun, moment + numbers.below(600), action);
        if !happens || numbers.below(20) == 0 {
            op.outcome = Outcome::Unknown;
        }
        if happens {
            held = action.apply(held).unwrap();
        }
        history.push(op);
    }
    history
}

#[test]
fn histories_of_a_correct_register_pass() {
    for seed in 0..300 {
        assert_eq!(check(&random_history(seed, 120), STEPS), Verdict::Right, "seed {seed}");
    }
}

#[test]
fn a_single_wrong_answer_is_found() {
    for seed in 0..100 {
        let mut history = random_history(seed, 120);
        let read = history.iter_mut().find(|op| op.is_done() && matches!(op.what.action, Action::Read(_)));
        // No operation writes this value.
        read.unwrap().what.action = Action::Read(Some(99));
        wrong(&history);
    }
}
