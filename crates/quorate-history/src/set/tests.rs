//! Hand-written histories of sets, right and wrong.

use super::*;

fn add(begun: Nanos, ended: Nanos, element: u64) -> Op<Access> {
    Op { begun, ended, outcome: Outcome::Done, what: Access::Add { set: 1, element } }
}

fn read(begun: Nanos, ended: Nanos, elements: &[u64]) -> Op<Access> {
    Op { begun, ended, outcome: Outcome::Done, what: Access::Read { set: 1, elements: elements.to_vec() } }
}

fn with_outcome(outcome: Outcome, op: Op<Access>) -> Op<Access> {
    Op { outcome, ..op }
}

#[track_caller]
fn right(history: &[Op<Access>]) {
    assert_eq!(check(history), Verdict::Right);
}

#[track_caller]
fn wrong(history: &[Op<Access>], says: &str) {
    let Verdict::Wrong(findings) = check(history) else { panic!("not found: {says}") };
    assert!(findings.iter().any(|finding| finding.contains(says)), "{findings:?}");
}

#[test]
fn acknowledged_elements_are_read_once() {
    right(&[]);
    right(&[read(0, 1, &[]), add(2, 3, 1), add(2, 9, 2), read(4, 5, &[1]), read(10, 11, &[2, 1])]);
    wrong(&[add(0, 1, 1), add(2, 3, 2), read(4, 5, &[2])], "1 is lost");
    wrong(&[add(0, 1, 1), read(4, 5, &[1, 1])], "twice");
    wrong(&[add(0, 1, 1), read(4, 5, &[1, 5])], "no client added");
    wrong(&[read(0, 1, &[1]), add(2, 3, 1), read(4, 5, &[1])], "before it was added");
}

#[test]
fn failed_adds_are_absent_and_unknown_ones_optional() {
    wrong(&[with_outcome(Outcome::Failed, add(0, 1, 1)), read(4, 5, &[1])], "failed");
    right(&[with_outcome(Outcome::Failed, add(0, 1, 1)), read(4, 5, &[])]);
    let doubt = with_outcome(Outcome::Unknown, add(0, 1, 1));
    right(&[doubt.clone(), read(4, 5, &[])]);
    right(&[doubt.clone(), read(2, 3, &[]), read(4, 5, &[1])]);
    wrong(&[doubt.clone(), read(4, 5, &[1, 1])], "twice");
    wrong(&[doubt, read(2, 3, &[1]), read(4, 5, &[])], "1 is lost");
    right(&[add(0, 1, 1), with_outcome(Outcome::Failed, read(2, 3, &[])), read(4, 5, &[1])]);
}

#[test]
fn reads_agree_on_one_order() {
    let adds = [add(0, 9, 1), add(0, 9, 2)];
    let and = |reads: [Op<Access>; 3]| adds.iter().cloned().chain(reads).collect::<Vec<_>>();
    wrong(&and([read(1, 8, &[1]), read(1, 8, &[2]), read(10, 11, &[1, 2])]), "each lacks some");
    right(&and([read(1, 8, &[1]), read(1, 8, &[1, 2]), read(10, 11, &[1, 2])]));
    // Adding the second element began after the first was in the set, so a read that shows the second must show both.
    wrong(&[add(1, 2, 1), add(3, 9, 2), read(0, 9, &[2]), read(10, 11, &[1, 2])], "1 is lost");
}

#[test]
fn a_set_not_read_at_the_end_is_unknown() {
    assert!(matches!(check(&[read(0, 1, &[]), add(2, 3, 1)]), Verdict::Unknown(_)));
    assert!(matches!(check(&[add(2, 3, 1)]), Verdict::Unknown(_)));
}
