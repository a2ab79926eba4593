//! Snapshots for clients: each is a stream, and lasts as long as that.
//!
//! Invariant: nothing of a snapshot is left when its stream has ended, whichever way it ends; a query that nobody waits
//! for any more ends with the next step of SQLite that looks.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};
use quorate_env::{timeout, timeout_at};
use quorate_model::Position;
use quorate_sql::query::Rows;
use quorate_sql::readers::RowStream;
use quorate_wire::{CallFailure, FailureKind as CallFailureKind, StreamError, StreamReceiver, StreamSender};

use super::gateway::{Gateway, Kept, served_until};
use crate::error::Error;
use crate::protocol::{self, OpenSnapshot, Query, SnapshotItem};

/// How long a client may ask nothing.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// How long a client may take nothing of what it has asked for. As long as it does not, it has one of the few snapshots
/// that a node keeps.
const STALL_MAX: Duration = Duration::from_secs(60);

/// Serves the stream until the client ends it, or a limit does.
pub(super) async fn serve(
    gateway: &Gateway,
    sender: &mut StreamSender,
    receiver: &mut StreamReceiver,
) -> Result<(), CallFailure> {
    let Some(item) = asked(receiver).await else { return Ok(()) };
    let open: OpenSnapshot = protocol::decode(item)?;
    let deadline = served_until(Duration::from_millis(open.millis));
    let opening = timeout_at(deadline, gateway.snapshot(open.level()?, deadline));
    let opened = match select(pin!(opening), pin!(sender.stopped())).await {
        Either::Left((opened, _)) => opened.unwrap_or_else(|_| {
            Err(Error::TimedOut("the node was not ready in time; wait longer (with_deadline)".to_owned()))
        }),
        // The client has gone.
        Either::Right(_) => return Ok(()),
    };
    let position: Result<Position, Error> = opened.as_ref().map(|kept| kept.position).map_err(Clone::clone);
    send(sender, position).await?;
    let Ok(kept) = opened else { return Ok(()) };
    let mut next = asked(receiver).await;
    while let Some(item) = next {
        let mut rows = begin(gateway, &kept, protocol::decode(item)?)?;
        next = match answer(gateway, &mut rows, sender, receiver).await? {
            Answered::Asked(item) => Some(item),
            Answered::Whole => asked(receiver).await,
            Answered::Gone => None,
        };
    }
    Ok(())
}

/// The next thing that is asked; `None` if the client has gone, or asks nothing.
async fn asked(receiver: &mut StreamReceiver) -> Option<Bytes> {
    timeout(IDLE_MAX, receiver.recv()).await.ok()?.ok()?
}

fn begin(gateway: &Gateway, kept: &Kept, query: Query) -> Result<RowStream, CallFailure> {
    let piece_max = Duration::from_millis(query.millis);
    let query = query.state_query()?;
    let limits = query.limits.within(piece_max).within(gateway.query_timeout()).for_read();
    Ok(kept.snapshot.stream_under(query.stamp, query.statement, limits))
}

/// How sending a result ended.
enum Answered {
    /// All of it was sent.
    Whole,
    /// Something else was asked.
    Asked(Bytes),
    /// The client has gone.
    Gone,
}

/// Sends the pieces of a result up to its end, or until something else is asked.
async fn answer(
    gateway: &Gateway,
    rows: &mut RowStream,
    sender: &mut StreamSender,
    receiver: &mut StreamReceiver,
) -> Result<Answered, CallFailure> {
    loop {
        let mut asked = None;
        let piece: Result<Option<Rows>, Error> =
            match select(pin!(rows.next(&gateway.env)), pin!(receiver.recv())).await {
                Either::Left((piece, _)) => piece.map_err(Error::from),
                Either::Right((Ok(Some(item)), _)) => {
                    asked = Some(item);
                    Ok(None)
                }
                Either::Right(_) => return Ok(Answered::Gone),
            };
        let is_last = !matches!(piece, Ok(Some(_)));
        send(sender, piece).await?;
        if is_last {
            return Ok(asked.map_or(Answered::Whole, Answered::Asked));
        }
    }
}

/// Sends an item, or says that the client takes nothing.
async fn send(sender: &mut StreamSender, item: impl Into<SnapshotItem>) -> Result<(), CallFailure> {
    match timeout(STALL_MAX, sender.send(protocol::encode(&item.into()))).await {
        Ok(Ok(())) => Ok(()),
        // Nobody hears why.
        Ok(Err(StreamError::Broken | StreamError::Stopped)) => Err(unavailable("the client has gone".to_owned())),
        Ok(Err(error)) => Err(unavailable(error.to_string())),
        Err(_) => Err(unavailable(format!(
            "nothing of the result was taken for {} s, so the snapshot was ended; take its pieces faster, or ask for \
             less",
            STALL_MAX.as_secs()
        ))),
    }
}

fn unavailable(why: String) -> CallFailure {
    CallFailure::new(CallFailureKind::Unavailable, why)
}

#[cfg(test)]
mod tests;
