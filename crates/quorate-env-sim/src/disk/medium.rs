//! The state that all views of a simulated disk share: the names, the planned faults, and the current life.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use quorate_env::Rng;
use quorate_env::disk::Space;

use super::inode::{Fate, Inode};
use super::names::Names;
use super::{Fault, lock};

/// The reported size of a disk without a limit.
const UNLIMITED: u64 = 1 << 40;

#[derive(Debug)]
pub(super) struct Medium {
    pub(super) names: Names,
    pub(super) sqlite_vfs: Option<String>,
    pub(super) fail_sync_of: Option<String>,
    rng: Rng,
    life: u64,
    boots: u64,
    boot_id_hidden: bool,
    locks: BTreeMap<PathBuf, u64>,
    io_count: u64,
    stop_at: Option<u64>,
    stop_sync_at: Option<u64>,
    stopped: bool,
    fail_at: Option<(u64, Fault)>,
    fail_sync_at: Option<u64>,
    reads_until_failure: Option<u64>,
    /// Planned stops and failures that have occurred in this life.
    failures: u64,
    capacity: Option<u64>,
    scrambles_pages: bool,
}

/// The effect of an operation that was not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// It takes effect and succeeds.
    Whole,
    /// It takes effect as an unsynced change, but the disk stops before it can report success.
    Silent,
}

impl Effect {
    pub(super) fn finish<T>(self, result: io::Result<T>) -> io::Result<T> {
        match self {
            Self::Whole => result,
            Self::Silent => Err(stopped()),
        }
    }
}

impl Medium {
    pub(super) fn new(rng: Rng) -> Self {
        Self {
            names: Names::default(),
            sqlite_vfs: None,
            fail_sync_of: None,
            rng,
            life: 0,
            boots: 0,
            boot_id_hidden: false,
            locks: BTreeMap::new(),
            io_count: 0,
            stop_at: None,
            stop_sync_at: None,
            stopped: false,
            fail_at: None,
            fail_sync_at: None,
            reads_until_failure: None,
            failures: 0,
            capacity: None,
            scrambles_pages: false,
        }
    }

    pub(super) fn rng(&self) -> &Rng {
        &self.rng
    }

    pub(super) fn life(&self) -> u64 {
        self.life
    }

    pub(super) fn check_life(&self, life: u64) -> io::Result<()> {
        if life == self.life { Ok(()) } else { Err(io::Error::other("this view of the simulated disk has ended")) }
    }

    pub(super) fn lose_power(&mut self) {
        let fate = Fate::draw(&self.rng);
        // All files, including those whose names were changed or removed: a name that comes back must have its old
        // content.
        let mut files: Vec<_> = self.names.files().cloned().collect();
        self.names.lose_power(&self.rng, fate);
        for file in self.names.files() {
            if !files.iter().any(|known| std::sync::Arc::ptr_eq(known, file)) {
                files.push(file.clone());
            }
        }
        for file in files {
            lock(&file).lose_power(&self.rng, fate, self.scrambles_pages);
        }
        self.boots += 1;
        self.end_life();
    }

    pub(super) fn reboot(&mut self) {
        self.names.sync_all();
        for file in self.names.files() {
            lock(file).sync();
        }
        self.boots += 1;
        self.end_life();
    }

    /// Ends the life of the process and cancels its planned faults.
    pub(super) fn end_life(&mut self) {
        self.life += 1;
        self.locks.clear();
        self.stopped = false;
        self.failures = 0;
        self.clear_faults();
    }

    pub(super) fn clear_faults(&mut self) {
        (self.stop_at, self.stop_sync_at, self.fail_sync_of) = (None, None, None);
        (self.fail_at, self.fail_sync_at, self.reads_until_failure) = (None, None, None);
    }

    pub(super) fn io_count(&self) -> u64 {
        self.io_count
    }

    pub(super) fn failures(&self) -> u64 {
        self.failures
    }

    pub(super) fn stop_after(&mut self, n: u64) {
        self.stop_at = Some(self.io_count.saturating_add(n));
    }

    pub(super) fn stop_sync_after(&mut self, n: u64) {
        self.stop_sync_at = Some(self.io_count.saturating_add(n));
    }

    pub(super) fn has_stopped(&self) -> bool {
        self.stopped
    }

