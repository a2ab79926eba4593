//! Backups in a store: makes, lists, prunes and fetches them.
//!
//! A backup is one object: the plain SQLite file that [`Admin::backup`] makes, compressed with zstd and, if asked,
//! encrypted with age. Its [`Name`] says when and of what it was made, and how to read it. `docs/backups.md` describes
//! the bytes.
//!
//! # Invariants
//!
//! - An object under the name of a backup is complete: it was verified before it was uploaded, and appears at once.
//! - If encryption was asked for and can't be done, nothing is uploaded.
//! - [`fetch`] gives a file that is the one that was backed up, or an error; whatever bytes the store returns.
//! - [`prune`] deletes nothing but backups by their names, and never the newest of a cluster.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use quorate::admin::Admin;
use quorate::backup::{BackupInfo, BackupOptions, TellProgress};
use quorate::{Level, Position};
use quorate_env::Env;
use quorate_env::disk::Disk;

use crate::crypt::Encryption;
use crate::error::Error;
use crate::store::Store;

mod fetch;
mod name;
mod pack;
mod prune;
mod upload;

pub use fetch::fetch;
pub(crate) use name::time_text;
pub use name::{Claim, Name};
pub use prune::{Keep, prune};

/// The nanoseconds of a second.
pub(crate) const NANOS: u64 = 1_000_000_000;

/// How a backup is made.
#[derive(Clone)]
pub struct Options {
    /// Who can read it.
    pub encryption: Encryption,
    /// How fresh it must be; see [`BackupOptions::level`].
    pub level: Level,
    /// The directory for the uncompressed copy, which is as large as the database; its own directory is created there,
    /// and removed at the end.
    pub scratch: PathBuf,
    /// The time in its name, in seconds since 1970-01-01 UTC; `None` for now.
    pub time: Option<u64>,
    /// Called from time to time while the database is copied.
    pub progress: Option<TellProgress>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            encryption: Encryption::None,
            level: Level::Linearizable,
            scratch: std::env::temp_dir(),
            time: None,
            progress: None,
        }
    }
}

/// A finished backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// Its name in the store.
    pub name: Name,
    /// The size of the object, in bytes.
    pub bytes: u64,
    /// The size of the database in it, in bytes.
    pub database_bytes: u64,
}

impl Made {
    /// Returns the position of the last write that it contains.
    pub fn position(&self) -> Position {
        self.name.position
    }
}

/// A backup in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its name.
    pub name: Name,
    /// The size of the object, in bytes.
    pub bytes: u64,
}

/// Makes a backup of a live database: copies it to a file, verifies the file, and uploads it, compressed and encrypted.
///
/// # Errors
///
/// Returns [`Error::Backup`] if the copy can't be made, and the errors of the store. After an error there is no such
/// object, unless only the answer of the store was lost.
pub async fn make(admin: &Admin, store: &Store, options: &Options) -> Result<Made, Error> {
    // Fails before the work begins.
    options.encryption.check()?;
    let env = env();
    let scratch = Scratch::create(&env, &options.scratch).await?;
    let file = scratch.path.join("backup.db");
    let copy = BackupOptions { replace: false, level: options.level, progress: options.progress.clone() };
    let info = admin.backup(&file, &copy).await?;
    let time = options.time.unwrap_or_else(|| env.unix_nanos() / NANOS);
    let made = upload_as(&env, store, &info, &options.encryption, time).await;
    scratch.remove().await;
    made
}

/// Uploads a file that [`Admin::backup`] has made.
///
/// # Errors
///
/// See [`make`].
pub async fn upload(store: &Store, backup: &BackupInfo, encryption: &Encryption) -> Result<Made, Error> {
    let env = env();
    upload_as(&env, store, backup, encryption, env.unix_nanos() / NANOS).await
}

async fn upload_as(
    env: &Env,
    store: &Store,
    backup: &BackupInfo,
    encryption: &Encryption,
    time: u64,
) -> Result<Made, Error> {
    let name = Name::new(time, backup.cluster, backup.position, encryption.is_on());
    let bytes = upload::upload(env, store, &name, backup, encryption).await?;
    Ok(Made { name, bytes, database_bytes: backup.bytes })
}

/// Returns the backups at a location, the oldest first. Other objects are passed over.
///
/// # Errors
///
/// Returns the errors of [`Store::list`].
pub async fn list(store: &Store) -> Result<Vec<Stored>, Error> {
    let objects = store.list().await?.into_iter();
    Ok(objects.filter_map(|found| Some(Stored { name: found.name.parse().ok()?, bytes: found.bytes })).collect())
}

/// Returns the newest backup at a location.
///
/// # Errors
///
/// Returns [`Error::Empty`] if the store holds no backup.
pub async fn latest(store: &Store) -> Result<Stored, Error> {
    list(store).await?.pop().ok_or_else(|| Error::Empty(store.location().to_string()))
}

/// Returns the environment of the calling task, or that of the machine.
pub(crate) fn env() -> Env {
    Env::current().unwrap_or_else(Env::real)
}

/// Runs a blocking function on another thread.
pub(crate) async fn blocking<T: Send + 'static>(
    env: &Env,
    f: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    env.blocking(f).await.unwrap_or(Err(Error::Closed))
}

/// A directory of its own, which is removed, with all in it, when it is dropped.
struct Scratch {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    env: Env,
    is_there: bool,
}

impl Scratch {
    async fn create(env: &Env, within: &Path) -> Result<Self, Error> {
        let name = format!("quorate-backup-{}-{:016x}", std::process::id(), env.rng().next_u64());
        let (disk, path) = (Arc::clone(env.disk()), within.join(name));
        let scratch = Self { disk: Arc::clone(&disk), path: path.clone(), env: env.clone(), is_there: true };
        let create = move || disk.create_dir_all(&path).map_err(Error::disk(&path));
        blocking(env, create).await.map(|()| scratch)
    }

    /// Removes it on another thread.
    async fn remove(mut self) {
        self.is_there = false;
        let (disk, path) = (Arc::clone(&self.disk), self.path.clone());
        // If it stays, the operator sees it: its name says what it is.
        let _ = self.env.blocking(move || disk.remove_dir_all(&path)).await;
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.is_there {
            // After an error, or when the caller no longer waits.
            let _ = self.disk.remove_dir_all(&self.path);
        }
    }
}
