//! Archives several databases, and those that appear in directories.
//!
//! Invariants:
//! - What fails for one database changes nothing for the others.
//! - No file is archived twice at once, whatever links lead to it: two followers in one process would drop each other's
//!   locks.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use quorate::archive::{ArchiveError, Objects};
use quorate_backup::store::Store;
use quorate_env::disk::Disk;
use quorate_env::{Env, JoinHandle, timeout};
use quorate_replicate::{Options, ReplicateError, Status, Turns};
use tokio::sync::watch;

use super::config::{Config, DATABASES_MAX, Entry, matches};
use super::observed::Observed;
use crate::error::{Error, Result};

/// How often directories are searched for databases.
const SEARCH_INTERVAL: Duration = Duration::from_secs(2);

/// How long to wait before a database is tried again whose error would not pass by itself.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// The most directories that are searched for databases below one.
const FOLDERS_MAX: usize = 10_000;

/// What follows the last `-` in the names of the files that SQLite puts beside a database.
const BESIDE: [&str; 3] = ["wal", "shm", "journal"];

/// Archives what a configuration names until `until` is ready, and then once more. Returns what to tell about it.
pub async fn replicate(
    env: &Env,
    config: &Config,
    observed: &Observed,
    until: impl Future<Output = ()>,
) -> Result<String> {
    let mut running = Running {
        env: env.clone(),
        observed: observed.clone(),
        turns: Turns::default(),
        databases: BTreeMap::new(),
        is_full: false,
    };
    for entry in &config.databases {
        running.start(&entry.path, &entry.path, entry, entry.open()?)?;
    }
    let directories: Vec<_> =
        config.directories.iter().map(|entry| Ok((entry, entry.open()?))).collect::<Result<_>>()?;
    let mut until = pin!(until);
    let mut is_first = true;
    loop {
        for (entry, store) in directories.iter().filter(|(entry, _)| is_first || !entry.is_searched_once) {
            running.search(entry, store).await?;
        }
        is_first = false;
        if timeout(SEARCH_INTERVAL, &mut until).await.is_ok() {
            return running.stop().await;
        }
    }
}

/// The databases that are archived.
struct Running {
    env: Env,
    observed: Observed,
    turns: Turns,
    /// By the path without links.
    databases: BTreeMap<PathBuf, Database>,
    /// Whether it was told that there are too many.
    is_full: bool,
}

/// A database that is archived.
struct Database {
    /// Its name in the configuration, or the directory where it was found.
    origin: PathBuf,
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<(), ReplicateError>>,
    status: watch::Receiver<Status>,
}

impl Running {
    /// Begins to archive the databases in a directory that are not archived yet, and ends with those that are gone.
    async fn search(&mut self, entry: &Entry, store: &Store) -> Result<()> {
        let (disk, searched) = (Arc::clone(self.env.disk()), entry.clone());
        let found = self.env.blocking(move || databases_in(&*disk, &searched)).await.unwrap_or_else(|| Ok(Vec::new()));
        let names = match found {
            Ok(names) => names,
            Err(error) => {
                tracing::warn!(directory = %entry.path.display(), %error, "the directory could not be searched");
                return Ok(());
            }
        };
        let found: BTreeSet<PathBuf> = names.iter().map(|name| resolved(&entry.path.join(name))).collect();
        self.databases.retain(|path, database| {
            let is_kept = database.origin != entry.path || found.contains(path);
            if !is_kept {
                // There is nothing left of it to archive.
                database.task.abort();
                self.observed.remove(path);
            }
            is_kept
        });
        for name in names {
            self.start(&entry.path.join(&name), &entry.path, entry, store.below(&place_of(&name)))?;
        }
        Ok(())
    }

    /// Begins to archive a database, unless it is archived already.
    fn start(&mut self, path: &Path, origin: &Path, entry: &Entry, store: Store) -> Result<()> {
        let database = resolved(path);
        if self.databases.contains_key(&database) {
            return Ok(());
        }
        if self.databases.len() >= DATABASES_MAX {
            if !std::mem::replace(&mut self.is_full, true) {
                tracing::error!("there are more than {DATABASES_MAX} databases, and the others are not archived");
            }
            return Ok(());
        }
        let options = Options { turns: self.turns.clone(), ..entry.options()? };
        let (sender, status) = watch::channel(Status::default());
        let (stop, stopped) = watch::channel(false);
        tracing::info!(database = %database.display(), "archives the database");
        self.observed.add(&database, status.clone());
        let objects = self.observed.counted(store);
        let archived = archive(self.env.clone(), database.clone(), objects, options, sender, stopped);
        let task = self.env.spawn(archived);
        self.databases.insert(database, Database { origin: origin.to_owned(), stop, task, status });
        Ok(())
    }

