//! The keys of `[backup]`: scheduled backups (`docs/backups.md`).
//!
//! Invariant: what can't be used is refused when the configuration is read, before the node starts.

use std::path::{Path, PathBuf};
use std::time::Duration;

use quorate::config::{ConfigError, Key, Shown, time};
use quorate_backup::Encryption;
use quorate_backup::Error;
use quorate_backup::backups::Keep;
use quorate_backup::schedule::{Plan, Schedule};
use quorate_backup::store::Location;

use super::place;

/// The directory within that of the node for the copies that are uploaded.
const SCRATCH: &str = "backup-scratch";

/// The scheduled backups of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupConfig {
    /// The URL of the store; `None` for no backups.
    pub url: Option<String>,
    /// The cron expression, in UTC.
    pub schedule: String,
    /// How long backups are kept; `None` for ever.
    pub keep_for: Option<Duration>,
    /// How many are kept at least.
    pub keep_min: u64,
    /// The recipients that backups are encrypted to.
    pub recipients: Vec<String>,
    /// The file with a passphrase that they are encrypted with, in place of recipients.
    pub passphrase_file: Option<PathBuf>,
    /// The file with the credentials of the store.
    pub credentials_file: Option<PathBuf>,
}

impl Default for BackupConfig {
    fn default() -> Self {
        Self {
            url: None,
            schedule: "@daily".to_owned(),
            keep_for: None,
            keep_min: 3,
            recipients: Vec::new(),
            passphrase_file: None,
            credentials_file: None,
        }
    }
}

impl BackupConfig {
    /// Returns the plan of a node with this data directory; `None` if there are no backups. Reads the file of the
    /// passphrase, if there is one.
    ///
    /// # Errors
    ///
    /// Returns why the plan can't be followed.
    pub fn plan(&self, data_dir: &Path) -> Result<Option<Plan>, Error> {
        let Some(url) = &self.url else { return Ok(None) };
        let encryption = match &self.passphrase_file {
            Some(file) => Encryption::with_passphrase_file(file)?,
            None => self.to_recipients()?,
        };
        let at_least = usize::try_from(self.keep_min).unwrap_or(usize::MAX);
        // Without a time to keep them for, nothing is deleted.
        let keep = self.keep_for.map(|lasting| Keep { lasting: Some(lasting), at_least }).unwrap_or_default();
        Ok(Some(Plan {
            location: url.parse()?,
            credentials: self.credentials_file.clone(),
            schedule: self.schedule.parse()?,
            keep,
            encryption,
            scratch: data_dir.join(SCRATCH),
        }))
    }

    fn to_recipients(&self) -> Result<Encryption, Error> {
        if self.recipients.is_empty() { Ok(Encryption::None) } else { Encryption::to(&self.recipients) }
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let refused = |key: &str, error: Error| ConfigError::Invalid(format!("'backup.{key}': {error}").into());
        if self.url.is_none() && *self != Self::default() {
            return Err(ConfigError::Invalid("[backup] needs the key 'url'".into()));
        }
        if let Some(url) = &self.url {
            url.parse::<Location>().map_err(|error| refused("url", error))?;
        }
        self.schedule.parse::<Schedule>().map_err(|error| refused("schedule", error))?;
        self.to_recipients().map_err(|error| refused("recipients", error))?;
        if self.passphrase_file.is_some() && !self.recipients.is_empty() {
            let text = "'backup.recipients' and 'backup.passphrase_file' exclude each other: remove one";
            return Err(ConfigError::Invalid(text.into()));
        }
        Ok(())
    }

