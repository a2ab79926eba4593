//! The configuration of `quorate replicate --config`: which databases and directories go where. `litestream` reads that
//! of Litestream.
//!
//! Invariant: what can't be used is refused when the file is read, before anything is archived.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quorate::config::{ConfigError, Key, Schema, Shown, Sources, time};
use quorate_backup::store::{Location, Store};
use quorate_env::net::OWNER_ONLY;
use quorate_server::config::LogConfig;
use toml::{Table, Value};

use super::control::Socket;
use super::{INTERVAL_MIN, Options, litestream};
use crate::error::{Context as _, Error, Result};
use crate::restore;

/// The most databases of one process. Each has a few open files.
pub const DATABASES_MAX: usize = 1_000;

/// The tables of databases, and those of directories.
const DATABASE: &str = "database";
const DIRECTORY: &str = "directory";

/// The key before the tables that says where metrics are shown.
const METRICS: &str = "metrics";

/// The key before the tables that names the control socket.
const SOCKET: &str = "socket";

/// The keys that count for all tables when they are before the first.
const SHARED: [&str; 3] = ["interval", "keep_for", "credentials_file"];

/// What to archive.
#[derive(Debug, Default)]
pub struct Config {
    pub databases: Vec<Entry>,
    pub directories: Vec<Entry>,
    /// The command to run, if the configuration names one.
    pub exec: Option<String>,
    /// Where metrics are shown, if the configuration says so.
    pub metrics: Option<String>,
    /// Where the control socket is, if the configuration says so.
    pub socket: Option<Socket>,
    /// What counts for databases that are registered while the process runs, beside their path and URL.
    pub defaults: Entry,
    /// Whether the process ends if one of `databases` can't be archived.
    pub is_vital: bool,
    pub log: LogConfig,
}

/// Names and values of credentials. They are never shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets(pub Vec<(String, String)>);

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets")
    }
}

/// A table: a database, or a directory of databases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub path: PathBuf,
    /// Which files of the directory are databases.
    pub pattern: Option<String>,
    /// Whether the directories below are searched too.
    pub is_recursive: bool,
    /// Whether files that appear later are not archived.
    pub is_searched_once: bool,
    pub url: String,
    pub interval: Duration,
    pub keep_for: Option<Duration>,
    pub credentials_file: Option<PathBuf>,
    /// Credentials that are in the configuration itself, instead of a file.
    pub secrets: Secrets,
    pub cluster: Option<String>,
    /// Instead of the default of [`Options`].
    pub checkpoint_frames: Option<u32>,
    /// Instead of the default of [`Options`].
    pub stop_wait: Option<Duration>,
}

impl Default for Entry {
    fn default() -> Self {
        Self {
            path: PathBuf::new(),
            pattern: None,
            is_recursive: false,
            is_searched_once: false,
            url: String::new(),
            interval: Options::default().interval,
            keep_for: None,
            credentials_file: None,
            secrets: Secrets::default(),
            cluster: None,
            checkpoint_frames: None,
            stop_wait: None,
        }
    }
}

impl Entry {
    /// Opens the store; no request is sent yet.
    pub fn open(&self) -> Result<Store> {
        let opened = self.url.parse().and_then(|location| match &self.credentials_file {
            Some(file) => Store::open(&location, Some(file)),
            None => Store::open_with(&location, &self.secrets.0),
        });
        opened.map_err(Error::of)
    }

    /// Returns how to archive the database.
    pub fn options(&self) -> Result<Options> {
        let cluster = self.cluster.as_deref().map(restore::cluster).transpose()?.map(|cluster| cluster.0);
        let Options { checkpoint_frames, stop_wait, .. } = Options::default();
        Ok(Options {
            interval: self.interval,
            keep: self.keep_for,
            cluster,
            checkpoint_frames: self.checkpoint_frames.unwrap_or(checkpoint_frames),
            stop_wait: self.stop_wait.unwrap_or(stop_wait),
            ..Options::default()
        })
    }

    /// Returns this entry with its paths relative to the directory of the configuration.
    fn within(self, base: &Path) -> Self {
        let url = if Location::is_url(&self.url) { self.url } else { base.join(self.url).display().to_string() };
        let credentials_file = self.credentials_file.map(|file| base.join(file));
        Self { path: base.join(self.path), url, credentials_file, ..self }
    }
}

