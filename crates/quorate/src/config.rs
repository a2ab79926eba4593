//! What a node is told: in code, from TOML ([`Config::load`]), or from TOML and the environment ([`Sources`]).
//!
//! A program that is told more than a node has a [`Schema`] of its own, of which the keys of [`Config`] are a part.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quorate_consensus::{ConsensusConfig, KEEP_LOG_BYTES, LOG_SEGMENT_BYTES, Member};
use quorate_sql::extensions::Extensions;
use quorate_sql::options::WRITER_CACHE_BYTES_DEFAULT;
use quorate_sql::readers::ReaderOptions;
use quorate_sql::slow::SLOW_DEFAULT;
use quorate_sql::usage::{TEMP_BYTES_DEFAULT, TEMP_BYTES_PER_QUERY_DEFAULT};
use quorate_wire::Secret;

mod builder;
mod error;
mod keys;
mod nearest;
mod print;
mod schema;
mod secret;
mod sources;
mod value;

pub use error::ConfigError;
pub use nearest::{mistyped, nearest};
pub use print::{print, template};
pub use quorate_consensus::{Durability, Timing};
pub use schema::{Key, Schema, Shown, Wrong};
pub use secret::SecretSource;
pub use sources::Sources;
pub use value::{Given, addresses, size, time};

/// How long a call tries by default.
pub const DEADLINE_DEFAULT: Duration = Duration::from_secs(30);

/// Where a node that runs alone listens if it is not told: on a free port that only this machine reaches.
const LISTEN_ALONE: &str = "127.0.0.1:0";

/// What a node is told.
///
/// A node that runs alone needs nothing but a data directory: [`Config::single`]. The nodes of a cluster all get the
/// same `members` and the same secret, and each its own `name` and `data_dir`:
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
    /// The directory that holds everything of this node. It belongs to one running node at a time.
    pub data_dir: PathBuf,
    /// This node's name: one of `members`, or any for a node that runs alone.
    pub name: String,
    /// `host:port` to listen on for other nodes and clients. Where `None`: what `members` says of this node; of a node
    /// that runs alone, a free port of the loopback interface.
    pub listen: Option<String>,
    /// `host:port` under which the others reach this node. Where `None`: what `members` says of it, or what it listens
    /// on.
    pub advertise: Option<String>,
    /// The nodes that found the cluster: from name to `host:port`, the same on each of them. Empty for a node that runs
    /// alone.
    pub members: BTreeMap<String, String>,
    /// What all nodes and clients of the cluster know, at least 16 bytes.
    pub secret: SecretSource,
    /// Intervals and deadlines of consensus.
    pub timing: Timing,
    /// When a write counts as done: fixed when the cluster is founded, and the same on all nodes.
    pub durability: Durability,
    /// Bytes of applied and durable log kept for followers that lag; more is purged, and when idle all that no
    /// member needs.
    pub keep_log_bytes: u64,
    /// How long a call tries before it fails, where it is not told otherwise
    /// ([`Sql::with_deadline`](crate::Sql::with_deadline)).
    pub deadline: Duration,
    /// The database.
    pub sql: SqlOptions,
    /// Functions and collations for all statements of this node: in code alone. Queries may use them at once. Writes
    /// may once every voter has them: a start waits for that for up to three seconds. From then on every node must
    /// have them, in every version of the program, or it does not start.
    pub extensions: Extensions,
}

/// The database of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SqlOptions {
    /// Read-only connections: queries that run at the same time.
    pub readers: usize,
    /// Bytes of each reader's page cache.
    pub reader_cache_bytes: u32,
    /// Bytes of the writer's page cache. A sort within a write runs in pieces of this size, and none of them can be
    /// interrupted: all other writes wait longer where it is large.
    pub writer_cache_bytes: u32,
    /// Bytes of a page, fixed when the cluster is founded and the same on all nodes: a power of two from 4096 to 65536.
    pub page_size: u32,
    /// How long a query may run, and a read transaction last, whatever its caller asks for.
    pub query_timeout: Duration,
    /// Bytes of temporary files that one query may have: for sorts and the like that do not fit into its page cache.
    pub temp_bytes_per_query: u64,
    /// Bytes of temporary files that all queries may have. The writer may have as many, and twice the database besides.
    pub temp_bytes: u64,
    /// Statements that take so long are told in the log; none if it is zero.
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
            timing: Timing::default(),
            durability: Durability::default(),
            keep_log_bytes: KEEP_LOG_BYTES,
            deadline: DEADLINE_DEFAULT,
            sql: SqlOptions::default(),
            extensions: Extensions::default(),
        }
    }
}

impl Config {
    /// A node that runs alone, with everything in one directory.
    pub fn single(data_dir: impl Into<PathBuf>) -> Self {
        Self { data_dir: data_dir.into(), ..Self::default() }
    }

    /// Reads a text of TOML; `docs/configuration.md` lists its keys. Paths in it count from the working directory.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        Sources::new().text(text)?.read()
    }

    /// Reads a file of TOML, as [`Config::from_toml`]. Paths in it count from the file's directory.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        Sources::new().file(path)?.read()
    }

    /// Fails where the parts do not fit together. [`Node::start`](crate::Node::start) does this too.
    pub fn check(&self) -> Result<(), ConfigError> {
        let invalid = |text: String| Err(ConfigError::Invalid(text));
        if self.name.is_empty() {
            return Err(ConfigError::Missing("name"));
        }
        if !self.members.is_empty() && !self.members.contains_key(&self.name) {
            let names = self.members.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            return invalid(format!("this node's name, '{}', is none of the members: {names}", self.name));
        }
        if self.members.len() > 1 && self.secret == SecretSource::Kept {
            return invalid("the nodes of a cluster must share a secret: set 'secret_file' on each of them".to_owned());
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
        self.extensions.check().map_err(ConfigError::Invalid)?;
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
            log_segment_bytes: LOG_SEGMENT_BYTES,
            had_store: false,
        }
    }
}

#[cfg(test)]
mod tests;
