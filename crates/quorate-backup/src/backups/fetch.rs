//! Fetches a backup from a store into a file: one task downloads, while a thread decrypts, decompresses and writes.
//!
//! Invariant: the file has its name only when it is complete, verified and durable.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use quorate::backup::{BackupInfo, FileError};
use quorate_env::Env;
use quorate_env::disk::OpenMode;
use tokio::sync::mpsc;

use super::name::Name;
use super::pack::{Pieces, unpack};
use super::{blocking, env};
use crate::crypt::Keys;
use crate::error::Error;
use crate::store::{Download, Store};

/// The number of pieces that wait to be decrypted.
const WAITING_MAX: usize = 1;
/// The suffix of the file while it is written.
const PARTIAL_SUFFIX: &str = ".partial";

/// Downloads, decrypts and decompresses a backup into a new file, and verifies it as a restore does: by its checksum,
/// and by SQLite. The file is then a plain SQLite database.
///
/// # Errors
///
/// Returns [`Error::Locked`] if the keys do not fit, [`Error::Damaged`] if the object has changed since its upload, and
/// the errors of the store and the disk. After an error there is no such file.
pub async fn fetch(store: &Store, name: &Name, keys: Keys, file: impl AsRef<Path>) -> Result<BackupInfo, Error> {
    let (env, file) = (env(), file.as_ref().to_path_buf());
    let exists = blocking(&env, {
        let (disk, file) = (Arc::clone(env.disk()), file.clone());
        move || disk.exists(&file).map_err(Error::disk(&file))
    });
    if exists.await? {
        return Err(quorate::backup::BackupError::from(FileError::Exists(file)).into());
    }
    let mut partial = file.as_os_str().to_owned();
    partial.push(PARTIAL_SUFFIX);
    let partial = PathBuf::from(partial);
    let fetched = fetch_into(&env, store, name, keys, &partial, &file).await;
    if fetched.is_err() {
        let disk = Arc::clone(env.disk());
        // The next attempt replaces it.
        let _ = env.blocking(move || disk.remove_file(&partial)).await;
    }
    fetched
}

async fn fetch_into(
    env: &Env,
    store: &Store,
    name: &Name,
    keys: Keys,
    partial: &Path,
    file: &Path,
) -> Result<BackupInfo, Error> {
    let mut download = store.download(&name.to_string()).await?;
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    let (disk, path, named) = (Arc::clone(env.disk()), partial.to_path_buf(), *name);
    let unpacked = blocking(env, move || {
        let to = disk.open(&path, OpenMode::Create).and_then(|to| to.set_len(0).map(|()| to));
        let to = to.map_err(Error::disk(&path))?;
        unpack(&named, &keys, Pieces::new(receiver), &*to).map_err(|error| match error {
            Error::Disk { source, .. } => Error::Disk { path: path.clone(), source },
            error => error,
        })?;
        to.sync_data().map_err(Error::disk(&path))
    });
    let ((), unpacked) = tokio::join!(send(&mut download, sender), unpacked);
    unpacked?;
    let found = quorate::backup::check(env, partial).await?;
    if (found.cluster, found.position) != (name.cluster, name.position) {
        let source = format!("it holds position {} of cluster {}", found.position, found.cluster).into();
        return Err(Error::Damaged { name: name.to_string(), source });
    }
    let (disk, from, to) = (Arc::clone(env.disk()), partial.to_path_buf(), file.to_path_buf());
    blocking(env, move || {
        disk.rename(&from, &to).map_err(Error::disk(&to))?;
        let dir = to.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        disk.sync_dir(dir).map_err(Error::disk(dir))
    })
    .await?;
    Ok(BackupInfo { file: file.to_path_buf(), ..found })
}

/// Sends the pieces of a download, and at last the error that ends it, if one does.
async fn send(download: &mut Download, sender: mpsc::Sender<Result<bytes::Bytes, Error>>) {
    while let Some(piece) = download.next().await.transpose() {
        let is_last = piece.is_err();
        // The receiver is gone if it has failed.
        if sender.send(piece).await.is_err() || is_last {
            return;
        }
    }
}
