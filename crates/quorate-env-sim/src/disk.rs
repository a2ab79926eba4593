//! A disk in memory that can lose power.
//!
//! A [`SimDisk`] is one node's view of a medium for the time between two starts. [`SimDisk::crash`] (the power fails)
//! and [`SimDisk::kill`] (the process dies) end the view and return a new one. From then on the old view and all files
//! opened through it return an error from every call.
//!
//! A crash decides at random, for each unsynced sector and each unsynced name, whether it survives, in no order. Faults
//! are planned by the number of I/O operations: every call that changes the medium is one operation.
//!
//! Invariant: bytes covered by a successful `sync_data`, and names covered by a successful `sync_dir`, survive a crash.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use quorate_env::disk::{DirItem, DirLock, Disk, File, OpenMode, Space};
use quorate_env::{Rng, lock};

mod file;
mod inode;
mod medium;
mod names;

use file::SimFile;
use medium::{Effect, Medium};
use names::Node;

/// The error of a planned fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The device fails. After a failed sync, each unsynced sector is on the medium, or still to be synced, or only in
    /// the page cache, where no later sync writes it.
    Io,
    /// No space is left. A sync never fails with this error.
    NoSpace,
}

/// One node's disk between two starts. Clones share one view.
#[derive(Clone, Debug)]
pub struct SimDisk {
    medium: Arc<Mutex<Medium>>,
    life: u64,
    /// If set, reads through this view are not counted and planned read faults don't apply to them.
    only_watches: bool,
}

impl SimDisk {
    /// Creates an empty disk of unlimited size. The random results of crashes and failures are drawn from `seed`.
    pub fn new(seed: u64) -> Self {
        let medium = Medium::new(Rng::from_seed(seed));
        Self { life: medium.life(), medium: Arc::new(Mutex::new(medium)), only_watches: false }
    }

    /// Returns a view for an observer: its reads are not counted and don't fail.
    #[must_use]
    pub fn watcher(&self) -> Self {
        Self { only_watches: true, ..self.clone() }
    }

    /// Fails the power and restores it. Each unsynced sector, length and name survives, is lost or is torn,
    /// independently of the others.
    #[must_use]
    pub fn crash(&self) -> Self {
        self.next_life(Medium::lose_power)
    }

    /// Kills the process and starts it again: the page cache survives.
    #[must_use]
    pub fn kill(&self) -> Self {
        self.next_life(Medium::end_life)
    }

    /// Shuts the machine down cleanly and starts it again: everything is synced, and the boot id changes.
    #[must_use]
    pub fn reboot(&self) -> Self {
        self.next_life(Medium::reboot)
    }

    fn next_life(&self, end: impl FnOnce(&mut Medium)) -> Self {
        let mut medium = self.raw();
        end(&mut medium);
        Self { medium: Arc::clone(&self.medium), life: medium.life(), only_watches: false }
    }

    /// Returns the number of I/O operations so far, over all lives.
    pub fn io_count(&self) -> u64 {
        self.raw().io_count()
    }

    /// Plans a stop of the disk after `n` more I/O operations. The next operation may or may not take effect; it and
    /// all later ones fail, until [`SimDisk::crash`] or [`SimDisk::kill`].
    pub fn stop_after(&self, n: u64) {
        self.raw().stop_after(n);
    }

    /// Plans a stop, as [`SimDisk::stop_after`] does, at the first `sync_data` or `sync_dir` after `n` more I/O
    /// operations.
    pub fn stop_sync_after(&self, n: u64) {
        self.raw().stop_sync_after(n);
    }

    /// Returns whether a planned stop has occurred.
    pub fn has_stopped(&self) -> bool {
        self.raw().has_stopped()
    }

    /// Plans one failure, of the I/O operation after `n` more.
    pub fn fail_after(&self, n: u64, fault: Fault) {
        self.raw().fail_after(n, fault);
    }

    /// Plans one failure, of the first `sync_data` or `sync_dir` after `n` more I/O operations.
    pub fn fail_sync_after(&self, n: u64) {
        self.raw().fail_sync_after(n);
    }

    /// Plans one failure, of the next sync of a file with this name.
    pub fn fail_sync_of(&self, name: &str) {
        self.raw().fail_sync_of = Some(name.to_owned());
    }

    /// Plans one failure, of the read after `n` more.
    pub fn fail_read_after(&self, n: u64) {
        self.raw().fail_read_after(n);
    }

    /// Returns the number of planned stops and failures that have occurred since the current view began.
    pub fn failures(&self) -> u64 {
        self.raw().failures()
    }

    /// Returns the current names of the files with unsynced content.
    pub fn unsynced(&self) -> Vec<PathBuf> {
        let medium = self.raw();
        let unsynced = medium.names.paths().filter(|(_, inode)| lock(inode).has_unsynced());
        unsynced.map(|(path, _)| path.clone()).collect()
    }

    /// Returns the total size of all files, in bytes.
    pub fn used(&self) -> u64 {
        self.raw().used()
    }

