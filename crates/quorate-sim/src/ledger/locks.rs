//! The tokens that were written under a lock, and the states of the lock that entries have shown.
//!
//! Invariant: a token is written only while it is in force, once, and each grant has a higher one than those before. So
//! tokens rise from row to row; if two had held the lock at a time, the later row of the two could have the lower
//! token.

use std::collections::{BTreeMap, BTreeSet};

use quorate_model::locks::{Claim, LockInfo};

/// Returns what is wrong with the tokens that the cluster holds, in their order; `granted` were acknowledged, but
/// may be missing after a forced recovery.
pub(super) fn wrong_grants(held: &[i64], granted: &BTreeSet<i64>, is_forced: bool) -> Option<String> {
    if !held.is_sorted_by(|first, second| first < second) {
        return Some(format!("tokens of a lock went back: {held:?}"));
    }
    let found: BTreeSet<i64> = held.iter().copied().collect();
    let lost: Vec<_> = granted.difference(&found).collect();
    (!lost.is_empty() && !is_forced).then(|| format!("what was written under the tokens {lost:?} of a lock is lost"))
}

/// Returns what is wrong with the states of a lock that entries have shown, by their indexes, if something is: too many
/// hold it, or somebody waits although a permit is free, or one got it before another that came earlier.
pub(super) fn wrong_states(seen: &BTreeMap<u64, LockInfo>) -> Option<String> {
    let is_wrong = |lock: &LockInfo| {
        let held = lock.holders.len() as u64;
        held > lock.permits || held < lock.permits && !lock.waiters.is_empty()
    };
    if let Some((index, lock)) = seen.iter().find(|(_, lock)| is_wrong(lock)) {
        return Some(format!("at {index} a lock is not held by as many as it has permits: {lock:?}"));
    }
    seen.values().zip(seen.values().skip(1)).find_map(|(before, after)| {
        let waits = |claim: &Claim| after.waiters.iter().any(|waiter| waiter.token == claim.token);
        // A holder whose lease has ended may wait again.
        let got_it = |claim: &Claim, holder: &Claim| holder.holder == claim.holder && holder.token > claim.token;
        let holds = |claim: &Claim| after.holders.iter().any(|holder| got_it(claim, holder));
        let (_, later) = before.waiters.split_at(before.waiters.iter().position(waits)?);
        let first = later.iter().find(|claim| holds(claim))?;
        Some(format!("{first:?} holds a lock before one that came earlier: it was {before:?}, and then {after:?}"))
    })
}

#[cfg(test)]
mod tests {
    use quorate_model::locks::Token;

    use super::*;

    /// Those who hold a lock or wait for it, with their tokens.
    type All<'a> = &'a [(&'static str, u64)];

    fn claims(all: All<'_>) -> Vec<Claim> {
        let claim = |(holder, token): &(&'static str, u64)| Claim {
            holder: holder.as_bytes().into(),
            token: Token(*token),
            ..Claim::default()
        };
        all.iter().map(claim).collect()
    }

    /// Returns what is wrong with states of a lock, each given by its holders and its waiters.
    fn wrong(states: &[(All<'_>, All<'_>)]) -> Option<String> {
        let state = |(holders, waiters): &(All<'_>, All<'_>)| LockInfo {
            permits: 1,
            holders: claims(holders),
            waiters: claims(waiters),
            ..LockInfo::default()
        };
        wrong_states(&(1..).zip(states.iter().map(state)).collect())
    }

    #[test]
    fn only_a_lock_that_is_held_in_turn_is_right() {
        let before: (All<'_>, All<'_>) = (&[("ann", 1)], &[("bob", 2), ("cid", 3)]);
        assert_eq!(wrong(&[before, (&[("bob", 4)], &[("cid", 3), ("ann", 5)])]), None);
        assert!(wrong(&[before, (&[("cid", 4)], &[("bob", 2)])]).is_some());
        // Its wait has ended in between.
        assert_eq!(wrong(&[before, (&[("cid", 4)], &[("bob", 5)])]), None);
        assert!(wrong(&[(&[("ann", 1), ("bob", 2)], &[])]).is_some());
        assert!(wrong(&[(&[], &[("bob", 2)])]).is_some());
    }
}
