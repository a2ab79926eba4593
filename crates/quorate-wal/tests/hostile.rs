//! Hostile input: whatever the files hold, opening a log returns; it does not panic, hang or use unbounded memory.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod common;

use std::path::{Path, PathBuf};

use bytes::Bytes;
use common::*;
use proptest::prelude::*;
use proptest::sample::Index;
use quorate_env::disk::{Disk, OpenMode};
use quorate_env_sim::SimDisk;
use quorate_wal::OpenError;
use quorate_wal::inspect::{End, Inspection};

/// The offset of the checksum in frames and in segment headers.
const CRC_AT: usize = 60;

fn segment(number: u32) -> PathBuf {
    Path::new(DIR).join(format!("{number:010}.wal"))
}

/// The segments of a small, undamaged log with various kinds of records.
fn honest() -> Vec<Vec<u8>> {
    let disk = SimDisk::new(1);
    let completed = Completed::default();
    let mut log = open_with(&disk, options(16 << 10)).unwrap();
    log.wal.save_identity(Bytes::from_static(b"i"), completed.mark(0)).unwrap();
    log.wal.save_vote(G, Bytes::from_static(b"v"), completed.mark(0)).unwrap();
    log.wal.append(G, entries(1, 0, 6), completed.mark(0)).unwrap();
    run(&mut log.writer);
    log.wal.truncate_after(G, Some(3)).unwrap();
    log.wal.append(G, entries(2, 4, 200), completed.mark(0)).unwrap();
    run(&mut log.writer);
    log.wal.purge(G, id(1, 2)).unwrap();
    log.wal.cut_active(completed.mark(0)).unwrap();
    log.wal.append(G, entries(2, 200, 201), completed.mark(0)).unwrap();
    settle(&mut log);
    let read = |number| {
        let file = disk.open(&segment(number), OpenMode::Read).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    vec![read(1), read(2)]
}

/// Corrects the checksum of the header or frame that begins at `at`.
fn reseal(bytes: &mut [u8], at: usize, epoch: std::ops::Range<usize>, len: std::ops::Range<usize>) {
    let Some(part) = bytes.get_mut(at..) else { return };
    let len = u32::from_le_bytes(part[len].try_into().unwrap()) as usize;
    let Some(body) = part.get(64..64_usize.saturating_add(len)) else { return };
    let crc = crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(&part[epoch]), &part[..CRC_AT]), body);
    part[CRC_AT..64].copy_from_slice(&crc.to_le_bytes());
}

fn open_planted(files: &[Vec<u8>]) -> Result<quorate_wal::Opened, OpenError> {
    let disk = SimDisk::new(1);
    for (number, bytes) in (1..).zip(files) {
        disk.plant(&segment(number), bytes).unwrap();
    }
    open_with(&disk, options(16 << 10))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn random_bytes_never_panic(files in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9000), 1..3)) {
        drop(open_planted(&files));
    }

    /// Damage with correct checksums reaches the code after the checksum checks.
    #[test]
    fn forged_logs_never_panic(
        file in 0_usize..2,
        changes in prop::collection::vec((any::<Index>(), 0_usize..220, any::<u8>()), 1..5),
        cut in prop::option::of(any::<Index>()),
    ) {
        let mut files = honest();
        let bytes = &mut files[file];
        for (page, offset, byte) in changes {
            let at = page.index(3) * 4096;
            bytes[at + offset] = byte;
            let (epoch, len) = if at == 0 { (12..20, 20..24) } else { (8..16, 36..40) };
            reseal(bytes, at, epoch, len);
        }
        if let Some(cut) = cut {
            let len = cut.index(bytes.len());
            bytes.truncate(len);
        }
        if let Ok(mut log) = open_planted(&files) {
            for group in log.recovery.groups.keys() {
                let first = log.wal.purged(*group).map_or(0, |floor| floor.index.saturating_add(1));
                drop(log.wal.entries(*group, first..u64::MAX, 1 << 20));
            }
            settle(&mut log);
        }
    }
}

#[test]
fn a_later_format_is_refused_as_a_version() {
    let mut files = honest();
    for file in &mut files {
        file[8] = 2;
        reseal(file, 0, 12..20, 20..24);
    }
    assert!(matches!(open_planted(&files), Err(OpenError::Version { version: 2, .. })));
}

#[test]
fn a_log_without_its_segments_is_refused() {
    let files = honest();
    assert!(matches!(open_planted(&[vec![0; 4096], files[1].clone()]), Ok(_) | Err(OpenError::Corrupt { .. })));
    let zeros = [vec![0; 16 << 10], vec![0; 16 << 10]];
    assert!(matches!(open_planted(&zeros), Err(OpenError::Corrupt { .. })), "ordinal 2 was never the first");
}

