//! The promises of the simulated disk: synced data stays, unsynced data may be lost, and planned faults occur.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use std::path::Path;

use proptest::prelude::*;
use quorate_env::disk::{Disk, OpenMode, make_dir};

use super::{Fault, SimDisk};

const DIR: &str = "/d";

fn path(name: &str) -> std::path::PathBuf {
    Path::new(DIR).join(name)
}

fn disk(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    disk.create_dir_all(Path::new(DIR)).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    disk
}

fn content(disk: &SimDisk, name: &str) -> Option<Vec<u8>> {
    let file = disk.open(&path(name), OpenMode::Read).ok()?;
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    Some(bytes)
}

#[test]
fn synced_data_survives_and_unsynced_data_may_not() {
    let (mut old, mut new, mut torn, mut nameless) = (0, 0, 0, 0);
    for seed in 0..200 {
        let disk = disk(seed);
        let file = disk.open(&path("a"), OpenMode::CreateNew).unwrap();
        file.write_at(&[1; 2048], 0).unwrap();
        file.sync_data().unwrap();
        disk.sync_dir(Path::new(DIR)).unwrap();
        file.write_at(&[2; 512], 512).unwrap();
        disk.open(&path("b"), OpenMode::CreateNew).unwrap().sync_data().unwrap();
        let disk = disk.crash();
        assert!(file.write_at(&[3], 0).is_err(), "a file of the previous life must fail");
        let bytes = content(&disk, "a").expect("the name was synced");
        assert_eq!((&bytes[..512], &bytes[1024..]), (&[1; 512][..], &[1; 1024][..]));
        match bytes[512..1024].iter().filter(|byte| **byte == 2).count() {
            0 => old += 1,
            512 => new += 1,
            _ => torn += 1,
        }
        nameless += i32::from(content(&disk, "b").is_none());
    }
    assert!(old > 20 && new > 20 && torn > 5 && (20..180).contains(&nameless), "{old} {new} {torn} {nameless}");
}

#[test]
fn make_dir_makes_all_new_parents_durable() {
    for seed in 0..50 {
        let disk = disk(seed);
        make_dir(&disk, &path("a/b/c")).unwrap();
        assert!(disk.crash().exists(&path("a/b/c")).unwrap(), "seed {seed}");
    }
}

#[test]
fn a_lost_truncation_takes_later_writes_with_it() {
    let (mut kept, mut lost) = (0, 0);
    for seed in 0..200 {
        let disk = disk(seed);
        let file = disk.open(&path("a"), OpenMode::CreateNew).unwrap();
        file.write_at(&[1; 4096], 0).unwrap();
        file.sync_data().unwrap();
        disk.sync_dir(Path::new(DIR)).unwrap();
        file.set_len(700).unwrap();
        file.write_at(&[2; 2048], 700).unwrap();
        let bytes = content(&disk.crash(), "a").unwrap();
        if bytes.len() == 4096 {
            assert!(bytes.iter().all(|byte| *byte == 1), "a lost truncation takes later writes with it");
            lost += 1;
        } else {
            assert!(bytes[..700].iter().all(|byte| *byte == 1) && bytes[700..].iter().all(|byte| *byte != 1));
            kept += 1;
        }
    }
    assert!(kept > 40 && lost > 40, "{kept} {lost}");
}

#[test]
fn a_later_sync_does_not_repair_a_failed_one() {
    let lost = (0..100).any(|seed| {
        let disk = disk(seed);
        let file = disk.open(&path("a"), OpenMode::CreateNew).unwrap();
        disk.sync_dir(Path::new(DIR)).unwrap();
        file.set_len(512).unwrap();
        file.sync_data().unwrap();
        file.write_at(&[7; 512], 0).unwrap();
        disk.fail_sync_after(0);
        assert!(file.sync_data().is_err());
        file.sync_data().unwrap();
        let disk = disk.kill();
        assert_eq!(content(&disk, "a").unwrap(), [7; 512], "the page cache survives the process");
        content(&disk.crash(), "a").unwrap() != [7; 512]
    });
    assert!(lost);
}

