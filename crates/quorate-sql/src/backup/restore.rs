//! A store's database made from a backup: the first generation of a data directory.
//!
//! Invariants:
//! - It differs from the backup in whose it is, in where its history goes on, and in that it has no sessions: what the
//!   clients of the former life may ask again can't be answered from it.
//! - It is put in force whole, verified and durable, and the backup is only read.

use std::path::Path;
use std::sync::Arc;

use quorate_env::disk::{Disk, OpenMode};
use quorate_model::{Applied, Epoch};

use super::{FileError, seal};
use crate::applied_row::{self, AppliedRow};
use crate::apply;
use crate::connection;
use crate::error::OpenError;
use crate::generation;
use crate::identity::StoreIdentity;
use crate::image;
use crate::session;
use crate::vfs::UNSYNCED_MAX;

/// Bytes that are copied at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// Makes the database of the store in `dir` from a backup, or from a plain database, that was found to be one
/// ([`inspect`](super::inspect)). From then on it is that of `identity` and stands at `applied`. `dir` must hold no
/// store yet. Blocks, as long as copying and reading the file takes.
pub fn restore(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    file: &Path,
    identity: StoreIdentity,
    applied: &Applied,
) -> Result<(), FileError> {
    let made = generation::make_first(disk, dir, |vfs, path| {
        copy(disk.as_ref(), file, path)?;
        seal::open(disk.as_ref(), path)?;
        rewrite(vfs, path, identity, applied)?;
        image::verify(vfs, path, identity, applied.log_id, None)?;
        let conn = connection::open_alone(vfs, path)?;
        connection::set_journal_mode(&conn, path, "wal")
    });
    made.map_err(FileError::open(dir))
}

/// The epoch of the store in `dir`, which is not open; `None` if there is none, or none that can be read.
pub fn epoch_of(disk: &Arc<dyn Disk>, dir: &Path) -> Option<Epoch> {
    let path = generation::database_in_force(disk.as_ref(), dir).ok()??;
    let vfs = super::vfs_of(disk.as_ref(), &path).ok()?;
    let conn = connection::open_immutable(&vfs, &path).ok()?;
    AppliedRow::read(&conn).ok()?.map(|row| row.identity.epoch)
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

/// Makes the database another's, in one transaction.
fn rewrite(vfs: &str, path: &Path, identity: StoreIdentity, applied: &Applied) -> Result<(), OpenError> {
    let conn = connection::open_alone(vfs, path)?;
    // A plain one may be in WAL mode; the copy must not depend on a `-wal`.
    connection::set_journal_mode(&conn, path, "delete")?;
    let before = AppliedRow::read(&conn)?;
    let run = || {
        let row = match before {
            Some(row) => {
                apply::upgrade(&conn)?;
                row
            }
            None => apply::create(&conn, identity)?,
        };
        let transaction = conn.unchecked_transaction()?;
        session::end_all(&conn)?;
        AppliedRow { identity, applied: applied.clone(), ..row }
            .write(|values| conn.execute(applied_row::WRITE, values))?;
        transaction.commit()
    };
    run().map_err(OpenError::sqlite(path))
}
