//! Makes a backup from a database at some entry and the entries after it, without a node.
//!
//! The ordinary applier runs the entries, with the functions, the authorizer and the resource limits of a store, so the
//! result is what a node held after the last of them. There is nobody to decide whether an entry is to be rejected: the
//! entries say which ones were ([`Payload::Rejected`](quorate_model::Payload::Rejected)).
//!
//! Invariants:
//! - The file is a backup only after [`Replay::finish`]. Until then nothing is synced, and whoever is interrupted
//!   begins again with another copy of the database.
//! - Entries are applied without gaps, and only to the history that they belong to.
//! - Memory is bounded by the entries that are handed over together and by what a node needs for them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use quorate_apply::AppliedRow;
use quorate_env::disk::{Disk, OpenMode};
use quorate_model::codec::decode_proposal;
use quorate_model::limits::FORMAT_LEVEL;
use quorate_model::{Applied, Command, Entry, Payload, SqlCommand, StoreFault};

use super::{Backup, FileError, Found, dir_of, seal, vfs_of, with_suffix};
use crate::connection;
use crate::extensions::Extensions;
use crate::logical_hash::{self, Unread};
use crate::machine::{Applier, SqlMachine};
use crate::options::WRITER_CACHE_BYTES_DEFAULT;
use crate::usage::{Scope, Temp, TempSpace};

/// The suffix of the directory next to the file that holds temporary files.
const SCRATCH_SUFFIX: &str = ".replay";

/// How often an entry that takes too much time or memory is tried again; each time it may take more. Some node has
/// applied it, but this machine may be slower.
const TRIES_MAX: u32 = 4;

/// A database to which entries are applied. Its methods block.
pub struct Replay {
    // Declared in this order: the connection is closed before the handle of the file, which `temp` keeps, because
    // closing that drops SQLite's locks; and temporary files are closed before their directory is removed.
    applier: Applier,
    temp: Arc<Temp>,
    scratch: Scratch,
    extensions: Extensions,
    path: PathBuf,
}

/// The directory of temporary files, removed when this value is dropped.
struct Scratch {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left takes no space to speak of, and the next replay of this name removes it.
        let _ = self.disk.remove_dir_all(&self.dir);
    }
}

impl Replay {
    /// Opens the database file of a store, at any entry, without its `-wal`; a backup will do too. From now on the file
    /// belongs to this value, which changes it. `extensions` are the functions and collations of the program whose
    /// nodes have written the entries.
    ///
    /// # Errors
    ///
    /// An error if the file is not the database of a store, is damaged, or needs a later version or other extensions.
    pub fn open(disk: &Arc<dyn Disk>, path: &Path, extensions: &Extensions) -> Result<Self, FileError> {
        let found = Found::open(disk.as_ref(), path)?;
        let row = found.row()?.ok_or_else(|| found.foreign("it is a SQLite database of another origin"))?;
        let enabled = extensions.enabled(&found.conn).map_err(FileError::fault(path))?;
        extensions.know(&enabled).map_err(FileError::extensions(path))?;
        drop(found);
        seal::open(disk.as_ref(), path).map_err(FileError::open(path))?;

        let vfs = vfs_of(disk.as_ref(), path)?;
        let scratch = Scratch { disk: Arc::clone(disk), dir: with_suffix(path, SCRATCH_SUFFIX) };
        let space = TempSpace::make(disk, &vfs, &scratch.dir).map_err(FileError::open(path))?;
        let file = disk.open(path, OpenMode::ReadWrite).map_err(FileError::disk(path))?;
        let temp = Temp::of_writer(&space, &file);
        let conn = connection::open_replay(&vfs, path, WRITER_CACHE_BYTES_DEFAULT).map_err(FileError::open(path))?;
        let machine = SqlMachine::open(conn, &row.identity, extensions).map_err(FileError::fault(path))?;
        let applier = Applier::new(machine, FORMAT_LEVEL).map_err(FileError::fault(path))?;
        Ok(Self { applier, temp, scratch, extensions: extensions.clone(), path: path.to_path_buf() })
    }

    /// The last entry in the database, and the membership.
    pub fn applied(&self) -> &Applied {
        self.applier.applied()
    }

    /// The running hash of outcomes after that entry: the same as on every node that has applied it.
    pub fn outcome_hash(&self) -> u64 {
        self.applier.outcome_hash()
    }