/// A record of group 1 at this index, without bytes.
fn record(kind: u8, flag: u8, index: u64) -> Vec<u8> {
    let head = [kind, flag, 0, 0, 1, 0, 0, 0].into_iter().chain(1_u64.to_le_bytes()).chain(9_u64.to_le_bytes());
    head.chain(index.to_le_bytes()).chain([0; 4]).collect()
}

const ENTRY: u8 = 1;
const TRUNCATE: u8 = 4;
const PURGE: u8 = 5;
const CLOSED: u8 = 8;
const LAST: u8 = 9;

/// A segment with correct checksums, with these records in its header and in its frames.
fn forged(state: &[Vec<u8>], frames: &[&[Vec<u8>]]) -> Vec<u8> {
    let le = |number: usize| u32::try_from(number).unwrap().to_le_bytes();
    let epoch = [le(1), le(77)].concat();
    let body = state.concat();
    let mut bytes = [b"QUORWALS\x01\0\0\0", &epoch[..], &le(body.len()), &1_u64.to_le_bytes()].concat();
    bytes.resize(64, 0);
    bytes.extend(body);
    bytes.resize(4096, 0);
    reseal(&mut bytes, 0, 12..20, 20..24);
    for (sequence, records) in (1_u64..).zip(frames) {
        let (at, body) = (bytes.len(), records.concat());
        let counts = [le(records.len()), le(body.len()), le(body.len())].concat();
        let numbers = [sequence.to_le_bytes(), (sequence - 1).to_le_bytes()].concat();
        bytes.extend([b"QFRM\x01\0\0\0", &epoch[..], &numbers, &counts].concat());
        bytes.resize(at + 64, 0);
        bytes.extend(body);
        reseal(&mut bytes, at, 8..16, 36..40);
        bytes.resize(at + 4096, 0);
    }
    bytes
}

/// Whether a log is refused. Inspection and opening must agree on that.
fn is_refused(bytes: Vec<u8>) -> bool {
    let disk = SimDisk::new(1);
    disk.plant(&segment(1), &bytes).unwrap();
    let inspected = matches!(Inspection::read(&disk, Path::new(DIR)).unwrap().end, End::Refused(_));
    assert_eq!(matches!(open_planted(&[bytes]), Err(OpenError::Corrupt { .. })), inspected);
    inspected
}

#[test]
fn a_consistent_forged_log_opens() {
    let entries = [record(ENTRY, 0, 5), record(ENTRY, 0, 6), record(TRUNCATE, 0, 5), record(PURGE, 0, 5)];
    assert!(!is_refused(forged(&[record(PURGE, 0, 4), record(LAST, 0, 4)], &[&entries, &[record(CLOSED, 0, 0)]])));
}

#[test]
fn records_beside_a_closing_record_are_applied() {
    let mut log = open_planted(&[forged(&[], &[&[record(CLOSED, 0, 0), record(ENTRY, 0, 5)]])]).unwrap();
    assert_eq!(log.recovery.groups[&G].last, Some(id(1, 5)));
    settle(&mut log);
    let unknown = forged(&[], &[&[record(CLOSED, 0, 0), record(99, 0, 0)]]);
    assert!(matches!(open_planted(&[unknown]), Err(OpenError::Version { .. })));
}

#[test]
fn a_log_that_ends_before_its_floor_is_refused() {
    assert!(is_refused(forged(&[record(PURGE, 0, 100_000), record(LAST, 0, 5)], &[])));
    for cut in [record(TRUNCATE, 0, 5), record(TRUNCATE, 1, 0)] {
        assert!(is_refused(forged(&[], &[&[record(ENTRY, 0, 5), record(PURGE, 0, 100_000), cut]])));
    }
}

#[test]
fn a_log_that_is_cut_beyond_its_end_is_refused() {
    assert!(is_refused(forged(&[], &[&[record(ENTRY, 0, 5), record(TRUNCATE, 0, 9), record(ENTRY, 0, 10)]])));
    assert!(is_refused(forged(&[], &[&[record(ENTRY, 0, 5), record(LAST, 0, 9), record(ENTRY, 0, 10)]])));
}

/// The gap holds 2^60 entries, so iterating over it would never end.
#[test]
fn inspection_does_not_iterate_over_a_huge_gap() {
    assert!(is_refused(forged(&[record(PURGE, 0, 5), record(LAST, 0, 1 << 60)], &[])));
}
