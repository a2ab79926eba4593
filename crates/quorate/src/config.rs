//! The configuration of a node: set in code, or read from TOML ([`Config::load`]), or from TOML and the environment
//! ([`Sources`]).
//!
//! A program with more settings than a node defines its own [`Schema`], which includes the keys of [`Config`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quorate_consensus::{ConsensusConfig, KEEP_FOR_ARCHIVE_BYTES, KEEP_LOG_BYTES, LOG_SEGMENT_BYTES, Member};
use quorate_model::TokenHash;
use quorate_model::limits::FORMAT_LEVEL;
use quorate_sql::extensions::Extensions;
use quorate_sql::options::WRITER_CACHE_BYTES_DEFAULT;
use quorate_sql::readers::ReaderOptions;
use quorate_sql::slow::SLOW_DEFAULT;
use quorate_sql::usage::{TEMP_BYTES_DEFAULT, TEMP_BYTES_PER_QUERY_DEFAULT};
use quorate_wire::Secret;

use crate::archive::{Archive, FirstState};

mod builder;
mod error;
mod keys;
mod nearest;
mod print;
mod schema;
mod secret;
mod sources;
mod tls;
mod value;

pub use error::ConfigError;
pub use nearest::{mistyped, nearest};
pub use print::{print, template};
pub use quorate_consensus::{Durability, Timing};
pub use quorate_tls::Ca;
pub use schema::{Key, Schema, Shown, Wrong};
pub use secret::SecretSource;
pub use sources::Sources;
pub(crate) use tls::over;
pub use tls::{ClientTls, TlsConfig};
pub use value::{Given, addresses, size, time};

/// The default deadline of a call.
pub const DEADLINE_DEFAULT: Duration = Duration::from_secs(30);

/// The default address of a node that runs alone: a free port that can be reached only from this machine.
const LISTEN_ALONE: &str = "127.0.0.1:0";

/// The configuration of a node.
///
/// A node that runs alone needs only a data directory: [`Config::single`]. The nodes of a cluster all get the same
/// `members` and the same secret, and each node gets its own `name` and `data_dir`:
///
/// ```
/// use quorate::{Config, SecretSource};
///
/// let config = Config::single("data/a")
///     .with_name("a")
///     .with_members([("a", "10.0.0.1:7001"), ("b", "10.0.0.2:7001"), ("c", "10.0.0.3:7001")])
///     .with_secret(SecretSource::Variable("QUORATE_SECRET".to_owned()));
/// config.check()?;
/// # Ok::<(), quorate::config::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Config {
    /// The directory that contains all files of this node. Only one running node at a time can use it.
    pub data_dir: PathBuf,
    /// This node's name: one of `members`, or any name for a node that runs alone.
    pub name: String,
    /// The address (`host:port`) on which the node listens for other nodes and clients. Default: its address in
    /// `members`; for a node that runs alone, a free port of the loopback interface.
    pub listen: Option<String>,
    /// The address (`host:port`) under which the other nodes reach this node. Default: its address in `members`, or the
    /// address on which it listens.
    pub advertise: Option<String>,
    /// The nodes that found the cluster: from name to `host:port`, the same on each of them. Empty for a node that runs
    /// alone.
    pub members: BTreeMap<String, String>,
    /// The secret that all nodes and clients of the cluster share, at least 16 bytes.
    pub secret: SecretSource,
    /// TLS for all connections of the node; `None` for connections in the clear.
    pub tls: Option<TlsConfig>,
    /// The hash of the token of the user [`FIRST_ADMIN`](crate::users::FIRST_ADMIN), whom the cluster gets while it has
    /// no users; the same on all nodes. Then no door is ever open to everyone. Once there are users it means nothing.
    pub admin_token: Option<TokenHash>,
    /// Intervals and deadlines of consensus.
    pub timing: Timing,
    /// The condition for acknowledging a write. It is fixed when the cluster is founded, and the same on all nodes.
    pub durability: Durability,
    /// The number of bytes of applied and durable log that the node keeps for followers that lag. It purges more than
    /// that, and when idle, everything that no member needs.
    pub keep_log_bytes: u64,
    /// How long a call tries before it fails, unless the handle sets another deadline
    /// ([`Sql::with_deadline`](crate::Sql::with_deadline)).
    pub deadline: Duration,
    /// The options of the database.
    pub sql: SqlOptions,
    /// The application's functions and collations, for all statements of this node; they can be set only in code.
    /// Queries may use them at once. Writes may use them once every voter has them; [`Node::start`](crate::Node::start)
    /// waits up to three seconds for that. From then on, a node without them does not start, so every later version of
    /// the program must have them.
    pub extensions: Extensions,
    /// Where the cluster is archived; it can be set only in code, and is the same on all nodes. `None` for a node that
    /// never archives.
    pub archive: Option<Archive>,
    /// The archived state with which a new cluster begins; it can be set only in code, and is the same on all nodes.
    /// It counts only for the node that would found the cluster, once, and means nothing where there is one. `None` for
    /// a cluster that begins with an empty database.
    pub first_state: Option<FirstState>,
}

