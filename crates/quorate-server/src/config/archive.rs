//! The keys of `[archive]`: the archive of the cluster (`docs/archive.md`).
//!
//! Invariant: what can't be used is refused when the configuration is read, before the node starts.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use quorate::ClientConfig;
use quorate::archive::{Archive, BOUNDARY_DEFAULT, FirstState, INTERVAL_DEFAULT, Objects};
use quorate::config::{ConfigError, Key, Shown, time};
use quorate_backup::rehearsals::Rehearsals;
use quorate_backup::schedule::Schedule;
use quorate_backup::states;
use quorate_backup::store::{Location, Sealed, Store};
use quorate_backup::{Encryption, Error, Keys};

use super::place;

/// Shorter intervals would cost more requests than they are worth.
const INTERVAL_MIN: Duration = Duration::from_millis(50);

/// The directory in the data directory where restores are rehearsed.
const REHEARSALS_DIR: &str = "rehearsals";

/// The archive of a server's cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveConfig {
    /// The URL of the store; `None` for no archive.
    pub url: Option<String>,
    /// How often entries are archived.
    pub interval: Duration,
    /// How often pages are archived.
    pub boundary: Duration,
    /// How long states can be restored; `None` for ever.
    pub keep_for: Option<Duration>,
    /// How late the archive may be while the archiver is ready; `None` for any time.
    pub ready_lag: Option<Duration>,
    /// When a restore is rehearsed; `None` for never.
    pub rehearse: Option<String>,
    /// The recipients that the archive is encrypted to.
    pub recipients: Vec<String>,
    /// The file with the identity of one recipient. The archiver decrypts with it.
    pub identity_file: Option<PathBuf>,
    /// The file with the credentials of the stores.
    pub credentials_file: Option<PathBuf>,
    /// The URL of the archive from which a new cluster gets its first state; `None` for an empty database.
    pub restore_from: Option<String>,
    /// That state; `None` for the last one.
    pub restore_at: Option<String>,
    /// The cluster whose state it is; `None` if there is only one at the URL.
    pub restore_cluster: Option<String>,
}

impl Default for ArchiveConfig {
    fn default() -> Self {
        let (interval, boundary) = (INTERVAL_DEFAULT, BOUNDARY_DEFAULT);
        Self {
            url: None,
            interval,
            boundary,
            keep_for: None,
            ready_lag: None,
            rehearse: None,
            recipients: Vec::new(),
            identity_file: None,
            credentials_file: None,
            restore_from: None,
            restore_at: None,
            restore_cluster: None,
        }
    }
}

impl ArchiveConfig {
    /// Opens the store; `None` if there is no archive.
    ///
    /// # Errors
    ///
    /// Returns why the store can't be used.
    pub fn open(&self) -> Result<Option<Archive>, Error> {
        let Some(url) = &self.url else { return Ok(None) };
        let archive = Archive::new(self.objects(url)?);
        let archive = archive.with_interval(self.interval).with_boundary(self.boundary);
        Ok(Some(archive.with_keep(self.keep_for).with_ready_lag(self.ready_lag)))
    }

    /// Opens a store with an archive.
    fn objects(&self, url: &str) -> Result<Arc<dyn Objects>, Error> {
        let store = Store::open(&url.parse()?, self.credentials_file.as_deref())?;
        let keys = self.identity_file.iter().try_fold(Keys::none(), |keys, file| keys.with_identity_file(file))?;
        Ok(Arc::new(Sealed::new(Arc::new(store), self.encryption()?, keys)?))
    }

    fn encryption(&self) -> Result<Encryption, Error> {
        if self.recipients.is_empty() { Ok(Encryption::None) } else { Encryption::to(&self.recipients) }
    }

    /// Opens the store with the first state of a new cluster; `None` if that begins empty.
    ///
    /// # Errors
    ///
    /// Returns why the store can't be used.
    pub fn first_state(&self) -> Result<Option<FirstState>, Error> {
        let Some(url) = &self.restore_from else { return Ok(None) };
        let mut first = FirstState::new(self.objects(url)?);
        if let Some(state) = &self.restore_at {
            first = first.with_target(states::target(state)?);
        }
        if let Some(cluster) = &self.restore_cluster {
            first = first.with_cluster(states::cluster(cluster)?);
        }
        Ok(Some(first))
    }

