//! A `-wal` of which the disk may hold less than the page cache.
//!
//! After a failed sync the system may treat pages as written that are not on the disk, and no later sync writes them:
//! only pages that are written again are synced. A store whose disk failed stops and leaves the file `UNSYNCED`. The
//! next start writes the whole `-wal` again before anything reads from it. The main file does not need this: a
//! checkpoint that could not sync it leaves all of its frames in the `-wal`.
//!
//! Invariant: an open store never calls data durable that only the page cache holds.

use std::io;
use std::path::Path;

use quorate_env::disk::{Disk, OpenMode};

/// The name of the file.
pub(super) const FILE: &str = "UNSYNCED";

/// Bytes that are written at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// Records the failure of the disk for the next start. The existence of the file is the record; its text is for people.
/// The file is not synced: a failing disk may refuse that, and after a restart of the machine the page cache is empty
/// anyway.
pub(super) fn note(disk: &dyn Disk, dir: &Path, what: &str) {
    match disk.open(&dir.join(FILE), OpenMode::Create) {
        // If the disk is full as well, there is no room for the text.
        Ok(file) => drop(file.write_at(what.as_bytes(), 0)),
        Err(error) => {
            tracing::error!(%error, "the failure of the disk can't be recorded; restart the machine before this node");
        }
    }
}

/// Writes the `-wal` again if the disk has failed before.
pub(super) fn rewrite_wal(disk: &dyn Disk, dir: &Path, wal: &Path) -> io::Result<()> {
    let note = dir.join(FILE);
    if !disk.exists(&note)? {
        return Ok(());
    }
    tracing::warn!("the disk failed before; the -wal is written again, because parts of it may not be on the disk");
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
