//! What an archive reads from the log is what the stores have applied, and the log keeps it as long as it is needed.

use std::time::Duration;

use quorate_env_sim::SimWorld;
use quorate_model::codec::decode_proposal;
use quorate_model::{Payload, REJECTIONS_MAX};

use super::cluster::{Cluster, LOG_SEGMENT_BYTES, NAMES, born};
use super::purge::{RESTING_BYTES, until_all_rest, write_much};
use super::store::Trouble;
use super::verdict::{self, memory, poison};
use crate::error::EntriesError;
use crate::{Consensus, LoggedEntry};

/// Reads all entries from an index on, in pages of about this many bytes.
async fn all(node: &Consensus, from: u64, bytes: usize) -> Vec<LoggedEntry> {
    let (mut all, mut next) = (Vec::new(), from);
    loop {
        let page = node.main().entries(next, bytes).await.unwrap();
        let Some(last) = page.last() else { return all };
        next = last.log_id.index + 1;
        all.extend(page);
    }
}

/// The index and the bytes of each proposal that was not rejected, and the indexes of the others.
fn told_apart(entries: &[LoggedEntry]) -> (Vec<(u64, bytes::Bytes)>, Vec<u64>) {
    let (mut ran, mut rejected) = (Vec::new(), Vec::new());
    for entry in entries {
        match entry.entry().unwrap().payload {
            // Those that can be decoded are the nodes' own, such as a change of the level.
            Payload::Proposal(_, bytes) if decode_proposal(&bytes).is_ok() => {}
            Payload::Proposal(_, bytes) => ran.push((entry.log_id.index, bytes)),
            Payload::Rejected(..) => rejected.push(entry.log_id.index),
            Payload::Blank | Payload::Membership(_) | Payload::Reject(_) => {}
        }
    }
    (ran, rejected)
}

/// Checks that the entries which each node reads are those that its store has applied.
async fn check(cluster: &Cluster, from: u64, bytes: usize) -> Vec<LoggedEntry> {
    let mut entries = Vec::new();
    for name in NAMES {
        let (node, kept) = (cluster.node(name).unwrap(), cluster.store(name).kept());
        let read = all(&node, from, bytes).await;
        let indexes: Vec<u64> = read.iter().map(|entry| entry.log_id.index).collect();
        assert_eq!(indexes, (from..=kept.applied.index()).collect::<Vec<_>>(), "{name}");
        assert_eq!(read.last().map(|entry| entry.log_id), kept.applied.log_id);
        let is_read = |index: &u64| *index >= from;
        let ran = kept.proposals.into_iter().filter(|(index, _)| is_read(index)).collect();
        let rejected = kept.rejected.into_iter().filter(is_read).collect();
        assert_eq!(told_apart(&read), (ran, rejected), "{name}");
        assert!(entries.is_empty() || entries == read, "the nodes differ");
        entries = read;
    }
    entries
}