impl Schema for Entry {
    fn keys() -> Vec<Key<Self>> {
        let (path, url) = ("The database, or the directory.", "Where it goes.");
        vec![
            Key::new(
                "path",
                path,
                |it: &mut Self, given| given.path().map(|path| it.path = path),
                |it| (&it.path).into(),
            )
            .required(),
            Key::new(
                "url",
                url,
                |it: &mut Self, given| given.text().map(|url| it.url = url),
                |it| it.url.clone().into(),
            )
            .required(),
            Key::new(
                "pattern",
                "Which files of the directory are databases: * stands for any characters.",
                |it: &mut Self, given| given.text().map(|pattern| it.pattern = Some(pattern)),
                |it| it.pattern.clone().into(),
            ),
            Key::new(
                "recursive",
                "Whether the directories below are searched too.",
                |it: &mut Self, given| given.flag().map(|is_recursive| it.is_recursive = is_recursive),
                |it| it.is_recursive.into(),
            ),
            Key::new(
                "interval",
                "How often to archive what has changed.",
                |it: &mut Self, given| given.time().map(|interval| it.interval = interval),
                |it| time(it.interval),
            ),
            Key::new(
                "keep_for",
                "For how long states can be restored.",
                |it: &mut Self, given| given.time().map(|lasting| it.keep_for = Some(lasting)),
                |it| it.keep_for.map_or(Shown::Nothing, time),
            ),
            Key::new(
                "credentials_file",
                "A file with the credentials of the store.",
                |it: &mut Self, given| given.path().map(|file| it.credentials_file = Some(file)),
                |it| it.credentials_file.as_ref().into(),
            ),
            Key::new(
                "cluster",
                "The archive, if there are several at the URL.",
                |it: &mut Self, given| given.text().map(|cluster| it.cluster = Some(cluster)),
                |it| it.cluster.clone().into(),
            ),
        ]
    }

    fn check(&self) -> Result<(), ConfigError> {
        let refused = |text: String| Err(ConfigError::Invalid(text.into()));
        if self.interval < INTERVAL_MIN {
            return refused(format!("'interval' must be at least {INTERVAL_MIN:?}"));
        }
        match self.url.parse::<Location>() {
            Err(error) if Location::is_url(&self.url) => refused(format!("'url': {error}")),
            _ => Ok(()),
        }
    }
}

/// Reads a configuration.
pub fn read(file: &Path) -> Result<Config> {
    let text = std::fs::read_to_string(file).context(|| format!("cannot read {}", file.display()))?;
    let config = match litestream::is_named(file) {
        true => litestream::parse(&text, |name| std::env::var(name).ok()),
        false => parse(&text, file.parent().unwrap_or(Path::new(""))),
    };
    config.map_err(|error| error.within(file.display()))
}

fn parse(text: &str, base: &Path) -> Result<Config> {
    let mut shared: Table = text.parse().map_err(|error: toml::de::Error| Error::of(error))?;
    let (databases, directories) = (tables(&mut shared, DATABASE)?, tables(&mut shared, DIRECTORY)?);
    let metrics = text_of(&mut shared, METRICS, "an address such as \"127.0.0.1:9090\"")?;
    let socket = text_of(&mut shared, SOCKET, "a path such as \"replicate.sock\"")?;
    let socket = socket.map(|path| Socket { path: base.join(path), mode: OWNER_ONLY });
    if let Some(key) = shared.keys().find(|key| !SHARED.contains(&key.as_str())) {
        let known = format!("{METRICS}, {SOCKET}, {}", SHARED.join(", "));
        return Err(Error::new(format!(
            "the key '{key}' is not known here: write [[{DATABASE}]] and [[{DIRECTORY}]], and before them {known}"
        )));
    }
    let entries = |tables: Vec<Table>, name: &str| -> Result<Vec<Entry>> {
        let read = |(table, number): (Table, usize)| {
            let table: Table = shared.clone().into_iter().chain(table).collect();
            let entry = Sources::new().text(&table.to_string()).and_then(|sources| sources.read::<Entry>());
            let entry = entry.map_err(|error| Error::of(error).within(format!("[[{name}]] {number}")))?;
            match entry.pattern.is_some() == (name == DIRECTORY) {
                true if name == DATABASE && entry.is_recursive => {
                    Err(Error::new(format!("[[{name}]] {number}: only [[{DIRECTORY}]] can be 'recursive'")))
                }
                true => Ok(entry.within(base)),
                false => {
                    Err(Error::new(format!("[[{name}]] {number}: only [[{DIRECTORY}]] has a 'pattern', and must")))
                }
            }
        };
        tables.into_iter().zip(1..).map(read).collect()
    };
    let (databases, directories) = (entries(databases, DATABASE)?, entries(directories, DIRECTORY)?);
    let defaults = defaults(&shared)?.within(base);
    let config = Config { databases, directories, metrics, socket, defaults, ..Config::default() };
    check(&config, "[[database]] or [[directory]]")?;
    Ok(config)
}

/// Checks that there is something to archive, that no two archives are in one place, and that no database is archived
/// twice. `names` says what the parts of the configuration are called.
pub fn check(config: &Config, names: &str) -> Result<()> {
    let Config { databases, directories, .. } = config;
    let all = || databases.iter().chain(directories);
    if all().next().is_none() {
        return Err(Error::new(format!("nothing to archive: write {names}")));
    }
    if databases.len() > DATABASES_MAX {
        return Err(Error::new(format!("there are more than {DATABASES_MAX} databases: use several processes")));
    }
    let (mut urls, mut paths) = (BTreeSet::new(), BTreeSet::new());
    if let Some(entry) = all().find(|entry| !urls.insert(&entry.url)) {
        return Err(Error::new(format!("'url' {} is used twice: each database needs a place of its own", entry.url)));
    }
    if let Some(entry) = all().find(|entry| !paths.insert(&entry.path)) {
        return Err(Error::new(format!("'path' {} is there twice", entry.path.display())));
    }
    Ok(())
}

