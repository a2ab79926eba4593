//! A bank: money moves between accounts, and none is made or lost.
//!
//! A transfer is one atomic batch that changes two accounts and writes itself into a ledger; it fails where an account
//! would go below zero. Every read of all accounts must show the same total, and nothing below zero; the ledger at the
//! end must hold each acknowledged transfer once, none that failed, each in doubt at most once, and explain the
//! balances that stand beside it.
//!
//! Invariant: a history without a look at the books after the last acknowledged transfer is [`Verdict::Unknown`].

use std::collections::HashMap;

use crate::{Nanos, Op, Outcome, Verdict};

#[cfg(test)]
mod tests;

/// Money that moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The account that has less afterwards.
    pub from: usize,
    /// The account that has more.
    pub to: usize,
    /// How much.
    pub amount: i64,
}

/// An operation on the bank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Moves money.
    Transfer {
        /// Under a number of its own.
        number: u64,
        /// From where to where.
        transfer: Transfer,
    },
    /// The balances of all accounts, read together.
    Read(Vec<i64>),
    /// The balances of all accounts and the numbers in the ledger, read together.
    Books {
        /// By account.
        balances: Vec<i64>,
        /// In any order.
        ledger: Vec<u64>,
    },
}

/// Whether the books are right, with these balances at first.
pub fn check(history: &[Op<Access>], at_first: &[i64]) -> Verdict {
    let mut findings = Vec::new();
    let mut transfers: HashMap<u64, (&Op<Access>, Transfer)> = HashMap::new();
    let mut last: Nanos = 0;
    for op in history {
        if let Access::Transfer { number, transfer } = &op.what {
            transfers.insert(*number, (op, *transfer));
            last = last.max(if op.is_done() { op.ended } else { 0 });
        }
    }
    let mut looked = None;
    for op in history.iter().filter(|op| op.is_done()) {
        match &op.what {
            Access::Transfer { .. } => {}
            Access::Read(balances) => look(balances, at_first, &mut findings),
            Access::Books { balances, ledger } => {
                look(balances, at_first, &mut findings);
                audit(op, balances, ledger, &transfers, at_first, &mut findings);
                looked = looked.max(Some(op.begun));
            }
        }
    }
    let unread = Verdict::Unknown("nobody looked at the books after the last transfer".to_owned());
    let seen_to_the_end = if transfers.is_empty() || looked > Some(last) { Verdict::Right } else { unread };
    Verdict::of(findings).and(seen_to_the_end)
}

fn look(balances: &[i64], at_first: &[i64], findings: &mut Vec<String>) {
    if balances.len() != at_first.len() || balances.iter().sum::<i64>() != at_first.iter().sum() {
        findings.push(format!("bank: the total is not what it was: {balances:?}"));
    }
    if balances.iter().any(|balance| *balance < 0) {
        findings.push(format!("bank: a balance is below zero: {balances:?}"));
    }
}

fn audit(
    books: &Op<Access>,
    balances: &[i64],
    ledger: &[u64],
    transfers: &HashMap<u64, (&Op<Access>, Transfer)>,
    at_first: &[i64],
    findings: &mut Vec<String>,
) {
    let mut expected = at_first.to_vec();
    let mut times: HashMap<u64, u64> = HashMap::new();
    for number in ledger {
        *times.entry(*number).or_default() += 1;
        match transfers.get(number) {
            Some((op, _)) if op.outcome == Outcome::Failed => {
                findings.push(format!("bank: transfer {number} is in the ledger, but it failed"));
            }
            Some((op, _)) if op.begun > books.ended => {
                findings.push(format!("bank: transfer {number} is in the ledger before it began"));
            }
            Some((_, Transfer { from, to, amount })) => {
                expected[*from] -= amount;
                expected[*to] += amount;
            }
            None => findings.push(format!("bank: transfer {number} is in the ledger, but nobody made it")),
        }
    }
    let twice = times.iter().filter(|(_, times)| **times > 1);
    findings.extend(twice.map(|(number, times)| format!("bank: transfer {number} is in the ledger {times} times")));
    let lost = transfers
        .iter()
        .filter(|(number, (op, _))| op.is_done() && op.ended < books.begun && !times.contains_key(number));
    findings.extend(lost.map(|(number, _)| format!("bank: transfer {number} was acknowledged and is lost")));
    if expected != balances {
        findings.push(format!("bank: the ledger makes {expected:?} of the accounts, which hold {balances:?}"));
    }
}