    /// Archives what has changed, and ends.
    async fn stop(self) -> Result<String> {
        for database in self.databases.values() {
            database.stop.send_replace(true);
        }
        let (mut text, mut failed) = (String::new(), Vec::new());
        for (path, Database { task, status, .. }) in self.databases {
            let path = path.display();
            match task.await {
                Ok(Ok(())) => text.push_str(&format!("{path}: boundary {}\n", status.borrow().boundary)),
                Ok(Err(error)) => failed.push(format!("{path}: {error}")),
                Err(error) => failed.push(format!("{path}: {error}")),
            }
        }
        if failed.is_empty() { Ok(text) } else { Err(Error::new(failed.join("\n"))) }
    }
}

/// Archives a database until it is told to stop. After an error it begins anew, unless another process archives the
/// database: two that take over from each other in turns would help nobody.
async fn archive(
    env: Env,
    database: PathBuf,
    objects: Arc<dyn Objects>,
    options: Options,
    status: watch::Sender<Status>,
    mut stopped: watch::Receiver<bool>,
) -> Result<(), ReplicateError> {
    loop {
        let mut stop = stopped.clone();
        // If the sender is gone, nobody waits for the end.
        let until = async move { drop(stop.wait_for(|is_stopped| *is_stopped).await) };
        let (env, objects, options) = (&env, Arc::clone(&objects), options.clone());
        let Err(error) = quorate_replicate::replicate(env, &database, objects, options, status.clone(), until).await
        else {
            return Ok(());
        };
        tracing::error!(database = %database.display(), %error, "the database is not archived");
        let is_final = matches!(error, ReplicateError::Archive(ArchiveError::Fenced { .. }));
        let is_stopped = timeout(RETRY_INTERVAL, stopped.wait_for(|is_stopped| *is_stopped || is_final)).await.is_ok();
        if is_stopped {
            return Err(error);
        }
    }
}

/// Returns the names of the databases in a directory: their paths below it.
fn databases_in(disk: &dyn Disk, entry: &Entry) -> io::Result<Vec<String>> {
    let pattern = entry.pattern.as_deref().unwrap_or_default();
    let is_beside = |name: &str| name.rsplit_once('-').is_some_and(|(_, end)| BESIDE.contains(&end));
    let (mut found, mut folders) = (Vec::new(), vec![String::new()]);
    let mut searched = 0_usize;
    while let Some(folder) = folders.pop() {
        searched = searched.saturating_add(1);
        if searched > FOLDERS_MAX {
            return Err(io::Error::other(format!("there are more than {FOLDERS_MAX} directories in it")));
        }
        let items = match disk.list(&entry.path.join(&folder)) {
            // It has been deleted since its name was read.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !folder.is_empty() => continue,
            items => items?,
        };
        for item in items {
            let name = if folder.is_empty() { item.name.clone() } else { format!("{folder}/{}", item.name) };
            if item.is_dir {
                folders.extend(entry.is_recursive.then_some(name));
            } else if matches(pattern, &item.name) && !is_beside(&item.name) {
                found.push(name);
            }
        }
    }
    Ok(found)
}

/// Returns the name of the place of a file's archive, which is that of the file. What not every store takes as it is
/// becomes `=` and two hexadecimal digits for each byte.
fn place_of(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'/');
    let encoded = |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("={byte:02x}") };
    name.bytes().map(encoded).collect()
}

/// Returns the path without links; the path itself where there is nothing yet.
fn resolved(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_plain_names() {
        assert_eq!(place_of("a-b_c.db"), "a-b_c.db");
        assert_eq!(place_of("a b=\u{fc}.db"), "a=20b=3d=c3=bc.db");
        assert_eq!(place_of("a b/c.db"), "a=20b/c.db");
    }
}
