//! What callers of a log rely on, one property a test.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod common;

use bytes::Bytes;
use common::*;
use quorate_env::worker::Step;
use quorate_env_sim::SimDisk;
use quorate_model::GroupId;
use quorate_wal::{Durability, OpenError, ReadError, Restart, WalError};

#[test]
fn a_group_commit_is_one_frame_one_sync_and_completions_in_order() {
    let disk = SimDisk::new(1);
    let mut log = open(&disk).unwrap();
    let told = Told::default();
    for n in 0..64 {
        log.wal.append(G, entries(1, u64::from(n), u64::from(n) + 1), told.by(n)).unwrap();
    }
    assert_eq!(read_all(&log.wal, G), entries(1, 0, 64), "readable before it is durable");
    assert!(told.numbers().is_empty());
    run(&mut log.writer);
    assert_eq!(told.numbers(), (0..64).collect::<Vec<_>>());
    assert_eq!((log.wal.stats().frames, log.wal.stats().syncs), (1, 1));
    let mut log = open(&disk.crash()).unwrap();
    assert_eq!(read_all(&log.wal, G), entries(1, 0, 64));
    settle(&mut log);
}

#[test]
fn who_waits_for_entries_to_be_written_is_told_once_none_is_left() {
    let mut log = open(&SimDisk::new(1)).unwrap();
    let told = Told::default();
    log.wal.when_written(G, 9, told.by(0)).unwrap();
    assert_eq!(told.numbers(), [0], "nothing waits to be written");
    log.wal.append(G, entries(1, 0, 4), told.by(1)).unwrap();
    log.wal.when_written(G, 3, told.by(2)).unwrap();
    assert_eq!(told.numbers(), [0]);
    run(&mut log.writer);
    assert_eq!(told.numbers(), [0, 2, 1], "before it is synced");
    log.wal.truncate_after(G, Some(1)).unwrap();
    log.wal.when_written(G, 9, told.by(3)).unwrap();
    log.wal.append(G, entries(2, 2, 4), told.by(4)).unwrap();
    log.wal.when_written(G, 1, told.by(5)).unwrap();
    assert_eq!(told.numbers(), [0, 2, 1, 3, 5], "what is gone, and what was written, is not waited for");
    log.wal.when_written(G, 2, told.by(6)).unwrap();
    drop(log.writer);
    assert_eq!((told.numbers().len(), told.errors()), (5, 2));
    assert!(log.wal.when_written(G, 9, told.by(7)).is_err());
}

#[test]
fn truncation_and_purge_survive_together_with_what_replaced_the_tail() {
    let disk = SimDisk::new(2);
    let mut log = open(&disk).unwrap();
    let told = Told::default();
    log.wal.append(G, entries(1, 0, 10), told.by(0)).unwrap();
    run(&mut log.writer);
    log.wal.truncate_after(G, Some(6)).unwrap();
    log.wal.append(G, entries(2, 7, 9), told.by(1)).unwrap();
    log.wal.purge(G, id(1, 3)).unwrap();
    let expected: Vec<_> = entries(1, 4, 7).into_iter().chain(entries(2, 7, 9)).collect();
    assert_eq!(read_all(&log.wal, G), expected);
    settle(&mut log);
    let log = open(&disk.crash()).unwrap();
    assert_eq!(read_all(&log.wal, G), expected);
    assert_eq!((log.wal.purged(G), log.wal.last_log_id(G)), (Some(id(1, 3)), Some(id(2, 8))));
    assert_eq!(log.wal.log_id_at(G, 5), Some(id(1, 5)));
    assert!(matches!(log.wal.entries(G, 2..5, 100), Err(ReadError::Purged { .. })));
    assert!(matches!(log.wal.truncate_after(G, Some(1)), Err(WalError::BelowFloor { .. })));
    let hole = log.wal.append(G, entries(2, 10, 11), told.by(2));
    assert!(matches!(hole, Err(WalError::Hole { expected: 9, .. })));
}

#[test]
fn a_purge_beyond_the_end_lets_the_log_go_on_behind_it() {
    let disk = SimDisk::new(3);
    let mut log = open(&disk).unwrap();
    let told = Told::default();
    log.wal.append(G, entries(1, 0, 5), told.by(0)).unwrap();
    log.wal.purge(G, id(4, 100)).unwrap();
    log.wal.append(G, entries(4, 101, 103), told.by(1)).unwrap();
    run(&mut log.writer);
    let log = open(&disk.crash()).unwrap();
    assert_eq!(read_all(&log.wal, G), entries(4, 101, 103));
}

