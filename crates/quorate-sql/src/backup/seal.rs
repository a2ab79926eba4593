//! The checksum of a backup: a trailer after the database, which SQLite does not read.
//!
//! `docs/sqlite-store.md` describes it. Invariant: if the length of a file is not a multiple of the smallest page size,
//! it ends with a complete trailer that matches all bytes before it, or it is damaged. A file without a trailer has no
//! checksum: it is a plain database, or the database file of a node.

use std::path::Path;

use quorate_env::disk::{Disk, File, OpenMode};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::{FileError, PAGE_SIZE_MIN};
use crate::error::OpenError;

/// The start of the trailer.
const MAGIC: &[u8; 16] = b"quorate backup 1";

/// Bytes of the trailer: the magic, the length of the database, its digest, and a hash of these three.
const BYTES: u64 = 16 + 8 + 16 + 8;

/// Bytes that are read at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// Writes the trailer after a database.
pub(super) fn seal(file: &dyn File) -> std::io::Result<()> {
    let len = file.len()?;
    let mut trailer = MAGIC.to_vec();
    trailer.extend(len.to_le_bytes());
    trailer.extend(digest(file, len)?.to_le_bytes());
    trailer.extend(xxh3_64(&trailer).to_le_bytes());
    file.write_at(&trailer, len)
}

/// Turns a copy of a backup into a database: verifies the copy against the trailer, if it has one, and removes the
/// trailer. The backup was verified before, but a failing disk may return other bytes when it is read again.
pub(super) fn open(disk: &dyn Disk, path: &Path) -> Result<(), OpenError> {
    let file = disk.open(path, OpenMode::ReadWrite).map_err(OpenError::disk(path))?;
    let len = file.len().map_err(OpenError::disk(path))?;
    let mut magic = [0; MAGIC.len()];
    let read = file.read_at(&mut magic, len.saturating_sub(BYTES)).map_err(OpenError::disk(path))?;
    if !has_trailer(len) || read < MAGIC.len() || magic != *MAGIC {
        return Ok(());
    }
    if !matches_trailer(&*file).map_err(OpenError::disk(path))? {
        let problem = "the copy does not match the backup's checksum: this machine's disk or memory corrupts data; \
                       restore on another machine";
        return Err(OpenError::layout(path, problem));
    }
    file.set_len(len.saturating_sub(BYTES)).map_err(OpenError::disk(path))?;
    file.sync_data().map_err(OpenError::disk(path))
}

/// Reads a whole file, and fails if it has a checksum that does not match.
pub(super) fn check(disk: &dyn Disk, path: &Path) -> Result<(), FileError> {
    let file = disk.open(path, OpenMode::Read).map_err(FileError::disk(path))?;
    let matches = matches_trailer(&*file).map_err(FileError::disk(path))?;
    let what = "its checksum does not match: the file has changed since it was written (if you changed it with \
                sqlite3, VACUUM removes the checksum)";
    if matches { Ok(()) } else { Err(FileError::Damaged { path: path.to_path_buf(), what: what.to_owned() }) }
}

fn matches_trailer(file: &dyn File) -> std::io::Result<bool> {
    let len = file.len()?;
    if !has_trailer(len) {
        return Ok(true);
    }
    let mut trailer = [0; BYTES as usize];
    let database = len.saturating_sub(BYTES);
    file.read_exact_at(&mut trailer, database)?;
    let mut expected = MAGIC.to_vec();
    expected.extend(database.to_le_bytes());
    if !trailer.starts_with(&expected) {
        return Ok(false);
    }
    expected.extend(digest(file, database)?.to_le_bytes());
    expected.extend(xxh3_64(&expected).to_le_bytes());
    Ok(trailer.as_slice() == expected)
}

/// Whether a file of this length has bytes after its last page.
fn has_trailer(len: u64) -> bool {
    !len.is_multiple_of(PAGE_SIZE_MIN.unsigned_abs())
}

fn digest(file: &dyn File, len: u64) -> std::io::Result<u128> {
    let (mut hash, mut chunk, mut at) = (Xxh3::new(), vec![0; CHUNK_BYTES], 0_u64);
    while at < len {
        let want = usize::try_from(len.saturating_sub(at)).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
        let Some(bytes) = chunk.get_mut(..want) else { break };
        file.read_exact_at(bytes, at)?;
        hash.update(bytes);
        at = at.saturating_add(want as u64);
    }
    Ok(hash.digest128())
}
