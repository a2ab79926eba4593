//! Channels and patterns that a client listens to.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use quorate_model::{Command, CommandResult, EventsCommand};

use super::{Call, Common};
use crate::batch::Step;
use crate::error::{Refusal, text};
use crate::frame::Frame;
use crate::glob::Glob;
use crate::limits::{SUBSCRIPTION_BYTES_MAX, SUBSCRIPTIONS_MAX};
use crate::plan::Plan;
use crate::replies;
use crate::table::{Access, Spec, local, sub};

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
    local("publish", 3, "2.0.0", "Publishes an event.", publish).access(Access::Write).alone(),
    sub("pubsub", "2.8.0", "What the clients of the node listen to.", PUBSUB),
];

const PUBSUB: &[Spec] = &[
    local("channels", -2, "2.8.0", "Returns the channels that clients listen to.", channels),
    local("numsub", -2, "2.8.0", "Returns how many listen to channels.", listening),
    local("numpat", 2, "2.8.0", "Returns how many patterns clients listen to.", patterns),
    local("help", 2, "6.2.0", "Returns what there is.", help),
];

const HELP: &[&str] = &[
    "PUBSUB <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CHANNELS [<pattern>]",
    "    Return the currently active channels matching a <pattern> (default: '*').",
    "NUMPAT",
    "    Return number of subscriptions to patterns.",
    "NUMSUB [<channel> ...]",
    "    Return the number of subscribers for the specified channels, excluding",
    "    pattern subscriptions(default: no channels).",
    "HELP",
    "    Print this help.",
];

type Ran = Result<Step, Refusal>;

/// What a client listens to: names with what matches them, channels and patterns apart.
#[derive(Debug)]
pub struct Subscriptions {
    channels: BTreeMap<Bytes, ()>,
    patterns: BTreeMap<Bytes, Glob>,
    /// The bytes of all names.
    bytes: usize,
    common: Arc<Common>,
}

impl Drop for Subscriptions {
    fn drop(&mut self) {
        let audience = &self.common.audience;
        self.channels.keys().for_each(|name| audience.leave_channel(name));
        self.patterns.keys().for_each(|name| audience.leave_pattern(name));
    }
}

impl Subscriptions {
    /// Returns no subscriptions.
    pub fn new(common: Arc<Common>) -> Self {
        Self { channels: BTreeMap::new(), patterns: BTreeMap::new(), bytes: 0, common }
    }

    fn join(&mut self, name: Bytes, by_pattern: bool) -> Result<(), Refusal> {
        let audience = &self.common.audience;
        let glob = by_pattern.then(|| Glob::new(name.clone())).transpose()?;
        let is_known = if by_pattern { self.patterns.contains_key(&name) } else { self.channels.contains_key(&name) };
        if is_known {
            return Ok(());
        }
        self.bytes += name.len();
        if let Some(glob) = glob {
            audience.join_pattern(&name, &glob);
            self.patterns.insert(name, glob);
        } else {
            audience.join_channel(&name);
            self.channels.insert(name, ());
        }
        Ok(())
    }

    fn leave(&mut self, name: &Bytes, by_pattern: bool) {
        let audience = &self.common.audience;
        if by_pattern && self.patterns.remove(name).is_some() {
            audience.leave_pattern(name);
        } else if !by_pattern && self.channels.remove(name).is_some() {
            audience.leave_channel(name);
        } else {
            return;
        }
        self.bytes -= name.len();
    }

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
    let bytes: usize = names.iter().map(Bytes::len).sum();
    if subscriptions.len() + names.len() > SUBSCRIPTIONS_MAX || subscriptions.bytes + bytes > SUBSCRIPTION_BYTES_MAX {
        return Err(Refusal::Text(
            "ERR a connection can't have more than 10000 subscriptions, or 4 MiB of their names",
        ));
    }
    // One that is wrong is refused before the others are joined.
    names.iter().filter(|_| by_pattern).try_for_each(|name| Glob::new(name.clone()).map(drop))?;
    let mut told = Vec::with_capacity(names.len());
    for name in names {
        // A copy, since a slice would hold the bytes of the whole request.
        subscriptions.join(Bytes::copy_from_slice(&name), by_pattern)?;
        told.push(subscriptions.told(if by_pattern { "psubscribe" } else { "subscribe" }, Frame::Bulk(name)));
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
        subscriptions.leave(&name, by_pattern);
        told.push(subscriptions.told(kind, Frame::Bulk(name)));
    }
    Ok(Step::Replies(told))
}

/// Publishes an event. The reply is how many messages that is at this node.
fn publish(call: &mut Call) -> Ran {
    let (name, payload) = (call.args.next()?, call.args.next()?);
    let channel = String::from_utf8(name.to_vec());
    let channel = channel.map_err(|_| Refusal::Text("ERR the name of a channel must be UTF-8"))?;
    let (command, common) = (EventsCommand::Notify { channel, payload }, Arc::clone(&call.connection.common));
    let plan = Plan::of(vec![Command::Events(command)], move |results| match results.into_iter().next() {
        Some(CommandResult::Events(_)) => Frame::count(common.audience.reached(&name)),
        Some(CommandResult::Failed(failure)) => failure.into(),
        other => replies::unexpected(&other),
    });
    Ok(Step::Plan(Plan { is_write: true, ..plan }))
}

fn channels(call: &mut Call) -> Ran {
    if call.args.left() > 1 {
        return Err(Refusal::Subcommand { name: text(call.args.word), of: "pubsub" });
    }
    let glob = if call.args.is_empty() { None } else { Some(Glob::new(call.args.next()?)?) };
    Ok(Frame::bulks(call.connection.common.audience.channels(glob.as_ref())).into())
}

fn listening(call: &mut Call) -> Ran {
    let audience = &call.connection.common.audience;
    let names = call.args.rest();
    let counted = names.into_iter().flat_map(|name| {
        let count = Frame::count(audience.listening(&name));
        [Frame::Bulk(name), count]
    });
    Ok(Frame::Array(counted.collect()).into())
}

fn patterns(call: &mut Call) -> Ran {
    Ok(Frame::count(call.connection.common.audience.patterns()).into())
}

fn help(_: &mut Call) -> Ran {
    Ok(Frame::Array(HELP.iter().copied().map(Frame::Simple).collect()).into())
}
