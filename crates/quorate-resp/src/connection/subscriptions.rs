//! Channels and patterns that a client listens to.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::Call;
use crate::batch::Step;
use crate::error::Refusal;
use crate::frame::Frame;
use crate::glob::Glob;
use crate::limits::SUBSCRIPTIONS_MAX;
use crate::table::{Spec, local};

/// The rows of commands on events.
pub const PUBSUB_COMMANDS: &[Spec] = &[
    local("subscribe", -2, "2.0.0", "Listens to channels.", |call| begin(call, false)),
    local("psubscribe", -2, "2.0.0", "Listens to the channels that match patterns.", |call| begin(call, true)),
    local("unsubscribe", -1, "2.0.0", "Ends listening to channels; to all, if none are named.", |call| {
        end(call, false)
    }),
    local("punsubscribe", -1, "2.0.0", "Ends listening to patterns; to all, if none are named.", |call| {
        end(call, true)
    }),
    local("publish", 3, "2.0.0", "Publishes an event.", publish).alone(),
];

type Ran = Result<Step, Refusal>;

/// What a client listens to: names with what matches them, channels and patterns apart.
#[derive(Debug, Default)]
pub struct Subscriptions {
    channels: BTreeMap<Bytes, ()>,
    patterns: BTreeMap<Bytes, Glob>,
}

impl Subscriptions {
    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn len(&self) -> usize {
        self.channels.len() + self.patterns.len()
    }

    /// Returns how many channels there are.
    pub fn channels(&self) -> usize {
        self.channels.len()
    }

    /// Returns how many patterns there are.
    pub fn patterns(&self) -> usize {
        self.patterns.len()
    }

    /// Returns the message that the client gets for an event.
    pub fn event(&self, channel: &Bytes, payload: &Bytes) -> Vec<Frame> {
        let bulk = |bytes: &Bytes| Frame::Bulk(bytes.clone());
        let of_channel = self.channels.contains_key(channel);
        let of_channel = of_channel.then(|| Frame::Push(vec![Frame::bulk("message"), bulk(channel), bulk(payload)]));
        let matching = self.patterns.iter().filter(|(_, glob)| glob.matches(channel));
        let of_patterns = matching.map(|(pattern, _)| {
            Frame::Push(vec![Frame::bulk("pmessage"), bulk(pattern), bulk(channel), bulk(payload)])
        });
        of_channel.into_iter().chain(of_patterns).collect()
    }

    fn told(&self, kind: &'static str, name: Frame) -> Frame {
        Frame::Push(vec![Frame::bulk(kind), name, Frame::count(self.len() as u64)])
    }
}

/// Returns whether a client may send a command while it listens, by version 2 of the protocol.
pub fn is_allowed(spec: &Spec) -> bool {
    let names = ["subscribe", "psubscribe", "unsubscribe", "punsubscribe", "ping", "quit", "reset"];
    names.contains(&spec.name)
}

fn begin(call: &mut Call, by_pattern: bool) -> Ran {
    let names = call.args.rest();
    let subscriptions = &mut call.connection.subscriptions;
    if subscriptions.len() + names.len() > SUBSCRIPTIONS_MAX {
        return Err(Refusal::Text("ERR a connection can't have more than 10000 subscriptions"));
    }
    let mut told = Vec::with_capacity(names.len());
    for name in names {
        // A copy, since a slice would hold the bytes of the whole request.
        let key = Bytes::copy_from_slice(&name);
        if by_pattern {
            subscriptions.patterns.insert(key.clone(), Glob::new(key)?);
            told.push(subscriptions.told("psubscribe", Frame::Bulk(name)));
        } else {
            subscriptions.channels.insert(key, ());
            told.push(subscriptions.told("subscribe", Frame::Bulk(name)));
        }
    }
    Ok(Step::Replies(told))
}

fn end(call: &mut Call, by_pattern: bool) -> Ran {
    let mut names = call.args.rest();
    let subscriptions = &mut call.connection.subscriptions;
    let kind = if by_pattern { "punsubscribe" } else { "unsubscribe" };
    if names.is_empty() && by_pattern {
        names.extend(subscriptions.patterns.keys().cloned());
    } else if names.is_empty() {
        names.extend(subscriptions.channels.keys().cloned());
    }
    if names.is_empty() {
        return Ok(subscriptions.told(kind, Frame::Null).into());
    }
    let mut told = Vec::with_capacity(names.len());
    for name in names {
        if by_pattern {
            subscriptions.patterns.remove(&name);
        } else {
            subscriptions.channels.remove(&name);
        }
        told.push(subscriptions.told(kind, Frame::Bulk(name)));
    }
    Ok(Step::Replies(told))
}

fn publish(call: &mut Call) -> Ran {
    Ok(Step::Publish(call.args.next()?, call.args.next()?))
}
