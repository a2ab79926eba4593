//! The items on the stream that carries a client's waits.

use prost::{Message, Oneof};
use quorate_apply::waits::Woken;
use quorate_model::{GroupId, Topic};
use quorate_wire::CallFailure;

use super::convert::newer;
use super::{Empty, Refusal, malformed};
use crate::error::Error;

/// The most waiters of a stream.
pub(crate) const WAITS_PER_STREAM_MAX: usize = 16_384;

/// An item from the client.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct WaitAsk {
    /// The client's number of the waiter.
    #[prost(uint64, tag = "1")]
    pub number: u64,
    #[prost(oneof = "WaitAskKind", tags = "2, 3")]
    pub kind: Option<WaitAskKind>,
}

#[derive(Clone, Copy, PartialEq, Oneof)]
pub(crate) enum WaitAskKind {
    /// Registers the waiter.
    #[prost(message, tag = "2")]
    Register(WireTopic),
    /// The waiter is gone.
    #[prost(message, tag = "3")]
    Leave(Leave),
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct WireTopic {
    #[prost(uint32, tag = "1")]
    pub group: u32,
    #[prost(fixed64, tag = "2")]
    pub topic: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Leave {
    /// Whether the waiter has used its turn. Otherwise the next waiter gets the turn, if the waiter was woken.
    #[prost(bool, tag = "1")]
    pub used: bool,
}

/// An item from the node.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct WaitTold {
    #[prost(uint64, tag = "1")]
    pub number: u64,
    #[prost(oneof = "WaitToldKind", tags = "2, 3, 4, 5")]
    pub kind: Option<WaitToldKind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum WaitToldKind {
    /// The waiter is registered.
    #[prost(message, tag = "2")]
    Registered(Empty),
    /// The waiter could not be registered.
    #[prost(message, tag = "3")]
    Refused(Refusal),
    /// The entry at this index woke the waiter.
    #[prost(uint64, tag = "4")]
    Woken(u64),
    /// The waiter was woken because the state was replaced as a whole.
    #[prost(message, tag = "5")]
    Replaced(Empty),
}

/// What the node says of a waiter.
#[derive(Clone, Debug)]
pub(crate) enum News {
    Registered(Result<(), Error>),
    Woken(Woken),
}

impl WaitAsk {
    pub(crate) fn register(number: u64, group: GroupId, topic: Topic) -> Self {
        let topic = WireTopic { group: group.0, topic: topic.0 };
        Self { number, kind: Some(WaitAskKind::Register(topic)) }
    }

    pub(crate) fn leave(number: u64, used: bool) -> Self {
        Self { number, kind: Some(WaitAskKind::Leave(Leave { used })) }
    }

    pub(crate) fn request(self) -> Result<WaitAskKind, CallFailure> {
        self.kind.ok_or_else(|| malformed("an item of waits asks nothing that this node knows"))
    }
}

impl WaitTold {
    pub(crate) fn new(number: u64, news: News) -> Self {
        let kind = match news {
            News::Registered(Ok(())) => WaitToldKind::Registered(Empty {}),
            News::Registered(Err(error)) => WaitToldKind::Refused((&error).into()),
            News::Woken(Woken::By(index)) => WaitToldKind::Woken(index),
            News::Woken(Woken::Replaced) => WaitToldKind::Replaced(Empty {}),
        };
        Self { number, kind: Some(kind) }
    }

    pub(crate) fn news(self) -> News {
        match self.kind {
            Some(WaitToldKind::Registered(_)) => News::Registered(Ok(())),
            Some(WaitToldKind::Refused(refusal)) => News::Registered(Err(refusal.into())),
            Some(WaitToldKind::Woken(index)) => News::Woken(Woken::By(index)),
            Some(WaitToldKind::Replaced(_)) => News::Woken(Woken::Replaced),
            None => News::Registered(Err(newer())),
        }
    }
}