    /// Returns the keys.
    pub(super) fn keys() -> Vec<Key<Self>> {
        vec![
            Key::new(
                "backup.url",
                "Where scheduled backups go: s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, or a \
                 directory. The same on all nodes, like all of [backup]; the one that leads makes them. \
                 docs/backups.md says where credentials come from. If not set, there are no backups.",
                |backup: &mut Self, given| place(given).map(|url| backup.url = Some(url)),
                |backup| backup.url.clone().into(),
            )
            .example("\"s3://my-bucket/quorate?region=eu-central-1\""),
            Key::new(
                "backup.schedule",
                "When, as a cron expression in UTC, such as \"30 2 * * *\", or @hourly, @daily, @weekly.",
                |backup: &mut Self, given| given.text().map(|schedule| backup.schedule = schedule),
                |backup| backup.schedule.clone().into(),
            ),
            Key::new(
                "backup.keep_for",
                "How long backups are kept. If not set, none is ever deleted.",
                |backup: &mut Self, given| given.time().map(|lasting| backup.keep_for = Some(lasting)),
                |backup| backup.keep_for.map_or(Shown::Nothing, time),
            )
            .example("\"30 d\""),
            Key::new(
                "backup.keep_min",
                "How many are kept however old they are. The newest always is.",
                |backup: &mut Self, given| given.count().map(|count| backup.keep_min = count),
                |backup| backup.keep_min.into(),
            ),
            Key::new(
                "backup.recipients",
                "Encrypt backups with age, to these recipients: public keys that `age-keygen` shows. Only their \
                 secret keys, which belong on other machines, can read the backups.",
                |backup: &mut Self, given| given.texts().map(|recipients| backup.recipients = recipients),
                |backup| backup.recipients.clone().into(),
            )
            .example("[\"age1...\"]"),
            Key::new(
                "backup.passphrase_file",
                "A file with a passphrase to encrypt backups with, in place of recipients.",
                |backup: &mut Self, given| given.path().map(|path| backup.passphrase_file = Some(path)),
                |backup| backup.passphrase_file.as_ref().into(),
            )
            .example("\"passphrase\""),
            Key::new(
                "backup.credentials_file",
                "A file with the credentials of the store, as lines NAME=value such as AWS_ACCESS_KEY_ID=... \
                 Default: those in the environment, or the role of the machine.",
                |backup: &mut Self, given| given.path().map(|path| backup.credentials_file = Some(path)),
                |backup| backup.credentials_file.as_ref().into(),
            )
            .example("\"store.env\""),
        ]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

    use quorate::config::Sources;

    use super::*;
    use crate::ServerConfig;

    fn read(lines: &str) -> Result<BackupConfig, ConfigError> {
        let text = format!("data_dir = \"d\"\n[backup]\n{lines}");
        Sources::new().text(&text)?.read().map(|config: ServerConfig| config.backup)
    }

    #[test]
    fn a_plan_is_read() {
        let backup = read("url = \"s3://bucket/a\"\nschedule = \"0 2 * * *\"\nkeep_for = \"30 d\"").unwrap();
        let plan = backup.plan(Path::new("d")).unwrap().unwrap();
        assert_eq!(plan.location.to_string(), "s3://bucket/a");
        assert_eq!(plan.keep, Keep { lasting: Some(Duration::from_secs(30 * 86_400)), at_least: 3 });
        assert!(!plan.encryption.is_on());
        let kept = read("url = \"s3://bucket/a\"").unwrap().plan(Path::new("d")).unwrap().unwrap();
        assert!(kept.keep.keeps_all());
        assert_eq!(BackupConfig::default().plan(Path::new("d")).unwrap().map(|plan| plan.location), None);
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        for (lines, why) in [
            ("keep_for = \"1 d\"", "needs the key 'url'"),
            ("url = \"ftp://a\"", "'backup.url': ftp://...: write s3://"),
            ("url = \"s3://a\"\nschedule = \"sometimes\"", "'backup.schedule': 'sometimes' is not a schedule"),
            ("url = \"s3://a\"\nrecipients = [\"age1x\"]", "'backup.recipients': age1x is not a recipient"),
            ("url = \"s3://a\"\nrecipients = \"age1x\"", "a list of texts"),
        ] {
            let error = read(lines).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