#[test]
fn renames_are_atomic_and_durable_once_synced() {
    for seed in 0..100 {
        let disk = disk(seed);
        for (name, byte) in [("old", 1), ("new", 2)] {
            disk.plant(&path(name), &[byte]).unwrap();
        }
        disk.rename(&path("new"), &path("old")).unwrap();
        if seed % 2 == 0 {
            disk.sync_dir(Path::new(DIR)).unwrap();
        }
        let disk = disk.crash();
        match (content(&disk, "old").unwrap()[0], content(&disk, "new")) {
            (2, None) => {}
            (1, Some(bytes)) => assert!(seed % 2 == 1 && bytes == [2]),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn faults_occur_when_planned() {
    let disk = disk(1);
    let file = disk.open(&path("a"), OpenMode::CreateNew).unwrap();
    disk.fail_after(1, Fault::NoSpace);
    file.write_at(&[1], 0).unwrap();
    assert_eq!(file.write_at(&[1], 1).unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    file.write_at(&[1], 1).unwrap();

    disk.set_capacity(Some(4));
    file.write_at(&[1; 4], 0).unwrap();
    assert_eq!(file.write_at(&[1; 5], 0).unwrap_err().kind(), std::io::ErrorKind::StorageFull);

    disk.stop_after(1);
    file.write_at(&[1], 0).unwrap();
    assert!(file.write_at(&[1], 0).is_err() && file.read_at(&mut [0], 0).is_err() && disk.has_stopped());

    let disk = disk.kill();
    let held = disk.lock_dir(Path::new(DIR)).unwrap();
    assert_eq!(disk.lock_dir(Path::new(DIR)).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    drop(held);
    disk.lock_dir(Path::new(DIR)).unwrap();
}

proptest! {
    /// Reads agree with a plain vector after any writes, truncations and extensions.
    #[test]
    fn contents_match_a_vector(ops in prop::collection::vec((0_u64..3000, 0_usize..1500, any::<u8>()), 1..30)) {
        let disk = disk(3);
        let file = disk.open(&path("a"), OpenMode::CreateNew).unwrap();
        let mut model: Vec<u8> = Vec::new();
        for (at, len, byte) in ops {
            let from = usize::try_from(at).unwrap();
            if byte % 5 == 0 {
                file.set_len(at).unwrap();
                model.resize(from, 0);
            } else {
                file.write_at(&vec![byte; len], at).unwrap();
                if len > 0 {
                    model.resize(model.len().max(from + len), 0);
                    model[from..from + len].fill(byte);
                }
            }
            prop_assert_eq!(&content(&disk, "a").unwrap(), &model);
        }
        file.sync_data().unwrap();
        disk.sync_dir(Path::new(DIR)).unwrap();
        prop_assert_eq!(&content(&disk.crash(), "a").unwrap(), &model);
    }
}

#[test]
fn a_pending_removal_spares_a_replaced_directory() {
    for seed in 0..50 {
        let disk = disk(seed);
        let (inner, next, aside) = (path("x"), path("next"), path("aside"));
        for dir in [&inner, &next] {
            disk.create_dir_all(dir).unwrap();
            disk.open(&dir.join("a"), OpenMode::CreateNew).unwrap().sync_data().unwrap();
            disk.sync_dir(dir).unwrap();
        }
        disk.remove_file(&inner.join("a")).unwrap();
        if seed % 2 == 0 {
            disk.rename(&inner, &aside).unwrap();
        } else {
            disk.remove_dir_all(&inner).unwrap();
        }
        disk.rename(&next, &inner).unwrap();
        disk.sync_dir(Path::new(DIR)).unwrap();
        assert!(disk.crash().exists(&inner.join("a")).unwrap(), "seed {seed}");
    }
}
