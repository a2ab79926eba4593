//! Files and directories, as the product is allowed to see them.
//!
//! [`Disk`] is the file system of one node and [`File`] an open file. All calls block: they are made from worker
//! threads, never from the Raft core. Two implementations exist: [`RealDisk`] here, and the simulated disk of
//! `quorate-env-sim`, which forgets, tears and reorders whatever was not synced.
//!
//! Invariants:
//! - What [`File::sync_data`] covered survives power loss, the file's length included.
//! - A created, renamed or removed name survives power loss only after [`Disk::sync_dir`] on its directory.
//! - After an error of a sync nothing may be assumed of the bytes it covered, ever: the caller must not retry it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

mod direct;
mod real;

pub use real::RealDisk;

/// How [`Disk::open`] treats a file that exists or does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Read only; the file must exist.
    Read,
    /// Read and write; the file must exist.
    ReadWrite,
    /// Read and write; made empty when it does not exist.
    Create,
    /// Read and write; an error of kind `AlreadyExists` when it exists.
    CreateNew,
}

/// One item of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirItem {
    /// The last part of its path.
    pub name: String,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// Bytes, as far as they are known: 0 for a directory.
    pub len: u64,
}

/// Bytes of a file system: the whole, and what is left for this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Size of the file system.
    pub total: u64,
    /// What can still be written.
    pub available: u64,
}

/// An exclusive claim on a directory; given back when dropped or when the process dies.
pub trait DirLock: Send + Sync + fmt::Debug {}

/// The file system of one node.
pub trait Disk: Send + Sync + fmt::Debug + 'static {
    /// Opens a file.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>>;

    /// Makes a directory and its parents; no error when it exists.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;

    /// The items of a directory, sorted by name.
    fn list(&self, dir: &Path) -> io::Result<Vec<DirItem>>;

    /// Whether something of this name exists.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// Renames within one directory tree, replacing `to` atomically.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory with all that it holds.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Claims a directory for this process by a lock on `dir/LOCK`; an error of kind `WouldBlock` when another holds
    /// it.
    fn lock_dir(&self, dir: &Path) -> io::Result<Box<dyn DirLock>>;

    /// Size of the file system below `path`, and what is left of it.
    fn space(&self, path: &Path) -> io::Result<Space>;

    /// A name for the life of this machine's kernel, or `None` where it can't be read. Two equal names mean that no
    /// reboot lies between them.
    fn boot_id(&self) -> Option<String>;

    /// Takes a file away from everyone but the owner of this process, where the file system knows owners.
    fn make_private(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    /// The name of the registered SQLite VFS that keeps its bytes on this disk; `None` stands for SQLite's default. A
    /// word that is handed through: this crate does not know what SQLite is.
    fn sqlite_vfs(&self) -> Option<String> {
        None
    }
}

/// An open file. Positions and lengths are in bytes.
pub trait File: Send + Sync + fmt::Debug {
    /// Fills `buf` from `offset`; returns fewer bytes than asked only at the end of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `buf` at `offset`, growing the file where needed.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;

    /// Writes like [`write_at`](Self::write_at) what is synced right afterwards and seldom read again. Whole pages at
    /// page boundaries may go past the machine's cache; they are durable when they are synced, no sooner.
    fn write_direct(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.write_at(buf, offset)
    }

    /// Makes written bytes and the length durable.
    fn sync_data(&self) -> io::Result<()>;

    /// Cuts or grows (with zeros) the file.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// The file's length.
    fn len(&self) -> io::Result<u64>;

    /// Whether the file holds no byte.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Reads exactly `buf.len()` bytes, or fails with `UnexpectedEof`.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if self.read_at(buf, offset)? == buf.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

/// Creates a directory and its missing parents, and syncs their names so that they survive power loss.
pub fn make_dir(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    // The directory's own name is synced even if it exists: an earlier process may have died before it did so.
    let mut holders = vec![parent_of(dir)];
    for above in dir.ancestors().skip(1) {
        if above.as_os_str().is_empty() || disk.exists(above)? {
            break;
        }
        holders.push(parent_of(above));
    }
    disk.create_dir_all(dir)?;
    holders.into_iter().try_for_each(|holder| disk.sync_dir(holder))
}

/// The directory that holds the name of another.
fn parent_of(dir: &Path) -> &Path {
    dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Replaces the small file `path` by `bytes` so that after power loss it holds the old content or the new one, whole.
///
/// The bytes are written beside it, synced, renamed over it, and the directory synced.
pub fn replace_file(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let parent = parent_of(path);
    let mut temp = path.as_os_str().to_owned();
    temp.push(".new");
    let temp = PathBuf::from(temp);
    let file = disk.open(&temp, OpenMode::Create)?;
    file.set_len(0)?;
    file.write_at(bytes, 0)?;
    file.sync_data()?;
    drop(file);
    disk.rename(&temp, path)?;
    disk.sync_dir(parent)
}

/// The whole content of a small file; an error of kind `InvalidData` when it is longer than `limit`.
pub fn read_file(disk: &dyn Disk, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = disk.open(path, OpenMode::Read)?;
    let len = file.len()?;
    if len > limit {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{} has {len} bytes, more than {limit}", path.display()),
        ));
    }
    let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}
