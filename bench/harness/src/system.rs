//! The interface that a measured system implements, and the tables and statements that are the same for all systems.

use std::future::Future;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::{Durability, Options, Result};

/// The measured table, a table that makes the database large, and a table for small rows. hiqlite's own benchmark
/// inserts into a table like the first, rqlite's into a table like the last.
pub(crate) const TABLES: [&str; 3] = [
    "CREATE TABLE bench (id INTEGER PRIMARY KEY, name TEXT NOT NULL, value INTEGER NOT NULL)",
    "CREATE TABLE filler (id INTEGER PRIMARY KEY, name TEXT NOT NULL, value INTEGER NOT NULL)",
    "CREATE TABLE names (id INTEGER NOT NULL PRIMARY KEY, name TEXT)",
];

/// Inserts a [`Row`]; its parameters are `id`, `name`, `value`.
pub const INSERT: &str = "INSERT INTO bench (id, name, value) VALUES (?1, ?2, ?3)";

/// Inserts a [`Row`], or changes the row with the same key.
pub(crate) const UPSERT: &str = "INSERT INTO bench (id, name, value) VALUES (?1, ?2, ?3) \
                                 ON CONFLICT (id) DO UPDATE SET name = excluded.name, value = excluded.value";

/// Inserts a [`Row`] that makes the database larger.
pub const INSERT_FILLER: &str = "INSERT INTO filler (id, name, value) VALUES (?1, ?2, ?3)";

/// Inserts a small row without parameters; the second is the bytes of its text.
pub(crate) const INSERT_NAME: &str = "INSERT INTO names (name) VALUES ('fiona')";
pub(crate) const NAME_BYTES: u64 = 5;

/// Returns the [`Row`] with the `id` that is the only parameter; its columns are `id`, `name`, `value`.
pub const SELECT: &str = "SELECT id, name, value FROM bench WHERE id = ?1";

/// Returns the number of rows without filler, in one column `rows`.
pub(crate) const COUNT: &str = "SELECT (SELECT count(*) FROM bench) + (SELECT count(*) FROM names) AS rows";

/// Returns the bytes of the database, in one column `rows`.
pub(crate) const DATABASE_BYTES: &str =
    "SELECT page_count * page_size AS rows FROM pragma_page_count(), pragma_page_size()";

/// A description of a system with a durability.
#[derive(Clone, Debug)]
pub struct About {
    /// Its version.
    pub version: String,
    /// The version of its SQLite.
    pub sqlite: String,
    /// A text that says when a write is acknowledged, for tables of figures.
    pub acknowledged: String,
    /// How its configuration differs from the defaults.
    pub configuration: String,
}

/// A node to start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeSpec {
    /// Its id; the first is 1.
    pub id: u64,
    /// Its directory, which exists.
    pub dir: PathBuf,
    /// All members in the order of their ids, each with two addresses `127.0.0.1:port` that it may listen on.
    pub members: Vec<[String; 2]>,
    /// When a write is acknowledged.
    pub durability: Durability,
    /// The directory with the CA (`ca.crt`) and the nodes' certificates (`node-1.crt`, `node-1.key`, ...), for TLS.
    pub tls: Option<PathBuf>,
    /// Where the cluster archives to, as a URL.
    pub archive: Option<String>,
    /// The address of a server that already runs, if the node is not to be started.
    pub server: Option<String>,
}

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The primary key.
    pub id: i64,
    /// Some text.
    pub name: String,
    /// A number that is computed from the key.
    pub value: i64,
}

impl Row {
    /// Returns the row that belongs to a key.
    pub fn new(id: i64) -> Self {
        Self { id, name: format!("name of the row {id:012}"), value: Self::value_of(id) }
    }

    /// Returns a row that takes about a page.
    pub(crate) fn filler(id: i64) -> Self {
        /// The bytes of its text.
        const FILLER_BYTES: usize = 4000;
        Self { name: format!("{id:012}").repeat(FILLER_BYTES / 12), ..Self::new(id) }
    }

    pub(crate) fn value_of(id: i64) -> i64 {
        id.wrapping_mul(7)
    }
}

/// The consistency level of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Reads what this node has applied.
    Local,
    /// Reads everything that was acknowledged before, by the system's own means.
    Linearizable,
}

/// A stage of a write, and the time that all writes which were proposed at a node have spent in it.
#[derive(Clone, Copy, Debug)]
pub struct Stage {
    /// Its name.
    pub name: &'static str,
    /// The number of writes that passed it.
    pub writes: u64,
    /// The sum of their times in it.
    pub time: Duration,
}

/// A node of a system, embedded in this process.
pub trait System: Sized + Send + Sync + 'static {
    /// Returns a description of the system.
    ///
    /// # Errors
    ///
    /// If the system does not support the durability or the number of nodes.
    fn about(options: &Options) -> impl Future<Output = Result<About>>;

    /// Starts a node, and returns when it serves. All nodes of a cluster are started at the same time.
    fn start(spec: NodeSpec) -> impl Future<Output = Result<Self>> + Send;

    /// Whether this node leads.
    fn leads(&self) -> impl Future<Output = bool> + Send;

    /// Runs a statement that writes and has no parameters.
    fn execute(&self, sql: &'static str) -> impl Future<Output = Result<()>> + Send;

    /// Writes a row by one statement.
    fn insert(&self, sql: &'static str, row: Row) -> impl Future<Output = Result<()>> + Send;

    /// Inserts rows by this statement, all of them or none.
    fn insert_all(&self, sql: &'static str, rows: Vec<Row>) -> impl Future<Output = Result<()>> + Send;

    /// Returns the row with this key.
    fn select(&self, id: i64, level: Level) -> impl Future<Output = Result<Option<Row>>> + Send;

    /// Runs a query that returns one number, in a column `rows`, on the local state.
    fn number(&self, sql: &'static str) -> impl Future<Output = Result<u64>> + Send;

    /// Returns the beginning and end of the latest syncs of the node's log that took longer than 50 ms, if the system
    /// records them.
    fn long_syncs(&self) -> Vec<(Instant, Instant)> {
        Vec::new()
    }

    /// Stops the node cleanly.
    fn stop(self) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    /// Returns the times of the stages of writes since the node's start, if the system measures them.
    fn stages(&self) -> Vec<Stage> {
        Vec::new()
    }
}

/// Returns the version of a package in the text of a lock file.
pub fn locked_version(lock: &str, name: &str) -> String {
    let named = format!("name = \"{name}\"\nversion = \"");
    let version = lock.split_once(&named).and_then(|(_, rest)| rest.split_once('"'));
    version.map_or_else(|| "unknown".to_owned(), |(version, _)| version.to_owned())
}
