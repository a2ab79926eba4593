//! `quorate doctor`: measures what a node depends on, and explains what each figure means for it.
//!
//! It is a list of small checks. Each takes plain facts that were gathered before, and returns findings. So a check can
//! be tested on any machine, and a fact that could not be gathered is a finding; it does not end the list.

mod archive;
mod backup;
mod certificates;
mod clocks;
mod cluster;
mod config;
mod directory;
mod disk;
mod filesystem;
mod finding;
mod limits;
mod network;

use std::path::{Path, PathBuf};

use clap::Args;
use quorate::{Config, SecretSource, config::Timing};
use quorate_server::{ArchiveConfig, BackupConfig, ServerConfig};

use self::finding::{Finding, Report};
use crate::access::Access;
use crate::cluster_file::ClusterFile;
use crate::error::{Error, Result};
use crate::options::{AccessArgs, DATA_DIR, LoginArgs};
use crate::output;
use crate::settings;

/// Options of `quorate doctor`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  quorate doctor --config node.toml           this machine, the configuration, and the cluster if it runs
  quorate doctor --data-dir /var/lib/quorate  this machine alone, or the cluster that `quorate dev` keeps there
  quorate doctor --node 10.0.0.1:7001 --secret-file secret
  quorate doctor --config node.toml --json

Each finding is `OK`, a `note` or a `PROBLEM`, followed by what it means. The exit code is 1 if there is a problem.
Clocks and round trips are measured from this machine. The disk is measured for a second, with a file of 4 MiB in the
data directory that is removed afterwards. A store for scheduled backups is listed, and an object is written and
deleted there; so it is in the store of an archive.")]
pub struct DoctorArgs {
    /// The configuration of a node on this machine
    #[arg(long, value_name = "FILE", conflicts_with_all = ["data_dir", "node"])]
    pub config: Option<PathBuf>,
    /// The data directory of a node on this machine, or of `quorate dev` [default: quorate-data]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// host:port of a node; only its cluster is checked, unless a data directory is named too
    #[arg(long, value_name = "ADDR")]
    pub node: Option<String>,
    /// A file with the cluster's secret
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
    /// A file with the CA of the cluster, or "system"
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    #[command(flatten)]
    pub login: LoginArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What to check.
#[derive(Debug, Default)]
struct Aim {
    /// The configuration, if it could be loaded.
    config: Option<Config>,
    /// The archive in it.
    archive: ArchiveConfig,
    /// The scheduled backups in it.
    backup: BackupConfig,
    /// A data directory on this machine.
    dir: Option<PathBuf>,
    /// Files with secrets.
    secrets: Vec<PathBuf>,
    /// The cluster.
    access: Option<Access>,
    /// Whether the user named a node of the cluster: then it is a problem if none answers.
    named: bool,
}

/// Runs the command.
pub async fn run(args: &DoctorArgs) -> Result<()> {
    let mut findings = Vec::new();
    let aim = Aim::take(args, &mut findings)?;
    let timing = aim.config.as_ref().map_or_else(Timing::default, |config| config.timing);
    if let Some(dir) = &aim.dir {
        findings.extend(local(dir, &aim.secrets, timing));
    }
    if let Some(config) = &aim.config
        && let Some(tls) = &config.tls
    {
        let (facts, mode) = (certificates::Facts::gather(config, tls), directory::mode(&tls.key));
        findings.extend(certificates::check(&facts));
        findings.extend(directory::check_key(&tls.key, mode));
    }
    if let Some(config) = &aim.config {
        findings.extend(backup::look(&aim.backup, &config.data_dir).await);
        findings.extend(archive::look(&aim.archive).await);
    }
    if let Some(access) = &aim.access {
        findings.extend(cluster::look(access, aim.config.as_ref(), aim.named).await);
    }
    let report = Report::new(findings);
    output::print(&if args.json { report.json()? } else { report.text() })?;
    match report.problems() {
        0 => Ok(()),
        1 => Err(Error::new("there is a problem")),
        count => Err(Error::new(format!("there are {count} problems"))),
    }
}

/// Runs the checks that need no cluster.
fn local(dir: &Path, secrets: &[PathBuf], timing: Timing) -> Vec<Finding> {
    let mut findings = directory::check(&directory::Facts::gather(dir));
    findings.extend(secrets.iter().flat_map(|path| directory::check_secret(path, directory::mode(path))));
    // A data directory that does not exist yet will be on the file system of its parent.
    let dir = directory::existing(dir);
    findings.extend(filesystem::check(&filesystem::Facts::gather(&dir)));
    findings.extend(disk::check_fsync(&disk::measure(&dir), timing));
    findings.extend(disk::check_space(&disk::Space::gather(&dir)));
    findings.extend(limits::check(&limits::Facts::gather()));
    findings
}

impl Aim {
    fn take(args: &DoctorArgs, findings: &mut Vec<Finding>) -> Result<Self> {
        if let Some(path) = &args.config {
            return Ok(Self::of_config(path, args, findings));
        }
        let named = args.node.is_some() || args.login.profile.is_some();
        let dir = args.data_dir.clone().or_else(|| (!named).then(|| PathBuf::from(DATA_DIR)));
        let is_dev = dir.as_ref().is_some_and(|dir| ClusterFile::read(dir).ok().flatten().is_some());
        if args.data_dir.is_none() && !named && !is_dev {
            return Err(Error::new(format!(
                "no cluster runs in {DATA_DIR}: name what to check with --config, --data-dir or --node"
            )));
        }
        let access = AccessArgs {
            node: args.node.clone(),
            data_dir: dir.clone().unwrap_or_else(|| PathBuf::from(DATA_DIR)),
            config: None,
            secret_file: args.secret_file.clone(),
            ca: args.ca.clone(),
            login: args.login.clone(),
        };
        let access = if named || is_dev { Some(Access::find(&access)?) } else { None };
        let secrets = dir.iter().map(|dir| dir.join("secret")).chain(args.secret_file.clone());
        let secrets = secrets.filter(|path| path.exists()).collect();
        Ok(Self { secrets, dir, access, named, ..Self::default() })
    }

    fn of_config(path: &Path, args: &DoctorArgs, findings: &mut Vec<Finding>) -> Self {
        let loaded = settings::read(path);
        let of_node = loaded.as_ref().map(|server| &server.node);
        findings.extend(config::check(&config::Facts { path, mode: directory::mode(path), loaded: of_node }));
        let Ok(ServerConfig { node: config, archive, backup, .. }) = loaded else { return Self::default() };
        let access = Access::of_config(&config, args.secret_file.as_deref(), args.ca.as_deref());
        let secrets = if let SecretSource::File(file) = &access.secret { vec![file.clone()] } else { Vec::new() };
        let access = (!access.addrs.is_empty()).then_some(access);
        let dir = Some(config.data_dir.clone());
        Self { dir, secrets, access, named: false, config: Some(config), archive, backup }
    }
}
