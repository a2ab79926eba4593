//! A `-wal` of which the disk may hold less than is read.
//!
//! After a sync that failed the system may take pages for written that are not, and no later sync writes them: only
//! what is written anew is synced. A store whose disk failed stops, and leaves the file `UNSYNCED`; the next start
//! writes the whole `-wal` once more before anybody reads from it. The main file needs none of this: a checkpoint that
//! could not sync it leaves all of its frames in the `-wal`.
//!
//! Invariant: a store that is open calls nothing durable that only the page cache holds.

use std::io;
use std::path::Path;

use quorate_env::disk::{Disk, OpenMode};

/// The name of the note.
pub(super) const FILE: &str = "UNSYNCED";

/// Bytes that are written at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// Notes that the disk failed, for the next start: that the file is there says it, its text is for people. Nothing of
/// it is synced: a disk that fails may refuse that, and once the machine was restarted there is no page cache left to
/// mistrust.
pub(super) fn note(disk: &dyn Disk, dir: &Path, what: &str) {
    match disk.open(&dir.join(FILE), OpenMode::Create) {
        // A disk that is full too has no room for the text.
        Ok(file) => drop(file.write_at(what.as_bytes(), 0)),
        Err(error) => {
            tracing::error!(%error, "that the disk failed can't be noted: restart the machine before this node");
        }
    }
}

/// Writes the `-wal` again where the disk had failed.
pub(super) fn make_good(disk: &dyn Disk, dir: &Path, wal: &Path) -> io::Result<()> {
    let note = dir.join(FILE);
    if !disk.exists(&note)? {
        return Ok(());
    }
    tracing::warn!("the disk had failed: what it may have lost in secret is written again");
    if disk.exists(wal)? {
        let file = disk.open(wal, OpenMode::ReadWrite)?;
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut at = 0;
        loop {
            let count = file.read_at(&mut chunk, at)?;
            if count == 0 {
                break;
            }
            file.write_at(chunk.get(..count).unwrap_or_default(), at)?;
            at = at.saturating_add(count as u64);
        }
        file.sync_data()?;
    }
    disk.remove_file(&note)?;
    disk.sync_dir(dir)
}
