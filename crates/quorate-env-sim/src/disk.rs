//! A disk in memory that loses power.
//!
//! A [`SimDisk`] is one node's view of a medium for the time between two starts. [`SimDisk::crash`] (the power fails)
//! and [`SimDisk::kill`] (the process dies) end that view: it and all files opened by it answer every call with an
//! error from then on, and a new view is returned.
//!
//! What a crash leaves is chosen at random for each unsynced sector and each unsynced name, in no order. Faults are
//! planned by counting: every call that changes the medium is one I/O operation, in the order in which they are made.
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

/// What a planned fault answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The device fails. A failed sync leaves each unsynced sector either on the medium, or still to be synced, or only
    /// in the page cache, where no later sync will find it.
    Io,
    /// There is no space left. A sync never fails so.
    NoSpace,
}

/// One node's disk between two starts. Clones are the same view.
#[derive(Clone, Debug)]
pub struct SimDisk {
    medium: Arc<Mutex<Medium>>,
    life: u64,
    /// Planned faults strike no read of this view, and are not used up by it.
    only_watches: bool,
}

impl SimDisk {
    /// An empty disk of unlimited size whose accidents are drawn from `seed`.
    pub fn new(seed: u64) -> Self {
        let medium = Medium::new(Rng::from_seed(seed));
        Self { life: medium.life(), medium: Arc::new(Mutex::new(medium)), only_watches: false }
    }

    /// A view for who watches: what it reads does not count, and does not fail.
    #[must_use]
    pub fn watcher(&self) -> Self {
        Self { only_watches: true, ..self.clone() }
    }

    /// The power fails and comes back: unsynced sectors, lengths and names survive, vanish or tear, each for itself.
    #[must_use]
    pub fn crash(&self) -> Self {
        self.next_life(Medium::lose_power)
    }

    /// The process dies and is started again: the page cache survives.
    #[must_use]
    pub fn kill(&self) -> Self {
        self.next_life(Medium::end_life)
    }

    /// The machine is shut down in good order and started again: everything is synced, the boot id changes.
    #[must_use]
    pub fn reboot(&self) -> Self {
        self.next_life(Medium::reboot)
    }

    fn next_life(&self, end: impl FnOnce(&mut Medium)) -> Self {
        let mut medium = self.raw();
        end(&mut medium);
        Self { medium: Arc::clone(&self.medium), life: medium.life(), only_watches: false }
    }

    /// I/O operations so far, in all lives.
    pub fn io_count(&self) -> u64 {
        self.raw().io_count()
    }

    /// After `n` more I/O operations the disk stops: the next may or may not take effect, and it and all others fail.
    /// [`SimDisk::crash`] or [`SimDisk::kill`] lift this.
    pub fn stop_after(&self, n: u64) {
        self.raw().stop_after(n);
    }

    /// The disk stops at the first `sync_data` or `sync_dir` after `n` more I/O operations, as by
    /// [`SimDisk::stop_after`].
    pub fn stop_sync_after(&self, n: u64) {
        self.raw().stop_sync_after(n);
    }

    /// Whether a planned stop has come.
    pub fn has_stopped(&self) -> bool {
        self.raw().has_stopped()
    }

    /// The I/O operation after `n` more fails, once.
    pub fn fail_after(&self, n: u64, fault: Fault) {
        self.raw().fail_after(n, fault);
    }

    /// The first `sync_data` or `sync_dir` after `n` more I/O operations fails, once.
    pub fn fail_sync_after(&self, n: u64) {
        self.raw().fail_sync_after(n);
    }

    /// The next sync of a file of this name fails, once.
    pub fn fail_sync_of(&self, name: &str) {
        self.raw().fail_sync_of = Some(name.to_owned());
    }

    /// The read after `n` more fails, once.
    pub fn fail_read_after(&self, n: u64) {
        self.raw().fail_read_after(n);
    }

    /// Planned stops and failures that came since the present view began.
    pub fn failures(&self) -> u64 {
        self.raw().failures()
    }

    /// Files of which a power failure may take something, by their present names.
    pub fn unsynced(&self) -> Vec<PathBuf> {
        let medium = self.raw();
        let unsynced = medium.names.paths().filter(|(_, inode)| lock(inode).has_unsynced());
        unsynced.map(|(path, _)| path.clone()).collect()
    }

    /// Bytes that all files together hold.
    pub fn used(&self) -> u64 {
        self.raw().used()
    }

    /// Takes back all planned stops and failures that have not come yet.
    pub fn clear_faults(&self) {
        self.raw().clear_faults();
    }

    /// Bytes that all files together may hold; `None` for no limit. Growing beyond fails with `StorageFull`.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.raw().set_capacity(bytes);
    }

    /// From now on a power failure may also destroy whole pages of 4 KiB in which anything was unsynced, with what was
    /// synced in them: what a device may do that rewrites pages. SQLite does not protect itself against this.
    pub fn scramble_pages(&self, scrambles: bool) {
        self.raw().scramble_pages(scrambles);
    }

    /// From now on the boot id can't be read, or can again.
    pub fn hide_boot_id(&self, hidden: bool) {
        self.raw().hide_boot_id(hidden);
    }

    /// From now on the disk says that this registered SQLite VFS keeps its bytes on it.
    pub fn set_sqlite_vfs(&self, name: &str) {
        self.raw().sqlite_vfs = Some(name.to_owned());
    }

    /// Damages a file: turns the bit `bit % 8` of the byte at `offset` around, on the medium too.
    pub fn flip_bit(&self, path: &Path, offset: u64, bit: u32) -> io::Result<()> {
        let inode = self.raw().names.file(path)?;
        lock(&inode).flip(offset, bit);
        Ok(())
    }

    /// Puts a file there, name and content synced, as if another process had done it.
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

    /// The medium, whatever life it is in.
    fn raw(&self) -> MutexGuard<'_, Medium> {
        lock(&self.medium)
    }

    /// The medium, if this view is still its present one.
    fn now(&self) -> io::Result<MutexGuard<'_, Medium>> {
        let medium = self.raw();
        medium.check_life(self.life)?;
        Ok(medium)
    }

    /// Makes one change, counted and subject to the planned faults.
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

/// A claim on a directory. It ends when dropped, and with the life of its disk.
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