#[test]
fn votes_identity_and_committed_are_there_again() {
    let disk = SimDisk::new(4);
    let mut log = open(&disk).unwrap();
    assert_eq!(log.recovery.restart, Restart::Fresh);
    let told = Told::default();
    log.wal.save_identity(Bytes::from_static(b"me"), told.by(0)).unwrap();
    log.wal.append(G, entries(1, 0, 5), told.by(1)).unwrap();
    log.wal.save_vote(G, Bytes::from_static(b"t1"), told.by(2)).unwrap();
    log.wal.save_committed(G, id(1, 2)).unwrap();
    assert_eq!(log.wal.vote(G).unwrap(), "t1");
    run(&mut log.writer);
    log.wal.save_committed(G, id(1, 3)).unwrap();
    settle(&mut log);
    let log = open(&disk.crash()).unwrap();
    assert_eq!((told.numbers(), log.recovery.identity.unwrap()), (vec![0, 1, 2], Bytes::from_static(b"me")));
    assert_eq!((log.wal.vote(G).unwrap(), log.wal.committed(G)), (Bytes::from_static(b"t1"), Some(id(1, 3))));
}

#[test]
fn old_segments_are_recycled_and_cold_entries_read_from_disk() {
    let disk = SimDisk::new(5);
    let mut log = open_with(&disk, quorate_wal::WalOptions { tail_bytes: 2000, ..options(32 << 10) }).unwrap();
    let told = Told::default();
    for n in 0..100 {
        log.wal.append(G, entries(1, n * 3, n * 3 + 3), told.by(0)).unwrap();
        run(&mut log.writer);
        run(&mut log.keeper);
        if n % 10 == 9 && n > 50 {
            log.wal.purge(G, id(1, n * 2)).unwrap();
        }
    }
    settle(&mut log);
    let stats = log.wal.stats();
    assert!(stats.segments_recycled > 2 && stats.segments < 14, "{stats:?}");
    assert!(stats.tail_bytes <= 2000, "{stats:?}");
    assert_eq!(read_all(&log.wal, G), entries(1, 199, 300));
    assert_eq!(log.wal.entries(G, 199..300, 0).unwrap().len(), 1, "never empty if the first exists");
    let keep = log.wal.index_at_bytes_before_end(G, 100).unwrap();
    assert!(log.wal.bytes_after(G, keep) >= 100 && log.wal.bytes_after(G, keep + 1) < 100);
    let log = open_with(&disk.crash(), options(32 << 10)).unwrap();
    assert_eq!(read_all(&log.wal, G), entries(1, 199, 300));
}

