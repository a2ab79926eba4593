//! Guards the format: logs of format 1 open, and new logs are written with the same bytes.
//!
//! `tests/golden/mixed` holds a log with every kind of record, packed frames, and frames that were not synced one by
//! one. `tests/golden/plain` holds a log without packed frames, so its bytes do not depend on a compressor. To rewrite
//! the files after a deliberate change, run the tests with `QUORATE_BLESS=1`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "golden files are real files")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use common::*;
use quorate_env::disk::{Disk, OpenMode};
use quorate_env_sim::SimDisk;
use quorate_model::GroupId;
use quorate_wal::{Durability, Restart};

const OTHER: GroupId = GroupId(7);

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// The segments of a log, by name.
fn segments(disk: &SimDisk) -> Vec<(String, Vec<u8>)> {
    let items = disk.list(Path::new(DIR)).unwrap().into_iter().filter(|item| item.name.ends_with(".wal"));
    items
        .map(|item| {
            let file = disk.open(&Path::new(DIR).join(&item.name), OpenMode::Read).unwrap();
            let mut bytes = vec![0; item.len as usize];
            file.read_exact_at(&mut bytes, 0).unwrap();
            (item.name, bytes)
        })
        .collect()
}

fn bless(name: &str, segments: &[(String, Vec<u8>)]) {
    if std::env::var_os("QUORATE_BLESS").is_some() {
        fs::create_dir_all(golden(name)).unwrap();
        segments.iter().for_each(|(file, bytes)| fs::write(golden(name).join(file), bytes).unwrap());
    }
}

/// A simulated disk with a copy of a golden log.
fn planted(name: &str) -> SimDisk {
    let disk = SimDisk::new(1);
    for item in fs::read_dir(golden(name)).unwrap() {
        let item = item.unwrap();
        disk.plant(&Path::new(DIR).join(item.file_name()), &fs::read(item.path()).unwrap()).unwrap();
    }
    disk
}

/// A log with every kind of record.
fn write(large: bool) -> SimDisk {
    let disk = SimDisk::new(1);
    let completed = Completed::default();
    let mut log = open_with(&disk, options(16 << 10)).unwrap();
    log.wal.set_durability(OTHER, Durability::Os);
    log.wal.save_identity(Bytes::from_static(b"identity"), completed.mark(0)).unwrap();
    log.wal.append(G, entries(1, 0, 5), completed.mark(1)).unwrap();
    run(&mut log.writer);
    log.wal.truncate_after(G, Some(3)).unwrap();
    log.wal.append(G, entries(2, 4, if large { 200 } else { 8 }), completed.mark(2)).unwrap();
    log.wal.save_vote(G, Bytes::from_static(b"vote"), completed.mark(3)).unwrap();
    run(&mut log.writer);
    for n in 0..3 {
        log.wal.append(OTHER, entries(9, n, n + 1), completed.mark(4)).unwrap();
        run(&mut log.writer);
    }
    log.wal.purge(G, id(1, 2)).unwrap();
    log.wal.save_committed(G, id(2, 6)).unwrap();
    log.wal.append(G, vec![], completed.mark(5)).unwrap();
    run(&mut log.writer);
    log.wal.cut_active(completed.mark(6)).unwrap();
    log.wal.accept_reboot(completed.mark(7)).unwrap();
    log.wal.append(OTHER, entries(9, 3, 5), completed.mark(8)).unwrap();
    log.wal.truncate_after(OTHER, None).unwrap();
    log.wal.append(OTHER, entries(10, 0, 2), completed.mark(9)).unwrap();
    log.wal.close_clean(completed.mark(10)).unwrap();
    run(&mut log.writer);
    assert_eq!(completed.numbers().len(), 13);
    disk
}

fn check(disk: &SimDisk, last: u64) {
    let log = open_with(disk, options(16 << 10)).unwrap();
    assert_eq!(log.recovery.restart, Restart::Clean);
    assert_eq!(log.recovery.identity.as_deref(), Some(&b"identity"[..]));
    let expected: Vec<_> = entries(1, 3, 4).into_iter().chain(entries(2, 4, last)).collect();
    assert_eq!(read_all(&log.wal, G), expected);
    assert_eq!(read_all(&log.wal, OTHER), entries(10, 0, 2));
    assert_eq!(log.wal.vote(G).as_deref(), Some(&b"vote"[..]));
    assert_eq!((log.wal.purged(G), log.wal.committed(G)), (Some(id(1, 2)), Some(id(2, 6))));
}

#[test]
fn a_log_of_format_1_opens() {
    bless("mixed", &segments(&write(true)));
    check(&planted("mixed"), 200);
}

#[test]
fn format_1_is_written_byte_for_byte() {
    let disk = write(false);
    let now = segments(&disk);
    bless("plain", &now);
    assert_eq!(now, segments(&planted("plain")));
    check(&planted("plain"), 8);
}
