//! The properties that callers of a log rely on, one per test.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod common;

use bytes::Bytes;
use common::*;
use quorate_env::worker::Step;
use quorate_env_sim::SimDisk;
use quorate_model::GroupId;
use quorate_wal::{Durability, OpenError, ReadError, Restart, WalError};

#[test]
fn a_group_commit_is_one_frame_and_one_sync() {
    let disk = SimDisk::new(1);
    let mut log = open(&disk).unwrap();
    let completed = Completed::default();
    for n in 0..64 {
        log.wal.append(G, entries(1, u64::from(n), u64::from(n) + 1), completed.mark(n)).unwrap();
    }
    assert_eq!(read_all(&log.wal, G), entries(1, 0, 64), "readable before it is durable");
    assert!(completed.numbers().is_empty());
    run(&mut log.writer);
    assert_eq!(completed.numbers(), (0..64).collect::<Vec<_>>());
    assert_eq!((log.wal.stats().frames, log.wal.stats().syncs), (1, 1));
    let mut log = open(&disk.crash()).unwrap();
    assert_eq!(read_all(&log.wal, G), entries(1, 0, 64));
    settle(&mut log);
}

#[test]
fn when_written_completes_once_entries_are_written() {
    let mut log = open(&SimDisk::new(1)).unwrap();
    let completed = Completed::default();
    log.wal.when_written(G, 9, completed.mark(0)).unwrap();
    assert_eq!(completed.numbers(), [0], "nothing waits to be written");
    log.wal.append(G, entries(1, 0, 4), completed.mark(1)).unwrap();
    log.wal.when_written(G, 3, completed.mark(2)).unwrap();
    assert_eq!(completed.numbers(), [0]);
    run(&mut log.writer);
    assert_eq!(completed.numbers(), [0, 2, 1], "before it is synced");
    log.wal.truncate_after(G, Some(1)).unwrap();
    log.wal.when_written(G, 9, completed.mark(3)).unwrap();
    log.wal.append(G, entries(2, 2, 4), completed.mark(4)).unwrap();
    log.wal.when_written(G, 1, completed.mark(5)).unwrap();
    assert_eq!(completed.numbers(), [0, 2, 1, 3, 5], "truncated entries and written entries are not waited for");
    log.wal.when_written(G, 2, completed.mark(6)).unwrap();
    drop(log.writer);
    assert_eq!((completed.numbers().len(), completed.errors()), (5, 2));
    assert!(log.wal.when_written(G, 9, completed.mark(7)).is_err());
}

#[test]
fn truncation_purge_and_new_tail_survive_a_crash() {
    let disk = SimDisk::new(2);
    let mut log = open(&disk).unwrap();
    let completed = Completed::default();
    log.wal.append(G, entries(1, 0, 10), completed.mark(0)).unwrap();
    run(&mut log.writer);
    log.wal.truncate_after(G, Some(6)).unwrap();
    log.wal.append(G, entries(2, 7, 9), completed.mark(1)).unwrap();
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
    let hole = log.wal.append(G, entries(2, 10, 11), completed.mark(2));
    assert!(matches!(hole, Err(WalError::Hole { expected: 9, .. })));
}

#[test]
fn a_log_continues_after_a_purge_beyond_its_end() {
    let disk = SimDisk::new(3);
    let mut log = open(&disk).unwrap();
    let completed = Completed::default();
    log.wal.append(G, entries(1, 0, 5), completed.mark(0)).unwrap();
    log.wal.purge(G, id(4, 100)).unwrap();
    log.wal.append(G, entries(4, 101, 103), completed.mark(1)).unwrap();
    run(&mut log.writer);
    let log = open(&disk.crash()).unwrap();
    assert_eq!(read_all(&log.wal, G), entries(4, 101, 103));
}

