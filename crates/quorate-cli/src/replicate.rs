//! `quorate replicate`: archives a SQLite database of another application while that application writes it.
//!
//! Invariant: this process opens the database in no other way than the follower does.

use std::cell::Cell;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use clap::Args;
use quorate_env::Env;
use quorate_env::net::OWNER_ONLY;
use quorate_replicate::Options;
use tokio::process::{Child, Command};

use self::config::{Config, Entry};
use self::control::{Requests, Socket};
use self::observed::Observed;
use crate::backups::{StoreArgs, time};
use crate::error::{Context as _, Error, Result};
use crate::{log, output, stop};

mod config;
pub mod control;
mod database;
mod litestream;
mod many;
mod observed;

/// The shortest interval between two boundaries.
const INTERVAL_MIN: Duration = Duration::from_millis(10);

const EXAMPLE: &str = "\
Examples:
  quorate replicate app.db 's3://my-bucket/app?region=eu-central-1'
  quorate replicate app.db file:///mnt/archive --once
  quorate replicate app.db file:///mnt/archive --keep-for 30d --exec './app --port 8080'
  quorate replicate --config replicate.toml --metrics 127.0.0.1:9090
  quorate replicate --config litestream.yml --socket /run/quorate/replicate.sock
  quorate restore file:///mnt/archive --at latest --plain -o app.db

It runs beside the application, which goes on as before, and archives what has changed within a second. The database is
switched to WAL mode if it is in another one. Each database needs a place of its own.";

/// Options of `quorate replicate`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct ReplicateArgs {
    /// How often to archive what has changed: a number with ms, s, min or h
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// Archive what has changed until now, and end
    #[arg(long, conflicts_with = "exec")]
    once: bool,
    /// Run this command of the shell, pass signals on to it, and end with it
    #[arg(long, value_name = "COMMAND")]
    exec: Option<String>,
    /// For how long states can be restored: a number with s, min, h, d or w [default: for ever]
    #[arg(long, value_name = "TIME", value_parser = time)]
    keep_for: Option<Duration>,
    /// The archive, if there are several at the URL
    #[arg(long, value_name = "ID")]
    cluster: Option<String>,
    /// The store.
    #[command(flatten)]
    store: StoreArgs,
    /// Show metrics and health over HTTP at this address, such as 127.0.0.1:9090
    #[arg(long, value_name = "HOST:PORT")]
    metrics: Option<String>,
    /// Let `quorate sidecar` and others control it by this Unix socket, which only this user can open
    #[arg(long, value_name = "PATH", conflicts_with = "once")]
    socket: Option<PathBuf>,
    /// Archive the databases and directories in this file, which may be a litestream.yml (see docs/replicate.md)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["interval", "keep_for", "cluster", "credentials_file"])]
    config: Option<PathBuf>,
    /// The database, a file of SQLite
    #[arg(value_name = "DATABASE", required_unless_present = "config", conflicts_with = "config")]
    database: Option<PathBuf>,
    /// s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, or file:///directory
    #[arg(required_unless_present = "config")]
    url: Option<String>,
}

