//! SQLite's way to files and to the clock: a thin layer of ours over SQLite's own VFS.
//!
//! The base VFS keeps the bytes and the locks; the layer answers the clock ([`clock`]), counts failed writes
//! ([`failed_writes`]), knows which blocks of a database file were written ([`marks`]) and keeps readers' locks for the
//! next reader ([`shm`](crate::ffi::shm)). docs/decisions/0003 says why it is a layer.
//!
//! Invariants: a layer is registered once for each base and never removed; it is never SQLite's default VFS, so other
//! uses of SQLite in the process go on as before.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::ffi;
use quorate_env::lock;

pub mod clock;
mod faults;
pub mod marks;
pub(crate) mod watch;
pub(crate) mod writes;

pub(crate) use watch::UNSYNCED_MAX;
pub use writes::{failed_writes, full_writes};

/// What the layer over SQLite's default VFS is called.
const NAME: &str = "quorate";

/// Why the layer could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VfsError {
    /// The disk names a base VFS that nobody registered.
    #[error("SQLite knows no VFS {0:?} to keep files on this disk")]
    NoBase(String),
    /// A path can't be used.
    #[error("{0:?} can't be the path of a database")]
    Path(String),
}

impl VfsError {
    /// Never: the names stay what they are.
    pub fn is_retryable(&self) -> bool {
        false
    }
}

/// The name of the layer over the base VFS called `base` (`None`: SQLite's default), which is registered when needed.
pub fn over(base: Option<&str>) -> Result<String, VfsError> {
    static LAYERS: Mutex<BTreeMap<Option<String>, String>> = Mutex::new(BTreeMap::new());
    let mut layers = lock(&LAYERS);
    if let Some(name) = layers.get(&base.map(str::to_owned)) {
        return Ok(name.clone());
    }
    if layers.is_empty() {
        ffi::control::disable_memory_statistics();
        if !ffi::memory::install() {
            tracing::warn!("the program has used SQLite before: the memory of queries is not limited");
        }
    }
    let name = base.map_or_else(|| NAME.to_owned(), |base| format!("{NAME}-{base}"));
    let no_base = || VfsError::NoBase(base.unwrap_or("default").to_owned());
    ffi::vfs::register(&name, base).ok_or_else(no_base)?;
    ffi::control::install_localtime_rule();
    layers.insert(base.map(str::to_owned), name.clone());
    Ok(name)
}
