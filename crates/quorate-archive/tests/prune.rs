//! States that are given up by hand: those that are promised stay, and a living archiver goes on.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod model;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use model::{Alone, CLUSTER, EPOCH, HOUR, block_on};
use quorate_archive::objects::{Memory, Trouble, Verb};
use quorate_archive::restore::{Target, manifest};
use quorate_archive::{ArchiveError, Archiver, End, File, Identity, Manifest, Objects, Pruned, Put, Tidying, prune};

const HOURS: u64 = 3600;

/// Gives up what is older than some hours, after it has asked what that would be.
async fn prune_to(alone: &Alone, hours: u64) -> Pruned {
    let objects: Arc<dyn Objects> = Arc::new(alone.memory.clone());
    let now = i64::try_from(alone.history.last()).unwrap() * HOUR;
    let keep = (now, Duration::from_secs(hours * HOURS));
    let before = alone.memory.contents();
    let listed = manifest(&*objects, CLUSTER).await.unwrap().unwrap();
    let planned = prune(&alone.env, &objects, CLUSTER, keep, true).await.unwrap();
    assert_eq!(alone.memory.contents(), before, "a dry run changes nothing");
    let pruned = prune(&alone.env, &objects, CLUSTER, keep, false).await.unwrap();
    assert_eq!(pruned, planned);
    let after = alone.memory.contents();
    let gone: BTreeSet<_> = before.keys().filter(|key| !after.contains_key(*key)).cloned().collect();
    assert_eq!(gone, pruned.objects.iter().map(|object| object.key.clone()).collect());
    let files = |manifest: Manifest| manifest.generations.into_iter().flat_map(|generation| generation.files);
    let kept: Vec<_> = files(pruned.manifest.clone()).collect();
    let is_part = |inner: &File, outer: &File| {
        inner.level < outer.level && outer.level < 9 && inner.min >= outer.min && inner.max <= outer.max
    };
    for gone in files(listed).filter(|file| !kept.contains(file)) {
        let remains = kept.iter().find(|kept| is_part(kept, &gone));
        assert_eq!(remains, None, "an archiver would make {gone:?} once more");
    }
    pruned
}

/// Archives some hours with many small files, and gives up old states now and then.
async fn live(hours: u64, prune_every: Option<u64>, sums_files: usize) -> Alone {
    let mut alone = Alone::start().await;
    let tidying = Tidying { linger: Duration::ZERO, sums_files, fan: [3, 4, 24], ..Tidying::default() };
    alone.archiver.set_tidying(Tidying { snapshot_every: Duration::from_secs(20 * HOURS), ..tidying });
    alone.put_boundary().await;
    for hour in 1..=hours {
        alone.change();
        alone.put_entry(hour).await;
        alone.put_boundary().await;
        if hour % 3 == 0 {
            alone.archiver.tidy(i64::try_from(hour).unwrap() * HOUR, None).await.unwrap();
        }
        if prune_every.is_some_and(|every| hour % every == 0) {
            prune_to(&alone, 30).await;
            for kept in hour.saturating_sub(30)..=hour {
                alone.check(kept).await;
            }
        }
    }
    alone
}

#[test]
fn an_archiver_goes_on_when_states_are_given_up_beside_it() {
    block_on(async {
        for (prune_every, sums_files) in [(7, 1), (16, 1), (25, 1), (3, 60), (7, 60)] {
            let mut alone = live(130, Some(prune_every), sums_files).await;
            // It was not fenced, and begins no new generation.
            assert_eq!((alone.archiver.manifest().token, alone.archiver.manifest().generations.len()), (1, 1));
            let objects: Arc<dyn Objects> = Arc::new(alone.memory.clone());
            let early = model::restore(&alone.env, &objects, Target::Entry(20)).await;
            assert!(matches!(early, Err(ArchiveError::Missing(_))), "{early:?}");
            alone.change();
            assert!(matches!(alone.put_boundary().await, Put::File(_)));
        }
    });
}

