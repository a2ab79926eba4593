//! Archives several databases, and those that appear in directories.
//!
//! Invariants:
//! - What fails for one database changes nothing for the others.
//! - No file is archived twice at once, whatever links lead to it: two followers in one process would drop each other's
//!   locks.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use quorate_backup::store::Store;
use quorate_env::disk::Disk;
use quorate_env::{Env, Instant, sleep};
use quorate_replicate::{Options, Status, Turns};
use quorate_server::http::Refusal;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::config::{Config, DATABASES_MAX, Entry, matches};
use super::control::{Ask, Request, Requests};
use super::database::{Database, Job, Pending, State};
use super::observed::Observed;
use crate::error::{Error, Result};
use crate::utc;

/// How often directories are searched for databases.
const SEARCH_INTERVAL: Duration = Duration::from_secs(2);

/// The most directories that are searched for databases below one.
const FOLDERS_MAX: usize = 10_000;

/// What follows the last `-` in the names of the files that SQLite puts beside a database.
const BESIDE: [&str; 3] = ["wal", "shm", "journal"];

/// Archives what a configuration names until `until` is ready, and then once more. Meanwhile, it does what is asked
/// for. Returns what to tell about it.
pub async fn replicate(
    env: &Env,
    config: &Config,
    observed: &Observed,
    requests: &mut Requests,
    until: impl Future<Output = ()>,
) -> Result<String> {
    let mut running = Running::new(env, config, observed);
    for entry in &config.databases {
        running.start(&entry.path, &entry.path, entry, Place::of(entry.open()?))?;
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
        let mut pause = pin!(sleep(SEARCH_INTERVAL));
        loop {
            tokio::select! {
                biased;
                () = &mut until => return running.stop(requests).await,
                () = running.vital.ended() => return running.stop(requests).await,
                request = requests.next() => running.answer(request),
                () = &mut pause => break,
            }
        }
    }
}

/// The databases that are archived.
struct Running<'a> {
    env: Env,
    observed: Observed,
    turns: Turns,
    began: Instant,
    /// In nanoseconds since 1970.
    began_at: u64,
    /// By the path without links.
    databases: BTreeMap<PathBuf, Database>,
    /// The one that the process ends with.
    vital: Vital,
    config: &'a Config,
    /// Those in directories that were unregistered.
    unregistered: BTreeSet<PathBuf>,
    /// Whether it was told that there are too many.
    is_full: bool,
}

/// Where the archive of a database is.
struct Place {
    store: Store,
    /// Without credentials.
    url: String,
}

impl Place {
    fn of(store: Store) -> Self {
        Self { url: store.location().to_string(), store }
    }

    fn below(store: &Store, name: &str) -> Self {
        Self { url: store.location().below(name).to_string(), store: store.below(name) }
    }
}

/// What becomes of the database that the process ends with, if there is one.
#[derive(Default)]
struct Vital(Option<watch::Receiver<State>>);

impl Vital {
    /// Waits until it has ended although nobody had asked for it.
    async fn ended(&mut self) {
        let Some(state) = &mut self.0 else { return pending().await };
        if state.wait_for(|state| matches!(state, State::Ended { is_asked: false, .. })).await.is_err() {
            // It was unregistered.
            pending().await
        }
    }
}

