//! Sends images of a node's database: to a client, to a node that has to replace its own database, or into a file on
//! the same machine.

use std::path::Path;
use std::time::Duration;

use quorate_consensus::ImageError;
use quorate_env::{Instant, sleep, timeout_at};
use quorate_model::StoreFault;
use quorate_wire::{CallFailure, FailureKind, StreamReceiver, StreamSender};

use super::gateway::{Gateway, served_until};
use crate::backup::{BackupError, BackupInfo, BackupOptions, Sink, blocking};
use crate::error::Error;
use crate::level::Level;
use crate::protocol::{self, malformed};

/// The number of backups that a node makes at the same time. Its store can send two images at once, so one is left for
/// a member.
pub(super) const BACKUPS_MAX: usize = 1;

/// How long a client that has opened a stream may take to send its request.
const ASK_MAX: Duration = Duration::from_secs(5);

/// The pause after no leader has answered.
const PAUSE: Duration = Duration::from_millis(100);

/// Sends an image to a client.
pub(super) async fn serve(
    gateway: &Gateway,
    sender: &mut StreamSender,
    receiver: &mut StreamReceiver,
) -> Result<(), CallFailure> {
    let ask = match timeout_at(Instant::now() + ASK_MAX, receiver.recv()).await {
        Ok(Ok(Some(ask))) => protocol::decode::<protocol::Backup>(ask)?,
        Ok(Ok(None) | Err(_)) | Err(_) => return Err(malformed("the request for a backup did not arrive")),
    };
    let _permit = gateway.backups.try_acquire().map_err(|_| {
        CallFailure::new(FailureKind::Overloaded, "this node is sending another backup; ask another node, or try later")
    })?;
    let deadline = served_until(Duration::from_millis(ask.millis));
    reach(gateway, ask.level()?, deadline).await.map_err(|error| unavailable(&error))?;
    let image = gateway.consensus.main().image().await.map_err(|fault| failure(&fault.into()))?;
    let sent = image.send(sender).await;
    sent.inspect_err(|error| tracing::warn!(%error, "a backup was not delivered")).map_err(|error| failure(&error))
}

/// Writes an image into a file.
pub(super) async fn keep(
    gateway: &Gateway,
    path: &Path,
    options: &BackupOptions,
    limit: Duration,
) -> Result<BackupInfo, BackupError> {
    let env = &gateway.env;
    let _permit = gateway.backups.try_acquire().map_err(|_| Error::Overloaded("another backup is running".into()))?;
    let mut sink = Sink::create(env, path, options, gateway.status().database_bytes).await?;
    reach(gateway, options.level, Instant::now() + limit).await?;
    let mut image = gateway.consensus.main().image().await.map_err(ImageError::from)?;
    while let Some(piece) = image.next().await.map_err(ImageError::from)? {
        sink = blocking(env, move || sink.write(&piece).map(|()| sink)).await?;
    }
    sink.finish(env).await
}

/// Waits until this node has applied what a level requires, retrying while there is no leader.
async fn reach(gateway: &Gateway, level: Level, deadline: Instant) -> Result<(), Error> {
    loop {
        match gateway.reach(level, deadline).await {
            Err(Error::Unavailable(_)) if Instant::now() + PAUSE < deadline => sleep(PAUSE).await,
            result => return result,
        }
    }
}

fn unavailable(error: &Error) -> CallFailure {
    let kind = if error.is_retryable() { FailureKind::Unavailable } else { FailureKind::Malformed };
    CallFailure::new(kind, error.to_string())
}

/// Converts the failure of an image to the error for its client.
fn failure(error: &ImageError) -> CallFailure {
    let kind = match error {
        ImageError::Store(StoreFault::ImageLost(_) | StoreFault::Full(_) | StoreFault::Closed) => {
            FailureKind::Unavailable
        }
        _ => FailureKind::Internal,
    };
    CallFailure::new(kind, error.to_string())
}
