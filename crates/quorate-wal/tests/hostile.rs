//! Whatever the files hold, opening a log answers; it does not panic, hang or take memory without bound.

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

/// Where the checksum stands, in frames and in headers of segments.
const CRC_AT: usize = 60;

fn segment(number: u32) -> PathBuf {
    Path::new(DIR).join(format!("{number:010}.wal"))
}

/// The bytes of the segments of a small log with all sorts of records.
fn honest() -> Vec<Vec<u8>> {
    let disk = SimDisk::new(1);
    let told = Told::default();
    let mut log = open_with(&disk, options(16 << 10)).unwrap();
    log.wal.save_identity(Bytes::from_static(b"i"), told.by(0)).unwrap();
    log.wal.save_vote(G, Bytes::from_static(b"v"), told.by(0)).unwrap();
    log.wal.append(G, entries(1, 0, 6), told.by(0)).unwrap();
    run(&mut log.writer);
    log.wal.truncate_after(G, Some(3)).unwrap();
    log.wal.append(G, entries(2, 4, 200), told.by(0)).unwrap();
    run(&mut log.writer);
    log.wal.purge(G, id(1, 2)).unwrap();
    log.wal.cut_active(told.by(0)).unwrap();
    log.wal.append(G, entries(2, 200, 201), told.by(0)).unwrap();
    settle(&mut log);
    let read = |number| {
        let file = disk.open(&segment(number), OpenMode::Read).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    vec![read(1), read(2)]
}

/// Makes the checksum of the header or frame that begins at `at` right.
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
    fn random_bytes_are_answered(files in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9000), 1..3)) {
        drop(open_planted(&files));
    }

    /// Damage whose checksums are right reaches everything behind the checks.
    #[test]
    fn forged_logs_are_answered(
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
fn a_later_format_is_refused_by_name() {
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
