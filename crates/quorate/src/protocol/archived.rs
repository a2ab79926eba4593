//! The messages of those who wait for the archive.

use std::time::Duration;

use prost::{Message, Oneof};
use quorate_model::Position;

use super::convert::newer;
use super::{Refusal, WirePosition};
use crate::error::Error;

/// Asks how far the archive has come, once it has come this far.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct ArchivedAsk {
    /// The position that has to be archived; absent to find out whether a node archives.
    #[prost(message, optional, tag = "1")]
    pub position: Option<WirePosition>,
    /// How long the node may wait, in milliseconds.
    #[prost(uint64, tag = "2")]
    pub millis: u64,
}

/// Answers [`ArchivedAsk`].
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ArchivedTold {
    #[prost(oneof = "ArchivedKind", tags = "1, 2")]
    pub kind: Option<ArchivedKind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum ArchivedKind {
    /// The last index up to which everything is archived, as far as it matters.
    #[prost(uint64, tag = "1")]
    Index(u64),
    #[prost(message, tag = "2")]
    Refused(Refusal),
}

/// How much sooner than its caller a node gives up, so that its answer, which says more, arrives first.
const ANSWER_TIME: Duration = Duration::from_millis(50);

impl ArchivedAsk {
    /// Creates the message of a caller that would wait for `left`.
    pub(crate) fn new(position: Option<Position>, left: Duration) -> Self {
        let millis = u64::try_from(left.saturating_sub(ANSWER_TIME).as_millis()).unwrap_or(u64::MAX);
        Self { position: position.map(WirePosition::from), millis }
    }
}

impl From<Result<u64, Error>> for ArchivedTold {
    fn from(result: Result<u64, Error>) -> Self {
        let kind = match result {
            Ok(index) => ArchivedKind::Index(index),
            Err(error) => ArchivedKind::Refused((&error).into()),
        };
        Self { kind: Some(kind) }
    }
}

impl From<ArchivedTold> for Result<u64, Error> {
    fn from(told: ArchivedTold) -> Self {
        match told.kind {
            Some(ArchivedKind::Index(index)) => Ok(index),
            Some(ArchivedKind::Refused(refusal)) => Err(refusal.into()),
            None => Err(newer()),
        }
    }
}
