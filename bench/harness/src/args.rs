//! What can be typed.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::system::Level;

/// What is measured.
#[derive(Clone, Debug, Subcommand)]
pub enum Measure {
    /// Single-row INSERTs, each acknowledged by itself.
    SqlInsert(Options),
    /// INSERTs in atomic batches (`--batch` rows each).
    SqlBatch(Options),
    /// Point SELECTs by primary key of the node's own, applied state.
    SqlSelect(Options),
    /// Point SELECTs with single-row INSERTs between them (`--writes` percent).
    Mixed(Options),
    /// SIGKILL after a load; how long until the same node answers reads again.
    Restart(Options),
    /// SIGKILL of the leader under load; how long until a write is acknowledged again.
    Failover(Options),
    /// SIGKILL's opposite: the leader stops in good order under load; how long a write waits at most.
    HandOver(Options),
    /// Bytes on disk ten seconds after the last of many single-row INSERTs, and bytes written for them.
    Disk(Options),
    /// A follower loses its directory while INSERTs go on; how long until it serves again, and what the writers feel.
    Image(Options),
    /// Upserts on a fixed set of keys, at full speed, slice after slice: does it stay as fast, and its files bounded?
    Sustained(Options),
    /// A process with nodes in it, started by one of the above.
    #[command(hide = true)]
    Host {
        /// Whose nodes.
        #[arg(long)]
        system: SystemName,
        /// A `HostSpec` as JSON.
        spec: String,
    },
}

/// How it is measured.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// What is measured.
    #[arg(long, value_enum, default_value = "quorate")]
    pub system: SystemName,
    /// Nodes of the cluster.
    #[arg(long, default_value_t = 3, value_parser = nodes)]
    pub nodes: usize,
    /// All nodes in one process, or one process a node; the default is `one`, but `many` for restart, failover,
    /// hand-over and image.
    #[arg(long, value_enum)]
    pub process: Option<Processes>,
    /// Client tasks; each waits for an answer before it asks again. Several numbers, as in `1,64`, are measured one
    /// after the other on the same cluster (`sql-insert`, `sql-batch`, `sql-select`, `mixed`).
    #[arg(long, value_delimiter = ',', default_values_t = [64],
          value_parser = clap::value_parser!(u64).range(1..=16_384))]
    pub concurrency: Vec<u64>,
    /// Whose node the clients call (`sql-insert`, `sql-batch`, `sql-select`, `mixed`); followers need `--process many`.
    #[arg(long, value_enum, default_value = "leader")]
    pub at: Role,
    /// Rows to write or read in the measured part.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub rows: Option<u64>,
    /// Seconds of the measured part; 5 if neither this nor `--rows` is given (`disk`: 1,500,000 rows; `sustained`: 60
    /// s). Given both, the first to be reached ends it.
    #[arg(long, value_parser = seconds)]
    pub seconds: Option<f64>,
    /// Seconds of the same load before it.
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    pub warm_up: f64,
    /// When a write is acknowledged: `fsync` when it is synced to the disks of a majority, `os` when the operating
    /// systems of a majority have it. hiqlite's default is `os`, Quorate's is `fsync`, and rqlite has no other.
    #[arg(long, value_enum, default_value = "fsync")]
    pub durability: Durability,
    /// MiB that the database holds before anything is measured.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=65_536))]
    pub db_size: u64,
    /// Rows of a batch (`sql-batch`).
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub batch: u64,
    /// How many of a hundred operations write (`mixed`).
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=100))]
    pub writes: u64,
    /// How fresh reads must be (`sql-select`, `mixed`).
    #[arg(long, value_enum, default_value = "local")]
    pub level: Level,
    /// How often to kill, or to stop (`restart`, `failover`, `hand-over`).
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub kills: u64,
    /// Where the data go, on the disk to be measured; the default is beside this program. Removed at the end.
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// An rqlited that runs, as `http://HOST:PORT`: what `--system rqlite` measures. Its tables `bench`, `filler` and
    /// `names` are dropped.
    #[arg(long)]
    pub rqlited: Option<String>,
    /// Print one line of JSON for each number of clients, the last lines.
    #[arg(long)]
    pub json: bool,
}

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SystemName {
    /// This project.
    Quorate,
    /// The peer hiqlite: another program, built when it is asked for.
    Hiqlite,
    /// Plain SQLite in this process, without replication: what the machine gives.
    Rusqlite,
    /// The peer rqlite, servers that run already (`--rqlited`), over HTTP.
    Rqlite,
}

/// A node's part in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// It leads.
    Leader,
    /// It does not.
    Follower,
}

/// Where the nodes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Processes {
    /// All in one process.
    One,
    /// One process each.
    Many,
}

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// When it would survive the loss of power.
    Fsync,
    /// When it would survive the end of the process.
    Os,
}

impl Measure {
    /// The subcommand, as typed.
    pub fn name(&self) -> &'static str {
        match self {
            Self::SqlInsert(_) => "sql-insert",
            Self::SqlBatch(_) => "sql-batch",
            Self::SqlSelect(_) => "sql-select",
            Self::Mixed(_) => "mixed",
            Self::Restart(_) => "restart",
            Self::Failover(_) => "failover",
            Self::HandOver(_) => "hand-over",
            Self::Disk(_) => "disk",
            Self::Image(_) => "image",
            Self::Sustained(_) => "sustained",
            Self::Host { .. } => "host",
        }
    }

    /// Its options; a host has none.
    pub fn options(&self) -> Option<&Options> {
        match self {
            Self::SqlInsert(options)
            | Self::SqlBatch(options)
            | Self::SqlSelect(options)
            | Self::Mixed(options)
            | Self::Restart(options)
            | Self::Failover(options)
            | Self::HandOver(options)
            | Self::Disk(options)
            | Self::Image(options)
            | Self::Sustained(options) => Some(options),
            Self::Host { .. } => None,
        }
    }

    /// Whose nodes.
    pub fn system(&self) -> SystemName {
        match self {
            Self::Host { system, .. } => *system,
            _ => self.options().map_or(SystemName::Quorate, |options| options.system),
        }
    }

    /// Where the nodes are.
    pub fn processes(&self) -> Processes {
        let default = match self {
            Self::Restart(_) | Self::Failover(_) | Self::HandOver(_) | Self::Image(_) => Processes::Many,
            _ => Processes::One,
        };
        self.options().and_then(|options| options.process).unwrap_or(default)
    }
}

impl Options {
    /// The first number of clients, or the only one.
    pub(crate) fn clients(&self) -> u64 {
        self.concurrency.first().copied().unwrap_or(1)
    }

    /// Whether it is servers that run already: what they use is not known.
    pub(crate) fn is_outside(&self) -> bool {
        self.system == SystemName::Rqlite
    }
}

impl SystemName {
    /// As typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Quorate => "quorate",
            Self::Hiqlite => "hiqlite",
            Self::Rusqlite => "rusqlite",
            Self::Rqlite => "rqlite",
        }
    }
}

fn nodes(text: &str) -> Result<usize, String> {
    match text {
        "1" => Ok(1),
        "3" => Ok(3),
        _ => Err("1 or 3".to_owned()),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    /// Longest part of a run.
    const SECONDS_MAX: f64 = 3600.0;
    let seconds: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if (0.0..=SECONDS_MAX).contains(&seconds) { Ok(seconds) } else { Err(format!("from 0 to {SECONDS_MAX}")) }
}
