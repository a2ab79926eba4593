//! `quorate backup`: a copy of the live database as one plain SQLite file.

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clap::Args;
use quorate::backup::{BackupError, BackupOptions, BackupProgress, FileError, TellProgress};
use quorate_env::lock;
use quorate_shell::format::size;

use crate::access::Access;
use crate::error::{Error, Result};
use crate::options::{AccessArgs, Level, seconds};
use crate::output;

/// How often the progress is shown on a terminal.
const SHOW_EVERY: Duration = Duration::from_millis(200);

const EXAMPLE: &str = "\
Example:
  quorate backup monday.db              from any node of the cluster in the data directory
  quorate backup monday.db --node 10.0.0.2:7001 --secret-file secret
  sqlite3 monday.db 'SELECT count(*) FROM users'

By default the file holds everything that was acknowledged before the backup. It is verified before it gets its name.
`quorate restore` creates a cluster from it.";

/// Options of `quorate backup`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct BackupArgs {
    /// How to reach the cluster.
    #[command(flatten)]
    pub access: AccessArgs,
    /// How current the backup must be; `local` needs no majority
    #[arg(long, value_enum, default_value_t = Level::Linearizable)]
    pub level: Level,
    /// How long to try to reach a node, and to wait until it is current enough [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<Duration>,
    /// Replace FILE if it exists
    #[arg(long)]
    pub force: bool,
    /// The file to write
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// Runs the command.
pub async fn run(args: &BackupArgs) -> Result<()> {
    let begun = Instant::now();
    let mut config = Access::find(&args.access)?.remote();
    config.deadline = args.timeout.unwrap_or(config.deadline);
    let progress = std::io::stderr().is_terminal().then(progress_line);
    let options = BackupOptions { replace: args.force, level: args.level.into(), progress };
    let shows_progress = options.progress.is_some();
    let made = quorate::backup(config, &args.file, &options).await;
    if shows_progress {
        erase_line();
    }
    let backup = made.map_err(failure)?;
    output::print(&format!(
        "{}: {} up to position {} of cluster {}, verified, in {:.1} s\n",
        backup.file.display(),
        size(backup.bytes),
        backup.position,
        backup.cluster,
        begun.elapsed().as_secs_f64()
    ))
}

fn failure(error: BackupError) -> Error {
    match error {
        BackupError::File(FileError::Exists(path)) => {
            Error::new(format!("{} exists: choose another name, or replace it with --force", path.display()))
        }
        error => Error::of(error),
    }
}

/// Shows on the terminal, from time to time, how far the backup is.
fn progress_line() -> TellProgress {
    let last = Mutex::new(None::<Instant>);
    Arc::new(move |progress: BackupProgress| {
        let mut last = lock(&last);
        if last.is_none_or(|last| last.elapsed() >= SHOW_EVERY) {
            *last = Some(Instant::now());
            eprint!("\r\x1b[K{} of about {}", size(progress.bytes), size(progress.expected));
            // An error loses only a progress message.
            let _ = std::io::stderr().flush();
        }
    })
}

fn erase_line() {
    eprint!("\r\x1b[K");
}
