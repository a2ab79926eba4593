//! Backups: a copy of a live database as a plain SQLite file.
//!
//! The file is an image, like those that followers get, taken from any node while the node continues to work.
//! Invariant: the file exists under its final name only when it is complete and verified, whenever and wherever a
//! process is killed.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use quorate_consensus::ClusterId;
use quorate_env::Env;
use quorate_model::{Position, StoreFault};
use quorate_sql::backup::{Backup, BackupFile, inspect};

use crate::error::{ConnectError, Error};
use crate::level::Level;

pub use quorate_consensus::ImageError;
pub use quorate_sql::backup::FileError;

/// Options of a backup.
#[derive(Clone)]
pub struct BackupOptions {
    /// Whether an existing file of that name may be replaced.
    pub replace: bool,
    /// How fresh the backup must be. [`Level::Linearizable`], the default: it contains every write that was
    /// acknowledged before. [`Level::Local`]: it contains what the node has applied, which needs no majority.
    pub level: Level,
    /// Called from time to time, from any thread.
    pub progress: Option<TellProgress>,
}

/// The callback for the progress of a backup.
pub type TellProgress = Arc<dyn Fn(BackupProgress) + Send + Sync>;

/// The progress of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupProgress {
    /// Bytes written so far. Pages that change during the backup are sent again, so this number may not grow for a
    /// while.
    pub bytes: u64,
    /// The expected size of the file, in bytes.
    pub expected: u64,
}

/// Information about a finished backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupInfo {
    /// The file.
    pub file: PathBuf,
    /// The cluster that it comes from.
    pub cluster: ClusterId,
    /// The position of the last write that it contains.
    pub position: Position,
    /// The size of the file, in bytes.
    pub bytes: u64,
}

impl BackupInfo {
    fn of(file: PathBuf, backup: Backup) -> Self {
        let Backup { identity, applied, bytes } = backup;
        let position = Position { epoch: identity.epoch, group: identity.group, index: applied.index() };
        Self { file, cluster: ClusterId(identity.cluster), position, bytes }
    }
}

/// The error of a backup.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// No node could be reached, or none accepts this client.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The node can't serve the request, or refuses it.
    #[error(transparent)]
    Cluster(#[from] Error),
    /// The node's image did not arrive completely.
    #[error("the backup broke off: {0}; try again")]
    Image(#[from] ImageError),
    /// The file can't be written.
    #[error(transparent)]
    File(#[from] FileError),
}

impl BackupError {
    /// Returns whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Connect(error) => error.is_retryable(),
            Self::Cluster(error) => error.is_retryable(),
            Self::Image(error) => error.is_retryable(),
            Self::File(error) => error.is_retryable(),
        }
    }
}

impl Default for BackupOptions {
    fn default() -> Self {
        Self { replace: false, level: Level::Linearizable, progress: None }
    }
}

impl fmt::Debug for BackupOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { replace, level, .. } = self;
        f.debug_struct("BackupOptions").field("replace", replace).field("level", level).finish_non_exhaustive()
    }
}

/// Checks a whole backup, as [`restore`](crate::restore()) does before it uses one: its checksum, its position, and the
/// database by SQLite.
///
/// # Errors
///
/// Returns [`BackupError::File`] if the file is not a backup, is damaged, or can't be read.
pub async fn check(env: &Env, file: impl AsRef<Path>) -> Result<BackupInfo, BackupError> {
    let (disk, path) = (Arc::clone(env.disk()), file.as_ref().to_path_buf());
    let info = move || {
        let found = inspect(disk.as_ref(), &path)?;
        Ok(BackupInfo::of(path, found))
    };
    blocking(env, info).await
}

/// A backup that is being written, and that reports its progress.
pub(crate) struct Sink {
    file: BackupFile,
    path: PathBuf,
    expected: u64,
    progress: Option<TellProgress>,
}

impl Sink {
    /// Begins a file of about `expected` bytes.
    pub(crate) async fn create(
        env: &Env,
        path: &Path,
        options: &BackupOptions,
        expected: u64,
    ) -> Result<Self, BackupError> {
        let (disk, path, replace) = (Arc::clone(env.disk()), path.to_path_buf(), options.replace);
        let progress = options.progress.clone();
        blocking(env, move || {
            let file = BackupFile::create(&disk, &path, replace)?;
            Ok(Self { file, path, expected, progress })
        })
        .await
    }

    /// Takes the next piece. Blocks.
    pub(crate) fn write(&mut self, piece: &Bytes) -> Result<(), BackupError> {
        self.file.write(piece)?;
        if let Some(tell) = &self.progress {
            let bytes = self.file.bytes();
            tell(BackupProgress { bytes, expected: self.expected.max(bytes) });
        }
        Ok(())
    }

    /// Verifies the file and renames it to its final name.
    pub(crate) async fn finish(self, env: &Env) -> Result<BackupInfo, BackupError> {
        let Self { file, path, .. } = self;
        let backup = blocking(env, move || Ok(file.finish()?)).await?;
        Ok(BackupInfo::of(path, backup))
    }
}

/// Runs a blocking function on another thread.
pub(crate) async fn blocking<T: Send + 'static>(
    env: &Env,
    f: impl FnOnce() -> Result<T, BackupError> + Send + 'static,
) -> Result<T, BackupError> {
    env.blocking(f).await.unwrap_or(Err(BackupError::Image(StoreFault::Closed.into())))
}
