//! SQLite on a simulated disk: a VFS whose files belong to one life of one node, and whose locks and shared memory
//! exist only within this process.
//!
//! SQLite looks up a VFS by its name, and a registered VFS exists for ever, while a node has many lives. So there is a
//! pool of registered VFSs, and each life binds one of them ([`bind`]). The store's own VFS layer uses it as it uses
//! any other VFS.
//!
//! # Invariants
//!
//! - A VFS serves one life at a time. After the end of a life no file can be opened. Operations on files that are still
//!   open fail, because the life's view of the disk has ended, and never touch the files of a later life.
//! - A VFS is bound again only after the last file of the previous life was closed.
//! - Time and randomness come from the world. SQLite's requests to sleep return at once, and no time passes.
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

/// A VFS that is bound to a life. Dropping it ends the life.
pub struct Slot(&'static Registered);

/// SQLite refused to register a VFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("SQLite refused to register a VFS; the process is out of memory")]
pub struct VfsError;

impl VfsError {
    /// Returns `false`, because registering would fail again.
    pub fn is_retryable(self) -> bool {
        false
    }
}

/// Binds a free VFS to a life's view of its disk, and sets the name of the VFS at the disk.
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

    /// Returns the life that is bound now.
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
