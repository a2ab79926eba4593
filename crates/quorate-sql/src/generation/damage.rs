//! A database that is known to be damaged.
//!
//! When damage is found, the finding is written to the file `DAMAGED`. Invariant: while this file exists, no store
//! opens the database, because damage that was seen once may not show the next time.

use std::path::Path;

use quorate_env::disk::{self, Disk};
use quorate_model::StoreFault;

use super::pointer;
use super::set::DB_DIR;
use crate::error::OpenError;

/// The name of the file.
pub(super) const FILE: &str = "DAMAGED";

const BYTES_MAX: u64 = 64 << 10;

/// Records the damage for the next start.
pub(super) fn note(disk: &dyn Disk, dir: &Path, what: &str) {
    if let Err(error) = disk::replace_file(disk, &dir.join(FILE), what.as_bytes()) {
        tracing::error!(%error, "the damage can't be recorded; the next start has to find it again");
    }
}

/// Durably removes the record for a database that is replaced. If it reappeared after power loss, it would condemn the
/// new database.
pub(super) fn forget(disk: &dyn Disk, dir: &Path) -> std::io::Result<()> {
    let path = dir.join(FILE);
    if !disk.exists(&path)? {
        return Ok(());
    }
    disk.remove_file(&path)?;
    disk.sync_dir(dir)
}

/// Refuses a database whose damage is recorded.
pub(super) fn check(disk: &dyn Disk, dir: &Path) -> Result<(), OpenError> {
    let path = dir.join(FILE);
    match disk::read_file(disk, &path, BYTES_MAX) {
        Ok(what) => Err(OpenError::Fault(StoreFault::Damaged(String::from_utf8_lossy(&what).into_owned()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(OpenError::disk(&path)(error)),
    }
}

/// Whether there is a database below `dir`, or one that was put aside.
pub fn was_here(disk: &dyn Disk, dir: &Path) -> std::io::Result<bool> {
    let aside = format!("{DB_DIR}.damaged-");
    Ok(disk.list(dir)?.iter().any(|item| item.name == DB_DIR || item.name.starts_with(&aside)))
}

/// Moves the database below `dir` out of the way for inspection. The next opening creates an empty one. `mark`
/// distinguishes it from earlier ones.
pub fn put_aside(disk: &dyn Disk, dir: &Path, mark: u64) -> Result<(), OpenError> {
    let failed = OpenError::disk(dir);
    let move_away = || {
        let db = dir.join(DB_DIR);
        if disk.exists(&db)? {
            disk.rename(&db, &dir.join(format!("{DB_DIR}.damaged-{mark}")))?;
            disk.sync_dir(dir)?;
        }
        // The record is removed last, so that an interrupted call is repeated.
        let pointer = dir.join(pointer::FILE);
        if disk.exists(&pointer)? {
            disk.remove_file(&pointer)?;
            disk.sync_dir(dir)?;
        }
        forget(disk, dir)
    };
    move_away().map_err(failed)
}
