//! Restores a database from the boundaries of an archive.
//!
//! Invariant: a file appears under the name that was asked for only if it is the database of a boundary, by the
//! checksums in the archive, and SQLite finds it sound.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use quorate_archive::Objects;
use quorate_archive::restore::{Plan, Target, only_cluster};
use quorate_env::Env;
use quorate_env::disk::OpenMode;
use rusqlite::{Connection, OpenFlags};

use crate::error::ReplicateError;

/// A database that was restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The archive.
    pub cluster: u128,
    /// The number of the boundary.
    pub boundary: u64,
    /// Its time, in milliseconds since 1970.
    pub time: i64,
    /// The size of the database in bytes.
    pub bytes: u64,
}

/// Restores the database of a boundary into a new file. `cluster` is the archive; `None` for the only one in the store.
///
/// # Errors
///
/// Returns [`ReplicateError::Io`] if the file exists. After an error there is no file of this name.
pub async fn restore_pages(
    env: &Env,
    objects: &Arc<dyn Objects>,
    cluster: Option<u128>,
    target: Target,
    path: &Path,
) -> Result<Restored, ReplicateError> {
    let cluster = only_cluster(&**objects, cluster).await?;
    let disk = env.disk();
    let failed = ReplicateError::io("write the restored database");
    if disk.exists(path).map_err(&failed)? {
        return Err(failed(std::io::ErrorKind::AlreadyExists.into()));
    }
    let part = part_of(path);
    let plan = Plan::make(env, objects, cluster, target).await?;
    let restored = write(env, objects, &plan, &part).await;
    let bytes = match restored {
        Ok(bytes) => bytes,
        Err(error) => {
            // What is left is of no use, and another try replaces it.
            let _ = disk.remove_file(&part);
            return Err(error);
        }
    };
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    disk.rename(&part, path).and_then(|()| disk.sync_dir(dir)).map_err(&failed)?;
    let time = plan.files.last().map_or(0, |(_, file)| file.time);
    Ok(Restored { cluster, boundary: plan.boundary(), time, bytes })
}

/// Writes the database of a plan and checks it. Returns its size.
async fn write(env: &Env, objects: &Arc<dyn Objects>, plan: &Plan, part: &Path) -> Result<u64, ReplicateError> {
    let failed = ReplicateError::io("write the restored database");
    let file = env.disk().open(part, OpenMode::Create).map_err(&failed)?;
    file.set_len(0).map_err(&failed)?;
    plan.write_pages(env, objects, Arc::clone(&file), None).await?;
    file.sync_data().map_err(&failed)?;
    let bytes = file.len().map_err(&failed)?;
    drop(file);
    let part = part.to_owned();
    env.blocking(move || check(&part)).await.ok_or(ReplicateError::Closed)??;
    Ok(bytes)
}

/// Lets SQLite check a database. As the file is declared immutable, SQLite puts no other files beside it.
fn check(path: &Path) -> Result<(), ReplicateError> {
    let failed = ReplicateError::sqlite("check the restored database");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(immutable(path), flags).map_err(&failed)?;
    let verdict: String = connection.query_row("PRAGMA quick_check", [], |row| row.get(0)).map_err(&failed)?;
    if verdict == "ok" { Ok(()) } else { Err(ReplicateError::Unsound(verdict)) }
}

/// Returns the URI of a file that nobody changes.
fn immutable(path: &Path) -> String {
    let mut uri = "file:".to_owned();
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' => uri.push(char::from(*byte)),
            other => uri.push_str(&format!("%{other:02x}")),
        }
    }
    uri.push_str("?immutable=1");
    uri
}

/// The name under which a database is written until it is complete.
fn part_of(path: &Path) -> PathBuf {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    part.into()
}
