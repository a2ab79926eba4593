//! `quorate replicate --config litestream.yml`: what a configuration of Litestream 0.5 means here.
//!
//! Invariants:
//! - A key has the meaning that it has in Litestream, also when it is missing, or it is an error that names it.
//! - Secrets are in no error and in no log.

use std::path::{Path, PathBuf};
use std::time::Duration;

use quorate_backup::store::Location;
use quorate_env::net::OWNER_ONLY;
use quorate_server::config::{LogConfig, LogFormat, LogLevel};
use url::Url;

use self::yaml::Section;
use super::config::{Config, Entry, Secrets, check};
use super::control::Socket;
use super::{INTERVAL_MIN, Options};
use crate::error::{Error, Result};

mod yaml;

/// For how long Litestream keeps states if nothing else is said.
const RETENTION: Duration = Duration::from_secs(24 * 3600);

/// How long Litestream tries to archive the last changes if nothing else is said.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);

/// How often Litestream takes a snapshot if nothing else is said, which is how often there is one here.
const SNAPSHOT_INTERVAL: Duration = Duration::from_secs(24 * 3600);

/// Where Litestream's control socket is if nothing else is said.
const SOCKET: &str = "/var/run/litestream.sock";

/// The keys of a replica that count for all when they are at the top.
const INHERITED: [&str; 13] = [
    "sync-interval",
    "access-key-id",
    "secret-access-key",
    "region",
    "bucket",
    "endpoint",
    "force-path-style",
    "sign-payload",
    "require-content-md5",
    "skip-verify",
    "account-name",
    "account-key",
    "sas-token",
];

const FIXED: &str = "it is fixed here; remove it";
const NO_PLACE: &str = "there are S3, Google Cloud Storage, Azure and directories";

/// Why keys of Litestream at the top are refused.
const REFUSED: &[(&str, &str)] = &[
    ("levels", "the levels at which files are merged are fixed here; remove it"),
    ("l0-retention", "the newest files are merged after 5 minutes; remove it"),
    ("l0-retention-check-interval", FIXED),
    ("validation", "rehearse a restore instead"),
    ("heartbeat-url", "ask for /health of 'addr' instead"),
    ("heartbeat-interval", "ask for /health of 'addr' instead"),
    ("mcp-addr", "there is no such server here"),
    ("shutdown-sync-interval", FIXED),
    ("age", "archives are not encrypted; encrypt the bucket"),
];

/// Why keys of Litestream in a database are refused.
const REFUSED_OF_DATABASE: &[(&str, &str)] = &[
    ("meta-path", "nothing is kept beside the database; remove it"),
    ("monitor-interval", "the database is looked at as often as 'sync-interval' says; remove it"),
    ("checkpoint-interval", FIXED),
    ("busy-timeout", FIXED),
    ("max-sync-wal-bytes", FIXED),
    ("max-checkpoint-page-count", "Litestream 0.5 does not know it either; remove it"),
    ("snapshot", "write it at the top, for all databases"),
];

/// Why keys of Litestream in a replica are refused.
const REFUSED_OF_REPLICA: &[(&str, &str)] = &[
    ("name", "it means nothing in Litestream 0.5 either; remove it"),
    ("validation-interval", "rehearse a restore instead"),
    ("max-sync-ltx-files", FIXED),
    ("part-size", FIXED),
    ("concurrency", FIXED),
    ("storage-class", "set it on the bucket"),
    ("sse-customer-algorithm", "encrypt the bucket instead"),
    ("sse-customer-key", "encrypt the bucket instead"),
    ("sse-customer-key-path", "encrypt the bucket instead"),
    ("sse-kms-key-id", "encrypt the bucket instead"),
    ("age", "archives are not encrypted; encrypt the bucket"),
    ("host", NO_PLACE),
    ("user", NO_PLACE),
    ("password", NO_PLACE),
    ("key-path", NO_PLACE),
    ("host-key", NO_PLACE),
    ("webdav-url", NO_PLACE),
];

/// Ends of names of servers, which in Litestream may follow the bucket in a URL.
const SERVERS: [&str; 6] = [
    ".amazonaws.com",
    ".backblazeb2.com",
    ".filebase.com",
    ".digitaloceanspaces.com",
    ".scw.cloud",
    ".linodeobjects.com",
];

/// Whether a file has the name of such a configuration.
pub fn is_named(file: &Path) -> bool {
    file.extension().is_some_and(|end| end == "yml" || end == "yaml")
}

