//! The disk of this machine.

#![expect(clippy::disallowed_methods, reason = "the one place that touches the machine's files")]

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{FlockOperation, flock, statvfs};

use super::direct::Direct;
use super::{DirItem, DirLock, Disk, File, OpenMode, Space};

/// The file that [`Disk::lock_dir`] locks.
const LOCK_FILE: &str = "LOCK";

/// The permissions of new files: only the owner has access to a node's data.
const OWNER_FILE: u32 = 0o600;

/// The permissions of new directories.
const OWNER_DIR: u32 = 0o700;

/// The file in which Linux provides the boot id.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The file system of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

#[derive(Debug)]
struct RealFile {
    file: fs::File,
    direct: Direct,
}

#[derive(Debug)]
struct RealDirLock(#[expect(dead_code, reason = "held for its lock, which closing it releases")] fs::File);

impl DirLock for RealDirLock {}

impl Disk for RealDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let mut options = fs::OpenOptions::new();
        options.read(true).mode(OWNER_FILE);
        match mode {
            OpenMode::Read => {}
            OpenMode::ReadWrite => drop(options.write(true)),
            OpenMode::Create => drop(options.write(true).create(true).truncate(false)),
            OpenMode::CreateNew => drop(options.write(true).create_new(true)),
        }
        Ok(Arc::new(RealFile { file: options.open(path)?, direct: Direct::default() }))
    }

    fn identity(&self, path: &Path) -> io::Result<Option<(u64, u64)>> {
        let meta = fs::metadata(path)?;
        Ok(Some((meta.dev(), meta.ino())))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(OWNER_DIR).create(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirItem>> {
        let mut items = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let meta = match entry.metadata() {
                Ok(meta) => meta,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let name = entry.file_name().to_string_lossy().into_owned();
            items.push(DirItem { name, is_dir: meta.is_dir(), len: if meta.is_dir() { 0 } else { meta.len() } });
        }
        items.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(items)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        fs::exists(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        fs::File::open(dir)?.sync_all()
    }

    fn lock_dir(&self, dir: &Path) -> io::Result<Box<dyn DirLock>> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(OWNER_FILE);
        let file = options.open(dir.join(LOCK_FILE))?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Box::new(RealDirLock(file)))
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let stat = statvfs(path)?;
        Ok(Space {
            total: stat.f_blocks.saturating_mul(stat.f_frsize),
            available: stat.f_bavail.saturating_mul(stat.f_frsize),
        })
    }

    fn make_private(&self, path: &Path) -> io::Result<()> {
        fs::set_permissions(path, fs::Permissions::from_mode(OWNER_FILE))
    }

    fn boot_id(&self) -> Option<String> {
        let text = fs::read_to_string(BOOT_ID).ok()?;
        Some(text.trim().to_owned()).filter(|id| !id.is_empty())
    }
}

impl File for RealFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, offset.saturating_add(done as u64)) {
                Ok(0) => break,
                Ok(n) => done = done.saturating_add(n),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(buf, offset)
    }

    fn write_direct(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        if self.direct.write(&self.file, buf, offset)? { Ok(()) } else { self.write_at(buf, offset) }
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}
