//! SQLite on a simulated disk: a VFS whose files are those of one life of one node, and whose locks and shared memory
//! stay in this process.
//!
//! SQLite finds a VFS by its name and keeps it for ever, while a node has many lives. So there is a pool of registered
//! VFSs, and each life binds one of them ([`bind`]): the store's own layer then lies over it as over any other.
//!
//! # Invariants
//!
//! - A VFS serves one life at a time. When that has ended nothing can be opened; what was open before fails, because
//!   the
//!   life's view of the disk has ended, and never touches a later life's files.
//! - A VFS is bound again only after the last file of the life before was closed.
//! - Time, waiting and randomness come from the world: waiting passes no time.
//! - All `unsafe` code lies in `ffi`.

mod ffi;
mod file;
mod life;
mod locks;
mod shm;

use std::sync::{Arc, Mutex, MutexGuard, Weak};

use quorate_env::{Rng, WallClock, lock};
use quorate_env_sim::SimDisk;

pub use ffi::seed_randomness;
use life::Life;

/// A registered VFS.
struct Registered {
    name: String,
    bound: Mutex<Bound>,
}

#[derive(Default)]
struct Bound {
    life: Option<Arc<Life>>,
    former: Weak<Life>,
}

/// All VFSs of this process.
static POOL: Mutex<Vec<&'static Registered>> = Mutex::new(Vec::new());

/// A VFS bound to a life. When this is dropped the life has ended.
pub struct Slot(&'static Registered);

/// SQLite refused to register a VFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("SQLite refused to register a VFS; the process is out of memory")]
pub struct VfsError;

impl VfsError {
    /// Never: it would fail again.
    pub fn is_retryable(self) -> bool {
        false
    }
}

/// Binds a VFS to a life's view of its disk, and tells the disk so.
pub fn bind(disk: &SimDisk, clock: Arc<dyn WallClock>, rng: Rng) -> Result<Slot, VfsError> {
    let mut pool = lock(&POOL);
    let free = pool.iter().find(|registered| registered.is_free()).copied();
    let registered = match free {
        Some(registered) => registered,
        None => {
            let name = format!("sim-{}", pool.len());
            let made = ffi::register(Registered { name, bound: Mutex::default() }).ok_or(VfsError)?;
            pool.push(made);
            made
        }
    };
    registered.lock().life = Some(Arc::new(Life::new(Arc::new(disk.clone()), clock, rng)));
    disk.set_sqlite_vfs(&registered.name);
    Ok(Slot(registered))
}

impl Registered {
    fn is_free(&self) -> bool {
        let bound = self.lock();
        bound.life.is_none() && bound.former.strong_count() == 0
    }

    /// The life that is bound at this moment.
    fn life(&self) -> Option<Arc<Life>> {
        self.lock().life.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Bound> {
        lock(&self.bound)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut bound = self.0.lock();
        if let Some(life) = bound.life.take() {
            bound.former = Arc::downgrade(&life);
        }
    }
}

#[cfg(test)]
mod tests;
