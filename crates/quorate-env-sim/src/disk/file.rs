//! An open file of the simulated disk.

use std::io;
use std::sync::{Arc, Mutex};

use quorate_env::disk::File;

use super::inode::Inode;
use super::medium::Effect;
use super::{SimDisk, lock};

#[derive(Debug)]
pub(super) struct SimFile {
    disk: SimDisk,
    inode: Arc<Mutex<Inode>>,
    writable: bool,
}

impl SimFile {
    pub(super) fn new(disk: SimDisk, inode: Arc<Mutex<Inode>>, writable: bool) -> Self {
        Self { disk, inode, writable }
    }

    /// Makes a change that grows the file to `end` if it is shorter.
    fn change(&self, end: u64, apply: impl FnOnce(&mut Inode)) -> io::Result<()> {
        if !self.writable {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let mut medium = self.disk.now()?;
        let effect = medium.begin()?;
        let growth = end.saturating_sub(lock(&self.inode).len());
        medium.check_space(growth)?;
        apply(&mut lock(&self.inode));
        effect.finish(Ok(()))
    }
}

impl File for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut medium = self.disk.now()?;
        if !self.disk.only_watches {
            medium.begin_read()?;
        }
        drop(medium);
        Ok(lock(&self.inode).read(buf, offset))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let end = if buf.is_empty() { 0 } else { offset.saturating_add(buf.len() as u64) };
        self.change(end, |inode| inode.write(buf, offset))
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut medium = self.disk.now()?;
        match medium.begin_file_sync(&self.inode) {
            Ok(Effect::Whole) => {
                lock(&self.inode).sync();
                Ok(())
            }
            Ok(effect) => effect.finish(Ok(())),
            // A stop ends the process, not the kernel: the sectors stay unsynced, and none becomes a ghost.
            Err(error) if medium.has_stopped() => Err(error),
            Err(error) => {
                lock(&self.inode).fail_sync(medium.rng());
                Err(error)
            }
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(len, |inode| inode.set_len(len))
    }

    fn len(&self) -> io::Result<u64> {
        drop(self.disk.now()?);
        Ok(lock(&self.inode).len())
    }
}
