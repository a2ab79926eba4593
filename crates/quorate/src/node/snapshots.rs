//! Snapshots for clients. Each is a stream, and lasts as long as the stream.
//!
//! Invariant: when a stream ends, for any reason, its snapshot is released. The query of a client that has disconnected
//! ends at the next step at which SQLite checks for an interrupt.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};
use quorate_env::{timeout, timeout_at};
use quorate_model::Position;
use quorate_sql::query::Rows;
use quorate_sql::readers::RowStream;
use quorate_wire::{CallFailure, FailureKind as CallFailureKind, StreamError, StreamReceiver, StreamSender};

use super::gateway::{Gateway, KeptSnapshot, served_until};
use crate::error::Error;
use crate::protocol::{self, OpenSnapshot, Query, SnapshotItem};

/// How long a client may be idle between requests.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// How long a client may go without reading a part of a result. Until then it occupies one of the few snapshots that a
/// node can keep.
const STALL_MAX: Duration = Duration::from_secs(60);

/// Serves the stream until the client or a limit ends it.
pub(super) async fn serve(
    gateway: &Gateway,
    sender: &mut StreamSender,
    receiver: &mut StreamReceiver,
) -> Result<(), CallFailure> {
    let Some(item) = next_request(receiver).await else { return Ok(()) };
    let open: OpenSnapshot = protocol::decode(item)?;
    let deadline = served_until(Duration::from_millis(open.millis));
    let opening = timeout_at(deadline, gateway.snapshot(open.level()?, deadline));
    let opened = match select(pin!(opening), pin!(sender.stopped())).await {
        Either::Left((opened, _)) => opened.unwrap_or_else(|_| {
            Err(Error::TimedOut("the node was not ready in time; wait longer (with_deadline)".into()))
        }),
        // The client is gone.
        Either::Right(_) => return Ok(()),
    };
    let position: Result<Position, Error> = opened.as_ref().map(|kept| kept.position).map_err(Clone::clone);
    send(sender, position).await?;
    let Ok(kept) = opened else { return Ok(()) };
    let mut next = next_request(receiver).await;
    while let Some(item) = next {
        let mut rows = begin(gateway, &kept, protocol::decode(item)?)?;
        next = match answer(gateway, &mut rows, sender, receiver).await? {
            Answered::NextRequest(item) => Some(item),
            Answered::Complete => next_request(receiver).await,
            Answered::ClientGone => None,
        };
    }
    Ok(())
}

/// Returns the next request; `None` if the client is gone, or is idle for too long.
async fn next_request(receiver: &mut StreamReceiver) -> Option<Bytes> {
    timeout(IDLE_MAX, receiver.recv()).await.ok()?.ok()?
}

fn begin(gateway: &Gateway, kept: &KeptSnapshot, query: Query) -> Result<RowStream, CallFailure> {
    let piece_max = Duration::from_millis(query.millis);
    let query = query.state_query()?;
    let limits = query.limits.within(piece_max).within(gateway.query_timeout()).for_read();
    Ok(kept.snapshot.stream_under(query.stamp, query.statement, limits))
}

/// How sending a result ended.
enum Answered {
    /// All of it was sent.
    Complete,
    /// The client sent another request.
    NextRequest(Bytes),
    /// The client is gone.
    ClientGone,
}

/// Sends the pieces of a result until its end, or until another request arrives.
async fn answer(
    gateway: &Gateway,
    rows: &mut RowStream,
    sender: &mut StreamSender,
    receiver: &mut StreamReceiver,
) -> Result<Answered, CallFailure> {
    loop {
        let mut request = None;
        let piece: Result<Option<Rows>, Error> =
            match select(pin!(rows.next(&gateway.env)), pin!(receiver.recv())).await {
                Either::Left((piece, _)) => piece.map_err(Error::from),
                Either::Right((Ok(Some(item)), _)) => {
                    request = Some(item);
                    Ok(None)
                }
                Either::Right(_) => return Ok(Answered::ClientGone),
            };
        let is_last = !matches!(piece, Ok(Some(_)));
        send(sender, piece).await?;
        if is_last {
            return Ok(request.map_or(Answered::Complete, Answered::NextRequest));
        }
    }
}

/// Sends an item. Returns an error if the client does not read it in time.
async fn send(sender: &mut StreamSender, item: impl Into<SnapshotItem>) -> Result<(), CallFailure> {
    match timeout(STALL_MAX, sender.send(protocol::encode(&item.into()))).await {
        Ok(Ok(())) => Ok(()),
        // No client gets this error.
        Ok(Err(StreamError::Broken | StreamError::Stopped)) => Err(unavailable("the client has gone".to_owned())),
        Ok(Err(error)) => Err(unavailable(error.to_string())),
        Err(_) => Err(unavailable(format!(
            "no part of the result was read for {} s, so the snapshot was ended; read its pieces faster, or \
             request less",
            STALL_MAX.as_secs()
        ))),
    }
}

fn unavailable(why: String) -> CallFailure {
    CallFailure::new(CallFailureKind::Unavailable, why)
}

#[cfg(test)]
mod tests;
