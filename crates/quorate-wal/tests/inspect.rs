//! Inspection reports the same as an opening finds, and changes no file.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod common;

use std::path::{Path, PathBuf};

use bytes::Bytes;
use common::*;
use proptest::prelude::*;
use quorate_env::disk::{Disk, OpenMode};
use quorate_env_sim::SimDisk;
use quorate_model::GroupId;
use quorate_wal::OpenError;
use quorate_wal::inspect::{End, Inspection};

fn inspect(disk: &SimDisk) -> Inspection {
    Inspection::read(disk, Path::new(DIR)).unwrap()
}

/// The names and contents of all files in the log's directory.
fn files(disk: &SimDisk) -> Vec<(String, Vec<u8>)> {
    let items = disk.list(Path::new(DIR)).unwrap();
    let read = |name: String| {
        let file = disk.open(&Path::new(DIR).join(&name), OpenMode::Read).unwrap();
        let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
        file.read_exact_at(&mut bytes, 0).unwrap();
        (name, bytes)
    };
    items.into_iter().map(|item| read(item.name)).collect()
}

/// An open, idle log of three segments with votes and with truncated and purged entries.
fn busy(disk: &SimDisk) -> quorate_wal::Opened {
    let completed = Completed::default();
    let mut log = open_with(disk, options(16 << 10)).unwrap();
    log.wal.save_identity(Bytes::from_static(b"i"), completed.mark(0)).unwrap();
    log.wal.save_vote(G, Bytes::from_static(b"v"), completed.mark(0)).unwrap();
    log.wal.append(G, entries(1, 0, 40), completed.mark(0)).unwrap();
    run(&mut log.writer);
    log.wal.truncate_after(G, Some(29)).unwrap();
    log.wal.append(G, entries(2, 30, 300), completed.mark(0)).unwrap();
    run(&mut log.writer);
    log.wal.cut_active(completed.mark(0)).unwrap();
    log.wal.append(G, entries(2, 300, 310), completed.mark(0)).unwrap();
    settle(&mut log);
    log.wal.purge(G, id(1, 5)).unwrap();
    log.wal.save_committed(G, id(2, 305)).unwrap();
    log.wal.append(G, entries(3, 310, 311), completed.mark(0)).unwrap();
    settle(&mut log);
    log
}

/// The groups as the inspection reports them.
fn groups_of(inspection: &Inspection) -> String {
    format!("{:?}", inspection.groups.iter().map(|(id, g)| (id, g.purged, g.last, &g.vote)).collect::<Vec<_>>())
}

#[test]
fn inspecting_a_log_in_use_agrees_with_opening_it() {
    let disk = SimDisk::new(1);
    let log = busy(&disk);
    let before = files(&disk);
    let inspection = inspect(&disk);
    assert!(matches!(inspection.end, End::Open) && !inspection.moved, "{:?}", inspection.end);
    assert_eq!(files(&disk), before, "reading changes nothing");

    let group = &inspection.groups[&G];
    assert_eq!((group.purged, group.first, group.last), (Some(id(1, 5)), Some(id(1, 6)), Some(id(3, 310))));
    assert_eq!((group.committed, group.vote.as_deref()), (Some(id(2, 305)), Some(&b"v"[..])));
    assert_eq!(inspection.identity.as_deref(), Some(&b"i"[..]));
    let listed: Vec<_> = inspection.entries(G, 0..u64::MAX).map(|entry| entry.unwrap()).collect();
    let expected: Vec<_> = [entries(1, 6, 30), entries(2, 30, 310), entries(3, 310, 311)].concat();
    assert_eq!(listed.iter().map(|entry| (entry.id, entry.bytes.clone())).collect::<Vec<_>>(), expected);
    assert_eq!(inspection.entries(G, 100..103).count(), 3);
    assert_eq!(inspection.entries(GroupId(99), 0..u64::MAX).count(), 0);

    let segments = &inspection.segments;
    assert!(segments.len() > 1 && segments.iter().rev().skip(1).all(|segment| segment.is_sealed));
    assert!(!segments.last().unwrap().is_sealed);
    let ranges: Vec<(u64, u64)> = segments.iter().filter_map(|segment| segment.entries.get(&G).copied()).collect();
    assert_eq!((ranges[0].0, ranges.last().unwrap().1), (6, 310));
    assert!(ranges.windows(2).all(|pair| pair[0].1 + 1 == pair[1].0), "{ranges:?}");
    for entry in &listed {
        let segment = segments.iter().find(|segment| segment.ordinal == entry.ordinal).unwrap();
        let (first, last) = segment.entries[&G];
        assert!((first..=last).contains(&entry.id.index) && entry.offset < segment.used);
    }

    drop(log);
    let groups_before = groups_of(&inspection);
    let mut log = open_with(&disk, options(16 << 10)).unwrap();
    let found = &log.recovery.groups[&G];
    assert_eq!((found.purged, found.last, found.vote.clone()), (group.purged, group.last, group.vote.clone()));
    log.wal.close_clean(Completed::default().mark(0)).unwrap();
    settle(&mut log);
    let closed = inspect(&disk);
    assert!(matches!(closed.end, End::Closed), "{:?}", closed.end);
    assert_eq!(groups_of(&closed), groups_before);
}

