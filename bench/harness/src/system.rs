//! What a system has to offer to be measured, and the tables and statements that all of them get.

use std::future::Future;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::{Durability, Options, Result};

/// The table that is measured, one that makes the database large, and one for small rows. The benchmark of hiqlite
/// itself inserts into a table of the first kind, that of rqlite into one of the last.
pub(crate) const TABLES: [&str; 3] = [
    "CREATE TABLE bench (id INTEGER PRIMARY KEY, name TEXT NOT NULL, value INTEGER NOT NULL)",
    "CREATE TABLE filler (id INTEGER PRIMARY KEY, name TEXT NOT NULL, value INTEGER NOT NULL)",
    "CREATE TABLE names (id INTEGER NOT NULL PRIMARY KEY, name TEXT)",
];

/// Inserts a [`Row`]; its parameters are `id`, `name`, `value`.
pub const INSERT: &str = "INSERT INTO bench (id, name, value) VALUES (?1, ?2, ?3)";

/// Inserts a [`Row`], or changes the one that is there.
pub(crate) const UPSERT: &str = "INSERT INTO bench (id, name, value) VALUES (?1, ?2, ?3) \
                                 ON CONFLICT (id) DO UPDATE SET name = excluded.name, value = excluded.value";

/// Inserts a [`Row`] that makes the database larger.
pub const INSERT_FILLER: &str = "INSERT INTO filler (id, name, value) VALUES (?1, ?2, ?3)";

/// Inserts a small row without parameters, and the bytes of what it keeps.
pub(crate) const INSERT_NAME: &str = "INSERT INTO names (name) VALUES ('fiona')";
pub(crate) const NAME_BYTES: u64 = 5;

/// Gives the [`Row`] with the `id` that is the only parameter; its columns are `id`, `name`, `value`.
pub const SELECT: &str = "SELECT id, name, value FROM bench WHERE id = ?1";

/// How many rows there are but for filler, in one column `rows`.
pub(crate) const COUNT: &str = "SELECT (SELECT count(*) FROM bench) + (SELECT count(*) FROM names) AS rows";

/// How many bytes the database has, in one column `rows`.
pub(crate) const DATABASE_BYTES: &str =
    "SELECT page_count * page_size AS rows FROM pragma_page_count(), pragma_page_size()";

/// What a system is, and what it does when it is asked for a durability.
#[derive(Clone, Debug)]
pub struct About {
    /// Its version.
    pub version: String,
    /// The version of its SQLite.
    pub sqlite: String,
    /// When a write is acknowledged, in words that can stand beside a figure.
    pub acknowledged: String,
    /// What was chosen for it other than its defaults.
    pub configuration: String,
}

/// One node to start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeSpec {
    /// From 1.
    pub id: u64,
    /// Its directory, which exists.
    pub dir: PathBuf,
    /// All members in the order of their ids, each with two addresses `127.0.0.1:port` that it may listen on.
    pub members: Vec<[String; 2]>,
    /// When a write is acknowledged.
    pub durability: Durability,
    /// The address of a server that runs already, if this is none to start.
    pub server: Option<String>,
}

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The primary key.
    pub id: i64,
    /// Some text.
    pub name: String,
    /// A number that follows from the key.
    pub value: i64,
}

impl Row {
    /// The row that belongs to a key.
    pub fn new(id: i64) -> Self {
        Self { id, name: format!("name of the row {id:012}"), value: Self::value_of(id) }
    }

    /// A row that takes about a page.
    pub(crate) fn filler(id: i64) -> Self {
        /// Bytes of its text.
        const FILLER_BYTES: usize = 4000;
        Self { name: format!("{id:012}").repeat(FILLER_BYTES / 12), ..Self::new(id) }
    }

    pub(crate) fn value_of(id: i64) -> i64 {
        id.wrapping_mul(7)
    }
}

/// How fresh a read must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// What this node has applied.
    Local,
    /// Everything that was acknowledged, by the system's own means.
    Linearizable,
}

/// A stage of a write, and how much time all writes that were proposed at a node have spent in it.
#[derive(Clone, Copy, Debug)]
pub struct Stage {
    /// What it is called.
    pub name: &'static str,
    /// How many writes passed it.
    pub writes: u64,
    /// Their time in it.
    pub time: Duration,
}

/// A node of a system, embedded in this process.
pub trait System: Sized + Send + Sync + 'static {
    /// What the system says of itself.
    ///
    /// # Errors
    ///
    /// If it does not have that durability or cannot run that many nodes.
    fn about(options: &Options) -> impl Future<Output = Result<About>>;

    /// Starts a node; returns when it serves. All nodes of a cluster are started at the same time.
    fn start(spec: NodeSpec) -> impl Future<Output = Result<Self>> + Send;

    /// Whether this node leads.
    fn leads(&self) -> impl Future<Output = bool> + Send;

    /// Runs a statement that writes and has no parameters.
    fn execute(&self, sql: &'static str) -> impl Future<Output = Result<()>> + Send;

    /// Writes a row by this statement alone.
    fn insert(&self, sql: &'static str, row: Row) -> impl Future<Output = Result<()>> + Send;

    /// Inserts rows by this statement, all of them or none.
    fn insert_all(&self, sql: &'static str, rows: Vec<Row>) -> impl Future<Output = Result<()>> + Send;

    /// The row with this key.
    fn select(&self, id: i64, level: Level) -> impl Future<Output = Result<Option<Row>>> + Send;

    /// Runs a query that gives one number, in a column `rows`, on the local state.
    fn number(&self, sql: &'static str) -> impl Future<Output = Result<u64>> + Send;

    /// The latest syncs of the node's log that took longer than 50 ms, from when to when, if the system remembers them.
    fn long_syncs(&self) -> Vec<(Instant, Instant)> {
        Vec::new()
    }

    /// Ends the node in good order.
    fn stop(self) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    /// What the system itself measures of the stages of its writes, if it does, since the node's start.
    fn stages(&self) -> Vec<Stage> {
        Vec::new()
    }
}

/// The version of a package in the text of a lock file.
pub fn locked_version(lock: &str, name: &str) -> String {
    let named = format!("name = \"{name}\"\nversion = \"");
    let version = lock.split_once(&named).and_then(|(_, rest)| rest.split_once('"'));
    version.map_or_else(|| "unknown".to_owned(), |(version, _)| version.to_owned())
}
