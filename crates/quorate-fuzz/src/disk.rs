//! A disk in memory, which is fast and has no faults. The simulated disk of `quorate-env-sim` would take more time than
//! the code that is tested.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use quorate_env::disk::{DirItem, DirLock, Disk, File, OpenMode, Space};
use quorate_env::lock;

/// The maximum size of a file in bytes. Writes beyond it fail.
const FILE_MAX: u64 = 64 << 20;

/// Files by their paths. Every directory exists.
#[derive(Debug, Default)]
pub struct MemoryDisk(Mutex<BTreeMap<PathBuf, Arc<MemoryFile>>>);

/// A file in memory.
#[derive(Debug, Default)]
pub struct MemoryFile(Mutex<Vec<u8>>);

#[derive(Debug)]
struct NoLock;

impl DirLock for NoLock {}

fn missing() -> io::Error {
    io::ErrorKind::NotFound.into()
}

fn place(number: u64) -> io::Result<usize> {
    usize::try_from(number.min(FILE_MAX)).map_err(io::Error::other)
}

impl MemoryDisk {
    /// Adds a file.
    pub fn put(&self, path: PathBuf, bytes: Vec<u8>) {
        lock(&self.0).insert(path, Arc::new(MemoryFile(Mutex::new(bytes))));
    }
}

impl Disk for MemoryDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let mut files = lock(&self.0);
        match (files.get(path), mode) {
            (Some(_), OpenMode::CreateNew) => Err(io::ErrorKind::AlreadyExists.into()),
            (Some(file), _) => Ok(Arc::clone(file) as Arc<dyn File>),
            (None, OpenMode::Read | OpenMode::ReadWrite) => Err(missing()),
            (None, OpenMode::Create | OpenMode::CreateNew) => {
                let file = Arc::new(MemoryFile::default());
                files.insert(path.to_owned(), Arc::clone(&file));
                Ok(file)
            }
        }
    }

    fn create_dir_all(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirItem>> {
        let files = lock(&self.0);
        let inside = files.iter().filter(|(path, _)| path.parent() == Some(dir));
        let item = |(path, file): (&PathBuf, &Arc<MemoryFile>)| DirItem {
            name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            is_dir: false,
            len: lock(&file.0).len() as u64,
        };
        Ok(inside.map(item).collect())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(lock(&self.0).contains_key(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut files = lock(&self.0);
        let file = files.remove(from).ok_or_else(missing)?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        lock(&self.0).remove(path).map(drop).ok_or_else(missing)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        lock(&self.0).retain(|file, _| !file.starts_with(path));
        Ok(())
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn lock_dir(&self, _: &Path) -> io::Result<Box<dyn DirLock>> {
        Ok(Box::new(NoLock))
    }

    fn space(&self, _: &Path) -> io::Result<Space> {
        Ok(Space { total: FILE_MAX, available: FILE_MAX })
    }

    fn boot_id(&self) -> Option<String> {
        Some("boot".to_owned())
    }
}

impl File for MemoryFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let bytes = lock(&self.0);
        let rest = bytes.get(place(offset)?..).unwrap_or_default();
        let count = rest.len().min(buf.len());
        buf.split_at_mut(count).0.copy_from_slice(rest.split_at(count).0);
        Ok(count)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut bytes = lock(&self.0);
        let (from, to) = (place(offset)?, place(offset.saturating_add(buf.len() as u64))?);
        if bytes.len() < to {
            bytes.resize(to, 0);
        }
        match bytes.get_mut(from..to).filter(|place| place.len() == buf.len()) {
            Some(place) => place.copy_from_slice(buf),
            None => return Err(io::ErrorKind::StorageFull.into()),
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        lock(&self.0).resize(place(len)?, 0);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(lock(&self.0).len() as u64)
    }
}
