//! Restores a database from the boundaries of an archive, or from what Litestream has stored.
//!
//! Invariant: a file appears under the name that was asked for only if it is the database of a boundary, by the
//! checksums in the archive, and SQLite finds it sound.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use quorate_archive::restore::{Plan, Target, has_state};
use quorate_archive::{ArchiveError, Objects};
use quorate_env::Env;
use quorate_env::disk::OpenMode;
use rusqlite::{Connection, OpenFlags};

use crate::error::ReplicateError;
use crate::generations;
use crate::origin::Origin;
use crate::spool::{beside, dir_of};

/// How often a plan is made again because files were merged meanwhile.
const PLANS_MAX: usize = 3;

/// A database that was restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The number of the boundary, of the last transaction of Litestream 0.5, or of the `-wal` of Litestream 0.3.
    pub boundary: u64,
    /// Its time, in milliseconds since 1970.
    pub time: i64,
    /// The size of the database in bytes.
    pub bytes: u64,
}

/// A database that does not have its name yet. The file is removed when this is dropped, unless it was renamed, or the
/// next try can go on with it.
pub struct Part {
    env: Env,
    path: PathBuf,
}

impl Part {
    /// Names the file under which the database `path` is written until it is complete.
    pub fn of(env: &Env, path: &Path) -> Self {
        Self { env: env.clone(), path: beside(path, ".part") }
    }

    /// Returns the name of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Checks the database, makes it durable, and returns its size.
    pub async fn check(&self) -> Result<u64, ReplicateError> {
        let failed = ReplicateError::io("write the restored database");
        let file = self.env.disk().open(&self.path, OpenMode::ReadWrite).map_err(&failed)?;
        file.sync_data().map_err(&failed)?;
        let bytes = file.len().map_err(&failed)?;
        drop(file);
        let path = self.path.clone();
        self.env.blocking(move || check(&path)).await.ok_or(ReplicateError::Closed)??;
        Ok(bytes)
    }

    /// Gives the database its name.
    pub fn publish(self, path: &Path) -> Result<(), ReplicateError> {
        let disk = self.env.disk();
        let renamed = disk.rename(&self.path, path).and_then(|()| disk.sync_dir(dir_of(path)));
        renamed.map_err(ReplicateError::io("write the restored database"))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !has_state(self.env.disk().as_ref(), &self.path).unwrap_or(false) {
            // Without a state no other restore can use the file. If it stays, the next restore replaces it.
            let _ = self.env.disk().remove_file(&self.path);
        }
    }
}

/// Restores the database of a boundary into a new file. What an earlier call for the same state has read is not read
/// again. `cluster` is the archive; `None` for the only one in the store,
/// or for what Litestream has stored there. Reading bears that the store does not answer for `outage_max`.
///
/// # Errors
///
/// Returns [`ReplicateError::Io`] if the file exists. After an error there is no file of this name.
pub async fn restore_pages(
    env: &Env,
    objects: &Arc<dyn Objects>,
    (cluster, target): (Option<u128>, Target),
    path: &Path,
    outage_max: Duration,
) -> Result<Restored, ReplicateError> {
    let failed = ReplicateError::io("write the restored database");
    if env.disk().exists(path).map_err(&failed)? {
        return Err(failed(std::io::ErrorKind::AlreadyExists.into()));
    }
    let (part, boundary, time) = match Origin::find(&**objects, cluster).await? {
        Some(origin) => {
            let (part, plan) = restore_part(env, objects, (origin, target), path, outage_max).await?;
            let time = plan.files.last().map_or(0, |(_, file)| file.time);
            (part, plan.boundary(), time)
        }
        None => restore_generation(env, objects, target, path).await?,
    };
    let bytes = env.disk().open(part.path(), OpenMode::Read).and_then(|file| file.len()).map_err(&failed)?;
    part.publish(path)?;
    Ok(Restored { boundary, time, bytes })
}

/// Restores what Litestream 0.3 has stored.
async fn restore_generation(
    env: &Env,
    objects: &Arc<dyn Objects>,
    target: Target,
    path: &Path,
) -> Result<(Part, u64, i64), ReplicateError> {
    let missing = || ArchiveError::Missing("there is no archive at this place, and nothing of Litestream".to_owned());
    let part = Part::of(env, path);
    let last = generations::restore(env, objects, target, &part).await?.ok_or_else(missing)?;
    part.check().await?;
    Ok((part, last.index.into(), last.time))
}

/// Restores a database, and checks it, but does not give it its name.
pub async fn restore_part(
    env: &Env,
    objects: &Arc<dyn Objects>,
    (origin, target): (Origin, Target),
    path: &Path,
    outage_max: Duration,
) -> Result<(Part, Plan), ReplicateError> {
    let mut attempts = 1..PLANS_MAX;
    loop {
        let mut plan = origin.plan(env, objects, target).await?;
        plan.outage_max = outage_max;
        let part = Part::of(env, path);
        match write(env, objects, &plan, &part).await {
            Err(ReplicateError::Archive(ArchiveError::Missing(_))) if attempts.next().is_some() => {}
            done => return done.map(|_| (part, plan)),
        }
    }
}

/// Writes the database of a plan and checks it. Returns its size.
async fn write(env: &Env, objects: &Arc<dyn Objects>, plan: &Plan, part: &Part) -> Result<u64, ReplicateError> {
    plan.write_file(env, objects, part.path(), None).await?;
    part.check().await
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
