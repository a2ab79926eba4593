//! Checks a bank: transfers between accounts must neither create nor lose money.
//!
//! A transfer is one atomic batch that changes two accounts and adds an entry to a ledger. It fails if an account would
//! go below zero. Every read of all accounts must show the same total and no negative balance. The ledger at the end
//! must hold each acknowledged transfer once, no failed transfer, and each transfer of unknown outcome at most once; it
//! must match the balances read with it.
//!
//! Invariant: a history without a read of the books after the last acknowledged transfer is [`Verdict::Unknown`].

use std::collections::HashMap;

use crate::{Nanos, Op, Outcome, Verdict};

#[cfg(test)]
mod tests;

/// A transfer of money.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The account that pays.
    pub from: usize,
    /// The account that receives.
    pub to: usize,
    /// The amount.
    pub amount: i64,
}

/// An operation on the bank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Moves money.
    Transfer {
        /// Its unique number.
        number: u64,
        /// The accounts and the amount.
        transfer: Transfer,
    },
    /// The balances of all accounts, read together.
    Read(Vec<i64>),
    /// The balances of all accounts and the numbers in the ledger, read together.
    Books {
        /// The balance of each account.
        balances: Vec<i64>,
        /// The numbers in the ledger, in any order.
        ledger: Vec<u64>,
    },
}

/// Checks whether the books are right, given the initial balances.
pub fn check(history: &[Op<Access>], initial: &[i64]) -> Verdict {
    let mut findings = Vec::new();
    let mut transfers: HashMap<u64, (&Op<Access>, Transfer)> = HashMap::new();
    let mut last: Nanos = 0;
    for op in history {
        if let Access::Transfer { number, transfer } = &op.what {
            transfers.insert(*number, (op, *transfer));
            last = last.max(if op.is_done() { op.ended } else { 0 });
        }
    }
    let mut last_read = None;
    for op in history.iter().filter(|op| op.is_done()) {
        match &op.what {
            Access::Transfer { .. } => {}
            Access::Read(balances) => check_balances(balances, initial, &mut findings),
            Access::Books { balances, ledger } => {
                check_balances(balances, initial, &mut findings);
                check_books(op, balances, ledger, &transfers, initial, &mut findings);
                last_read = last_read.max(Some(op.begun));
            }
        }
    }
    let unread = Verdict::Unknown("the books were not read after the last acknowledged transfer".to_owned());
    let read_at_the_end = if transfers.is_empty() || last_read > Some(last) { Verdict::Right } else { unread };
    Verdict::of(findings).and(read_at_the_end)
}

fn check_balances(balances: &[i64], initial: &[i64], findings: &mut Vec<String>) {
    if balances.len() != initial.len() || balances.iter().sum::<i64>() != initial.iter().sum() {
        findings.push(format!("bank: the total has changed: {balances:?}"));
    }
    if balances.iter().any(|balance| *balance < 0) {
        findings.push(format!("bank: a balance is below zero: {balances:?}"));
    }
}

fn check_books(
    books: &Op<Access>,
    balances: &[i64],
    ledger: &[u64],
    transfers: &HashMap<u64, (&Op<Access>, Transfer)>,
    initial: &[i64],
    findings: &mut Vec<String>,
) {
    let mut expected = initial.to_vec();
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
            None => findings.push(format!("bank: transfer {number} is in the ledger, but no client made it")),
        }
    }
    let twice = times.iter().filter(|(_, times)| **times > 1);
    findings.extend(twice.map(|(number, times)| format!("bank: transfer {number} is in the ledger {times} times")));
    let lost = transfers
        .iter()
        .filter(|(number, (op, _))| op.is_done() && op.ended < books.begun && !times.contains_key(number));
    findings.extend(lost.map(|(number, _)| format!("bank: transfer {number} was acknowledged, but is lost")));
    if expected != balances {
        findings.push(format!("bank: the ledger makes the balances {expected:?}, but they are {balances:?}"));
    }
}