/// Reads from the first entry on, and returns the first one that is still there.
async fn first(node: &Consensus) -> u64 {
    match node.main().entries(0, 1).await {
        Err(EntriesError::Purged { from: 0, first }) => first,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_entries_read_are_those_applied() {
    verdict::run(61, async |_, cluster| {
        poison(&cluster, NAMES, &memory());
        assert_eq!(verdict::propose(&cluster).await, Some(true));
        write_much(&cluster, "after").await;
        cluster.check().await;
        for bytes in [0, 25_000, 1 << 20] {
            check(&cluster, 0, bytes).await;
        }
        let entries = check(&cluster, 3, 1 << 20).await;
        let rejected: Vec<u64> = entries.iter().filter_map(LoggedEntry::rejects).collect();
        assert_eq!(rejected, told_apart(&entries).1);
        assert_eq!(rejected.len(), 1);
        let node = cluster.node("a").unwrap();
        let end = entries.last().unwrap().log_id.index + 1;
        assert_eq!(node.main().entries(end, 1).await.unwrap(), []);
        assert_eq!(node.main().entries(u64::MAX, 1).await.unwrap(), []);
        let page = node.main().entries(end - 10, 25_000).await.unwrap();
        assert_eq!(page, entries[entries.len() - 10..][..2]);
    });
}

#[test]
fn an_entry_is_not_read_before_it_is_applied() {
    verdict::run(66, async |_, cluster| {
        let name = verdict::by_rank(&cluster)[1];
        let (node, store) = (cluster.node(name).unwrap(), cluster.store(name));
        store.fail_at("held", Trouble::Long);
        cluster.write("held").await;
        cluster.until("its commit", || store.is_held()).await;
        let next = store.kept().applied.index() + 1;
        assert_eq!(node.main().entries(next, 1 << 20).await.unwrap(), []);
        store.go_on();
        cluster.check().await;
        let (ran, _) = told_apart(&node.main().entries(next, 1 << 20).await.unwrap());
        assert!(ran.last().is_some_and(|(_, bytes)| bytes.starts_with(b"held")), "{ran:?}");
    });
}

#[test]
fn an_entry_is_known_as_rejected_when_the_store_has_forgotten_that() {
    verdict::run(62, async |_, cluster| {
        poison(&cluster, NAMES, &memory());
        for _ in 0..REJECTIONS_MAX + 3 {
            assert_eq!(verdict::propose(&cluster).await, Some(true));
        }
        cluster.write("last").await;
        cluster.check().await;
        for bytes in [0, 1 << 20] {
            assert_eq!(told_apart(&check(&cluster, 0, bytes).await).1.len(), REJECTIONS_MAX + 3);
        }
    });
}

#[test]
fn entries_that_are_purged_are_an_error() {
    let world = SimWorld::new(63);
    let done = world.run(async {
        let cluster = born(&world).await;
        write_much(&cluster, "some").await;
        cluster.until("all nodes", || cluster.others("").len() == NAMES.len()).await;
        let nodes = cluster.others("");
        until_all_rest(&cluster, &nodes).await;
        for node in &nodes {
            let first = first(node).await;
            assert_eq!(node.main().entries(first, 1).await.unwrap(), []);
        }
        cluster.write("one").await;
        cluster.check().await;
        for node in &nodes {
            let first = first(node).await;
            let entries = all(node, first, 1 << 20).await;
            assert_eq!(told_apart(&entries).0.len(), 1);
            assert_eq!(entries.first().unwrap().log_id.index, first);
        }
    });
    done.unwrap();
}

#[test]
fn an_idle_log_keeps_what_is_not_archived_and_then_shrinks() {
    let world = SimWorld::new(64);
    let done = world.run(async {
        let cluster = born(&world).await;
        cluster.until("all nodes", || cluster.others("").len() == NAMES.len()).await;
        let (archiver, others) = (cluster.node("a").unwrap(), cluster.others("a"));
        archiver.main().keep_from(Some(0));
        write_much(&cluster, "some").await;
        until_all_rest(&cluster, &others).await;
        let entries = all(&archiver, 0, 1 << 20).await;
        assert_eq!(told_apart(&entries).0, cluster.store("a").kept().proposals);
        // What is archived goes, and the rest stays.
        let half = entries[entries.len() / 2].log_id.index;
        archiver.main().keep_from(Some(half));
        cluster.until("a purge", || archiver.main().log.purged().is_some_and(|id| id.index == half - 1)).await;
        assert_eq!(first(&archiver).await, half);
        assert!(archiver.log_bytes() > RESTING_BYTES);
        let end = entries.last().unwrap().log_id.index + 1;
        archiver.main().keep_from(Some(end));
        until_all_rest(&cluster, std::slice::from_ref(&archiver)).await;
        // Entries that come later are kept, until nobody needs them.
        write_much(&cluster, "more").await;
        until_all_rest(&cluster, &others).await;
        assert!(all(&archiver, end, 1 << 20).await.len() >= 40);
        archiver.main().keep_from(None);
        until_all_rest(&cluster, &cluster.others("")).await;
        cluster.check().await;
    });
    done.unwrap();
}

#[test]
fn the_log_grows_only_so_far_for_an_archive_that_gets_nothing() {
    const KEPT: u64 = 3 * LOG_SEGMENT_BYTES;
    let world = SimWorld::new(65);
    let done = world.run(async {
        let mut cluster = Cluster::new(&world);
        cluster.keep_for_archive_bytes = KEPT;
        cluster.keep_log_bytes = 1;
        NAMES.into_iter().for_each(|name| cluster.start(name));
        cluster.until("all nodes", || cluster.others("").len() == NAMES.len()).await;
        let (archiver, other) = (cluster.node("a").unwrap(), cluster.node("b").unwrap());
        archiver.main().keep_from(Some(0));
        for round in 0..4 {
            write_much(&cluster, &format!("round {round}")).await;
            quorate_env::sleep(Duration::from_secs(5)).await;
            // Files are freed as a whole, and some are kept for reuse.
            let bytes = archiver.log_bytes();
            assert!(bytes <= KEPT + 6 * LOG_SEGMENT_BYTES, "{bytes}");
            assert!(bytes > KEPT && bytes > other.log_bytes(), "{bytes}");
        }
        let entries = all(&archiver, first(&archiver).await, 1 << 20).await;
        let kept: usize = entries.iter().map(|entry| entry.bytes.len()).sum();
        assert!((KEPT..KEPT + 2 * LOG_SEGMENT_BYTES).contains(&(kept as u64)), "{kept}");
        // An archiver that goes on at a later entry is served again.
        let end = entries.last().unwrap().log_id.index + 1;
        archiver.main().keep_from(Some(end));
        until_all_rest(&cluster, &cluster.others("")).await;
        cluster.check().await;
    });
    done.unwrap();
}
