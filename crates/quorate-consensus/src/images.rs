//! Images on their way between nodes: streams of opaque pieces, with deadlines of ours.
//!
//! Invariants:
//! - While an image is on its way, and until its receiver appends again, nothing beyond the announced position is
//!   purged from the sender's log: else the receiver would need another image at once ([`ImageSender::purge_limit`]).
//! - Disk work is done off the core's thread.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use quorate_env::{Elapsed, Env, Instant, sleep, timeout};
use quorate_model::{ImageSource, LogId, Store, StoreFault};
use quorate_wire::{ConnectError, StreamError, StreamReceiver};

use crate::link::Link;
use crate::metrics::ConsensusMetrics;
use crate::peer::messages::{ImageHead, decode, encode, id_bytes, method};
use crate::peers::lock;
use crate::raft::Raft;
use crate::raft::codec::{self, VoteBytes};
use crate::raft::machine::{Image, Snapshot};
use crate::raft::types::{RaftVote, SnapshotMeta, StoredMembership, to_raft};

/// The other end must take or give a piece within this time.
const PIECE_MAX: Duration = Duration::from_secs(30);

/// How long to wait after an empty piece.
const EMPTY_PAUSE: Duration = Duration::from_millis(10);

/// Verifying and installing a received image may take this long.
const INSTALL_MAX: Duration = Duration::from_secs(600);

/// How long after its end an image keeps holding back the purge, if its receiver is not heard of.
const HOLD_AFTER: Duration = Duration::from_secs(60);

/// Why an image did not arrive.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImageError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error(transparent)]
    Store(#[from] StoreFault),
    #[error("the other end was silent for too long")]
    Silent(#[from] Elapsed),
    #[error("the other end stopped in the middle")]
    Cut,
    #[error("{0}")]
    Refused(String),
}

/// Sends images of the store, and remembers up to where receivers will want the log.
pub(crate) struct ImageSender {
    env: Env,
    store: Arc<dyn Store>,
    metrics: Arc<ConsensusMetrics>,
    holds: Mutex<BTreeMap<u64, Hold>>,
}

#[derive(Clone, Copy, Debug)]
struct Hold {
    index: u64,
    ended: Option<Instant>,
}

impl ImageSender {
    pub(crate) fn new(env: Env, store: Arc<dyn Store>, metrics: Arc<ConsensusMetrics>) -> Self {
        Self { env, store, metrics, holds: Mutex::default() }
    }

    /// Sends the store's present state to a node, and returns the vote that it answered with.
    pub(crate) async fn send(
        &self,
        link: &Link,
        target: u64,
        vote: &RaftVote,
        meta: &SnapshotMeta,
    ) -> Result<RaftVote, ImageError> {
        let index = meta.last_log_id.as_ref().map_or(0, |id| id.index);
        lock(&self.holds).insert(target, Hold { index, ended: None });
        tracing::info!(target_id = format_args!("{target:016x}"), index, "sending an image");
        let sent = self.send_pieces(link, vote, meta).await;
        lock(&self.holds).insert(target, Hold { index, ended: Some(Instant::now()) });
        match &sent {
            Ok(_) => self.metrics.images_sent.inc(),
            Err(error) => {
                self.metrics.images_not_sent.inc();
                tracing::warn!(target_id = format_args!("{target:016x}"), index, %error, "an image was not delivered");
            }
        }
        sent
    }

    async fn send_pieces(&self, link: &Link, vote: &RaftVote, meta: &SnapshotMeta) -> Result<RaftVote, ImageError> {
        let store = Arc::clone(&self.store);
        let mut source = off(&self.env, move || store.send_image()).await?;
        let client = link.0.client().await?;
        let (mut sender, mut receiver) = client.open_stream(method::IMAGE)?;
        timeout(PIECE_MAX, sender.send(head(vote, meta))).await??;
        loop {
            let (back, piece) = off(&self.env, move || next_piece(source)).await?;
            source = back;
            let Some(piece) = piece else { break };
            if piece.is_empty() {
                // The store waits for a moment without readers that hold the file back.
                sleep(EMPTY_PAUSE).await;
            } else {
                timeout(PIECE_MAX, sender.send(piece)).await??;
            }
        }
        sender.finish();
        let answer = timeout(INSTALL_MAX, receiver.recv()).await??.ok_or(ImageError::Cut)?;
        VoteBytes::decode(answer).map(Into::into).map_err(|error| ImageError::Refused(error.to_string()))
    }

    /// The index above which nothing may be purged, for the sake of images on their way. `matched` tells up to where a
    /// node is known to hold the log.
    pub(crate) fn purge_limit(&self, matched: impl Fn(u64) -> Option<u64>) -> u64 {
        let mut holds = lock(&self.holds);
        holds.retain(|target, hold| {
            let caught_up = matched(*target).is_some_and(|index| index > hold.index);
            hold.ended.is_none_or(|ended| !caught_up && ended.elapsed() < HOLD_AFTER)
        });
        holds.values().map(|hold| hold.index).min().unwrap_or(u64::MAX)
    }
}

type Piece = (Box<dyn ImageSource>, Option<Bytes>);

fn next_piece(mut source: Box<dyn ImageSource>) -> Result<Piece, StoreFault> {
    let piece = source.next()?;
    Ok((source, piece))
}

fn head(vote: &RaftVote, meta: &SnapshotMeta) -> Bytes {
    encode(&ImageHead {
        vote: vote.into(),
        last: id_bytes(meta.last_log_id.as_ref()),
        membership_id: id_bytes(meta.last_membership.log_id().as_ref()),
        membership: codec::encode_membership(meta.last_membership.membership()),
    })
}

/// Receives an image, hands it to the core, and returns the answer for the sender.
pub(crate) async fn receive(
    env: &Env,
    store: &Arc<dyn Store>,
    raft: &Raft,
    pieces: &mut StreamReceiver,
) -> Result<Bytes, ImageError> {
    let refused = |error: &dyn std::fmt::Display| ImageError::Refused(error.to_string());
    let head = timeout(PIECE_MAX, pieces.recv()).await??.ok_or(ImageError::Cut)?;
    let head: ImageHead = decode(head).map_err(|error| refused(&error))?;
    let meta = meta_of(&head).map_err(|error| refused(&error))?;
    tracing::info!(index = meta.last_log_id.as_ref().map(|id| id.index), "receiving an image");
    let store = Arc::clone(store);
    let mut sink = off(env, move || store.receive_image()).await?;
    while let Some(piece) = timeout(PIECE_MAX, pieces.recv()).await?? {
        sink = off(env, move || sink.write(piece).map(|()| sink)).await?;
    }
    let snapshot = Snapshot { meta, snapshot: Image::Received(sink) };
    let response = raft.install_full_snapshot(head.vote.into(), snapshot).await.map_err(|error| refused(&error))?;
    tracing::info!("installed an image");
    Ok(codec::encode_vote(&response.vote))
}

async fn off<T: Send + 'static>(
    env: &Env,
    f: impl FnOnce() -> Result<T, StoreFault> + Send + 'static,
) -> Result<T, ImageError> {
    Ok(env.blocking(f).await.unwrap_or(Err(StoreFault::Closed))?)
}

fn meta_of(head: &ImageHead) -> Result<SnapshotMeta, quorate_model::DecodeError> {
    let id = |bytes| to_raft(LogId::from(bytes));
    let membership = codec::decode_membership(&head.membership)?;
    let last_membership = StoredMembership::new(head.membership_id.map(id), membership);
    Ok(SnapshotMeta { last_log_id: head.last.map(id), last_membership })
}