/// Parses a configuration. `variable` returns the value of a variable of the environment.
pub fn parse(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Config> {
    let mut top = Section::parse(&yaml::expand(text, &variable))?;
    let log = log(top.section("logging")?.unwrap_or_default())?;
    let exec = top.text("exec")?;
    // Without a host, Go listens at all addresses.
    let metrics = top.text("addr")?.map(|addr| if addr.starts_with(':') { format!("0.0.0.0{addr}") } else { addr });
    let shared = Shared {
        keep_for: retention(&mut top)?,
        stop_wait: top.time("shutdown-sync-timeout")?.unwrap_or(SHUTDOWN_TIMEOUT),
        replica: top.split_off(&INHERITED),
        variable: &variable,
    };
    top.only("verify-compaction", false, "each restore is verified by checksums of all pages")?;
    top.only("auto-recover", false, "nothing is kept on this machine that would have to be recovered")?;
    let socket = socket(&mut top, &shared)?;
    let defaults = shared.defaults()?;
    let mut config = Config { log, exec, metrics, socket, defaults, ..Config::default() };
    for database in top.sections("dbs")? {
        let entry = shared.entry(database)?;
        if entry.pattern.is_some() { &mut config.directories } else { &mut config.databases }.push(entry);
    }
    top.end(REFUSED)?;
    check(&config, "'dbs'")?;
    Ok(config)
}

/// Returns for how long states are kept; `None` for ever.
fn retention(top: &mut Section) -> Result<Option<Duration>> {
    let mut keep_for = Some(RETENTION);
    if let Some(mut snapshot) = top.section("snapshot")? {
        if snapshot.time("interval")?.is_some_and(|interval| interval != SNAPSHOT_INTERVAL) {
            return Err(snapshot.wrong("interval", "is not supported: a snapshot is taken each 24h; remove it"));
        }
        keep_for = snapshot.time("retention")?.or(keep_for);
        if keep_for.is_some_and(|lasting| lasting.is_zero()) {
            return Err(snapshot.wrong("retention", "must be more than 0"));
        }
        snapshot.end(&[])?;
    }
    if let Some(mut retention) = top.section("retention")? {
        if retention.flag("enabled")? == Some(false) {
            keep_for = None;
        }
        retention.end(&[])?;
    }
    Ok(keep_for)
}

/// Returns where the control socket is, if it is enabled.
fn socket(top: &mut Section, shared: &Shared<'_>) -> Result<Option<Socket>> {
    let Some(mut section) = top.section("socket")? else { return Ok(None) };
    let (is_enabled, path, mode) = (section.flag("enabled")?, section.text("path")?, section.mode("permissions")?);
    section.end(&[])?;
    let path = shared.absolute(path.as_deref().unwrap_or(SOCKET))?;
    Ok((is_enabled == Some(true)).then(|| Socket { path, mode: mode.unwrap_or(OWNER_ONLY) }))
}

fn log(mut section: Section) -> Result<LogConfig> {
    let level = match section.text("level")?.map(|level| level.to_lowercase()).as_deref() {
        None | Some("info") => LogLevel::Info,
        Some("warn" | "warning") => LogLevel::Warn,
        Some("error") => LogLevel::Error,
        Some(_) => return Err(section.wrong("level", "is not supported: write info, warn or error")),
    };
    let format = match section.text("type")?.as_deref() {
        None | Some("text") => LogFormat::Text,
        Some("json") => LogFormat::Json,
        Some(_) => return Err(section.wrong("type", "is not supported: write text or json")),
    };
    section.only("stderr", true, "the log goes to standard error")?;
    section.only("source", false, "the log does not name lines of the source")?;
    section.end(&[])?;
    Ok(LogConfig { level, format })
}

/// What counts for all databases.
struct Shared<'a> {
    keep_for: Option<Duration>,
    stop_wait: Duration,
    replica: Section,
    variable: &'a dyn Fn(&str) -> Option<String>,
}