    /// Applies consecutive entries. Those that the database holds already are skipped.
    ///
    /// # Errors
    ///
    /// An error if entries are missing or belong to another history, or if one of them can't be applied on this
    /// machine. The entries before the cause are applied then, or some of them.
    pub fn apply(&mut self, entries: &[Entry]) -> Result<(), FileError> {
        let mut left = self.unapplied(entries)?;
        let _scope = Scope::write(WRITER_CACHE_BYTES_DEFAULT, &self.temp);
        let (mut outcomes, mut tries) = (Vec::new(), 0_u32);
        while !left.is_empty() {
            outcomes.clear();
            let done = self.applier.apply_batch(left, &mut outcomes);
            // Nobody waits for what the entries have touched, and a list of it would grow.
            drop(self.applier.take_touched());
            left = left.get(outcomes.len()..).unwrap_or_default();
            tries = if outcomes.is_empty() { tries.saturating_add(1) } else { 0 };
            match done {
                Err(fault) if !(exceeds_a_node(&fault) && tries <= TRIES_MAX) => {
                    return Err(self.failed(left.first(), fault));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the logical hash of each table by name: the same as on every node that has applied the last entry.
    ///
    /// # Errors
    ///
    /// An error if a table can't be read.
    pub fn hashes(&self) -> Result<BTreeMap<String, u128>, FileError> {
        let _scope = Scope::read(0, &self.temp, Duration::MAX);
        let hashes = logical_hash::by_table(self.applier.machine().connection());
        let damaged = |unread: Unread| FileError::Damaged { path: self.path.clone(), what: unread.to_string() };
        Ok(hashes.map_err(damaged)?.into_iter().collect())
    }

    /// Ends the replay: checks the whole file, appends its checksum, makes it durable, and returns what
    /// [`inspect`](super::inspect) returns for it.
    pub fn finish(self) -> Result<Backup, FileError> {
        self.end(true)
    }

    /// Does the same without the checksum: the file is a SQLite database and nothing else.
    /// [`restore`](super::restore) takes it too.
    pub fn finish_unsealed(self) -> Result<Backup, FileError> {
        self.end(false)
    }

    /// Ends the replay without checks and without making the file durable, for [`restore`](super::restore()), which
    /// does both.
    pub fn finish_unchecked(self) -> Result<Backup, FileError> {
        let (_, found, row) = self.close()?;
        Ok(Backup { identity: row.identity, applied: row.applied, bytes: found.bytes })
    }

    fn end(self, is_sealed: bool) -> Result<Backup, FileError> {
        let (scratch, found, row) = self.close()?;
        let (disk, path) = (Arc::clone(&scratch.disk), found.path.clone());
        found.check()?;
        drop(found);
        let file = disk.open(&path, OpenMode::ReadWrite).map_err(FileError::disk(&path))?;
        if is_sealed {
            seal::seal(&*file).map_err(FileError::disk(&path))?;
        }
        file.sync_data().map_err(FileError::disk(&path))?;
        let bytes = file.len().map_err(FileError::disk(&path))?;
        // A journal that came back after a power failure would undo changes.
        let dir = dir_of(&path);
        disk.sync_dir(dir).map_err(FileError::disk(dir))?;
        Ok(Backup { identity: row.identity, applied: row.applied, bytes })
    }

    /// Closes the database, so that the file alone is all of it.
    fn close(self) -> Result<(Scratch, Found, AppliedRow), FileError> {
        let Self { applier, temp, scratch, path, .. } = self;
        let conn = applier.machine().connection();
        connection::set_journal_mode(conn, &path, "delete").map_err(FileError::open(&path))?;
        drop(applier);
        drop(temp);
        let found = Found::open(scratch.disk.as_ref(), &path)?;
        let row = found.row()?.ok_or_else(|| found.foreign("it is a SQLite database of another origin"))?;
        Ok((scratch, found, row))
    }

    /// Returns the entries that the database does not hold yet.
    fn unapplied<'a>(&self, entries: &'a [Entry]) -> Result<&'a [Entry], FileError> {
        let last = self.applied().log_id;
        let is_old = |entry: &&Entry| last.is_some_and(|last| entry.log_id.index <= last.index);
        let (old, new) = entries.split_at(entries.iter().take_while(is_old).count());
        let same_place = old.iter().find(|entry| last.is_some_and(|last| entry.log_id.index == last.index));
        if let (Some(entry), Some(last)) = (same_place, last)
            && entry.log_id != last
        {
            let what = format!("it ends at entry {last}, and the entries to apply have {} there", entry.log_id);
            return Err(FileError::Foreign { path: self.path.clone(), what });
        }
        let mut after = last.map(|last| last.index);
        for entry in new {
            let index = entry.log_id.index;
            match after {
                Some(after) if after.checked_add(1) != Some(index) => {
                    return Err(FileError::Gap { path: self.path.clone(), after, found: index });
                }
                _ => after = Some(index),
            }
        }
        Ok(new)
    }

    /// Returns the error for a fault at an entry.
    fn failed(&self, entry: Option<&Entry>, fault: StoreFault) -> FileError {
        let path = self.path.as_path();
        let lacks_extensions = entry.is_some_and(|entry| {
            let Payload::Proposal(_, bytes) = &entry.payload else { return false };
            let commands = decode_proposal(bytes).map(|proposal| proposal.commands).unwrap_or_default();
            let mut extends = commands.iter().filter_map(|command| match command {
                Command::Sql(SqlCommand::Extend(names)) => Some(names),
                _ => None,
            });
            extends.any(|names| self.extensions.know(names).is_err())
        });
        match (fault, entry) {
            (fault @ StoreFault::Unsupported(_), _) if lacks_extensions => FileError::extensions(path)(fault),
            (fault, Some(entry)) if exceeds_a_node(&fault) => {
                FileError::Entry { path: path.to_path_buf(), index: entry.log_id.index, fault }
            }
            (fault, _) => FileError::fault(path)(fault),
        }
    }
}

impl std::fmt::Debug for Replay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replay").field("path", &self.path).field("applied", self.applied()).finish_non_exhaustive()
    }
}

/// Whether an entry took more time or memory than this machine allows for one.
fn exceeds_a_node(fault: &StoreFault) -> bool {
    matches!(fault, StoreFault::Slow(_) | StoreFault::Memory(_) | StoreFault::TooMuch(_))
}

#[cfg(test)]
mod tests;