/// Runs the command. The exit code is that of the command of `--exec`, if there is one.
pub async fn run(args: &ReplicateArgs) -> Result<ExitCode> {
    let config = args.configured()?;
    log::begin(config.log)?;
    let env = Env::real();
    let mut signals = stop::Stop::take(false)?;
    let configured = config.exec.as_ref().filter(|_| !args.once);
    let mut child = args.exec.as_ref().or(configured).map(|command| start(command)).transpose()?;
    let (mut ended, is_hurried) = (Ok(ExitCode::SUCCESS), Cell::new(false));
    let until = async {
        if args.once {
            return;
        }
        match &mut child {
            Some(child) => ended = wait(child, &mut signals).await,
            None => signals.requested().await,
        }
    };
    let mut impatient = stop::Stop::take(false)?;
    let ended_at_once = async {
        impatient.requested().await;
        tracing::info!("archives the last changes; a second signal ends the process at once");
        impatient.requested().await;
        is_hurried.set(true);
    };
    let observed = Observed::default();
    let replicated = async {
        let _port = observed.show(&env, config.metrics.as_deref()).await?;
        let mut requests = Requests::open(&env, config.socket.as_ref().filter(|_| !args.once)).await?;
        let replicated = many::replicate(&env, &config, &observed, &mut requests, until).await;
        requests.close().await;
        replicated
    };
    let replicated = tokio::select! {
        biased;
        replicated = replicated => replicated,
        () = ended_at_once => Err(Error::new(
            "ended at once by a second signal: the next start archives what is not archived yet"
        )),
    };
    if replicated.is_err()
        && let Some(child) = &mut child
    {
        // Without an archive the application must not go on as if there were one.
        match is_hurried.get() {
            true => drop(child.start_kill()),
            false => pass_on(child),
        }
        let _ = child.wait().await;
    }
    let told = replicated?;
    if args.once {
        output::print(&told)?;
    }
    ended
}

impl ReplicateArgs {
    /// Returns what to archive, and how: what the arguments say, or the configuration that they name.
    fn configured(&self) -> Result<Config> {
        let mut config = match &self.config {
            Some(file) => config::read(file)?,
            None => self.one()?,
        };
        config.metrics = self.metrics.clone().or(config.metrics);
        let socket = self.socket.clone().map(|path| Socket { path, mode: OWNER_ONLY });
        config.socket = socket.or(config.socket);
        Ok(config)
    }

    /// Returns the configuration with the only database of the arguments.
    fn one(&self) -> Result<Config> {
        let missing = || Error::new("name a database and a URL, or --config");
        let (database, url) = self.database.as_ref().zip(self.url.as_ref()).ok_or_else(missing)?;
        let defaults = Entry {
            interval: self.interval,
            keep_for: self.keep_for,
            credentials_file: self.store.credentials_file.clone(),
            ..Entry::default()
        };
        let (path, url, cluster) = (database.clone(), url.clone(), self.cluster.clone());
        let databases = vec![Entry { path, url, cluster, ..defaults.clone() }];
        Ok(Config { databases, defaults, is_vital: true, ..Config::default() })
    }
}

fn start(command: &str) -> Result<Child> {
    let started = Command::new("/bin/sh").arg("-c").arg(command).spawn();
    started.context(|| format!("cannot start '{command}'"))
}

/// Waits for the end of a command, and passes on what asks this process to stop.
async fn wait(child: &mut Child, signals: &mut stop::Stop) -> Result<ExitCode> {
    loop {
        tokio::select! {
            ended = child.wait() => return ended.map(exit_code).context(|| "cannot wait for the command"),
            () = signals.requested() => {}
        }
        pass_on(child);
    }
}

/// Asks a command to stop.
fn pass_on(child: &Child) {
    let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
    if let Some(id) = id {
        // It may have ended at this moment.
        let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
    }
}

/// Returns the exit code of a command, as a shell would.
fn exit_code(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt as _;

    /// What a shell adds to the number of a signal.
    const SIGNALLED: i32 = 128;
    let code = status.code().or_else(|| status.signal().map(|signal| signal.saturating_add(SIGNALLED)));
    code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// Parses an interval.
fn interval(text: &str) -> Result<Duration, String> {
    let wrong = || format!("expected a number with ms, s, min or h, such as 500ms, not '{text}'");
    let parsed = match text.strip_suffix("ms") {
        Some(number) => number.trim().parse().map(Duration::from_millis).map_err(|_| wrong())?,
        None => time(text).map_err(|_| wrong())?,
    };
    if parsed < INTERVAL_MIN { Err(format!("{text} is less than {INTERVAL_MIN:?}")) } else { Ok(parsed) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_have_units() {
        assert_eq!(interval("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(interval("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(interval("2min"), Ok(Duration::from_secs(120)));
        for wrong in ["", "1", "ms", "9ms", "0s", "-1s", "1y"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}