#[test]
fn an_entry_larger_than_a_segment_has_one_of_its_own() {
    let disk = SimDisk::new(6);
    let mut log = open_with(&disk, options(16 << 10)).unwrap();
    let told = Told::default();
    let large = Bytes::from((0..100_000_u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>());
    log.wal.append(G, vec![(id(1, 0), large.clone()), (id(1, 1), Bytes::new())], told.by(0)).unwrap();
    run(&mut log.writer);
    assert_eq!(told.numbers(), [0]);
    let log = open_with(&disk.crash(), options(16 << 10)).unwrap();
    assert_eq!(read_all(&log.wal, G), vec![(id(1, 0), large), (id(1, 1), Bytes::new())]);
}

#[test]
fn an_error_of_a_sync_is_final_and_told_to_everyone() {
    let disk = SimDisk::new(7);
    let mut log = open(&disk).unwrap();
    let told = Told::default();
    disk.fail_sync_after(0);
    log.wal.append(G, entries(1, 0, 1), told.by(0)).unwrap();
    assert_eq!(run(&mut log.writer), Step::Done);
    assert_eq!((told.errors(), told.numbers().len()), (1, 0));
    assert!(matches!(log.wal.append(G, entries(1, 1, 2), told.by(1)), Err(WalError::Io { .. })));
    assert_eq!(run(&mut log.keeper), Step::Done);
}

#[test]
fn a_full_disk_stalls_and_passes() {
    let disk = SimDisk::new(8);
    let mut log = open_with(&disk, options(16 << 10)).unwrap();
    disk.set_capacity(Some(20 << 10));
    let told = Told::default();
    for n in 0..8 {
        log.wal.append(G, entries(1, n, n + 1), told.by(0)).unwrap();
        run(&mut log.writer);
    }
    assert!(log.wal.is_disk_full() && told.numbers().len() < 8 && told.errors() == 0);
    disk.set_capacity(None);
    run(&mut log.writer);
    assert!(!log.wal.is_disk_full());
    assert_eq!(told.numbers().len(), 8);
    let log = open_with(&disk.crash(), options(16 << 10)).unwrap();
    assert_eq!(read_all(&log.wal, G), entries(1, 0, 8));
}

#[test]
fn a_restart_of_the_machine_is_told_until_it_is_accepted_unless_the_stop_was_clean() {
    let disk = SimDisk::new(9);
    let told = Told::default();
    let mut log = open(&disk).unwrap();
    log.wal.set_durability(G, Durability::Os);
    log.wal.append(G, entries(1, 0, 1), told.by(0)).unwrap();
    run(&mut log.writer);
    assert_eq!((told.numbers(), log.wal.stats().syncs), (vec![0], 0), "complete without a sync");

    let disk = disk.kill();
    assert_eq!(open(&disk).unwrap().recovery.restart, Restart::ProcessOnly);
    let disk = disk.crash();
    let mut log = open(&disk).unwrap();
    assert_eq!(log.recovery.restart, Restart::Rebooted);
    log.wal.close_clean(told.by(1)).unwrap();
    assert_eq!(run(&mut log.writer), Step::Done);
    assert_eq!(told.numbers(), [0, 1]);
    assert!(matches!(log.wal.append(G, entries(1, 1, 2), told.by(2)), Err(WalError::Closed)));
    let disk = disk.kill();
    let mut log = open(&disk).unwrap();
    assert_eq!(log.recovery.restart, Restart::Rebooted, "nobody has accepted it");
    log.wal.accept_reboot(told.by(3)).unwrap();
    run(&mut log.writer);
    let disk = disk.kill();
    let mut log = open(&disk).unwrap();
    assert_eq!(log.recovery.restart, Restart::ProcessOnly);
    log.wal.close_clean(told.by(4)).unwrap();
    run(&mut log.writer);
    let disk = disk.reboot();
    assert_eq!(open(&disk).unwrap().recovery.restart, Restart::Clean);
    let disk = disk.kill();
    disk.hide_boot_id(true);
    assert_eq!(open(&disk).unwrap().recovery.restart, Restart::Rebooted, "it can't be told");
}

#[test]
fn a_damaged_acknowledged_frame_is_refused_and_a_torn_tail_cut() {
    let disk = SimDisk::new(10);
    let told = Told::default();
    let mut log = open(&disk).unwrap();
    for n in 0..3 {
        log.wal.append(G, entries(1, n, n + 1), told.by(0)).unwrap();
        run(&mut log.writer);
    }
    let (segment, last) = log.wal.stats().last_frame;
    let path = std::path::PathBuf::from(format!("{DIR}/{segment:010}.wal"));
    let disk = disk.kill();
    disk.flip_bit(&path, last + 70, 1).unwrap();
    let log = open(&disk).unwrap();
    assert!(log.recovery.cut.is_some());
    assert_eq!(read_all(&log.wal, G), entries(1, 0, 2), "the very last frame is the named exception");

    let disk = disk.kill();
    disk.flip_bit(&path, last - 8192 + 70, 1).unwrap();
    assert!(matches!(open(&disk), Err(OpenError::Corrupt { .. })));
}

#[test]
fn two_groups_share_a_log_and_one_directory_has_one_owner() {
    let disk = SimDisk::new(11);
    let other = GroupId(2);
    let told = Told::default();
    let mut log = open(&disk).unwrap();
    assert!(matches!(open(&disk), Err(OpenError::Busy { .. })));
    log.wal.append(G, entries(1, 0, 2), told.by(0)).unwrap();
    log.wal.append(other, entries(5, 0, 3), told.by(1)).unwrap();
    log.wal.save_vote(other, Bytes::from_static(b"v"), told.by(2)).unwrap();
    run(&mut log.writer);
    let log = open(&disk.crash()).unwrap();
    assert_eq!((read_all(&log.wal, G), read_all(&log.wal, other)), (entries(1, 0, 2), entries(5, 0, 3)));
    assert_eq!((log.wal.vote(G), log.wal.vote(other).unwrap()), (None, Bytes::from_static(b"v")));
}

#[test]
fn cutting_an_idle_log_frees_what_is_purged() {
    let disk = SimDisk::new(12);
    let told = Told::default();
    let mut log = open(&disk).unwrap();
    for n in 0..200 {
        log.wal.append(G, entries(1, n, n + 1), told.by(0)).unwrap();
        settle(&mut log);
    }
    let before = log.wal.disk_bytes();
    log.wal.purge(G, id(1, 199)).unwrap();
    log.wal.cut_active(told.by(1)).unwrap();
    settle(&mut log);
    let stats = log.wal.stats();
    assert_eq!((stats.segments, stats.spares), (1, 0));
    assert!(log.wal.disk_bytes() <= 64 << 10 && before > 256 << 10);
}

#[test]
fn segments_grow_again_by_and_by_after_an_idle_log_was_cut() {
    let disk = SimDisk::new(14);
    let mut log = open_with(&disk, options(64 << 20)).unwrap();
    let mut lengths = vec![log.wal.disk_bytes()];
    for n in 0..150 {
        let entry = (id(1, n), Bytes::from(vec![1; 500_000]));
        log.wal.append(G, vec![entry], Told::default().by(0)).unwrap();
        settle(&mut log);
        lengths.push(log.wal.disk_bytes());
    }
    lengths.dedup();
    let mib = |n: u64| n << 20;
    assert_eq!(lengths, [mib(4), mib(4 + 16), mib(4 + 16 + 64), mib(4 + 16 + 64 + 64)]);
}

#[test]
fn a_log_that_is_killed_again_and_again_does_not_fill_the_disk() {
    let disk = (0..100).fold(SimDisk::new(13), |disk, n| {
        let mut log = open(&disk).unwrap();
        log.wal.append(G, entries(1, n, n + 1), Told::default().by(0)).unwrap();
        run(&mut log.writer);
        disk.kill()
    });
    let log = open(&disk).unwrap();
    assert_eq!(read_all(&log.wal, G), entries(1, 0, 100));
    let bytes = disk.used();
    assert!(bytes < (64 << 10) + 100 * 4 * 4096, "{bytes}");
}
