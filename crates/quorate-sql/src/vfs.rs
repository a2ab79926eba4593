//! The VFS through which SQLite reaches files and the clock: a thin layer over another VFS, its base.
//!
//! The base VFS does the file I/O and the locking. The layer supplies the time ([`clock`]), counts failed writes
//! ([`failed_writes`]), records which blocks of a database file ([`marks`]) and which pages in its `-wal` ([`pages`])
//! were written, writes the frames of a `-wal` together ([`frames`]), and passes readers' locks on to the next reader
//! ([`shm`](crate::ffi::shm)). docs/decisions/0003 says why it is a layer.
//!
//! Invariants: a layer is registered once for each base and never removed. It is never SQLite's default VFS, so other
//! uses of SQLite in the process are not affected.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::ffi;
use quorate_env::lock;

pub mod clock;
mod faults;
pub(crate) mod frames;
pub mod marks;
pub(crate) mod pages;
pub(crate) mod watch;
pub(crate) mod writes;

pub(crate) use watch::UNSYNCED_MAX;
pub use writes::{failed_writes, full_writes};

/// The name of the layer over SQLite's default VFS.
const NAME: &str = "quorate";

/// Why the layer could not be created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VfsError {
    /// The disk names a base VFS that is not registered.
    #[error("SQLite knows no VFS {0:?} to keep files on this disk")]
    NoBase(String),
    /// A path can't be used.
    #[error("{0:?} can't be the path of a database")]
    Path(String),
}

impl VfsError {
    /// Returns `false`: another attempt uses the same names.
    pub fn is_retryable(&self) -> bool {
        false
    }
}

/// Returns the name of the layer over the base VFS called `base` (`None`: SQLite's default), and registers the layer on
/// first use.
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