    /// Returns the rehearsals of the archive by a node with this data directory, which reaches the cluster as `client`;
    /// `None` if there are none.
    ///
    /// # Errors
    ///
    /// Returns why the schedule can't be used.
    pub fn rehearsals(
        &self,
        archive: &Archive,
        data_dir: &Path,
        client: ClientConfig,
    ) -> Result<Option<Rehearsals>, Error> {
        let Some(schedule) = &self.rehearse else { return Ok(None) };
        let (schedule, objects) = (schedule.parse()?, Arc::clone(&archive.objects));
        Ok(Some(Rehearsals { schedule, objects, client, scratch: data_dir.join(REHEARSALS_DIR) }))
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let refused = |text: String| Err(ConfigError::Invalid(text.into()));
        let Self { restore_from, restore_at, restore_cluster, credentials_file, .. } = self.clone();
        let restores = restore_from.is_some();
        if !restores && (restore_at.is_some() || restore_cluster.is_some()) {
            let text = "'archive.restore_at' and 'archive.restore_cluster' need the key 'archive.restore_from'";
            return refused(text.to_owned());
        }
        let credentials_file = credentials_file.filter(|_| restores);
        let of_restore = Self { restore_from, restore_at, restore_cluster, credentials_file, ..Self::default() };
        if self.url.is_none() && *self != of_restore {
            return refused("[archive] needs the key 'url'".to_owned());
        }
        for (key, url) in [("url", &self.url), ("restore_from", &self.restore_from)] {
            if let Some(Err(error)) = url.as_ref().map(|url| url.parse::<Location>()) {
                return refused(format!("'archive.{key}': {error}"));
            }
        }
        if let Some(Err(error)) = self.restore_at.as_deref().map(states::target) {
            return refused(format!("'archive.restore_at': {error}"));
        }
        if let Some(Err(error)) = self.restore_cluster.as_deref().map(states::cluster) {
            return refused(format!("'archive.restore_cluster': {error}"));
        }
        if let Err(error) = self.encryption() {
            return refused(format!("'archive.recipients': {error}"));
        }
        if !self.recipients.is_empty() && self.identity_file.is_none() {
            let text = "'archive.recipients' needs 'archive.identity_file': who writes an archive reads it, too";
            return refused(text.to_owned());
        }
        if let Some(Err(error)) = self.rehearse.as_ref().map(|schedule| schedule.parse::<Schedule>()) {
            return refused(format!("'archive.rehearse': {error}"));
        }
        if self.interval < INTERVAL_MIN || self.boundary < self.interval {
            return refused(format!(
                "'archive.interval' must be at least {} ms, and 'archive.boundary' no shorter than it",
                INTERVAL_MIN.as_millis()
            ));
        }
        Ok(())
    }

    /// Returns the keys.
    pub(super) fn keys() -> Vec<Key<Self>> {
        [
            Key::new(
                "archive.url",
                "Where everything that the cluster applies goes, so that any state can be restored: \
                 s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, or a directory. The same on all nodes, \
                 like all of [archive]; one of them writes. If not set, nothing is archived.",
                |archive: &mut Self, given| place(given).map(|url| archive.url = Some(url)),
                |archive| archive.url.clone().into(),
            )
            .example("\"s3://my-bucket/quorate?region=eu-central-1\""),
            Key::new(
                "archive.interval",
                "How often writes are archived. This is what may be lost if all nodes are.",
                |archive: &mut Self, given| given.time().map(|interval| archive.interval = interval),
                |archive| time(archive.interval),
            ),
            Key::new(
                "archive.boundary",
                "How often changed pages are archived. A restore applies the writes since then one by one.",
                |archive: &mut Self, given| given.time().map(|boundary| archive.boundary = boundary),
                |archive| time(archive.boundary),
            ),
            Key::new(
                "archive.keep_for",
                "How far back states can be restored. If not set, nothing is ever given up.",
                |archive: &mut Self, given| given.time().map(|lasting| archive.keep_for = Some(lasting)),
                |archive| archive.keep_for.map_or(Shown::Nothing, time),
            )
            .example("\"7 d\""),
            Key::new(
                "archive.ready_lag",
                "How late the archive may be while /ready of the archiver says that it is ready. If not set, that does \
                 not depend on the archive.",
                |archive: &mut Self, given| given.time().map(|lag| archive.ready_lag = Some(lag)),
                |archive| archive.ready_lag.map_or(Shown::Nothing, time),
            )
            .example("\"60 s\""),
            Key::new(
                "archive.rehearse",
                "When the archiver rehearses a restore, as a cron expression in UTC: it restores the current state \
                 below data_dir, compares each table with those of all nodes, and removes it. If not set, never.",
                |archive: &mut Self, given| given.text().map(|schedule| archive.rehearse = Some(schedule)),
                |archive| archive.rehearse.clone().into(),
            )
            .example("\"30 3 * * 0\""),
        ]
        .into_iter()
        .chain(Self::access_keys())
        .chain(Self::restore_keys())
        .collect()
    }

