//! What an archiver does besides putting boundaries and entries: it merges, deletes, and refuses unfit stores.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "upkeep/careless.rs"]
mod careless;
mod model;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use careless::Careless;
use model::{Alone, CLUSTER, Change, EPOCH, History, Node, block_on};
use quorate_archive::objects::{Memory, Trouble, Verb};
use quorate_archive::{ArchiveError, Archiver, Identity, Objects, Put, Tidying};
use quorate_env::Env;

/// The manifest is stored, but the archiver does not hear of it, and tidies up again.
#[test]
fn a_manifest_that_was_not_answered_lists_no_file_twice() {
    block_on(async {
        let mut alone = Alone::start().await;
        for index in 0..12 {
            alone.put_boundary().await;
            alone.change();
            let is_unanswered = |verb| Trouble { is_unanswered: verb == Verb::Replace, ..Trouble::default() };
            alone.memory.set_troubles(move |verb, _| is_unanswered(verb));
            assert!(index == 0 || alone.archiver.tidy(0, None).await.is_err());
            alone.memory.end_troubles();
            // The first time finds out that the manifest is another one.
            let _ = alone.archiver.tidy(0, None).await;
            alone.archiver.tidy(0, None).await.unwrap();
        }
        let files = &alone.archiver.manifest().generations[0].files;
        let names: BTreeSet<_> = files.iter().map(|file| (file.level, file.min, file.max)).collect();
        assert_eq!(names.len(), files.len(), "{files:?}");
    });
}

/// Entries that no node has any more leave a gap before a boundary, and those after it can be applied to nothing else.
#[test]
fn the_boundary_after_a_gap_stays_when_files_are_merged() {
    block_on(async {
        let mut alone = Alone::start().await;
        alone.archiver.set_tidying(Tidying { linger: Duration::ZERO, sums_files: 1, ..Tidying::default() });
        alone.put_boundary().await;
        for index in 1..=30 {
            alone.change();
            if index != 4 {
                alone.put_entry(index).await;
            }
            if index % 2 == 1 {
                alone.put_boundary().await;
            }
        }
        // The second time removes the files of which the first has stored the checksums.
        alone.archiver.tidy(0, None).await.unwrap();
        alone.put_boundary().await;
        alone.archiver.tidy(0, None).await.unwrap();
        for index in (0..=30).filter(|index| *index != 4) {
            alone.check(index).await;
        }
    });
}

/// A restore that has begun does not begin again because the store was away for a moment.
#[test]
fn a_restore_outlasts_an_outage_of_the_store() {
    block_on(async {
        let mut alone = Alone::start().await;
        alone.put_boundary().await;
        alone.change();
        alone.put_entry(1).await;
        let refused = Arc::new(Mutex::new(BTreeSet::new()));
        let seen = Arc::clone(&refused);
        alone.memory.set_troubles(move |verb, key| {
            let is_content = verb == Verb::Read && !key.ends_with(".json");
            Trouble { is_refused: is_content && seen.lock().unwrap().insert(key.to_owned()), ..Trouble::default() }
        });
        alone.check(1).await;
        let refused = refused.lock().unwrap();
        assert_eq!(refused.len(), 2, "the snapshot and the segment: {refused:?}");
    });
}

/// A snapshot is renewed in the middle of the files that are merged later.
#[test]
fn a_merged_file_that_begins_before_a_snapshot_ends_is_applied_to_it() {
    block_on(async {
        let mut alone = Alone::start().await;
        alone.put_boundary().await;
        let tidying = Tidying { linger: Duration::ZERO, sums_files: 1, fan: [2, 2, 24], ..Tidying::default() };
        for snapshot_every in [Duration::ZERO, Duration::MAX] {
            alone.archiver.set_tidying(Tidying { snapshot_every, ..tidying });
            for _ in 0..2 {
                let index = alone.change();
                alone.put_entry(index).await;
                alone.put_boundary().await;
            }
            alone.archiver.tidy(0, None).await.unwrap();
        }
        let files = &alone.archiver.manifest().generations[0].files;
        let snapshot = files.iter().filter(|file| file.min == 1).map(|file| file.max).max().unwrap();
        let spans = files.iter().any(|file| 1 < file.min && file.min <= snapshot && snapshot < file.max);
        assert!(spans, "{files:?}");
        for index in 0..=4 {
            alone.check(index).await;
        }
    });
}

#[test]
fn a_quiet_archive_costs_no_requests() {
    block_on(async {
        let keep = Some(Duration::from_secs(3600));
        let mut alone = Alone::start().await;
        alone.put_boundary().await;
        alone.change();
        alone.put_entry(1).await;
        alone.put_boundary().await;
        alone.archiver.tidy(0, keep).await.unwrap();
        let before = alone.memory.requests();
        assert_eq!(alone.put_boundary().await, Put::Unchanged);
        alone.archiver.settle().await.unwrap();
        alone.archiver.tidy(1000, keep).await.unwrap();
        assert_eq!(alone.memory.requests(), before);
        // One boundary with one changed page is one request.
        alone.change();
        alone.put_boundary().await;
        let after = alone.memory.requests();
        assert_eq!(after[&Verb::Create], before[&Verb::Create] + 1);
        assert_eq!(after.values().sum::<u64>(), before.values().sum::<u64>() + 1);
    });
}

#[test]
fn a_store_that_ignores_conditions_is_refused() {
    block_on(async {
        let identity = Identity { cluster: CLUSTER, epoch: EPOCH, node: 1, token: 1 };
        let taken = Archiver::take(&Env::real(), Arc::new(Careless(Memory::new())), identity).await;
        assert!(matches!(taken.map(drop), Err(ArchiveError::Unfit)));
    });
}

#[test]
fn the_next_archiver_needs_no_token_and_no_entries() {
    block_on(async {
        let (env, objects): (_, Arc<dyn Objects>) = (Env::real(), Arc::new(Memory::new()));
        let (node, mut history) = (Node::new(1), History::new());
        (0..4).for_each(|byte| history.push(&Change { pages: 4, writes: vec![(1, byte)] }));
        let next = async |node| {
            let identity = Identity { cluster: CLUSTER, epoch: EPOCH, node, token: 0 };
            Archiver::take_next(&env, Arc::clone(&objects), identity).await.unwrap()
        };
        let mut first = next(1).await;
        assert_eq!((first.manifest().token, first.next_index().await.unwrap()), (1, 1));
        first.put_pages(node.boundary(&history, 1)).await.unwrap();
        assert_eq!(first.next_index().await.unwrap(), 2);
        first.put_pages(node.boundary(&history, 2)).await.unwrap();

        let mut second = next(2).await;
        assert_eq!((second.manifest().token, second.next_index().await.unwrap()), (2, 3));
        second.put_pages(Node::new(1).boundary(&history, 3)).await.unwrap();
        let beaten = first.put_pages(node.boundary(&history, 3)).await.unwrap_err();
        assert!(matches!(beaten, ArchiveError::Fenced { node: 2, token: 2 }), "{beaten}");
    });
}