#[test]
fn a_directory_without_a_log_is_empty() {
    let disk = SimDisk::new(1);
    assert!(matches!(Inspection::read(&disk, Path::new(DIR)), Err(OpenError::Io { .. })));
    disk.create_dir_all(Path::new(DIR)).unwrap();
    let inspection = inspect(&disk);
    assert!(matches!(inspection.end, End::Empty) && inspection.segments.is_empty());
}

/// Changes a byte of the newest segment, `back` bytes before the end of its frames, or overwrites everything from there
/// with zeros.
fn damage(disk: &SimDisk, back: u64, cut: bool) -> PathBuf {
    let inspection = inspect(disk);
    let newest = inspection.segments.last().unwrap();
    let at = newest.used.saturating_sub(back);
    let file = disk.open(&newest.path, OpenMode::ReadWrite).unwrap();
    if cut {
        let zeros = vec![0; usize::try_from(newest.len - at).unwrap()];
        file.write_at(&zeros, at).unwrap();
    } else {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_at(&[!byte[0]], at).unwrap();
    }
    newest.path.clone()
}

#[test]
fn torn_tails_and_damage_are_distinguished() {
    let disk = SimDisk::new(1);
    let log = busy(&disk);
    drop(log);
    let whole = inspect(&disk).segments.last().unwrap().used;
    let path = damage(&disk, 1, false);
    let torn = inspect(&disk);
    let End::Torn { path: at, offset } = &torn.end else { panic!("{:?}", torn.end) };
    assert!(*at == path && *offset < whole);

    // Later frames declare the first frame of the segment durable.
    let disk = SimDisk::new(1);
    drop(busy(&disk));
    let segment = inspect(&disk).segments.last().unwrap().clone();
    assert!(segment.frames > 1);
    let path = damage(&disk, segment.used - 4096 - 70, false);
    let damaged = inspect(&disk);
    match &damaged.end {
        End::Refused(OpenError::Corrupt { path: at, offset, what }) => {
            assert!(*at == path && *offset == 4096 && what.contains("durable"), "{offset} {what}");
        }
        other => panic!("{other:?}"),
    }
    assert!(damaged.entries(G, 0..u64::MAX).all(|entry| entry.is_ok()), "what comes before the damage can be read");
    assert!(damaged.groups[&G].last.is_some());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever the damage, inspection reaches the same result as opening, and changes nothing.
    #[test]
    fn inspection_and_opening_agree(changes in prop::collection::vec((0_u64..9_000, any::<bool>()), 0..3)) {
        let disk = SimDisk::new(1);
        drop(busy(&disk));
        for (back, cut) in changes {
            damage(&disk, back, cut);
        }
        let before = files(&disk);
        let inspection = inspect(&disk);
        let listed: Vec<_> = inspection.entries(G, 0..u64::MAX).collect();
        prop_assert_eq!(files(&disk), before);
        match (open_with(&disk, options(16 << 10)), &inspection.end) {
            (Err(error), End::Refused(refusal)) => prop_assert_eq!(error.to_string(), refusal.to_string()),
            (Ok(opened), End::Torn { path, offset }) => {
                prop_assert_eq!(opened.recovery.cut, Some((path.clone(), *offset)));
            }
            (Ok(opened), End::Open | End::Empty | End::Closed) => {
                prop_assert_eq!(opened.recovery.cut, None);
                let last = opened.recovery.groups.get(&G).and_then(|group| group.last);
                prop_assert_eq!(last, inspection.groups.get(&G).and_then(|group| group.last));
                let first = opened.recovery.groups.get(&G).map_or(0, |g| g.purged.map_or(0, |id| id.index + 1));
                let held = opened.wal.entries(G, first..u64::MAX, usize::MAX).unwrap();
                let listed: Vec<_> = listed.into_iter().map(Result::unwrap).map(|e| (e.id, e.bytes)).collect();
                prop_assert_eq!(held, listed);
            }
            (opened, end) => prop_assert!(false, "{:?} {:?}", opened.map(drop), end),
        }
    }
}