impl Shared<'_> {
    /// Returns what counts for a database that is registered later. Its credentials are those of the environment.
    fn defaults(&self) -> Result<Entry> {
        let mut replica = Section::default();
        replica.inherit(&self.replica);
        let (interval, keep_for, stop_wait) = (interval(&mut replica)?, self.keep_for, Some(self.stop_wait));
        Ok(Entry { interval, keep_for, stop_wait, ..Entry::default() })
    }

    /// Reads a database, or a directory of databases.
    fn entry(&self, mut database: Section) -> Result<Entry> {
        let (path, dir) = (database.text("path")?, database.text("dir")?);
        let pattern = database.text("pattern")?;
        let (is_recursive, is_watched) = (database.flag("recursive")?, database.flag("watch")?);
        let path = match (path, dir, &pattern) {
            (Some(path), None, None) if is_recursive.is_none() && is_watched.is_none() => path,
            (None, Some(dir), Some(_)) => dir,
            _ => {
                return Err(database.wrong(
                    "path",
                    "or 'dir' must be there, and 'pattern', 'recursive' and 'watch' \
                    only with 'dir', which must have a 'pattern'",
                ));
            }
        };
        if pattern.as_ref().is_some_and(|pattern| pattern.contains(['?', '[', '\\'])) {
            return Err(database.wrong("pattern", "is not supported: only * has a meaning in patterns here"));
        }
        let checkpoint_frames = database.count("min-checkpoint-page-count")?.filter(|frames| *frames > 0);
        if database.count("truncate-page-n")?.is_some_and(|pages| pages > 0) {
            return Err(database.wrong("truncate-page-n", "is not supported: the -wal is never truncated; write 0"));
        }
        database.only("restore-if-db-not-exists", false, "use `quorate restore`")?;
        let (place, interval) = self.replica(&mut database)?;
        let entry = Entry {
            path: self.absolute(&path)?,
            pattern,
            is_recursive: is_recursive == Some(true),
            is_searched_once: is_watched != Some(true),
            url: place.url,
            secrets: place.secrets,
            interval,
            keep_for: self.keep_for,
            stop_wait: Some(self.stop_wait),
            checkpoint_frames,
            ..Entry::default()
        };
        database.end(REFUSED_OF_DATABASE)?;
        Ok(entry)
    }

    /// Reads the only replica of a database: where it is, and how often changes go there.
    fn replica(&self, database: &mut Section) -> Result<(Place, Duration)> {
        let (replica, mut replicas) = (database.section("replica")?, database.sections("replicas")?);
        let mut replica = match (replica, replicas.pop()) {
            (Some(replica), None) | (None, Some(replica)) if replicas.is_empty() => replica,
            _ => return Err(database.wrong("replica", "must be there, or 'replicas' with one item")),
        };
        replica.inherit(&self.replica);
        let interval = interval(&mut replica)?;
        replica.only("auto-recover", false, "nothing is kept on this machine that would have to be recovered")?;
        let place = self.place(&mut replica)?;
        replica.end(REFUSED_OF_REPLICA)?;
        Ok((place, interval))
    }

    fn place(&self, replica: &mut Section) -> Result<Place> {
        let (url, path, kind) = (replica.text("url")?, replica.text("path")?, replica.text("type")?);
        let scheme = url.as_deref().and_then(|url| url.split_once("://")).map(|(scheme, _)| scheme.to_owned());
        let kind = scheme.or(kind).unwrap_or_else(|| "file".to_owned());
        if let (Some(_), Some(_)) = (&url, &path) {
            return Err(replica.wrong("path", "can't be there beside 'url'"));
        }
        match kind.as_str() {
            "file" => {
                let path = url.as_deref().and_then(|url| url.strip_prefix("file://")).or(path.as_deref());
                let path = path.ok_or_else(|| replica.wrong("path", "is missing"))?;
                Ok(Place { url: self.absolute(path)?.display().to_string(), secrets: Secrets::default() })
            }
            "s3" => self.s3(replica, url.as_deref(), path.as_deref()),
            "gs" => bucket(replica, "gs", url.as_deref(), path.as_deref(), &[], Secrets::default()),
            "abs" => azure(replica, url.as_deref(), path.as_deref()),
            _ => Err(replica.wrong("type", format!("is not supported: {NO_PLACE}"))),
        }
    }

    fn s3(&self, replica: &mut Section, url: Option<&str>, path: Option<&str>) -> Result<Place> {
        // A request with a path is what all servers take.
        replica.only("force-path-style", true, "all requests have the bucket in their path")?;
        replica.only("skip-verify", false, "certificates are always verified")?;
        replica.only("require-content-md5", false, "requests have no such sum")?;
        let settings = [("region", replica.text("region")?), ("endpoint", replica.text("endpoint")?.map(with_scheme))];
        let mut secrets = Secrets::default();
        for (key, variable) in [("access-key-id", "ACCESS_KEY_ID"), ("secret-access-key", "SECRET_ACCESS_KEY")] {
            let name = format!("AWS_{variable}");
            // Litestream's own variables stand in for those of AWS.
            let other = || (self.variable)(&format!("LITESTREAM_{variable}"));
            let given = replica.text(key)?.or_else(|| if (self.variable)(&name).is_none() { other() } else { None });
            secrets.0.extend(given.map(|value| (name.to_lowercase(), value)));
        }
        if replica.flag("sign-payload")? == Some(false) {
            secrets.0.push(("aws_unsigned_payload".to_owned(), "true".to_owned()));
        }
        bucket(replica, "s3", url, path, &settings, secrets)
    }

    /// Returns an absolute path. `~` is the directory of the user.
    fn absolute(&self, path: &str) -> Result<PathBuf> {
        let home = path.strip_prefix("~/").zip((self.variable)("HOME"));
        let path = home.map_or_else(|| PathBuf::from(path), |(below, home)| Path::new(&home).join(below));
        std::path::absolute(path).map_err(Error::of)
    }
}

