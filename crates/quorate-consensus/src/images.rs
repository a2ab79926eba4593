//! Images of the store, sent to other nodes and to clients that keep them as backups: streams of opaque pieces, with
//! deadlines of our own.
//!
//! Invariants:
//! - While an image is being sent, and until its receiver appends again, nothing after the announced position is purged
//!   from the sender's log. Otherwise the receiver would need another image at once ([`ImageSender::purge_limit`]).
//! - Disk work runs on other threads than the core's.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use quorate_env::{Elapsed, Env, Instant, lock, sleep, timeout};
use quorate_model::{Applied, GroupId, ImageSource, LogId, StateMachine, StoreFault, WholeImage};
use quorate_wire::{ConnectError, StreamError, StreamReceiver, StreamSender};

use crate::group_log::GroupLog;
use crate::link::Link;
use crate::metrics::GroupMetrics;
use crate::peer::messages::{ImageHead, encode, id_bytes, method};
use crate::raft::Raft;
use crate::raft::codec::{self, VoteBytes};
use crate::raft::machine::{Image, Snapshot};
use crate::raft::types::{RaftVote, SnapshotMeta, StoredMembership, to_raft};

/// The maximum time for the other end to send a piece or to take one.
const PIECE_MAX: Duration = Duration::from_secs(30);

/// How long to wait after an empty piece of the store, which means that the store has to wait.
const EMPTY_PAUSE: Duration = Duration::from_millis(10);

/// The maximum time for a receiver to verify and install an image.
const INSTALL_MAX: Duration = Duration::from_secs(600);

/// After a failed image, the next one for the same receiver follows after a pause, which grows from the first time to
/// the second: faster retries would not help against a full disk, or a node that dies each time.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_LONGEST: Duration = Duration::from_secs(30);

/// How long after its end an image still limits the purge, if its receiver has not caught up.
const RETAIN_AFTER: Duration = Duration::from_secs(60);

/// Why an image did not arrive.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// There is no connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The stream broke, or the other end ended it.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The store of this node failed, or gave the image up.
    #[error(transparent)]
    Store(#[from] StoreFault),
    /// The other end neither sent nor took a piece in time.
    #[error("the other end was silent for too long")]
    Silent(#[from] Elapsed),
    /// The other end ended the stream too early.
    #[error("the other end stopped in the middle")]
    Cut,
    /// The image is not wanted, or can't be decoded.
    #[error("{0}")]
    Refused(String),
}

impl ImageError {
    /// Whether another try may succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Connect(error) => error.is_retryable(),
            Self::Stream(error) => error.is_retryable(),
            Self::Store(fault) => fault.is_retryable(),
            Self::Silent(_) | Self::Cut => true,
            Self::Refused(_) => false,
        }
    }
}

/// An image of a store, piece by piece. Dropping it gives the image up.
pub struct ImagePieces {
    env: Env,
    source: Option<Box<dyn ImageSource>>,
}

impl ImagePieces {
    pub(crate) async fn begin(env: &Env, store: &Arc<dyn StateMachine>) -> Result<Self, StoreFault> {
        let store = Arc::clone(store);
        let source = run_blocking(env, move || store.send_image()).await?;
        Ok(Self { env: env.clone(), source: Some(source) })
    }

    /// Returns the next piece, which is never empty, or `None` after the last one. Waits while the store waits for
    /// readers that keep the image from being completed. Call it in the node's runtime.
    pub async fn next(&mut self) -> Result<Option<Bytes>, StoreFault> {
        loop {
            let mut source = self.source.take().ok_or(StoreFault::Closed)?;
            let (source, piece) = run_blocking(&self.env, move || source.next().map(|piece| (source, piece))).await?;
            self.source = Some(source);
            match piece {
                Some(piece) if piece.is_empty() => sleep(EMPTY_PAUSE).await,
                piece => return Ok(piece),
            }
        }
    }

    /// Sends all pieces. The caller has to end the stream.
    pub async fn send(mut self, to: &mut StreamSender) -> Result<(), ImageError> {
        while let Some(piece) = self.next().await? {
            timeout(PIECE_MAX, to.send(piece)).await??;
        }
        Ok(())
    }
}