    /// Cancels all planned stops and failures that have not occurred yet.
    pub fn clear_faults(&self) {
        self.raw().clear_faults();
    }

    /// Limits the total size of all files, in bytes; `None` for no limit. Growing beyond it fails with `StorageFull`.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.raw().set_capacity(bytes);
    }

    /// Sets whether a power failure may also destroy a whole page of 4 KiB that contains an unsynced sector, including
    /// its synced sectors, as a device that rewrites pages may do. SQLite does not protect itself against this.
    pub fn scramble_pages(&self, scrambles: bool) {
        self.raw().scramble_pages(scrambles);
    }

    /// Sets whether reading the boot id fails.
    pub fn hide_boot_id(&self, hidden: bool) {
        self.raw().hide_boot_id(hidden);
    }

    /// Sets the registered SQLite VFS that stores its files on this disk.
    pub fn set_sqlite_vfs(&self, name: &str) {
        self.raw().sqlite_vfs = Some(name.to_owned());
    }

    /// Damages a file: flips bit `bit % 8` of the byte at `offset`, on the medium too.
    pub fn flip_bit(&self, path: &Path, offset: u64, bit: u32) -> io::Result<()> {
        let inode = self.raw().names.file(path)?;
        lock(&inode).flip(offset, bit);
        Ok(())
    }

    /// Creates a file with synced name and content, as if another process had done it.
    pub fn plant(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut medium = self.raw();
        if let Some(parent) = path.parent() {
            medium.names.make_dirs(parent)?;
        }
        let inode = medium.names.create(path, true)?;
        let mut inode = lock(&inode);
        inode.set_len(0);
        inode.write(bytes, 0);
        inode.sync();
        medium.names.sync_all();
        Ok(())
    }

    /// Returns the medium without checking the life.
    fn raw(&self) -> MutexGuard<'_, Medium> {
        lock(&self.medium)
    }

    /// Returns the medium if this view is still the current one.
    fn now(&self) -> io::Result<MutexGuard<'_, Medium>> {
        let medium = self.raw();
        medium.check_life(self.life)?;
        Ok(medium)
    }

    /// Makes one change. It is counted, and planned faults apply to it.
    fn change<T>(&self, apply: impl FnOnce(&mut Medium) -> io::Result<T>) -> io::Result<T> {
        let mut medium = self.now()?;
        let effect = medium.begin()?;
        let result = apply(&mut medium);
        effect.finish(result)
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let found = self.now()?.names.file(path);
        let inode = match (mode, found) {
            (OpenMode::CreateNew, Ok(_)) => return Err(io::ErrorKind::AlreadyExists.into()),
            (OpenMode::Read | OpenMode::ReadWrite | OpenMode::Create, Ok(inode)) => inode,
            (OpenMode::Create | OpenMode::CreateNew, Err(error)) if error.kind() == io::ErrorKind::NotFound => {
                self.change(|medium| medium.names.create(path, false))?
            }
            (_, Err(error)) => return Err(error),
        };
        Ok(Arc::new(SimFile::new(self.clone(), inode, mode != OpenMode::Read)))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        if self.now()?.names.is_dir(path) {
            return Ok(());
        }
        self.change(|medium| medium.names.make_dirs(path))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirItem>> {
        let medium = self.now()?;
        let items = medium.names.list(dir)?;
        Ok(items
            .into_iter()
            .map(|(name, node)| match node {
                Node::Dir => DirItem { name, is_dir: true, len: 0 },
                Node::File(inode) => DirItem { name, is_dir: false, len: lock(&inode).len() },
            })
            .collect())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.now()?.names.exists(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(|medium| medium.names.rename(from, to))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.change(|medium| {
            medium.names.file(path)?;
            medium.names.remove(path);
            Ok(())
        })
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.change(|medium| medium.names.remove_dirs(path))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut medium = self.now()?;
        match medium.begin_sync()? {
            Effect::Whole => medium.names.sync_dir(dir),
            effect => effect.finish(Ok(())),
        }
    }

    fn lock_dir(&self, dir: &Path) -> io::Result<Box<dyn DirLock>> {
        let mut medium = self.now()?;
        medium.lock_dir(dir)?;
        Ok(Box::new(SimLock { disk: self.clone(), dir: dir.to_path_buf() }))
    }

    fn space(&self, _path: &Path) -> io::Result<Space> {
        Ok(self.now()?.space())
    }

    fn boot_id(&self) -> Option<String> {
        self.raw().boot_id()
    }

    fn sqlite_vfs(&self) -> Option<String> {
        self.raw().sqlite_vfs.clone()
    }
}

/// A lock on a directory. It ends when it is dropped, and with the life of its disk.
#[derive(Debug)]
struct SimLock {
    disk: SimDisk,
    dir: PathBuf,
}

impl DirLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        if let Ok(mut medium) = self.disk.now() {
            medium.unlock_dir(&self.dir);
        }
    }
}

#[cfg(test)]
mod tests;
