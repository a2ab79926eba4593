//! The directory of a [`MemoryStore`](super::MemoryStore): the file `state`, and `state.new` while it is being written.
//!
//! # Invariants
//!
//! - Only bytes that were synced get the name `state`. So after a kill or a loss of power it holds the whole bytes of
//!   one of the attempts to replace it, at least those of the last successful one.
//! - After an error nothing is assumed about the file that was being written: the next attempt begins with a new one.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quorate_env::disk::{Disk, OpenMode, make_dir, read_file};
use quorate_model::StoreFault;

use crate::memory::STATE_BYTES_MAX;

const STATE: &str = "state";
const NEW: &str = "state.new";

#[derive(Debug)]
pub(super) struct Files {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
}

impl Files {
    /// Makes the directory if it is missing.
    pub(super) fn open(disk: Arc<dyn Disk>, dir: &Path) -> Result<Self, StoreFault> {
        let files = Self { disk, dir: dir.to_path_buf() };
        make_dir(&*files.disk, dir).map_err(|error| files.fault(&error))?;
        files.discard();
        Ok(files)
    }

    /// Returns the bytes of the file, and whether they are known to be durable. `None` if there is no file.
    pub(super) fn load(&self) -> Result<Option<(Vec<u8>, bool)>, StoreFault> {
        let bytes = match read_file(&*self.disk, &self.dir.join(STATE), STATE_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(StoreFault::Damaged(error.to_string()));
            }
            Err(error) => return Err(self.fault(&error)),
        };
        // An earlier process may have ended before it synced the name. Without that, an earlier file may come back.
        let is_durable = self.disk.sync_dir(&self.dir).is_ok();
        Ok(Some((bytes, is_durable)))
    }

    /// Replaces the file, and makes that durable.
    pub(super) fn save(&self, bytes: &[u8]) -> Result<(), StoreFault> {
        self.discard();
        self.replace(bytes).map_err(|error| {
            // The file is incomplete, and would only take space.
            self.discard();
            self.fault(&error)
        })
    }

    fn replace(&self, bytes: &[u8]) -> io::Result<()> {
        let new = self.dir.join(NEW);
        let file = self.disk.open(&new, OpenMode::CreateNew)?;
        file.write_at(bytes, 0)?;
        file.sync_data()?;
        drop(file);
        self.disk.rename(&new, &self.dir.join(STATE))?;
        self.disk.sync_dir(&self.dir)
    }

    /// Removes a file of an attempt that did not complete. If that fails, the next attempt does too.
    fn discard(&self) {
        let new = self.dir.join(NEW);
        if self.disk.exists(&new).unwrap_or(false) {
            let _ = self.disk.remove_file(&new);
        }
    }

    /// Says in which directory a damaged file is.
    pub(super) fn context(&self, fault: StoreFault) -> StoreFault {
        match fault {
            StoreFault::Damaged(what) => StoreFault::Damaged(format!("{}: {what}", self.dir.join(STATE).display())),
            other => other,
        }
    }

    fn fault(&self, error: &io::Error) -> StoreFault {
        let text = format!("{}: {error}", self.dir.display());
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreFault::Full(text),
            _ => StoreFault::Io(text),
        }
    }
}