/// The options of a node's database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SqlOptions {
    /// The number of read-only connections, which is the number of queries that can run at the same time.
    pub readers: usize,
    /// The size of each reader's page cache, in bytes.
    pub reader_cache_bytes: u32,
    /// The size of the writer's page cache, in bytes. A sort within a write runs in pieces of this size, which can't be
    /// interrupted, so a large cache makes other writes wait longer.
    pub writer_cache_bytes: u32,
    /// The size of a page, in bytes: a power of two from 4096 to 65536, fixed when the cluster is founded, and the same
    /// on all nodes.
    pub page_size: u32,
    /// The time limit of a query and of a read transaction. A caller can set a shorter limit, but not a longer one.
    pub query_timeout: Duration,
    /// The limit on the temporary files of one query, in bytes; for example, for sorts that do not fit into its page
    /// cache.
    pub temp_bytes_per_query: u64,
    /// The limit on the temporary files of all queries together, in bytes. The writer may use as much, plus twice the
    /// size of the database.
    pub temp_bytes: u64,
    /// Statements that take at least this long are logged. Zero disables this.
    pub slow_statement: Duration,
}

impl Default for SqlOptions {
    fn default() -> Self {
        Self {
            readers: ReaderOptions::default().readers,
            reader_cache_bytes: 8 << 20,
            writer_cache_bytes: WRITER_CACHE_BYTES_DEFAULT,
            page_size: 4096,
            query_timeout: ReaderOptions::default().transaction,
            temp_bytes_per_query: TEMP_BYTES_PER_QUERY_DEFAULT,
            temp_bytes: TEMP_BYTES_DEFAULT,
            slow_statement: SLOW_DEFAULT,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            data_dir: PathBuf::from("data"),
            name: "node".to_owned(),
            listen: None,
            advertise: None,
            members: BTreeMap::new(),
            secret: SecretSource::default(),
            tls: None,
            admin_token: None,
            timing: Timing::default(),
            durability: Durability::default(),
            keep_log_bytes: KEEP_LOG_BYTES,
            deadline: DEADLINE_DEFAULT,
            sql: SqlOptions::default(),
            extensions: Extensions::default(),
            archive: None,
            first_state: None,
        }
    }
}

impl Config {
    /// Returns the configuration of a node that runs alone, with everything in one directory.
    pub fn single(data_dir: impl Into<PathBuf>) -> Self {
        Self { data_dir: data_dir.into(), ..Self::default() }
    }

    /// Parses a configuration in TOML; `docs/configuration.md` lists its keys. Relative paths are relative to the
    /// working directory.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] if the text is not TOML, has an unknown key or an invalid value, or fails
    /// [`Config::check`].
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        Sources::new().text(text)?.read()
    }

    /// Reads a configuration file in TOML, like [`Config::from_toml`]. Relative paths are relative to the file's
    /// directory.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Config::from_toml`], and [`ConfigError::File`] if the file can't be read.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        Sources::new().file(path)?.read()
    }

    /// Checks that the settings are valid and do not contradict each other. [`Node::start`](crate::Node::start) does
    /// this check too.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError::Missing`] or [`ConfigError::Invalid`].
    pub fn check(&self) -> Result<(), ConfigError> {
        let invalid = |text: String| Err(ConfigError::Invalid(text.into()));
        if self.name.is_empty() {
            return Err(ConfigError::Missing("name"));
        }
        if !self.members.is_empty() && !self.members.contains_key(&self.name) {
            let names = self.members.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            return invalid(format!("this node's name, '{}', is not one of the members: {names}", self.name));
        }
        if self.members.len() > 1 && self.secret == SecretSource::Kept {
            return invalid("the nodes of a cluster must share a secret: set 'secret_file' on each of them".to_owned());
        }
        if let Some(tls) = &self.tls {
            tls.check()?;
        }
        if !self.sql.page_size.is_power_of_two() || !(4096..=65536).contains(&self.sql.page_size) {
            return invalid(format!(
                "'sql.page_size' is {}: not a power of two from 4096 to 65536",
                self.sql.page_size
            ));
        }
        if self.sql.readers == 0 {
            return invalid("'sql.readers' is 0: nothing could be read".to_owned());
        }
        if self.sql.query_timeout.is_zero() {
            return invalid("'sql.query_timeout' is 0: no query could run".to_owned());
        }
        self.extensions.check().map_err(|why| ConfigError::Invalid(why.into()))?;
        let Timing { heartbeat, election_min, election_max, .. } = self.timing;
        if heartbeat.is_zero() || heartbeat >= election_min || election_min >= election_max {
            let text = "'timing' needs heartbeat < election_min < election_max";
            return invalid(format!("{text}, not {heartbeat:?}, {election_min:?}, {election_max:?}"));
        }
        Ok(())
    }

    pub(crate) fn consensus(&self, secret: Secret) -> ConsensusConfig {
        let own = self.members.get(&self.name);
        let member = |(name, addr): (&String, &String)| Member { name: name.clone(), addr: addr.clone() };
        ConsensusConfig {
            name: self.name.clone(),
            listen: self.listen.as_ref().or(own).map_or_else(|| LISTEN_ALONE.to_owned(), String::clone),
            advertise: self.advertise.as_ref().or(own).cloned(),
            members: self.members.iter().map(member).collect(),
            secret,
            timing: self.timing,
            durability: self.durability,
            keep_log_bytes: self.keep_log_bytes,
            level: FORMAT_LEVEL,
            keep_for_archive_bytes: KEEP_FOR_ARCHIVE_BYTES,
            archives: self.archive.is_some(),
            log_segment_bytes: LOG_SEGMENT_BYTES,
            had_store: false,
            begins_restored: self.first_state.is_some(),
        }
    }
}

#[cfg(test)]
mod tests;