/// Returns what counts for a database that is in no table.
fn defaults(shared: &Table) -> Result<Entry> {
    let unnamed = ["path", "url"].map(|key| (key.to_owned(), Value::String(String::new())));
    let table: Table = shared.clone().into_iter().chain(unnamed).collect();
    Sources::new().text(&table.to_string()).and_then(|sources| sources.read::<Entry>()).map_err(Error::of)
}

/// Takes the text with a name out of the configuration.
fn text_of(table: &mut Table, name: &str, what: &str) -> Result<Option<String>> {
    let text = |value| match value {
        Value::String(text) => Ok(text),
        _ => Err(Error::new(format!("'{name}' must be {what}"))),
    };
    table.remove(name).map(text).transpose()
}

/// Takes the tables with a name out of the configuration.
fn tables(table: &mut Table, name: &str) -> Result<Vec<Table>> {
    let wrong = || Error::new(format!("'{name}' must be tables: write [[{name}]]"));
    let Some(value) = table.remove(name) else { return Ok(Vec::new()) };
    let Value::Array(values) = value else { return Err(wrong()) };
    let table = |value| if let Value::Table(table) = value { Ok(table) } else { Err(wrong()) };
    values.into_iter().map(table).collect()
}

/// Whether a name matches a pattern, in which `*` stands for any characters.
pub fn matches(pattern: &str, name: &str) -> bool {
    let Some((before, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(name) = name.strip_prefix(before) else { return false };
    let mut ends = name.char_indices().map(|(at, _)| at).chain([name.len()]);
    ends.any(|at| name.get(at..).is_some_and(|tail| matches(rest, tail)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests stop at the first surprise")]

    use super::*;

    #[test]
    fn tables_inherit_what_is_before_them() {
        let text = "interval = \"2 s\"\nmetrics = \"localhost:1\"\nsocket = \"s\"\nkeep_for = \"7 d\"\n[[database]]\npath = \"a.db\"\nurl = \"s3://b/a\"\n\
                    [[directory]]\npath = \"/t\"\npattern = \"*.db\"\nurl = \"archive\"\ninterval = \"500 ms\"";
        let Config { databases, directories, metrics, socket, defaults, .. } =
            parse(text, Path::new("/etc/q")).unwrap();
        assert_eq!(metrics.as_deref(), Some("localhost:1"));
        assert_eq!(socket, Some(Socket { path: "/etc/q/s".into(), mode: 0o600 }));
        assert_eq!((defaults.interval, defaults.keep_for), (databases[0].interval, databases[0].keep_for));
        assert_eq!(databases[0].path, Path::new("/etc/q/a.db"));
        assert_eq!(databases[0].options().unwrap().interval, Duration::from_secs(2));
        assert_eq!((&*directories[0].url, &*directories[0].path), ("/etc/q/archive", Path::new("/t")));
        let options = directories[0].options().unwrap();
        assert_eq!((options.interval, options.keep), (Duration::from_millis(500), Some(Duration::from_secs(604_800))));
    }

    #[test]
    fn what_cannot_be_used_is_refused() {
        let database = "[[database]]\npath = \"a\"\nurl = \"s3://b/a\"\n";
        for (text, why) in [
            ("", "nothing to archive"),
            ("url = \"s3://b\"", "the key 'url' is not known here"),
            ("metrics = 9090", "'metrics' must be an address"),
            ("socket = true", "'socket' must be a path"),
            ("[database]\npath = \"a\"", "write [[database]]"),
            ("[[database]]\npath = \"a\"", "[[database]] 1: 'url' is missing"),
            ("[[database]]\npath = \"a\"\nurl = \"ftp://b\"", "'url': ftp://"),
            (&format!("{database}intervall = \"1 s\""), "did you mean 'interval'?"),
            (&format!("{database}interval = \"1 ms\""), "'interval' must be at least 10ms"),
            (&format!("{database}pattern = \"*\""), "only [[directory]] has a 'pattern'"),
            (&format!("{database}[[database]]\npath = \"b\"\nurl = \"s3://b/a\""), "is used twice"),
            (&format!("{database}[[database]]\npath = \"a\"\nurl = \"s3://b/b\""), "is there twice"),
        ] {
            let error = parse(text, Path::new("")).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn patterns_match_names() {
        for (pattern, name, is_matched) in [
            ("*.db", "a.db", true),
            ("*.db", "a.db-wal", false),
            ("*", "", true),
            ("a*b*c", "aXbYbc", true),
            ("a*b*c", "aXbYb", false),
            ("ü*", "üü", true),
            ("a", "ab", false),
        ] {
            assert_eq!(matches(pattern, name), is_matched, "{pattern} {name}");
        }
    }
}