#[test]
fn votes_identity_and_committed_survive_a_crash() {
    let disk = SimDisk::new(4);
    let mut log = open(&disk).unwrap();
    assert_eq!(log.recovery.restart, Restart::Fresh);
    let completed = Completed::default();
    log.wal.save_identity(Bytes::from_static(b"me"), completed.mark(0)).unwrap();
    log.wal.append(G, entries(1, 0, 5), completed.mark(1)).unwrap();
    log.wal.save_vote(G, Bytes::from_static(b"t1"), completed.mark(2)).unwrap();
    log.wal.save_committed(G, id(1, 2)).unwrap();
    assert_eq!(log.wal.vote(G).unwrap(), "t1");
    run(&mut log.writer);
    log.wal.save_committed(G, id(1, 3)).unwrap();
    settle(&mut log);
    let log = open(&disk.crash()).unwrap();
    assert_eq!((completed.numbers(), log.recovery.identity.unwrap()), (vec![0, 1, 2], Bytes::from_static(b"me")));
    assert_eq!((log.wal.vote(G).unwrap(), log.wal.committed(G)), (Bytes::from_static(b"t1"), Some(id(1, 3))));
}

#[test]
fn purged_segments_are_recycled_and_cold_reads_work() {
    let disk = SimDisk::new(5);
    let mut log = open_with(&disk, quorate_wal::WalOptions { tail_bytes: 2000, ..options(32 << 10) }).unwrap();
    let completed = Completed::default();
    for n in 0..100 {
        log.wal.append(G, entries(1, n * 3, n * 3 + 3), completed.mark(0)).unwrap();
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
    assert_eq!(log.wal.entries(G, 199..300, 0).unwrap().len(), 1, "not empty if the first entry exists");
    let keep = log.wal.index_at_bytes_before_end(G, 100).unwrap();
    assert!(log.wal.bytes_after(G, keep) >= 100 && log.wal.bytes_after(G, keep + 1) < 100);
    let log = open_with(&disk.crash(), options(32 << 10)).unwrap();
    assert_eq!(read_all(&log.wal, G), entries(1, 199, 300));
}

#[test]
fn an_entry_may_be_larger_than_a_segment() {
    let disk = SimDisk::new(6);
    let mut log = open_with(&disk, options(16 << 10)).unwrap();
    let completed = Completed::default();
    let large = Bytes::from((0..100_000_u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>());
    log.wal.append(G, vec![(id(1, 0), large.clone()), (id(1, 1), Bytes::new())], completed.mark(0)).unwrap();
    run(&mut log.writer);
    assert_eq!(completed.numbers(), [0]);
    let log = open_with(&disk.crash(), options(16 << 10)).unwrap();
    assert_eq!(read_all(&log.wal, G), vec![(id(1, 0), large), (id(1, 1), Bytes::new())]);
}

#[test]
fn a_sync_error_is_final_and_fails_all_callers() {
    let disk = SimDisk::new(7);
    let mut log = open(&disk).unwrap();
    let completed = Completed::default();
    disk.fail_sync_after(0);
    log.wal.append(G, entries(1, 0, 1), completed.mark(0)).unwrap();
    assert_eq!(run(&mut log.writer), Step::Done);
    assert_eq!((completed.errors(), completed.numbers().len()), (1, 0));
    assert!(matches!(log.wal.append(G, entries(1, 1, 2), completed.mark(1)), Err(WalError::Io { .. })));
    assert_eq!(run(&mut log.keeper), Step::Done);
}

#[test]
fn a_full_disk_stalls_the_log_until_there_is_space() {
    let disk = SimDisk::new(8);
    let mut log = open_with(&disk, options(16 << 10)).unwrap();
    disk.set_capacity(Some(20 << 10));
    let completed = Completed::default();
    for n in 0..8 {
        log.wal.append(G, entries(1, n, n + 1), completed.mark(0)).unwrap();
        run(&mut log.writer);
    }
    assert!(log.wal.is_disk_full() && completed.numbers().len() < 8 && completed.errors() == 0);
    disk.set_capacity(None);
    run(&mut log.writer);
    assert!(!log.wal.is_disk_full());
    assert_eq!(completed.numbers().len(), 8);
    let log = open_with(&disk.crash(), options(16 << 10)).unwrap();
    assert_eq!(read_all(&log.wal, G), entries(1, 0, 8));
}

#[test]
fn a_machine_restart_is_reported_until_accepted() {
    let disk = SimDisk::new(9);
    let completed = Completed::default();
    let mut log = open(&disk).unwrap();
    log.wal.set_durability(G, Durability::Os);
    log.wal.append(G, entries(1, 0, 1), completed.mark(0)).unwrap();
    run(&mut log.writer);
    assert_eq!((completed.numbers(), log.wal.stats().syncs), (vec![0], 0), "completed without a sync");

    let disk = disk.kill();
    assert_eq!(open(&disk).unwrap().recovery.restart, Restart::ProcessOnly);
    let disk = disk.crash();
    let mut log = open(&disk).unwrap();
    assert_eq!(log.recovery.restart, Restart::Rebooted);
    log.wal.close_clean(completed.mark(1)).unwrap();
    assert_eq!(run(&mut log.writer), Step::Done);
    assert_eq!(completed.numbers(), [0, 1]);
    assert!(matches!(log.wal.append(G, entries(1, 1, 2), completed.mark(2)), Err(WalError::Closed)));
    let disk = disk.kill();
    let mut log = open(&disk).unwrap();
    assert_eq!(log.recovery.restart, Restart::Rebooted, "the restart is not yet accepted");
    log.wal.accept_reboot(completed.mark(3)).unwrap();
    run(&mut log.writer);
    let disk = disk.kill();
    let mut log = open(&disk).unwrap();
    assert_eq!(log.recovery.restart, Restart::ProcessOnly);
    log.wal.close_clean(completed.mark(4)).unwrap();
    run(&mut log.writer);
    let disk = disk.reboot();
    assert_eq!(open(&disk).unwrap().recovery.restart, Restart::Clean);
    let disk = disk.kill();
    disk.hide_boot_id(true);
    assert_eq!(
        open(&disk).unwrap().recovery.restart,
        Restart::Rebooted,
        "without a boot id a restart can't be ruled out"
    );
}

#[test]
fn acknowledged_damage_is_refused_a_torn_tail_cut() {
    let disk = SimDisk::new(10);
    let completed = Completed::default();
    let mut log = open(&disk).unwrap();
    for n in 0..3 {
        log.wal.append(G, entries(1, n, n + 1), completed.mark(0)).unwrap();
        run(&mut log.writer);
    }
    let (segment, last) = log.wal.stats().last_frame;
    let path = std::path::PathBuf::from(format!("{DIR}/{segment:010}.wal"));
    let disk = disk.kill();
    disk.flip_bit(&path, last + 70, 1).unwrap();
    let log = open(&disk).unwrap();
    assert!(log.recovery.cut.is_some());
    assert_eq!(read_all(&log.wal, G), entries(1, 0, 2), "damage to the very last frame is the documented exception");

    let disk = disk.kill();
    disk.flip_bit(&path, last - 8192 + 70, 1).unwrap();
    assert!(matches!(open(&disk), Err(OpenError::Corrupt { .. })));
}

#[test]
fn groups_share_a_log_and_a_directory_has_one_owner() {
    let disk = SimDisk::new(11);
    let other = GroupId(2);
    let completed = Completed::default();
    let mut log = open(&disk).unwrap();
    assert!(matches!(open(&disk), Err(OpenError::Busy { .. })));
    log.wal.append(G, entries(1, 0, 2), completed.mark(0)).unwrap();
    log.wal.append(other, entries(5, 0, 3), completed.mark(1)).unwrap();
    log.wal.save_vote(other, Bytes::from_static(b"v"), completed.mark(2)).unwrap();
    run(&mut log.writer);
    let log = open(&disk.crash()).unwrap();
    assert_eq!((read_all(&log.wal, G), read_all(&log.wal, other)), (entries(1, 0, 2), entries(5, 0, 3)));
    assert_eq!((log.wal.vote(G), log.wal.vote(other).unwrap()), (None, Bytes::from_static(b"v")));
}

#[test]
fn cutting_an_idle_log_frees_purged_segments() {
    let disk = SimDisk::new(12);
    let completed = Completed::default();
    let mut log = open(&disk).unwrap();
    for n in 0..200 {
        log.wal.append(G, entries(1, n, n + 1), completed.mark(0)).unwrap();
        settle(&mut log);
    }
    let before = log.wal.disk_bytes();
    log.wal.purge(G, id(1, 199)).unwrap();
    log.wal.cut_active(completed.mark(1)).unwrap();
    settle(&mut log);
    let stats = log.wal.stats();
    assert_eq!((stats.segments, stats.spares), (1, 0));
    assert!(log.wal.disk_bytes() <= 64 << 10 && before > 256 << 10);
}

#[test]
fn a_log_is_purged_once_all_groups_are() {
    let mut log = open(&SimDisk::new(15)).unwrap();
    let completed = Completed::default();
    assert!(log.wal.is_purged(), "nothing was ever written");
    log.wal.append(G, entries(1, 0, 3), completed.mark(0)).unwrap();
    log.wal.append(GroupId(2), entries(1, 0, 3), completed.mark(1)).unwrap();
    settle(&mut log);
    log.wal.purge(G, id(1, 2)).unwrap();
    assert!(!log.wal.is_purged());
    log.wal.purge(GroupId(2), id(1, 2)).unwrap();
    assert!(log.wal.is_purged());
}

#[test]
fn a_quiet_group_need_not_hold_the_files_of_the_others() {
    let disk = SimDisk::new(16);
    let (quiet, completed) = (GroupId(2), Completed::default());
    let mut log = open(&disk).unwrap();
    log.wal.append(quiet, entries(1, 0, 3), completed.mark(0)).unwrap();
    for n in 0..100 {
        log.wal.append(G, vec![(id(1, n), Bytes::from(vec![1; 10_000]))], completed.mark(1)).unwrap();
        settle(&mut log);
    }
    log.wal.append(quiet, entries(1, 3, 4), completed.mark(2)).unwrap();
    log.wal.purge(G, id(1, 90)).unwrap();
    settle(&mut log);
    let held = log.wal.disk_bytes();
    assert_eq!(log.wal.index_in_surplus_files(quiet, 1_000_000), None, "each group may keep that much");
    assert_eq!(log.wal.index_in_surplus_files(quiet, 200_000), Some(2), "its last entry is in the newest file");
    let own = log.wal.index_in_surplus_files(G, 200_000).unwrap_or_default();
    assert!(own < 60, "a busy group keeps as much as it would alone: {own}");

    let mut log = open(&disk.crash()).unwrap();
    assert_eq!(log.wal.index_in_surplus_files(quiet, 200_000), Some(2), "it is known after an opening too");
    log.wal.purge(quiet, id(1, 2)).unwrap();
    settle(&mut log);
    assert_eq!(log.wal.index_in_surplus_files(quiet, 200_000), None, "it is purged");
    assert!(held > 1_000_000 && log.wal.disk_bytes() < 400_000, "{held} {}", log.wal.disk_bytes());
}

#[test]
fn segments_grow_gradually_after_opening() {
    let disk = SimDisk::new(14);
    let mut log = open_with(&disk, options(64 << 20)).unwrap();
    let mut lengths = vec![log.wal.disk_bytes()];
    for n in 0..150 {
        let entry = (id(1, n), Bytes::from(vec![1; 500_000]));
        log.wal.append(G, vec![entry], Completed::default().mark(0)).unwrap();
        settle(&mut log);
        lengths.push(log.wal.disk_bytes());
    }
    lengths.dedup();
    let mib = |n: u64| n << 20;
    assert_eq!(lengths, [mib(4), mib(4 + 16), mib(4 + 16 + 64), mib(4 + 16 + 64 + 64)]);
}

#[test]
fn repeated_kills_do_not_fill_the_disk() {
    let disk = (0..100).fold(SimDisk::new(13), |disk, n| {
        let mut log = open(&disk).unwrap();
        log.wal.append(G, entries(1, n, n + 1), Completed::default().mark(0)).unwrap();
        run(&mut log.writer);
        disk.kill()
    });
    let log = open(&disk).unwrap();
    assert_eq!(read_all(&log.wal, G), entries(1, 0, 100));
    let bytes = disk.used();
    assert!(bytes < (64 << 10) + 100 * 4 * 4096, "{bytes}");
}
