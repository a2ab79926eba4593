//! The configuration of a server: that of its node, its HTTP port and its log.
//!
//! ```
//! use quorate::config::Sources;
//! use quorate_server::ServerConfig;
//!
//! let variables = [("QUORATE_HTTP_LISTEN".to_owned(), "127.0.0.1:8001".to_owned())];
//! let config: ServerConfig = Sources::new().text("data_dir = \"data\"")?.variables(variables).read()?;
//! assert_eq!(config.http_listen.as_deref(), Some("127.0.0.1:8001"));
//! # Ok::<(), quorate::config::ConfigError>(())
//! ```

use quorate::config::{Given, Key, Schema, Wrong};
use quorate::{Config, TlsConfig, config::ConfigError};
use quorate_backup::store::Location;
use quorate_resp::Notifications;

mod archive;
mod backup;

pub use archive::ArchiveConfig;
pub use backup::BackupConfig;

/// The configuration of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerConfig {
    /// The configuration of its node.
    pub node: Config,
    /// The `host:port` to serve HTTP on; `None` for no HTTP port.
    pub http_listen: Option<String>,
    /// Whether the HTTP port serves SQL too.
    pub http_sql: bool,
    /// Whether, if it serves SQL, it has the endpoints of huststore for keys too.
    pub http_huststore: bool,
    /// Whether the HTTP port uses the TLS of the node, if the node has TLS.
    pub http_tls: bool,
    /// The `host:port` to serve the clients of Redis on; `None` for no such port.
    pub redis_listen: Option<String>,
    /// Whether that port uses the TLS of the node, if the node has TLS.
    pub redis_tls: bool,
    /// The notifications of the key space that it publishes until a client sets others.
    pub redis_notifications: Notifications,
    /// Whether the node may serve other machines without TLS.
    pub insecure: bool,
    /// The configuration of its log.
    pub log: LogConfig,
    /// The archive of its cluster.
    pub archive: ArchiveConfig,
    /// Its scheduled backups.
    pub backup: BackupConfig,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            node: Config::default(),
            http_listen: None,
            http_sql: false,
            http_huststore: false,
            http_tls: true,
            redis_listen: None,
            redis_tls: true,
            redis_notifications: Notifications::default(),
            insecure: false,
            log: LogConfig::default(),
            archive: ArchiveConfig::default(),
            backup: BackupConfig::default(),
        }
    }
}

impl ServerConfig {
    /// Returns the TLS of the HTTP port; `None` if it serves in the clear.
    pub fn http_certificates(&self) -> Option<&TlsConfig> {
        self.node.tls.as_ref().filter(|_| self.http_tls)
    }

    /// Returns the TLS of the port for the clients of Redis; `None` if it serves in the clear.
    pub fn redis_certificates(&self) -> Option<&TlsConfig> {
        self.node.tls.as_ref().filter(|_| self.redis_tls)
    }

    /// Returns the address on which the node would serve other machines without TLS, if it would. The pages for
    /// operators do not count.
    pub fn exposed(&self) -> Option<&str> {
        let Config { listen, members, name, tls, .. } = &self.node;
        let native = listen.as_ref().or_else(|| members.get(name)).filter(|_| tls.is_none());
        let sql = self.http_listen.as_ref().filter(|_| self.http_sql && self.http_certificates().is_none());
        let redis = self.redis_listen.as_ref().filter(|_| self.redis_certificates().is_none());
        [native, sql, redis].into_iter().flatten().map(String::as_str).find(|addr| !is_loopback(addr))
    }

    /// Checks that no one can listen in on the node unnoticed. Servers do so before they start.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError::Invalid`] if the node would serve other machines without TLS, and is not told to.
    pub fn check_exposed(&self) -> Result<(), ConfigError> {
        let Some(addr) = self.exposed().filter(|_| !self.insecure) else { return Ok(()) };
        let text = format!(
            "the node would serve other machines at {addr} in the clear: set up [tls] (`quorate init` makes \
             certificates), or set 'insecure = true' if only you can reach the network between them"
        );
        Err(ConfigError::Invalid(text.into()))
    }
}

/// Returns whether an address can be reached from this machine only.
fn is_loopback(addr: &str) -> bool {
    let host = addr.rsplit_once(':').map_or(addr, |(host, _)| host);
    host == "localhost" || host.starts_with("127.") || host == "[::1]"
}

/// The configuration of the log that a server writes to its standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogConfig {
    /// The level of detail.
    pub level: LogLevel,
    /// The format.
    pub format: LogFormat,
}

/// The level of detail of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// Problems that need an operator.
    Error,
    /// Also problems that may soon need an operator.
    Warn,
    /// Also events that an operator should know: nodes that join, leave, lead, lag, or are sent an image.
    #[default]
    Info,
}

/// The format of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// A line of text for each event.
    #[default]
    Text,
    /// A line with a JSON object for each event.
    Json,
}