    pub(super) fn fail_after(&mut self, n: u64, fault: Fault) {
        self.fail_at = Some((self.io_count.saturating_add(n), fault));
    }

    pub(super) fn fail_sync_after(&mut self, n: u64) {
        self.fail_sync_at = Some(self.io_count.saturating_add(n));
    }

    pub(super) fn fail_read_after(&mut self, n: u64) {
        self.reads_until_failure = Some(n);
    }

    pub(super) fn set_capacity(&mut self, bytes: Option<u64>) {
        self.capacity = bytes;
    }

    pub(super) fn scramble_pages(&mut self, scrambles: bool) {
        self.scrambles_pages = scrambles;
    }

    pub(super) fn hide_boot_id(&mut self, hidden: bool) {
        self.boot_id_hidden = hidden;
    }

    pub(super) fn boot_id(&self) -> Option<String> {
        (!self.boot_id_hidden).then(|| format!("boot-{}", self.boots))
    }

    /// Counts an operation that changes something, and applies planned faults to it.
    pub(super) fn begin(&mut self) -> io::Result<Effect> {
        if self.stopped {
            return Err(stopped());
        }
        let number = self.io_count;
        self.io_count += 1;
        if self.stop_at == Some(number) {
            self.stopped = true;
            self.failures += 1;
            return if self.rng.below(2) == 0 { Ok(Effect::Silent) } else { Err(stopped()) };
        }
        match self.fail_at {
            Some((at, fault)) if at == number => {
                self.fail_at = None;
                self.failures += 1;
                Err(match fault {
                    Fault::Io => io::Error::other("simulated I/O error"),
                    Fault::NoSpace => io::ErrorKind::StorageFull.into(),
                })
            }
            _ => Ok(Effect::Whole),
        }
    }

    /// Like [`Medium::begin`], for a sync of a file.
    pub(super) fn begin_file_sync(&mut self, file: &Arc<Mutex<Inode>>) -> io::Result<Effect> {
        let is_target = |name: &String| {
            let mut named = self.names.paths().filter(|(path, _)| path.ends_with(name));
            named.any(|(_, inode)| Arc::ptr_eq(inode, file))
        };
        if self.fail_sync_of.as_ref().is_some_and(is_target) {
            (self.fail_sync_of, self.fail_sync_at) = (None, Some(self.io_count));
        }
        self.begin_sync()
    }

    /// Like [`Medium::begin`], for a sync of names.
    pub(super) fn begin_sync(&mut self) -> io::Result<Effect> {
        if self.stop_sync_at.is_some_and(|at| at <= self.io_count) {
            self.stop_sync_at = None;
            self.stop_at = Some(self.io_count);
        }
        if self.fail_sync_at.is_some_and(|at| at <= self.io_count) {
            self.fail_sync_at = None;
            self.fail_at = Some((self.io_count, Fault::Io));
        }
        if let Some((at, Fault::NoSpace)) = self.fail_at
            && at == self.io_count
        {
            self.fail_at = None;
        }
        self.begin()
    }

    pub(super) fn begin_read(&mut self) -> io::Result<()> {
        if self.stopped {
            return Err(stopped());
        }
        match self.reads_until_failure {
            Some(0) => {
                self.reads_until_failure = None;
                self.failures += 1;
                Err(io::Error::other("simulated read error"))
            }
            Some(n) => {
                self.reads_until_failure = Some(n - 1);
                Ok(())
            }
            None => Ok(()),
        }
    }

    pub(super) fn check_space(&self, growth: u64) -> io::Result<()> {
        let full = growth > 0 && self.space().available < growth;
        if full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    pub(super) fn space(&self) -> Space {
        match self.capacity {
            Some(total) => Space { total, available: total.saturating_sub(self.used()) },
            None => Space { total: UNLIMITED, available: UNLIMITED },
        }
    }

    pub(super) fn used(&self) -> u64 {
        self.names.files().map(|file| lock(file).len()).sum()
    }

    pub(super) fn lock_dir(&mut self, dir: &Path) -> io::Result<()> {
        if !self.names.is_dir(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        match self.locks.insert(dir.to_path_buf(), self.life) {
            None => Ok(()),
            Some(_) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    pub(super) fn unlock_dir(&mut self, dir: &Path) {
        self.locks.remove(dir);
    }
}

fn stopped() -> io::Error {
    io::Error::other("the simulated disk has stopped")
}
