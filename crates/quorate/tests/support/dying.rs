//! A disk that fails after a number of changes: all later operations fail, as if the process had been killed. Or a disk
//! of a machine that was restarted, or a slow one.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use quorate_env::disk::{DirItem, DirLock, Disk, File, OpenMode, RealDisk, Space};
use quorate_env::{Env, Parts};

/// The disk; see the module. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct DyingDisk {
    left: Arc<AtomicI64>,
    /// How long a change takes at least, in milliseconds.
    delay: Arc<AtomicU64>,
    boot_id: Option<&'static str>,
}

#[derive(Debug)]
struct DyingFile(Arc<dyn File>, DyingDisk);

impl DyingDisk {
    /// Returns a disk that accepts this many changes.
    pub fn after(changes: i64) -> Self {
        Self { left: Arc::new(AtomicI64::new(changes)), delay: Arc::default(), boot_id: None }
    }

    /// Returns a disk that does not fail, of a machine with this boot id.
    pub fn booted(boot_id: &'static str) -> Self {
        Self { boot_id: Some(boot_id), ..Self::after(i64::MAX) }
    }

    /// Lets each change take this many milliseconds more from now on.
    pub fn slow_down(&self, millis: u64) {
        self.delay.store(millis, Ordering::Release);
    }

    /// Returns the real environment, with this disk.
    pub fn env(&self) -> Env {
        let env = Env::real();
        Env::new(Parts {
            disk: Arc::new(self.clone()),
            net: Arc::new(quorate_env::net::RealNet),
            rng: env.rng().clone(),
            host: Arc::clone(env.host()),
            clock: Arc::new(Clock(env.clone())),
        })
    }

    fn change<T>(&self, change: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        std::thread::sleep(Duration::from_millis(self.delay.load(Ordering::Acquire)));
        if self.left.fetch_sub(1, Ordering::AcqRel) > 0 { change() } else { Err(io::Error::other("dead")) }
    }
}

#[derive(Debug)]
struct Clock(Env);

impl quorate_env::WallClock for Clock {
    fn unix_nanos(&self) -> u64 {
        self.0.unix_nanos()
    }
}

impl Disk for DyingDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let open = || RealDisk.open(path, mode);
        let file = if mode == OpenMode::Read { open()? } else { self.change(open)? };
        Ok(Arc::new(DyingFile(file, self.clone())))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.change(|| RealDisk.create_dir_all(path))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirItem>> {
        RealDisk.list(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        RealDisk.exists(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(|| RealDisk.rename(from, to))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.change(|| RealDisk.remove_file(path))
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.change(|| RealDisk.remove_dir_all(path))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.change(|| RealDisk.sync_dir(dir))
    }

    fn lock_dir(&self, dir: &Path) -> io::Result<Box<dyn DirLock>> {
        RealDisk.lock_dir(dir)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        RealDisk.space(path)
    }

    fn boot_id(&self) -> Option<String> {
        self.boot_id.map(str::to_owned).or_else(|| RealDisk.boot_id())
    }
}

impl File for DyingFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.1.change(|| self.0.write_at(buf, offset))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.1.change(|| self.0.sync_data())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.1.change(|| self.0.set_len(len))
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
}
