//! Logs on a disk: how recovery and inspection handle segments that no writer has written.
//!
//! The segments are assembled as `docs/wal-format.md` says, with right checksums, from contents that the fuzzer
//! chooses. Records are out of order or damaged only where the fuzzer chooses that.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use quorate_model::{GroupId, LogId};
use quorate_wal::inspect::{End, Inspection};
use quorate_wal::{GroupRecovery, OpenError, Opened, Wal, WalOptions};

use crate::disk::MemoryDisk;
use crate::input::Input;

mod made;

use made::Made;

const DIR: &str = "log";
/// The maximum number of entries of each group that are compared.
const ENTRIES_MAX: usize = 64;

/// The compared entries, by group.
type Entries = BTreeMap<GroupId, Vec<(LogId, Bytes)>>;

/// Checks an assembled log (see [`check`]), and that it returns no entry which no whole frame holds.
pub fn log(data: &[u8]) {
    let made = Made::of(&mut Input(data));
    let known: BTreeSet<(u32, u64, Bytes)> = made.entries.into_iter().collect();
    for (group, entries) in check(made.segments).unwrap_or_default() {
        for (id, bytes) in entries {
            assert!(
                known.contains(&(group.0, id.index, bytes)),
                "entry {id:?} of {group:?} was never written with these bytes"
            );
        }
    }
}

/// Checks a log whose only segment has the bytes of the input.
pub fn raw(data: &[u8]) {
    check(vec![(1, data.to_vec())]);
}

/// Checks that inspection and opening agree on the content of a log, and that a log which was opened opens again with
/// the same content. Returns the entries.
fn check(segments: Vec<(u32, Vec<u8>)>) -> Option<Entries> {
    let disk = Arc::new(MemoryDisk::default());
    for (ordinal, bytes) in segments {
        disk.put(PathBuf::from(format!("{DIR}/{ordinal:010}.wal")), bytes);
    }
    let seen = Inspection::read(&*disk, Path::new(DIR));
    let Ok(seen) = seen else { unreachable!("the disk in memory does not fail, but inspection did: {seen:?}") };
    let inspected = entries(&seen);
    let opened = match (open(&disk), &seen.end) {
        (Err(_), End::Refused(_)) | (Err(OpenError::Limit(_)), _) => return None,
        (Ok(opened), end) if !matches!(end, End::Refused(_)) => opened,
        (opened, end) => unreachable!("opened: {:?}, inspected: {end:?}", opened.map(|opened| opened.recovery)),
    };
    let groups = opened.recovery.groups.clone();
    let as_seen = seen.groups.iter().map(|(id, group)| {
        let (purged, last, vote, committed) = (group.purged, group.last, group.vote.clone(), group.committed);
        (*id, GroupRecovery { purged, last, vote, committed })
    });
    assert_eq!(as_seen.collect::<BTreeMap<_, _>>(), groups, "opening and inspection disagree");
    assert_eq!(seen.identity, opened.recovery.identity, "opening and inspection find different identities");
    for (group, seen) in &inspected {
        let Some((first, _)) = seen.first() else { continue };
        let first = first.index;
        let read = opened.wal.entries(*group, first..first.saturating_add(seen.len() as u64), usize::MAX);
        assert_eq!(read.ok().as_ref(), Some(seen), "opening and inspection find different entries of {group:?}");
    }
    drop(opened);
    let again = open(&disk);
    let recovered = again.as_ref().map(|again| &again.recovery.groups);
    assert_eq!(recovered.ok(), Some(&groups), "opening again gives another log: {:?}", recovered.err());
    Some(inspected)
}

fn open(disk: &Arc<MemoryDisk>) -> Result<Opened, OpenError> {
    let options = WalOptions { segment_bytes: 0, ..WalOptions::small(7) };
    Wal::open(Arc::clone(disk) as Arc<_>, Path::new(DIR), options)
}

fn entries(seen: &Inspection) -> Entries {
    let of = |group: &GroupId| {
        let entries = seen.entries(*group, 0..u64::MAX).take(ENTRIES_MAX);
        entries.map_while(|entry| entry.ok().map(|entry| (entry.id, entry.bytes))).collect()
    };
    seen.groups.keys().map(|group| (*group, of(group))).collect()
}
