//! Makes a store's database from a backup: the first generation of a data directory.
//!
//! Invariants:
//! - It differs from the backup in its identity, in its position, and in having no sessions: retries of clients of the
//!   earlier cluster can't be answered from it. Requests with keys are kept, because the backup has their effects.
//! - It becomes current only when it is complete, verified and durable.

use std::path::Path;
use std::sync::Arc;

use quorate_apply::AppliedRow;
use quorate_env::disk::{Disk, OpenMode};
use quorate_model::{Applied, Epoch, StoreIdentity};

use super::{FileError, seal};
use crate::connection;
use crate::error::OpenError;
use crate::generation;
use crate::image;
use crate::records::{self, applied_row, sessions};
use crate::vfs::UNSYNCED_MAX;

/// Bytes that are copied at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// How a file becomes a part of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// It stays, and is only read.
    Copy,
    /// It is moved. It must be on the same file system, and nobody else may know it.
    Move,
}

/// Makes the database of the store in `dir` from a backup or a plain database that was checked before
/// ([`inspect`](super::inspect)), or from the file of a [`Replay`](super::Replay). The new database has this `identity`
/// and stands at `applied`. `dir` must not contain a store. Blocks while it copies and reads the file.
pub fn restore(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    (file, take): (&Path, Take),
    identity: StoreIdentity,
    applied: &Applied,
) -> Result<(), FileError> {
    let made = generation::make_first(disk, dir, |vfs, path| {
        match take {
            Take::Copy => copy(disk.as_ref(), file, path)?,
            // It is synced before the generation becomes current, as all changes of it are.
            Take::Move => disk.rename(file, path).map_err(OpenError::disk(path))?,
        }
        seal::open(disk.as_ref(), path)?;
        rewrite(vfs, path, identity, applied)?;
        image::verify(vfs, path, identity, applied.log_id, None)?;
        let conn = connection::open_alone(vfs, path)?;
        connection::set_journal_mode(&conn, path, "wal")
    });
    made.map_err(FileError::open(dir))
}

/// The epoch of the store in `dir`, which must not be open; `None` if there is no store, or if it can't be read.
pub fn epoch_of(disk: &Arc<dyn Disk>, dir: &Path) -> Option<Epoch> {
    let path = generation::current_database(disk.as_ref(), dir).ok()??;
    let vfs = super::vfs_of(disk.as_ref(), &path).ok()?;
    let conn = connection::open_immutable(&vfs, &path).ok()?;
    applied_row::read(&conn).ok()?.map(|row| row.identity.epoch)
}

fn copy(disk: &dyn Disk, from: &Path, to: &Path) -> Result<(), OpenError> {
    let source = disk.open(from, OpenMode::Read).map_err(OpenError::disk(from))?;
    let target = disk.open(to, OpenMode::ReadWrite).map_err(OpenError::disk(to))?;
    let mut chunk = vec![0; CHUNK_BYTES];
    let (mut at, mut unsynced) = (0_u64, 0_u64);
    loop {
        let read = source.read_at(&mut chunk, at).map_err(OpenError::disk(from))?;
        let Some(bytes) = chunk.get(..read).filter(|bytes| !bytes.is_empty()) else { break };
        target.write_at(bytes, at).map_err(OpenError::disk(to))?;
        (at, unsynced) = (at.saturating_add(read as u64), unsynced.saturating_add(read as u64));
        if unsynced >= UNSYNCED_MAX {
            target.sync_data().map_err(OpenError::disk(to))?;
            unsynced = 0;
        }
    }
    target.sync_data().map_err(OpenError::disk(to))?;
    let whole = source.len().map_err(OpenError::disk(from))?;
    if at != whole {
        return Err(OpenError::layout(from, format!("{at} of {whole} bytes could be read; run it again")));
    }
    Ok(())
}

/// Gives the database a new identity and position, in one transaction.
fn rewrite(vfs: &str, path: &Path, identity: StoreIdentity, applied: &Applied) -> Result<(), OpenError> {
    let conn = connection::open_alone(vfs, path)?;
    // A plain database may be in WAL mode. The copy must not depend on a `-wal`.
    connection::set_journal_mode(&conn, path, "delete")?;
    let before = applied_row::read(&conn)?;
    let run = || {
        let row = match before {
            Some(row) => {
                records::upgrade(&conn)?;
                row
            }
            None => records::create(&conn, identity)?,
        };
        let transaction = conn.unchecked_transaction()?;
        sessions::end_all(&conn)?;
        let (level, due) = (row.applied.level, row.applied.due);
        let applied = Applied { level, due, ..applied.clone() };
        // The archive belongs to the cluster that the data come from: this one must not write there.
        let row = AppliedRow { identity, applied, archiver: None, ..row };
        applied_row::write(&row, |values| conn.execute(applied_row::WRITE, values))?;
        transaction.commit()
    };
    run().map_err(OpenError::sqlite(path))
}
