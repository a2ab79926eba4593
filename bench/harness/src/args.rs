//! The command line arguments.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::system::Level;

/// The measurements.
#[derive(Clone, Debug, Subcommand)]
pub enum Measure {
    /// Single-row INSERTs, each acknowledged separately.
    SqlInsert(Options),
    /// INSERTs in atomic batches (`--batch` rows each).
    SqlBatch(Options),
    /// Point SELECTs by primary key of the state that the node itself has applied.
    SqlSelect(Options),
    /// Point SELECTs mixed with single-row INSERTs (`--writes` percent).
    Mixed(Options),
    /// SIGKILL after a load: the time until the same node answers reads again.
    Restart(Options),
    /// SIGKILL of the leader under load: the time until a write is acknowledged again.
    Failover(Options),
    /// A clean stop of the leader under load: the longest time that a write waits.
    HandOver(Options),
    /// Many single-row INSERTs: the bytes on disk ten seconds after the last one, and the bytes written for them.
    Disk(Options),
    /// A follower loses its directory during INSERTs: the time until it serves again, and the rate of INSERTs in that
    /// time.
    Image(Options),
    /// Upserts on a fixed set of keys at full speed, in slices: whether the rate and the size of files stay the same.
    Sustained(Options),
    /// A process with nodes in it, which the other subcommands start.
    #[command(hide = true)]
    Host {
        /// The system of the nodes.
        #[arg(long)]
        system: SystemName,
        /// A `HostSpec` as JSON.
        spec: String,
    },
}

/// The options of a measurement.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// What is measured.
    #[arg(long, value_enum, default_value = "quorate")]
    pub system: SystemName,
    /// The number of nodes in the cluster.
    #[arg(long, default_value_t = 3, value_parser = nodes)]
    pub nodes: usize,
    /// Run all nodes in one process, or each node in its own. The default is `one`; for restart, failover, hand-over
    /// and image it is `many`.
    #[arg(long, value_enum)]
    pub process: Option<Processes>,
    /// The number of client tasks, each of which waits for the answer to a call before it makes the next one. Several
    /// numbers, such as `1,64`, are measured one after the other on the same cluster (`sql-insert`, `sql-batch`,
    /// `sql-select`, `mixed`).
    #[arg(long, value_delimiter = ',', default_values_t = [64],
          value_parser = clap::value_parser!(u64).range(1..=16_384))]
    pub concurrency: Vec<u64>,
    /// The node that the clients call (`sql-insert`, `sql-batch`, `sql-select`, `mixed`); `follower` needs `--process
    /// many`.
    #[arg(long, value_enum, default_value = "leader")]
    pub at: Role,
    /// The rows to write or read in the measured part.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub rows: Option<u64>,
    /// The seconds of the measured part; 5 if neither this nor `--rows` is given (`disk`: 1,500,000 rows; `sustained`:
    /// 60 s). If both are given, the first that is reached ends the part.
    #[arg(long, value_parser = seconds)]
    pub seconds: Option<f64>,
    /// The seconds of the same load before the measured part.
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    pub warm_up: f64,
    /// When a write is acknowledged: with `fsync` when it is synced to the disks of a majority, with `os` when the
    /// operating systems of a majority have it. hiqlite's default is `os`, Quorate's is `fsync`, and rqlite has only
    /// `fsync`.
    #[arg(long, value_enum, default_value = "fsync")]
    pub durability: Durability,
    /// The size of the database in MiB before the measurement.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=65_536))]
    pub db_size: u64,
    /// The rows of a batch (`sql-batch`).
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub batch: u64,
    /// The percentage of operations that write (`mixed`).
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=100))]
    pub writes: u64,
    /// The consistency level of reads (`sql-select`, `mixed`).
    #[arg(long, value_enum, default_value = "local")]
    pub level: Level,
    /// The number of kills or stops (`restart`, `failover`, `hand-over`).
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub kills: u64,
    /// A directory for the data, on the disk to be measured; by default beside this program. The data are removed at
    /// the end.
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Quorate's nodes use TLS: a directory that `quorate init` has written for nodes on this machine. A server with an
    /// `https` address is checked with the CA in it.
    #[arg(long)]
    pub tls: Option<PathBuf>,
    /// Quorate archives to this place, such as `s3://bucket/prefix`, or with `dir` to a directory beside the nodes'.
    #[arg(long)]
    pub archive: Option<String>,
    /// The address of a running server, `http://HOST:PORT` or `https://HOST:PORT`, which `--system rqlite` or `hrana`
    /// measures. Its tables `bench`, `filler` and `names` are dropped.
    #[arg(long)]
    pub url: Option<String>,
    /// Print one line of JSON for each number of clients, as the last lines.
    #[arg(long)]
    pub json: bool,
}

/// The systems that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SystemName {
    /// This project.
    Quorate,
    /// hiqlite, in another program, which is built when it is needed.
    Hiqlite,
    /// Plain SQLite in this process, without replication.
    Rusqlite,
    /// rqlite's API on servers that already run (`--url`), of rqlite or of Quorate.
    Rqlite,
    /// Hrana over HTTP on servers that already run (`--url`).
    Hrana,
}

/// A node's part in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// The node that leads.
    Leader,
    /// A node that does not lead.
    Follower,
}

/// The processes of the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Processes {
    /// All in one process.
    One,
    /// Each in its own process.
    Many,
}

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// When it survives a power failure.
    Fsync,
    /// When it survives the end of the process.
    Os,
}

impl Measure {
    /// Returns the name of the subcommand.
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

    /// Returns its options; a host has none.
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

    /// Returns the measured system.
    pub fn system(&self) -> SystemName {
        match self {
            Self::Host { system, .. } => *system,
            _ => self.options().map_or(SystemName::Quorate, |options| options.system),
        }
    }

    /// Returns whether the nodes share a process.
    pub fn processes(&self) -> Processes {
        let default = match self {
            Self::Restart(_) | Self::Failover(_) | Self::HandOver(_) | Self::Image(_) => Processes::Many,
            _ => Processes::One,
        };
        self.options().and_then(|options| options.process).unwrap_or(default)
    }
}

impl Options {
    /// Returns the first number of clients.
    pub(crate) fn clients(&self) -> u64 {
        self.concurrency.first().copied().unwrap_or(1)
    }

    /// Whether the system is servers that already run. The resources that they use are not known.
    pub(crate) fn is_outside(&self) -> bool {
        matches!(self.system, SystemName::Rqlite | SystemName::Hrana)
    }
}

impl SystemName {
    /// Returns the name as it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Quorate => "quorate",
            Self::Hiqlite => "hiqlite",
            Self::Rusqlite => "rusqlite",
            Self::Rqlite => "rqlite",
            Self::Hrana => "hrana",
        }
    }
}

fn nodes(text: &str) -> Result<usize, String> {
    match text {
        "1" => Ok(1),
        "3" => Ok(3),
        _ => Err("must be 1 or 3".to_owned()),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    /// The longest part of a run.
    const SECONDS_MAX: f64 = 3600.0;
    let seconds: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if (0.0..=SECONDS_MAX).contains(&seconds) { Ok(seconds) } else { Err(format!("must be from 0 to {SECONDS_MAX}")) }
}