#[test]
fn the_archive_of_a_lost_cluster_is_pruned_and_can_still_be_taken_over() {
    block_on(async {
        let mut alone = live(100, None, 1).await;
        let before = alone.memory.contents().len();
        let pruned = prune_to(&alone, 30).await;
        assert!(!pruned.objects.is_empty() && pruned.bytes() > 0);
        for hour in 70..=100 {
            alone.check(hour).await;
        }
        assert!(prune_to(&alone, 30).await.objects.is_empty(), "what is done is done");
        // The latest state is never given up.
        prune_to(&alone, 0).await;
        alone.check(100).await;
        assert!(alone.memory.contents().len() < before / 2);

        let objects: Arc<dyn Objects> = Arc::new(alone.memory.clone());
        let identity = Identity { cluster: CLUSTER, epoch: EPOCH, node: 2, token: 2 };
        alone.archiver = Archiver::take(&alone.env, objects, identity).await.unwrap();
        assert_eq!(alone.archiver.end().await.unwrap(), Some(End { boundary: 100, entry: 100 }));
        alone.change();
        assert!(matches!(alone.put_boundary().await, Put::File(_)));
    });
}

#[test]
fn what_has_no_archive_cannot_be_pruned() {
    block_on(async {
        let alone = Alone::start().await;
        let objects: Arc<dyn Objects> = Arc::new(alone.memory.clone());
        let missing = prune(&alone.env, &objects, 1, (0, Duration::ZERO), false).await;
        assert!(matches!(missing, Err(ArchiveError::Missing(_))), "{missing:?}");
        assert!(prune_to(&alone, 0).await.objects.is_empty(), "nothing was put yet");
    });
}

/// Does something again while others change the manifest at the same time.
async fn again<T>(mut action: impl AsyncFnMut() -> Result<T, ArchiveError>) -> T {
    for _ in 0..16 {
        match action().await {
            Err(ArchiveError::Changed) => {}
            done => return done.unwrap(),
        }
    }
    action().await.unwrap()
}

/// Lets each request take up to two milliseconds before its effect, and again after it.
fn delay(memory: &Memory, seed: u64) {
    let mut drawn = seed;
    let mut time = move || {
        drawn = drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Duration::from_micros((drawn >> 32) % 2_000)
    };
    memory.set_troubles(move |_, _| Trouble { before: time(), after: time(), ..Trouble::default() });
}

#[test]
fn states_are_given_up_while_the_archiver_replaces_the_manifest() {
    block_on(async {
        let mut meetings = 0;
        for seed in 0..24 {
            let mut alone = live(60, None, 3).await;
            alone.change();
            let (last, objects) = (alone.history.last(), Arc::new(alone.memory.clone()) as Arc<dyn Objects>);
            let (env, now) = (alone.env.clone(), i64::try_from(last).unwrap() * HOUR);
            let keep = (now, Duration::from_secs(30 * HOURS));
            delay(&alone.memory, seed);
            let replaced = alone.memory.requests().get(&Verb::Replace).copied();
            let pruned = again(async || prune(&env, &objects, CLUSTER, keep, false).await);
            let Alone { archiver, node, history, .. } = &mut alone;
            let archived = async {
                again(async || archiver.put_pages(node.boundary(history, last)).await).await;
                again(async || archiver.tidy(now, None).await).await;
            };
            let (_, ()) = tokio::join!(pruned, archived);
            alone.memory.end_troubles();
            let requests = alone.memory.requests();
            meetings += requests[&Verb::Replace].saturating_sub(replaced.unwrap_or(0)).saturating_sub(2);

            let listed = manifest(&*objects, CLUSTER).await.unwrap().unwrap();
            assert_eq!((listed.token, listed.generations.len()), (1, 1), "seed {seed}");
            let objects = alone.memory.contents();
            for file in &listed.current().unwrap().files {
                let name = format!("{:016x}-{:016x}.ltx", file.min, file.max);
                assert!(objects.keys().any(|key| key.ends_with(&name)), "seed {seed}: {file:?} is gone");
            }
            for kept in 31..=last {
                alone.check(kept).await;
            }
            alone.change();
            assert!(matches!(alone.put_boundary().await, Put::File(_)), "seed {seed}");
            alone.check(last + 1).await;
        }
        assert!(meetings > 0, "no run replaced a manifest that had changed");
    });
}
