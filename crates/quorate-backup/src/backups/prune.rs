//! Deletes old backups.
//!
//! Invariants:
//! - Only objects whose names are those of backups, or of claims that no node can still hold, are deleted.
//! - The newest backup of each cluster stays, whatever the rules say.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate::types::ClusterId;

use super::name::{Claim, Name};
use super::{NANOS, env, list};
use crate::error::Error;
use crate::store::Store;

/// A claim that is older than this was left by a node that died.
const CLAIM_AGE_MAX: Duration = Duration::from_secs(24 * 3_600);

/// Which backups to keep: all that one of the rules keeps. By default, all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// Keep those that are not older than this. `None`: their age keeps none.
    pub lasting: Option<Duration>,
    /// Keep at least this many of each cluster, the newest ones.
    pub at_least: usize,
}

impl Keep {
    /// Returns whether nothing is ever deleted.
    pub fn keeps_all(&self) -> bool {
        self.lasting.is_none() && self.at_least == 0
    }

    /// Returns which of these backups are not kept, the oldest first. `now` is in seconds since 1970-01-01 UTC.
    pub fn rejected(&self, names: impl IntoIterator<Item = Name>, now: u64) -> Vec<Name> {
        if self.keeps_all() {
            return Vec::new();
        }
        let mut of_cluster: BTreeMap<ClusterId, Vec<Name>> = BTreeMap::new();
        for name in names {
            of_cluster.entry(name.cluster).or_default().push(name);
        }
        let is_young = |name: &Name| {
            let age = Duration::from_secs(now.saturating_sub(name.time()));
            self.lasting.is_some_and(|lasting| age <= lasting)
        };
        let mut rejected = Vec::new();
        for names in of_cluster.values_mut() {
            names.sort_by_key(|name| std::cmp::Reverse(name.to_string()));
            rejected.extend(names.iter().skip(self.at_least.max(1)).filter(|name| !is_young(name)));
        }
        rejected.sort_by_key(Name::to_string);
        rejected
    }
}

/// Deletes the backups that are not kept; returns them. Each cluster that has backups at the location counts by itself.
///
/// # Errors
///
/// Returns the errors of the store. Some may have been deleted before.
pub async fn prune(store: &Store, keep: Keep) -> Result<Vec<Name>, Error> {
    let now = env().unix_nanos() / NANOS;
    let rejected = keep.rejected(list(store).await?.into_iter().map(|found| found.name), now);
    for name in &rejected {
        store.delete(&name.to_string()).await?;
    }
    let is_over = |claim: &Claim| now.saturating_sub(claim.time) > CLAIM_AGE_MAX.as_secs();
    for object in store.list().await? {
        if object.name.parse().is_ok_and(|claim: Claim| is_over(&claim)) {
            store.delete(&object.name).await?;
        }
    }
    Ok(rejected)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use quorate::Position;

    use super::*;

    const NOW: u64 = 1_000_000;

    fn names() -> impl Strategy<Value = Vec<Name>> {
        let name = (0..NOW + 1000, 0..3_u128, 0..5_u64).prop_map(|(time, cluster, index)| {
            Name::new(time, ClusterId(cluster), Position { index, ..Position::default() }, index % 2 == 0)
        });
        // A store has each name once.
        vec(name, 0..20).prop_map(|mut names| {
            names.sort_by_key(Name::to_string);
            names.dedup();
            names
        })
    }

    fn keep() -> impl Strategy<Value = Keep> {
        (proptest::option::of(0..NOW), 0..6_usize)
            .prop_map(|(lasting, at_least)| Keep { lasting: lasting.map(Duration::from_secs), at_least })
    }

    proptest! {
        #[test]
        fn the_newest_and_what_the_rules_keep_stay(names in names(), keep in keep()) {
            let rejected = keep.rejected(names.clone(), NOW);
            for cluster in [0, 1, 2].map(ClusterId) {
                let of = |names: &[Name]| names.iter().filter(|name| name.cluster == cluster).count();
                let (before, gone) = (of(&names), of(&rejected));
                prop_assert!(before - gone >= keep.at_least.max(1).min(before));
                let newest = names.iter().filter(|name| name.cluster == cluster).max_by_key(|name| name.to_string());
                prop_assert!(newest.is_none_or(|newest| !rejected.contains(newest)));
            }
            let is_old = |name: &Name| {
                let age = Duration::from_secs(NOW.saturating_sub(name.time()));
                keep.lasting.is_none_or(|lasting| age > lasting)
            };
            prop_assert!(rejected.iter().all(is_old));
            prop_assert!(rejected.iter().all(|name| names.contains(name)));
        }

        #[test]
        fn of_one_cluster_only_the_oldest_go(names in names(), keep in keep()) {
            let rejected = keep.rejected(names.clone(), NOW);
            for name in &names {
                let is_older = |gone: &Name| gone.cluster == name.cluster && name.to_string() < gone.to_string();
                prop_assert!(!rejected.iter().any(is_older) || rejected.contains(name));
            }
        }
    }

    #[test]
    fn without_rules_all_stay() {
        let names = [1, 2, 3].map(|time| Name::new(time, ClusterId(1), Position::default(), false));
        assert_eq!(Keep::default().rejected(names, NOW), []);
        assert_eq!(Keep { at_least: 2, lasting: None }.rejected(names, NOW), names[..1]);
    }
}
