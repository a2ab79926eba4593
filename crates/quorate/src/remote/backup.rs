//! Fetches a backup from a node.

use std::path::Path;
use std::time::Duration;

use quorate_consensus::take_image;
use quorate_env::{Env, Instant};
use quorate_wire::{Role, StreamError};

use super::nodes::{Nodes, unreachable};
use super::{ClientConfig, start_runtime};
use crate::backup::{BackupError, BackupInfo, BackupOptions, Sink};
use crate::error::{ConnectError, Error};
use crate::protocol::{self, method};
use crate::submitter::Attempt;

/// How long the node may take to reach the requested level; shorter than the time limit for a piece.
const REACH_MAX: Duration = Duration::from_secs(20);

/// Writes a copy of a live database to `file`, as a plain SQLite file that any `sqlite3` opens. The first node of
/// `config` that answers sends it, leader or not, while the node continues to work; [`ClientConfig::pinned`] selects a
/// node.
///
/// The file is written as `file.partial`, verified (digest, position, SQLite's `quick_check`), synced and renamed, so
/// an incomplete backup never has the final name. The file is complete without a `-wal`. May be called from any
/// executor.
///
/// ```no_run
/// # async fn f() -> Result<(), Box<dyn std::error::Error>> {
/// use quorate::backup::BackupOptions;
/// use quorate::{ClientConfig, SecretSource};
///
/// let config = ClientConfig::new(["10.0.0.1:7001", "10.0.0.2:7001"], SecretSource::File("secret".into()));
/// let backup = quorate::backup(config, "monday.db", &BackupOptions::default()).await?;
/// println!("{} bytes, up to {}", backup.bytes, backup.position);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Returns a [`BackupError`] if the backup can't be made or written. After an error, a file of that name does not exist
/// or is unchanged.
pub async fn backup(
    config: ClientConfig,
    file: impl AsRef<Path>,
    options: &BackupOptions,
) -> Result<BackupInfo, BackupError> {
    backup_in(Env::real(), config, file, options).await
}

/// Runs [`backup`] in another environment, for simulations.
///
/// # Errors
///
/// Returns the errors of [`backup`].
pub async fn backup_in(
    env: Env,
    config: ClientConfig,
    file: impl AsRef<Path>,
    options: &BackupOptions,
) -> Result<BackupInfo, BackupError> {
    let (secret, env) = config.resolve(&env).map_err(ConnectError::from)?;
    let (runtime, alive) = start_runtime(&env).await?;
    let fetched = runtime.run(async {
        let nodes = Nodes::new(&env, &config, config.role(Role::Admin), secret).staying();
        let fetched = fetch(&nodes, file.as_ref(), options, config.deadline).await;
        nodes.close().await;
        fetched
    });
    let fetched = fetched.await.unwrap_or(Err(BackupError::Cluster(Error::Closed)));
    drop(alive);
    fetched
}

/// Writes the image of one of these nodes into a file.
pub(crate) async fn fetch(
    nodes: &Nodes,
    file: &Path,
    options: &BackupOptions,
    limit: Duration,
) -> Result<BackupInfo, BackupError> {
    let (env, deadline) = (nodes.env(), Instant::now() + limit);
    let expected = nodes.status(limit).await?.database_bytes;
    let sink = Sink::create(env, file, options, expected).await?;
    let reached = nodes.reach().await.map_err(unreachable)?;
    let (mut sender, mut pieces) = reached.client.open_stream(method::BACKUP).map_err(|error| refused(error, ""))?;
    let left = deadline.saturating_duration_since(Instant::now()).min(REACH_MAX);
    let ask = protocol::Backup::new(options.level, u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
    sender.send(protocol::encode(&ask)).await.map_err(|error| refused(error, &reached.addr))?;
    sender.finish();
    let taken = take_image(env, &mut pieces, sink, |sink: &mut Sink, piece| sink.write(&piece)).await;
    let sink = taken.map_err(|error| match error {
        BackupError::Image(quorate_consensus::ImageError::Stream(error)) => refused(error, &reached.addr),
        error => error,
    })?;
    sink.finish(env).await
}

/// Returns why a node sends no image: its own reason, if it sent one.
fn refused(error: StreamError, addr: &str) -> BackupError {
    match error {
        StreamError::Failed(failure) => match Attempt::of_call(failure.into(), addr) {
            Attempt::NotDone(why) => BackupError::Cluster(why.into()),
            Attempt::Refused(error) => BackupError::Cluster(error),
            Attempt::InDoubt(text) => BackupError::Cluster(Error::Unavailable(text)),
        },
        error => BackupError::Image(error.into()),
    }
}