/// Passes each piece of a stream to `write`, which may block, with the sink. Returns the sink after the last piece.
pub async fn take_image<S, E>(
    env: &Env,
    pieces: &mut StreamReceiver,
    mut sink: S,
    write: impl Fn(&mut S, Bytes) -> Result<(), E> + Copy + Send + 'static,
) -> Result<S, E>
where
    S: Send + 'static,
    E: From<ImageError> + Send + 'static,
{
    loop {
        let next = timeout(PIECE_MAX, pieces.recv()).await.map_err(ImageError::from)?.map_err(ImageError::from)?;
        let Some(piece) = next else { return Ok(sink) };
        let written = env.blocking(move || write(&mut sink, piece).map(|()| sink)).await;
        sink = written.unwrap_or_else(|| Err(ImageError::from(StoreFault::Closed).into()))?;
    }
}

/// Sends images of a group's store, and records which part of the log their receivers will need.
pub(crate) struct ImageSender {
    group: GroupId,
    env: Env,
    store: Arc<dyn StateMachine>,
    metrics: Arc<GroupMetrics>,
    retained: Mutex<BTreeMap<u64, Retention>>,
    /// The pause before the next image, for each receiver whose last image failed.
    pauses: Mutex<BTreeMap<u64, Duration>>,
    /// Set while no member is sent an image, because the store's data are in doubt.
    withheld: AtomicBool,
}

/// The part of the log, after `index`, that the receiver of an image will need.
#[derive(Clone, Copy, Debug)]
struct Retention {
    index: u64,
    /// When sending ended; `None` while the image is being sent.
    ended: Option<Instant>,
}

impl ImageSender {
    pub(crate) fn new(log: &GroupLog, store: Arc<dyn StateMachine>, metrics: Arc<GroupMetrics>) -> Self {
        let (retained, pauses) = (Mutex::default(), Mutex::default());
        let (group, env) = (log.group(), log.env().clone());
        Self { group, env, store, metrics, retained, pauses, withheld: AtomicBool::new(false) }
    }

    /// Sets whether images for members are withheld. An image that is being sent is then not completed.
    pub(crate) fn withhold(&self, withheld: bool) {
        self.withheld.store(withheld, Ordering::Relaxed);
    }

    fn check_withheld(&self) -> Result<(), StoreFault> {
        if !self.withheld.load(Ordering::Relaxed) {
            return Ok(());
        }
        let text = "nodes hold different data, and no majority agrees; compare them with `quorate verify`";
        Err(StoreFault::ImageLost(text.to_owned()))
    }

    /// Sends the store's present state to a node, and returns the vote in the node's answer.
    pub(crate) async fn send(
        &self,
        link: &Link,
        target: u64,
        vote: &RaftVote,
        meta: &SnapshotMeta,
    ) -> Result<RaftVote, ImageError> {
        let index = meta.last_log_id.as_ref().map_or(0, |id| id.index);
        let pause = lock(&self.pauses).get(&target).copied();
        if let Some(pause) = pause {
            sleep(pause).await;
        }
        lock(&self.retained).insert(target, Retention { index, ended: None });
        tracing::info!(target_id = format_args!("{target:016x}"), index, "sending an image");
        let sent = self.send_pieces(link, vote, meta).await;
        lock(&self.retained).insert(target, Retention { index, ended: Some(Instant::now()) });
        match &sent {
            Ok(_) => {
                lock(&self.pauses).remove(&target);
                self.metrics.images_sent.inc();
            }
            Err(error) => {
                let pause = next_pause(pause);
                lock(&self.pauses).insert(target, pause);
                self.metrics.images_not_sent.inc();
                tracing::warn!(
                    target_id = format_args!("{target:016x}"), index, %error, again_after = ?pause,
                    "an image could not be delivered"
                );
            }
        }
        sent
    }

    async fn send_pieces(&self, link: &Link, vote: &RaftVote, meta: &SnapshotMeta) -> Result<RaftVote, ImageError> {
        self.check_withheld()?;
        let image = ImagePieces::begin(&self.env, &self.store).await?;
        let client = link.0.client().await?;
        let (mut sender, mut receiver) = client.open_stream(method::IMAGE)?;
        timeout(PIECE_MAX, sender.send(head(self.group, vote, meta))).await??;
        image.send(&mut sender).await?;
        self.check_withheld()?;
        sender.finish();
        let answer = timeout(INSTALL_MAX, receiver.recv()).await??.ok_or(ImageError::Cut)?;
        VoteBytes::decode(answer).map(Into::into).map_err(|error| ImageError::Refused(error.to_string()))
    }

    /// Sends the store's present state to a node that has asked for it. The caller has to end the stream.
    pub(crate) async fn give(&self, to: &mut StreamSender) -> Result<(), ImageError> {
        self.check_withheld()?;
        ImagePieces::begin(&self.env, &self.store).await?.send(to).await?;
        Ok(self.check_withheld()?)
    }