impl LogLevel {
    const NAMES: [(&'static str, Self); 4] =
        [("off", Self::Off), ("error", Self::Error), ("warn", Self::Warn), ("info", Self::Info)];
}

impl LogFormat {
    const NAMES: [(&'static str, Self); 2] = [("text", Self::Text), ("json", Self::Json)];
}

impl Schema for ServerConfig {
    fn keys() -> Vec<Key<Self>> {
        let node =
            Config::keys().into_iter().map(|key| key.within(|server: &Self| &server.node, |server| &mut server.node));
        node.chain([Key::new(
            "insecure",
            "Allow the node to serve other machines without TLS. Anyone who can reach the network between them \
                 can then read and change everything.",
            |server: &mut Self, given| given.flag().map(|flag| server.insecure = flag),
            |server| server.insecure.into(),
        )])
        .chain(http_keys())
        .chain(redis_keys())
        .chain([
            Key::new(
                "log.level",
                "The level of the log on the standard error: off, error, warn or info.",
                |server: &mut Self, given| named(given, &LogLevel::NAMES).map(|level| server.log.level = level),
                |server| name_of(server.log.level, &LogLevel::NAMES).into(),
            ),
            Key::new(
                "log.format",
                "The format of the log: text, or json with one object per line.",
                |server: &mut Self, given| named(given, &LogFormat::NAMES).map(|format| server.log.format = format),
                |server| name_of(server.log.format, &LogFormat::NAMES).into(),
            ),
        ])
        .chain(ArchiveConfig::keys().into_iter().map(|key| {
            let part: fn(&Self) -> &ArchiveConfig = |server| &server.archive;
            key.within(part, |server| &mut server.archive)
        }))
        .chain(BackupConfig::keys().into_iter().map(|key| {
            let part: fn(&Self) -> &BackupConfig = |server| &server.backup;
            key.within(part, |server| &mut server.backup)
        }))
        .collect()
    }

    fn check(&self) -> Result<(), ConfigError> {
        self.archive.check()?;
        self.backup.check()?;
        self.node.check()
    }
}

/// Returns a URL, or the path of a directory, which is relative to the directory of the file that gives it.
fn place(given: Given<'_>) -> Result<String, Wrong> {
    let text = given.text()?;
    Ok(match given {
        Given::File(_, base) if !Location::is_url(&text) => base.join(text).display().to_string(),
        _ => text,
    })
}

fn named<T: Copy>(given: Given<'_>, names: &[(&'static str, T)]) -> Result<T, Wrong> {
    let text = given.text()?;
    let found = names.iter().find(|(name, _)| *name == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
        Wrong::Invalid(format!("is '{text}': use one of {}", names.join(", ")))
    })
}

/// Returns the keys of the port for the clients of Redis.
fn http_keys() -> [Key<ServerConfig>; 4] {
    [
        Key::new(
            "http.listen",
            "host:port to serve HTTP on: /health, /ready, /status, /metrics. If not set, HTTP is off.",
            |server: &mut ServerConfig, given| given.text().map(|addr| server.http_listen = Some(addr)),
            |server: &ServerConfig| server.http_listen.clone().into(),
        )
        .example("\"127.0.0.1:8001\""),
        Key::new(
            "http.sql",
            "Whether the HTTP port serves SQL and keys too. On an address that other machines can reach, it needs \
             TLS, and lets in nobody until the cluster has users.",
            |server: &mut ServerConfig, given| given.flag().map(|is_on| server.http_sql = is_on),
            |server: &ServerConfig| server.http_sql.into(),
        ),
        Key::new(
            "http.huststore",
            "Whether the port, if it serves SQL, has the endpoints of huststore for keys too, for its clients \
             (docs/huststore.md). Some of them write by GET.",
            |server: &mut ServerConfig, given| given.flag().map(|is_on| server.http_huststore = is_on),
            |server: &ServerConfig| server.http_huststore.into(),
        ),
        Key::new(
            "http.tls",
            "Whether HTTP uses the certificate in [tls], if there is one; clients of HTTP need no certificate.",
            |server: &mut ServerConfig, given| given.flag().map(|is_on| server.http_tls = is_on),
            |server: &ServerConfig| server.http_tls.into(),
        ),
    ]
}

fn redis_keys() -> [Key<ServerConfig>; 3] {
    [
        Key::new(
            "redis.listen",
            "host:port to serve the clients of Redis on (docs/keys.md). If not set, there is no such port. On an \
             address that other machines can reach, it needs TLS, and lets in nobody until the cluster has users.",
            |server: &mut ServerConfig, given| given.text().map(|addr| server.redis_listen = Some(addr)),
            |server: &ServerConfig| server.redis_listen.clone().into(),
        )
        .example("\"127.0.0.1:6379\""),
        Key::new(
            "redis.tls",
            "Whether that port uses the certificate in [tls], if there is one; clients need no certificate.",
            |server: &mut ServerConfig, given| given.flag().map(|is_on| server.redis_tls = is_on),
            |server: &ServerConfig| server.redis_tls.into(),
        ),
        Key::new(
            "redis.notify_keyspace_events",
            "The notifications of the key space that clients of that port can subscribe to, by the letters that \
             Redis has for them, for instance \"KEA\" (docs/keys.md). CONFIG SET changes them until the node ends.",
            |server: &mut ServerConfig, given| notifications(given).map(|set| server.redis_notifications = set),
            |server: &ServerConfig| server.redis_notifications.to_string().into(),
        ),
    ]
}

fn notifications(given: Given<'_>) -> Result<Notifications, Wrong> {
    let text = given.text()?;
    let set = Notifications::parse(text.as_bytes());
    set.ok_or_else(|| Wrong::Invalid(format!("is '{text}': use letters of Ag$lshzxeKEtmdn")))
}

fn name_of<T: PartialEq>(value: T, names: &[(&'static str, T)]) -> &'static str {
    names.iter().find(|(_, named)| *named == value).map_or("", |(name, _)| *name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

    use quorate::config::{Sources, template};

    use super::*;

    /// A public key of age.
    const RECIPIENT: &str = "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";

    fn read(text: &str) -> Result<ServerConfig, ConfigError> {
        Sources::new().text(text)?.read()
    }

    #[test]
    fn server_keys_extend_the_keys_of_the_node() {
        let server =
            read("data_dir = \"d\"\n[http]\nlisten = \"x:1\"\n[log]\nlevel = \"warn\"\nformat = \"json\"").unwrap();
        assert_eq!(server.node, Config::single("d"));
        assert_eq!(server.http_listen.as_deref(), Some("x:1"));
        assert_eq!(server.log, LogConfig { level: LogLevel::Warn, format: LogFormat::Json });
        assert_eq!(server.http_certificates(), None);
        let tls = "data_dir = \"d\"\ntls.certificate = \"c\"\ntls.key = \"k\"\n";
        let server = read(tls).unwrap();
        assert_eq!(server.http_certificates(), server.node.tls.as_ref());
        assert_eq!(read(&format!("{tls}http.tls = false")).unwrap().http_certificates(), None);
        let wrong = read("data_dir = \"d\"\n[log]\nlevel = \"loud\"").unwrap_err().to_string();
        assert_eq!(wrong, "'log.level' is 'loud': use one of off, error, warn, info");
        let wrong = read("data_dir = \"d\"\nhtpp.listen = \"x\"").unwrap_err().to_string();
        assert_eq!(wrong, "the key 'htpp.listen' is not known; did you mean 'http.listen'?");
    }

    #[test]
    fn other_machines_are_not_served_in_the_clear_by_accident() {
        let is_refused = |lines: &str| read(&format!("data_dir = \"d\"\n{lines}")).unwrap().check_exposed().is_err();
        let tls = "tls.certificate = \"c\"\ntls.key = \"k\"";
        for addr in ["0.0.0.0:7001", "10.0.0.1:7001", "a.example:7001", "[::]:7001"] {
            let listen = format!("listen = \"{addr}\"");
            assert!(is_refused(&listen) && is_refused(&format!("members = {{ node = \"{addr}\" }}")), "{addr}");
            assert!(!is_refused(&format!("{listen}\ninsecure = true")) && !is_refused(&format!("{listen}\n{tls}")));
        }
        for addr in ["127.0.0.1:7001", "localhost:7001", "[::1]:7001"] {
            assert!(!is_refused(&format!("listen = \"{addr}\"")), "{addr}");
        }
        assert!(!is_refused(""), "a node that runs alone listens on the loopback interface");
    }

    #[test]
    fn every_key_of_the_archive_and_of_backups_has_an_example_that_can_be_used() {
        let shown = template(&ServerConfig::default());
        let tables = ["archive.", "backup."];
        for variable in ServerConfig::keys().iter().map(Key::variable) {
            let path = variable.trim_start_matches("QUORATE_").to_ascii_lowercase().replacen('_', ".", 1);
            let is_example = |line: &str| line.starts_with(&format!("# {path} = "));
            assert!(!tables.iter().any(|table| path.starts_with(table)) || shown.lines().any(is_example), "{path}");
        }
        // Backups have one kind of encryption.
        for without in ["backup.recipients", "backup.passphrase_file"] {
            let is_used =
                |line: &&str| tables.iter().any(|table| line.starts_with(table)) && !line.starts_with(without);
            let used = shown.lines().map(|line| line.strip_prefix("# ").filter(is_used).unwrap_or(line));
            let text = used.map(|line| format!("{line}\n")).collect::<String>();
            // The example of a key for encryption is cut short.
            let config = read(&text.replace("age1...", RECIPIENT)).unwrap();
            assert_eq!(config.archive.restore_at.as_deref(), Some("2026-11-27T20:15:00Z"));
            assert_eq!(config.backup.url, config.archive.url);
        }
    }

    #[test]
    fn the_documentation_contains_the_template() {
        let docs = include_str!("../../../docs/configuration.md");
        let shown = template(&ServerConfig::default());
        assert!(docs.contains(&format!("```toml\n{shown}```")), "docs/configuration.md must contain this:\n{shown}");
    }
}