impl<'a> Running<'a> {
    fn new(env: &Env, config: &'a Config, observed: &Observed) -> Self {
        Self {
            env: env.clone(),
            observed: observed.clone(),
            turns: Turns::default(),
            began: Instant::now(),
            began_at: env.unix_nanos(),
            databases: BTreeMap::new(),
            vital: Vital::default(),
            config,
            unregistered: BTreeSet::new(),
            is_full: false,
        }
    }

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
                database.abort();
                self.observed.remove(path);
            }
            is_kept
        });
        self.unregistered.retain(|path| !path.starts_with(resolved(&entry.path)) || found.contains(path));
        for name in names {
            let path = entry.path.join(&name);
            if !self.unregistered.contains(&resolved(&path)) {
                self.start(&path, &entry.path, entry, Place::below(store, &place_of(&name)))?;
            }
        }
        Ok(())
    }

    /// Begins to archive a database, unless it is archived already.
    fn start(&mut self, path: &Path, origin: &Path, entry: &Entry, place: Place) -> Result<()> {
        let path = resolved(path);
        if self.databases.contains_key(&path) {
            return Ok(());
        }
        if self.databases.len() >= DATABASES_MAX {
            if !std::mem::replace(&mut self.is_full, true) {
                tracing::error!("there are more than {DATABASES_MAX} databases, and the others are not archived");
            }
            return Ok(());
        }
        let is_vital = self.config.is_vital && self.vital.0.is_none();
        let job = Job {
            env: self.env.clone(),
            path: path.clone(),
            url: place.url,
            objects: self.observed.counted(place.store),
            options: Options { turns: self.turns.clone(), ..entry.options()? },
            is_vital,
        };
        tracing::info!(database = %path.display(), "archives the database");
        let database = Database::begin(job, origin);
        if is_vital {
            self.vital = Vital(Some(database.state()));
        }
        self.observed.add(&path, database.status());
        self.databases.insert(path, database);
        Ok(())
    }

    /// Does what is asked for, and answers.
    fn answer(&mut self, Request { ask, answer }: Request) {
        self.databases.retain(|_, database| !database.has_left());
        // If this fails, nobody waits for the answer any more.
        let _ = answer.send(self.decide(ask));
    }

    fn decide(&mut self, ask: Ask) -> Result<Pending, Refusal> {
        let now = |value: Value| Ok(async { Ok(value) }.boxed());
        match ask {
            Ask::List => now(json!({"databases": self.databases.values().map(Database::shown).collect::<Vec<_>>()})),
            Ask::Info => now(self.info()),
            Ask::Sync { path, limit } => self.named(&path)?.1.sync(limit),
            Ask::Start { path } => {
                let (path, database) = self.named(&path)?;
                let (started, status) = (database.start()?, database.status());
                tracing::info!(database = %path.display(), "archives the database, as it was asked to");
                self.observed.add(&path, status);
                now(started)
            }
            Ask::Stop { path, limit } => {
                let (path, database) = self.named(&path)?;
                let stopped = database.stop(limit, false);
                self.observed.remove(&path);
                tracing::info!(database = %path.display(), "stops archiving the database, as it was asked to");
                Ok(stopped)
            }
            Ask::Unregister { path, limit } => {
                let (path, database) = self.named(&path)?;
                let stopped = database.stop(limit, true);
                self.observed.remove(&path);
                tracing::info!(database = %path.display(), "forgets the database, as it was asked to");
                let mut directories = self.config.directories.iter();
                let is_found = directories.any(|entry| path.starts_with(resolved(&entry.path)));
                self.unregistered.extend(is_found.then_some(path));
                Ok(stopped)
            }
            Ask::Register { path, url } => now(self.register(&path, url)?),
        }
    }

    fn info(&self) -> Value {
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "started_at": utc::text(self.began_at),
            "uptime_seconds": self.began.elapsed().as_secs(),
            "databases": self.databases.len(),
        })
    }

    /// Returns a database, with its path without links.
    fn named(&mut self, path: &Path) -> Result<(PathBuf, &mut Database), Refusal> {
        let path = resolved(path);
        let unknown = || {
            let path = path.display();
            Refusal::Unknown(format!("{path} is not among the databases: list shows them, and register adds one"))
        };
        let database = self.databases.get_mut(&path).ok_or_else(unknown)?;
        Ok((path, database))
    }

    /// Begins to archive a database that is in no configuration.
    fn register(&mut self, path: &Path, url: String) -> Result<Value, Refusal> {
        let (database, malformed) = (resolved(path), |error: Error| Refusal::Malformed(error.to_string()));
        let entry = Entry { path: database.clone(), url, ..self.config.defaults.clone() };
        let place = Place::of(entry.open().map_err(malformed)?);
        entry.options().map_err(malformed)?;
        let (shown, conflict) = (database.display(), |why: String| Err(Refusal::Conflict(why)));
        if let Some(known) = self.databases.get(&database) {
            return match known.check_not_leaving() {
                Err(refusal) => Err(refusal),
                Ok(()) if known.url() == place.url => Ok(json!({"status": "already_registered", "path": database})),
                Ok(()) => conflict(format!("{shown} goes to {} already: unregister it first", known.url())),
            };
        }
        if self.databases.values().any(|known| known.url() == place.url) {
            return conflict(format!("{} is used already: each database needs a place of its own", place.url));
        }
        if self.databases.len() >= DATABASES_MAX {
            return conflict(format!("there are {DATABASES_MAX} databases already: use another process"));
        }
        if !database.is_file() {
            return Err(Refusal::Unknown(format!("there is no file {shown}: create the database first")));
        }
        self.unregistered.remove(&database);
        self.start(&database, &database, &entry, place).map_err(malformed)?;
        Ok(json!({"status": "registered", "path": database}))
    }

    /// Archives what has changed, and ends.
    async fn stop(self, requests: &mut Requests) -> Result<String> {
        requests.refuse();
        for database in self.databases.values() {
            database.tell_to_stop();
        }
        let (mut text, mut failed) = (String::new(), Vec::new());
        for database in self.databases.into_values() {
            let (path, result) = database.ended().await;
            let path = path.display();
            match result {
                Ok(Status { boundary, boundaries, bytes, .. }) => text.push_str(&format!(
                    "{path}: boundary {boundary}: {boundaries} boundaries with {bytes} bytes were archived\n"
                )),
                Err(error) => failed.push(format!("{path}: {error}")),
            }
        }
        if failed.is_empty() { Ok(text) } else { Err(Error::new(failed.join("\n"))) }
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

/// Returns the path without links; where there is nothing, that of the directory without links.
fn resolved(path: &Path) -> PathBuf {
    let of_folder = || Some(std::fs::canonicalize(path.parent()?).ok()?.join(path.file_name()?));
    std::fs::canonicalize(path).ok().or_else(of_folder).unwrap_or_else(|| path.to_owned())
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
