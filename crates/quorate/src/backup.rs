//! Backups: a copy of a live database as a plain SQLite file.
//!
//! The file is an image, as followers get one, taken from any node while work goes on. Invariant: under its final name
//! there is a whole and verified file or none, whenever and wherever a process is killed.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use quorate_consensus::ClusterId;
use quorate_env::Env;
use quorate_model::{Position, StoreFault};
use quorate_sql::backup::{Backup, BackupFile};

use crate::error::Error;
use crate::level::Level;
use crate::remote::ConnectError;

pub use quorate_consensus::ImageError;
pub use quorate_sql::backup::FileError;

pub use crate::restore::{Restoration, RestoreError, RestoreOptions};

/// How a backup is made.
#[derive(Clone)]
pub struct BackupOptions {
    /// Whether a file of that name may be replaced.
    pub replace: bool,
    /// What the backup must hold: [`Level::Linearizable`], the default, is everything that was acknowledged before;
    /// [`Level::Local`] is what the node has applied, which it can tell without a majority.
    pub level: Level,
    /// Told now and then, from any thread.
    pub progress: Option<TellProgress>,
}

/// Is told how far a backup has come.
pub type TellProgress = Arc<dyn Fn(BackupProgress) + Send + Sync>;

/// How far a backup has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupProgress {
    /// Bytes of the file so far. What is written to meanwhile is sent again, so this may stand still.
    pub bytes: u64,
    /// About how many it will have.
    pub expected: u64,
}

/// What a backup holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupInfo {
    /// The file.
    pub file: PathBuf,
    /// The cluster that it comes from.
    pub cluster: ClusterId,
    /// Up to where its history is in it.
    pub position: Position,
    /// Bytes of the file.
    pub bytes: u64,
}

/// Why there is no backup.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// No node could be reached, or none lets this client in.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The node can't serve, or does not want to.
    #[error(transparent)]
    Cluster(#[from] Error),
    /// The image did not arrive.
    #[error("the backup broke off: {0}; try again")]
    Image(#[from] ImageError),
    /// The file can't be made.
    #[error(transparent)]
    File(#[from] FileError),
}

impl BackupError {
    /// Whether the same call may succeed later.
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

/// A backup under construction that tells how far it is.
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

    /// Verifies the file and gives it its name.
    pub(crate) async fn finish(self, env: &Env) -> Result<BackupInfo, BackupError> {
        let Self { file, path, .. } = self;
        let Backup { identity, applied, bytes } = blocking(env, move || Ok(file.finish()?)).await?;
        let position = Position { epoch: identity.epoch, group: identity.group, index: applied.index() };
        Ok(BackupInfo { file: path, cluster: ClusterId(identity.cluster), position, bytes })
    }
}

/// Runs what blocks beside the calling task.
pub(crate) async fn blocking<T: Send + 'static>(
    env: &Env,
    f: impl FnOnce() -> Result<T, BackupError> + Send + 'static,
) -> Result<T, BackupError> {
    env.blocking(f).await.unwrap_or(Err(BackupError::Image(StoreFault::Closed.into())))
}