    /// Returns the index above which nothing may be purged, because receivers of images will need it. `matched` returns
    /// the index up to which a node is known to have the log.
    pub(crate) fn purge_limit(&self, matched: impl Fn(u64) -> Option<u64>) -> u64 {
        let mut retained = lock(&self.retained);
        retained.retain(|target, retention| {
            let caught_up = matched(*target).is_some_and(|index| index > retention.index);
            retention.ended.is_none_or(|ended| !caught_up && ended.elapsed() < RETAIN_AFTER)
        });
        retained.values().map(|retention| retention.index).min().unwrap_or(u64::MAX)
    }
}

fn next_pause(before: Option<Duration>) -> Duration {
    before.map_or(RETRY_FIRST, |before| before.saturating_mul(2).min(RETRY_LONGEST))
}

fn head(group: GroupId, vote: &RaftVote, meta: &SnapshotMeta) -> Bytes {
    encode(&ImageHead {
        group: group.0,
        vote: vote.into(),
        last: id_bytes(meta.last_log_id.as_ref()),
        membership_id: id_bytes(meta.last_membership.log_id().as_ref()),
        membership: codec::encode_membership(meta.last_membership.membership()),
    })
}

/// Receives the pieces of an image, has the core install it, and returns the answer for the sender.
pub(crate) async fn receive(
    log: &GroupLog,
    store: &Arc<dyn StateMachine>,
    raft: &Raft,
    head: &ImageHead,
    pieces: &mut StreamReceiver,
) -> Result<Bytes, ImageError> {
    let refused = |error: &dyn std::fmt::Display| ImageError::Refused(error.to_string());
    let meta = meta_of(head).map_err(|error| refused(&error))?;
    let index = meta.last_log_id.as_ref().map(|id| id.index);
    tracing::info!(
        event = "reseeding",
        index,
        "the log no longer holds the entries that this node lacks: it receives the database"
    );
    let image = receive_pieces(log.env(), store, pieces).await?;
    let snapshot = Snapshot { meta, snapshot: Image::Received(image) };
    let response = raft.install_full_snapshot(head.vote.into(), snapshot).await.map_err(|error| refused(&error))?;
    tracing::info!(event = "reseeded", index, "this node has received and installed the database");
    Ok(codec::encode_vote(&response.vote))
}

/// Receives an image and replaces the store's state with it, without the core.
pub(crate) async fn replace(
    log: &GroupLog,
    store: &Arc<dyn StateMachine>,
    pieces: &mut StreamReceiver,
) -> Result<Applied, ImageError> {
    let image = receive_pieces(log.env(), store, pieces).await?;
    let (end, present) = (image.end(), store.applied().index());
    let Some(end) = end.filter(|end| end.index >= present) else {
        return Err(ImageError::Refused(format!(
            "the image ends at {end:?}, but this node has applied entry {present}"
        )));
    };
    log.note_image(end.index).await.map_err(|error| StoreFault::Io(error.to_string()))?;
    Ok(run_blocking(log.env(), move || image.install()).await?)
}

/// Receives all pieces of an image, without installing it.
async fn receive_pieces(
    env: &Env,
    store: &Arc<dyn StateMachine>,
    pieces: &mut StreamReceiver,
) -> Result<Box<dyn WholeImage>, ImageError> {
    let store = Arc::clone(store);
    let sink = run_blocking(env, move || store.receive_image()).await?;
    let sink = take_image(env, pieces, sink, |sink, piece| Ok::<_, ImageError>(sink.write(piece)?)).await?;
    Ok(run_blocking(env, move || sink.finish()).await?)
}

/// Runs a step that may block on a thread for blocking calls.
async fn run_blocking<T: Send + 'static>(
    env: &Env,
    f: impl FnOnce() -> Result<T, StoreFault> + Send + 'static,
) -> Result<T, StoreFault> {
    env.blocking(f).await.unwrap_or(Err(StoreFault::Closed))
}

fn meta_of(head: &ImageHead) -> Result<SnapshotMeta, quorate_model::DecodeError> {
    let id = |bytes| to_raft(LogId::from(bytes));
    let membership = codec::decode_membership(&head.membership)?;
    let last_membership = StoredMembership::new(head.membership_id.map(id), membership);
    Ok(SnapshotMeta { last_log_id: head.last.map(id), last_membership })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_after_failed_images_grow_to_a_bound() {
        let pauses = (0..7).scan(None, |pause, _| {
            *pause = Some(next_pause(*pause));
            *pause
        });
        assert!(pauses.map(|pause| pause.as_secs()).eq([1, 2, 4, 8, 16, 30, 30]));
    }
}