    /// Returns the keys about who may read.
    fn access_keys() -> [Key<Self>; 3] {
        [
            Key::new(
                "archive.recipients",
                "Encrypt the archive with age, to these recipients: public keys that `age-keygen` shows. Stock \
                 Litestream can't read what is encrypted.",
                |archive: &mut Self, given| given.texts().map(|recipients| archive.recipients = recipients),
                |archive| archive.recipients.clone().into(),
            )
            .example("[\"age1...\"]"),
            Key::new(
                "archive.identity_file",
                "A file of `age-keygen` with the identity of one of the recipients. The archiver merges what it \
                 archived before, so it reads it.",
                |archive: &mut Self, given| given.path().map(|path| archive.identity_file = Some(path)),
                |archive| archive.identity_file.as_ref().into(),
            )
            .example("\"archive.key\""),
            Key::new(
                "archive.credentials_file",
                "A file with the credentials of the store, as lines NAME=value such as AWS_ACCESS_KEY_ID=... \
                 Default: those in the environment, or the role of the machine.",
                |archive: &mut Self, given| given.path().map(|path| archive.credentials_file = Some(path)),
                |archive| archive.credentials_file.as_ref().into(),
            )
            .example("\"store.env\""),
        ]
    }

    /// Returns the keys about the first state.
    fn restore_keys() -> [Key<Self>; 3] {
        [
            Key::new(
                "archive.restore_from",
                "The first state of a new cluster: that of the archive at this URL, which may be 'archive.url'. The \
                 node that would found the cluster restores it, once. Where there is a cluster it means nothing, so it \
                 may stay. If not set, a new cluster is empty.",
                |archive: &mut Self, given| place(given).map(|url| archive.restore_from = Some(url)),
                |archive| archive.restore_from.clone().into(),
            )
            .example("\"s3://my-bucket/quorate?region=eu-central-1\""),
            Key::new(
                "archive.restore_at",
                "Which state that is: latest, a position, the number of an entry, or a time. If not set, latest.",
                |archive: &mut Self, given| given.text().map(|state| archive.restore_at = Some(state)),
                |archive| archive.restore_at.clone().into(),
            )
            .example("\"2026-11-27T20:15:00Z\""),
            Key::new(
                "archive.restore_cluster",
                "The id of the cluster whose state it is, if there are archives of several at the URL.",
                |archive: &mut Self, given| given.text().map(|cluster| archive.restore_cluster = Some(cluster)),
                |archive| archive.restore_cluster.clone().into(),
            )
            .example("\"00000000000000000000000000c0ffee\""),
        ]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

    use quorate::archive::Target;
    use quorate::config::Sources;
    use quorate::types::ClusterId;

    use super::*;
    use crate::ServerConfig;

    /// A recipient of age. It protects nothing.
    const RECIPIENT: &str = "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";

    fn read(lines: &str) -> Result<ArchiveConfig, ConfigError> {
        let text = format!("data_dir = \"d\"\n[archive]\n{lines}");
        Sources::new().text(&text)?.read().map(|config: ServerConfig| config.archive)
    }

    #[test]
    fn an_archive_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let lines = format!("url = \"{}\"\ninterval = \"2 s\"\nkeep_for = \"7 d\"", dir.path().display());
        let archive = read(&lines).unwrap().open().unwrap().unwrap();
        assert_eq!((archive.interval, archive.boundary), (Duration::from_secs(2), BOUNDARY_DEFAULT));
        assert_eq!(archive.keep, Some(Duration::from_secs(7 * 86_400)));
        assert!(ArchiveConfig::default().open().unwrap().is_none());
    }

    #[test]
    fn a_first_state_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let from = format!("restore_from = \"{}\"\n", dir.path().display());
        let first = read(&from).unwrap().first_state().unwrap().unwrap();
        assert_eq!((first.cluster, first.target), (None, Target::Latest));
        let at = "restore_at = \"1.1.9\"\nrestore_cluster = \"00000000000000000000000000c0ffee\"";
        let first = read(&(from + at)).unwrap().first_state().unwrap().unwrap();
        assert_eq!((first.cluster, first.target), (Some(ClusterId(0xc0_ffee)), Target::Entry(9)));
        assert!(ArchiveConfig::default().first_state().unwrap().is_none());
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        for (lines, why) in [
            ("keep_for = \"1 d\"", "needs the key 'url'"),
            ("url = \"ftp://a\"", "'archive.url': ftp://...: write s3://"),
            ("restore_from = \"s3://a\"\nkeep_for = \"1 d\"", "needs the key 'url'"),
            ("credentials_file = \"a\"", "needs the key 'url'"),
            ("restore_from = \"ftp://a\"", "'archive.restore_from': ftp://...: write s3://"),
            ("restore_at = \"latest\"", "need the key 'archive.restore_from'"),
            ("restore_from = \"a\"\nrestore_at = \"soon\"", "'archive.restore_at': 'soon' is no state"),
            ("restore_from = \"a\"\nrestore_cluster = \"x\"", "'archive.restore_cluster': 'x' is not the id"),
            ("url = \"s3://a\"\ninterval = \"1 ms\"", "'archive.interval' must be at least 50 ms"),
            ("url = \"s3://a\"\ninterval = \"60 s\"", "no shorter than it"),
            ("url = \"s3://a\"\nrecipients = [\"age1x\"]", "'archive.recipients': age1x is not a recipient"),
            (&format!("url = \"s3://a\"\nrecipients = [\"{RECIPIENT}\"]"), "needs 'archive.identity_file'"),
        ] {
            let error = read(lines).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