/// Returns how often changes go to a replica.
fn interval(replica: &mut Section) -> Result<Duration> {
    let interval = replica.time("sync-interval")?.unwrap_or(Options::default().interval);
    if interval < INTERVAL_MIN {
        return Err(replica.wrong("sync-interval", format!("must be at least {INTERVAL_MIN:?}")));
    }
    Ok(interval)
}

/// Where a replica is.
struct Place {
    url: String,
    secrets: Secrets,
}

fn azure(replica: &mut Section, url: Option<&str>, path: Option<&str>) -> Result<Place> {
    let (mut account, endpoint) = (replica.text("account-name")?, replica.text("endpoint")?);
    // In Litestream's URLs, the account is before the container.
    let url = url.map(|url| match url.strip_prefix("abs://").and_then(|rest| rest.split_once('@')) {
        Some((name, rest)) => {
            account.get_or_insert_with(|| name.to_owned());
            format!("az://{rest}")
        }
        None => url.replacen("abs://", "az://", 1),
    });
    let mut secrets = Secrets::default();
    for (key, name) in [("account-key", "azure_storage_account_key"), ("sas-token", "azure_storage_sas_key")] {
        secrets.0.extend(replica.text(key)?.map(|value| (name.to_owned(), value)));
    }
    let settings = [("account", account), ("endpoint", endpoint.map(with_scheme))];
    bucket(replica, "az", url.as_deref(), path, &settings, secrets)
}

/// Returns the place in a bucket that a URL names, or the keys `bucket` and `path`.
fn bucket(
    replica: &mut Section,
    scheme: &str,
    url: Option<&str>,
    path: Option<&str>,
    settings: &[(&str, Option<String>)],
    secrets: Secrets,
) -> Result<Place> {
    let text = match (url, replica.text("bucket")?) {
        (Some(url), None) => url.to_owned(),
        (None, Some(bucket)) => format!("{scheme}://{bucket}/{}", path.unwrap_or_default().trim_start_matches('/')),
        (Some(_), Some(_)) => return Err(replica.wrong("bucket", "can't be there beside 'url'")),
        (None, None) => return Err(replica.wrong("bucket", "is missing")),
    };
    // The text is not repeated: it may contain a password.
    let mut url = Url::parse(&text).map_err(|error| replica.wrong("url", format!("is no URL: {error}")))?;
    if let Some(server) = url.host_str().and_then(|host| SERVERS.iter().find(|server| host.ends_with(**server))) {
        let what = format!("is not supported with a server: write s3://BUCKET/PATH, and *{server} as 'endpoint'");
        return Err(replica.wrong("url", what));
    }
    // What is given by a key comes before what is in the URL.
    let inside: Vec<(String, String)> = url.query_pairs().into_owned().collect();
    let mut all: Vec<(String, String)> =
        settings.iter().filter_map(|(key, value)| Some(((*key).to_owned(), value.clone()?))).collect();
    for (key, value) in inside {
        if !all.iter().any(|(known, _)| *known == key) {
            let value = if key == "endpoint" { with_scheme(value) } else { value };
            all.push((key, value));
        }
    }
    url.set_query(None);
    if !all.is_empty() {
        url.query_pairs_mut().extend_pairs(all);
    }
    let url = String::from(url);
    url.parse::<Location>().map_err(|error| replica.wrong("url", format!("is not supported: {error}")))?;
    Ok(Place { url, secrets })
}

/// Returns an endpoint with its scheme, which Litestream lets one leave out.
fn with_scheme(endpoint: String) -> String {
    if Location::is_url(&endpoint) {
        return endpoint;
    }
    let is_local = ["localhost", "127.0.0.1"].iter().any(|host| endpoint.starts_with(host));
    format!("{}://{endpoint}", if is_local { "http" } else { "https" })
}

#[cfg(test)]
mod tests;
