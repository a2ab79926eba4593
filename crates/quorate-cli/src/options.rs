//! Options that several commands share.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use quorate_shell::format::Mode;

/// The longest `--timeout`: one day.
const TIMEOUT_SECONDS_MAX: f64 = 86_400.0;

/// Parses a number of seconds.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.001..=TIMEOUT_SECONDS_MAX).contains(seconds));
    let wrong = || format!("expected a number of seconds from 0.001 to {TIMEOUT_SECONDS_MAX}, not '{text}'");
    seconds.map(Duration::from_secs_f64).ok_or_else(wrong)
}

/// Parses a time such as `5m`.
pub fn time(text: &str) -> Result<Duration, String> {
    let time = quorate_http::duration(text).filter(|time| !time.is_zero());
    time.ok_or_else(|| format!("expected a time such as 5m, 1.5s or 1h, not '{text}'"))
}

/// The default data directory: `quorate dev` keeps its cluster there, and the other commands look for one there.
pub const DATA_DIR: &str = "quorate-data";

/// How to reach a cluster.
#[derive(Args, Debug)]
pub struct AccessArgs {
    /// host:port of a node [default: any node of the cluster in the data directory]
    #[arg(long, value_name = "ADDR")]
    pub node: Option<String>,
    /// The data directory of `quorate dev`
    #[arg(long, value_name = "DIR", default_value = DATA_DIR)]
    pub data_dir: PathBuf,
    /// The configuration of any node of the cluster: it names all members and the secret
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// A file with the cluster's secret [default: that of --config, QUORATE_SECRET, or that of `quorate dev`]
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
    /// A file with the CA of the cluster, or "system": connect with TLS [default: that of --config, or QUORATE_TLS_CA]
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    #[command(flatten)]
    pub login: LoginArgs,
}

/// Whom a command logs in as, in place of knowing the cluster's secret.
#[derive(Args, Clone, Debug, Default)]
pub struct LoginArgs {
    /// Log in as this user; the password is that in QUORATE_PASSWORD, or is asked for [default: QUORATE_USER]
    #[arg(long, value_name = "NAME", conflicts_with = "secret_file")]
    pub user: Option<String>,
    /// Log in with the token in this file [default: that in QUORATE_TOKEN]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["secret_file", "user"])]
    pub token_file: Option<PathBuf>,
    /// A profile in ~/.config/quorate/profiles.toml: it names the nodes, and how to log in [default: QUORATE_PROFILE]
    #[arg(long, value_name = "NAME", conflicts_with_all = ["node", "config"])]
    pub profile: Option<String>,
}

/// Options of a command that lists something of a cluster.
#[derive(Args, Debug)]
pub struct ListArgs {
    /// How to reach the cluster.
    #[command(flatten)]
    pub access: AccessArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Options of a command that prints rows.
#[derive(Args, Debug)]
pub struct PrintArgs {
    /// The guarantee of reads
    #[arg(long, value_enum, default_value_t = Level::Linearizable)]
    pub level: Level,
    /// The format: table, line, csv, tsv, json, ndjson, markdown, list or quote
    #[arg(long, value_name = "MODE", default_value = "table", value_parser = Mode::parse, conflicts_with = "json")]
    pub format: Mode,
    /// Print JSON; the same as --format json
    #[arg(long)]
    pub json: bool,
}

impl PrintArgs {
    /// Returns the options of the shell.
    pub fn shell(&self) -> quorate_shell::Options {
        let mode = if self.json { Mode::Json } else { self.format.clone() };
        quorate_shell::Options { mode, level: self.level.into(), ..quorate_shell::Options::default() }
    }
}

/// The guarantee of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Level {
    /// What the node that answers has applied, which may be old
    Local,
    /// Everything that was acknowledged before the read
    Linearizable,
}

impl From<Level> for quorate_shell::Level {
    fn from(level: Level) -> Self {
        match level {
            Level::Local => Self::Local,
            Level::Linearizable => Self::Linearizable,
        }
    }
}

impl From<Level> for quorate::Level {
    fn from(level: Level) -> Self {
        match level {
            Level::Local => Self::Local,
            Level::Linearizable => Self::Linearizable,
        }
    }
}
