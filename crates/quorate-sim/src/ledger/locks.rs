//! The tokens that were written under a lock.
//!
//! Invariant: a token is written only while it is in force, once, and each grant has a higher one than those before. So
//! tokens rise from row to row; if two had held the lock at a time, the later row of the two could have the lower
//! token.

use std::collections::BTreeSet;

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
