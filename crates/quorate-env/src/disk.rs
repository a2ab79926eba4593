//! Files and directories: the only interface through which Quorate uses them.
//!
//! [`Disk`] is the file system of one node and [`File`] an open file. All calls block, so they are made from worker
//! threads, never from the Raft core. Two implementations exist: [`RealDisk`] here, and the simulated disk of
//! `quorate-env-sim`, which loses, tears and reorders unsynced writes.
//!
//! Invariants:
//! - Bytes covered by [`File::sync_data`], and the file's length, survive a power loss.
//! - The creation, renaming or removal of a name survives a power loss only after [`Disk::sync_dir`] on its directory.
//! - After a sync error, nothing may ever be assumed about the bytes that it covered. The caller must not retry the
//!   sync.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

mod direct;
mod real;

pub use real::RealDisk;

/// How [`Disk::open`] treats existing and missing files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Read only; the file must exist.
    Read,
    /// Read and write; the file must exist.
    ReadWrite,
    /// Read and write; a missing file is created empty.
    Create,
    /// Read and write; an error of kind `AlreadyExists` if the file exists.
    CreateNew,
}

/// An item of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirItem {
    /// The last component of its path.
    pub name: String,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// Its length in bytes; 0 for a directory.
    pub len: u64,
}

/// The size of a file system and its free space, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// The size of the file system.
    pub total: u64,
    /// The bytes that this process can still write.
    pub available: u64,
}

/// An exclusive lock on a directory, released when it is dropped or the process ends.
pub trait DirLock: Send + Sync + fmt::Debug {}

/// The file system of one node.
pub trait Disk: Send + Sync + fmt::Debug + 'static {
    /// Opens a file.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>>;

    /// Creates a directory and its missing parents. An existing directory is not an error.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;

    /// The items of a directory, sorted by name.
    fn list(&self, dir: &Path) -> io::Result<Vec<DirItem>>;

    /// Whether a file or directory exists at this path.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// What distinguishes the file or directory at this path from any other that exists, whatever their names are;
    /// `None` if this disk can't tell.
    fn identity(&self, _path: &Path) -> io::Result<Option<(u64, u64)>> {
        Ok(None)
    }

    /// Renames a file or directory, atomically replacing `to`.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory and its contents.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Makes the creation, renaming and removal of names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Locks a directory for this process by a lock on `dir/LOCK`. Fails with kind `WouldBlock` if it is already
    /// locked.
    fn lock_dir(&self, dir: &Path) -> io::Result<Box<dyn DirLock>>;

    /// The size and free space of the file system that holds `path`.
    fn space(&self, path: &Path) -> io::Result<Space>;

    /// The boot id of this machine's kernel, or `None` if it can't be read. Two equal ids mean that the machine was not
    /// rebooted in between.
    fn boot_id(&self) -> Option<String>;

    /// Restricts access to a file to the owner of this process, if the file system has owners.
    fn make_private(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    /// The name of the registered SQLite VFS that stores its files on this disk, or `None` for SQLite's default. This
    /// crate only passes the name on; it does not depend on SQLite.
    fn sqlite_vfs(&self) -> Option<String> {
        None
    }
}

/// An open file. Positions and lengths are in bytes.
pub trait File: Send + Sync + fmt::Debug {
    /// Fills `buf` from `offset` and returns the number of bytes read, which is less than `buf.len()` only at the end
    /// of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `buf` at `offset`, growing the file if needed.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;

    /// Writes like [`write_at`](Self::write_at), for data that is synced immediately afterwards and seldom read again.
    /// Whole pages at page boundaries may bypass the page cache. They are still durable only after a sync.
    fn write_direct(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.write_at(buf, offset)
    }

    /// Makes the written bytes and the file's length durable.
    fn sync_data(&self) -> io::Result<()>;

    /// Truncates the file, or extends it with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// The file's length.
    fn len(&self) -> io::Result<u64>;

    /// Whether the file is empty.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Reads exactly `buf.len()` bytes, or fails with `UnexpectedEof`.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if self.read_at(buf, offset)? == buf.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

/// Creates a directory and its missing parents, and syncs their names so that they survive a power loss.
pub fn make_dir(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    // The directory's own name is synced even if it exists: an earlier process may have ended before it synced the
    // name.
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

/// The parent of a directory.
fn parent_of(dir: &Path) -> &Path {
    dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Replaces the content of the small file `path` with `bytes`. After a power loss the file holds either the old content
/// or the new one, complete.
///
/// The bytes are written to a temporary file next to it and synced; that file is then renamed over `path` and the
/// directory is synced.
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

/// Reads the whole content of a small file. Fails with kind `InvalidData` if the file is longer than `limit` bytes.
pub fn read_file(disk: &dyn Disk, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = disk.open(path, OpenMode::Read)?;
    let len = file.len()?;
    if len > limit {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{} has {len} bytes, more than the limit of {limit}", path.display()),
        ));
    }
    let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}
