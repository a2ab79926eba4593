//! Hand-written books that are right or wrong.

use super::*;

const INITIAL: &[i64] = &[10, 10];

fn done(begun: Nanos, what: Access) -> Op<Access> {
    Op { begun, ended: begun + 1, outcome: Outcome::Done, what }
}

fn transfer(begun: Nanos, number: u64, amount: i64) -> Op<Access> {
    done(begun, Access::Transfer { number, transfer: Transfer { from: 0, to: 1, amount } })
}

fn read(begun: Nanos, balances: [i64; 2]) -> Op<Access> {
    done(begun, Access::Read(balances.to_vec()))
}

fn books(begun: Nanos, balances: [i64; 2], ledger: &[u64]) -> Op<Access> {
    done(begun, Access::Books { balances: balances.to_vec(), ledger: ledger.to_vec() })
}

#[track_caller]
fn wrong(history: &[Op<Access>], says: &str) {
    let Verdict::Wrong(findings) = check(history, INITIAL) else { panic!("not found: {says}") };
    assert!(findings.iter().any(|finding| finding.contains(says)), "{findings:?}");
}

#[test]
fn right_books_pass() {
    let history = [read(0, [10, 10]), transfer(2, 1, 4), read(4, [6, 14]), books(6, [6, 14], &[1])];
    assert_eq!(check(&history, INITIAL), Verdict::Right);
    for (balances, ledger) in [([10, 10], &[][..]), ([6, 14], &[1])] {
        let doubt = Op { outcome: Outcome::Unknown, ..transfer(2, 1, 4) };
        assert_eq!(check(&[doubt, books(6, balances, ledger)], INITIAL), Verdict::Right);
    }
    let refused = Op { outcome: Outcome::Failed, ..transfer(2, 1, 40) };
    assert_eq!(check(&[refused, books(6, [10, 10], &[])], INITIAL), Verdict::Right);
}

#[test]
fn wrong_books_are_found() {
    wrong(&[transfer(2, 1, 4), read(4, [6, 10])], "total");
    wrong(&[read(4, [-1, 21])], "below zero");
    wrong(&[transfer(2, 1, 4), books(6, [10, 10], &[])], "lost");
    wrong(&[transfer(2, 1, 4), books(6, [2, 18], &[1, 1])], "2 times");
    wrong(&[transfer(2, 1, 4), books(6, [2, 18], &[1])], "makes");
    wrong(&[books(6, [6, 14], &[1])], "no client made");
    wrong(&[Op { outcome: Outcome::Failed, ..transfer(2, 1, 4) }, books(6, [6, 14], &[1])], "failed");
    wrong(&[books(0, [6, 14], &[1]), transfer(2, 1, 4)], "before it began");
}

#[test]
fn books_not_read_at_the_end_are_unknown() {
    assert!(matches!(check(&[books(0, [10, 10], &[]), transfer(2, 1, 4)], INITIAL), Verdict::Unknown(_)));
}
