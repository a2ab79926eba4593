//! Channels and patterns that a client listens to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use quorate_model::{Command, CommandResult, EventsCommand};

use super::{Call, Common};
use crate::audience::{Means, SHARD};
use crate::batch::Step;
use crate::error::{Refusal, text};
use crate::frame::Frame;
use crate::glob::Glob;
use crate::limits::{SUBSCRIPTION_BYTES_MAX, SUBSCRIPTIONS_MAX};
use crate::plan::Plan;
use crate::replies;
use crate::table::{Access, Found, Spec, local, sub};

/// The rows of commands on events.
pub const PUBSUB_COMMANDS: &[Spec] = &[
    local("subscribe", -2, "2.0.0", "Listens to channels.", |call| begin(call, Means::Channel)),
    local("psubscribe", -2, "2.0.0", "Listens to the channels that match patterns.", |call| {
        begin(call, Means::Pattern)
    }),
    local("ssubscribe", -2, "7.0.0", "Listens to shard channels.", |call| begin(call, Means::Shard)),
    local("unsubscribe", -1, "2.0.0", "Ends listening to channels; to all, if none are named.", |call| {
        end(call, Means::Channel)
    }),
    local("punsubscribe", -1, "2.0.0", "Ends listening to patterns; to all, if none are named.", |call| {
        end(call, Means::Pattern)
    }),
    local("sunsubscribe", -1, "7.0.0", "Ends listening to shard channels; to all, if none are named.", |call| {
        end(call, Means::Shard)
    }),
    local("publish", 3, "2.0.0", "Publishes an event.", |call| publish(call, "")).access(Access::Write).alone(),
    local("spublish", 3, "7.0.0", "Publishes an event to a shard channel.", |call| publish(call, SHARD))
        .access(Access::Write)
        .alone(),
    sub("pubsub", "2.8.0", "What the clients of the node listen to.", PUBSUB),
];

const PUBSUB: &[Spec] = &[
    local("channels", -2, "2.8.0", "Returns the channels that clients listen to.", |call| {
        channels(call, Means::Channel)
    }),
    local("numsub", -2, "2.8.0", "Returns how many listen to channels.", |call| listening(call, Means::Channel)),
    local("shardchannels", -2, "7.0.0", "Returns the shard channels that clients listen to.", |call| {
        channels(call, Means::Shard)
    }),
    local("shardnumsub", -2, "7.0.0", "Returns how many listen to shard channels.", |call| {
        listening(call, Means::Shard)
    }),
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
    "SHARDCHANNELS [<pattern>]",
    "    Return the currently active shard level channels matching a <pattern> (default: '*').",
    "SHARDNUMSUB [<shardchannel> ...]",
    "    Return the number of subscribers for the specified shard level channel(s)",
    "HELP",
    "    Print this help.",
];

type Ran = Result<Step, Refusal>;

/// What a client listens to, by each means.
#[derive(Debug)]
pub struct Subscriptions {
    channels: BTreeSet<Bytes>,
    shards: BTreeSet<Bytes>,
    patterns: BTreeMap<Bytes, Glob>,
    /// The bytes of all names.
    bytes: usize,
    common: Arc<Common>,
}

impl Drop for Subscriptions {
    fn drop(&mut self) {
        for of in [Means::Channel, Means::Pattern, Means::Shard] {
            self.names(of).iter().for_each(|name| self.common.audience.leave(of, name));
        }
    }
}

impl Subscriptions {
    /// Returns no subscriptions.
    pub fn new(common: Arc<Common>) -> Self {
        let (channels, shards) = Default::default();
        Self { channels, shards, patterns: BTreeMap::new(), bytes: 0, common }
    }

    fn join(&mut self, of: Means, name: Bytes) -> Result<(), Refusal> {
        let (audience, bytes) = (&self.common.audience, name.len());
        let is_new = match of {
            Means::Pattern => {
                let glob = Glob::new(name.clone())?;
                let is_new = !self.patterns.contains_key(&name);
                if is_new {
                    audience.join_pattern(&name, &glob);
                    self.patterns.insert(name, glob);
                }
                is_new
            }
            Means::Channel | Means::Shard => {
                let names = if of == Means::Shard { &mut self.shards } else { &mut self.channels };
                let is_new = names.insert(name.clone());
                if is_new {
                    audience.join_channel(of, &name);
                }
                is_new
            }
        };
        self.bytes += if is_new { bytes } else { 0 };
        Ok(())
    }

    fn leave(&mut self, of: Means, name: &Bytes) {
        let was_there = match of {
            Means::Channel => self.channels.remove(name),
            Means::Pattern => self.patterns.remove(name).is_some(),
            Means::Shard => self.shards.remove(name),
        };
        if was_there {
            self.common.audience.leave(of, name);
            self.bytes -= name.len();
        }
    }

    /// Returns what the client listens to by this means.
    fn names(&self, of: Means) -> Vec<Bytes> {
        match of {
            Means::Channel => self.channels.iter().cloned().collect(),
            Means::Pattern => self.patterns.keys().cloned().collect(),
            Means::Shard => self.shards.iter().cloned().collect(),
        }
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn len(&self) -> usize {
        self.channels.len() + self.patterns.len() + self.shards.len()
    }

    /// Returns how many channels there are.
    pub fn channels(&self) -> usize {
        self.channels.len()
    }

    /// Returns how many patterns there are.
    pub fn patterns(&self) -> usize {
        self.patterns.len()
    }

    /// Returns how many shard channels there are.
    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    /// Returns the message that the client gets for an event.
    pub fn event(&self, channel: &Bytes, payload: &Bytes) -> Vec<Frame> {
        let bulk = |bytes: &Bytes| Frame::Bulk(bytes.clone());
        if channel.starts_with(SHARD.as_bytes()) {
            let name = channel.slice(SHARD.len()..);
            let message = || Frame::Push(vec![Frame::bulk("smessage"), bulk(&name), bulk(payload)]);
            return self.shards.contains(&name).then(message).into_iter().collect();
        }
        let of_channel = self.channels.contains(channel);
        let of_channel = of_channel.then(|| Frame::Push(vec![Frame::bulk("message"), bulk(channel), bulk(payload)]));
        let matching = self.patterns.iter().filter(|(_, glob)| glob.matches(channel));
        let of_patterns = matching.map(|(pattern, _)| {
            Frame::Push(vec![Frame::bulk("pmessage"), bulk(pattern), bulk(channel), bulk(payload)])
        });
        of_channel.into_iter().chain(of_patterns).collect()
    }

    /// Returns the message about a name, with the number of names that the client listens to. Shard channels count
    /// separately.
    fn told(&self, kind: &'static str, of: Means, name: Frame) -> Frame {
        let shards = self.shards.len();
        let count = if of == Means::Shard { shards } else { self.len() - shards };
        Frame::Push(vec![Frame::bulk(kind), name, Frame::count(count as u64)])
    }
}

/// Returns whether a client may send a command while it listens, by version 2 of the protocol.
pub fn is_allowed(Found { of, spec, .. }: Found<'_>) -> bool {
    let is_ended = matches!(spec.name, "unsubscribe" | "punsubscribe" | "sunsubscribe");
    let is_begun = matches!(spec.name, "subscribe" | "psubscribe" | "ssubscribe");
    of.is_none() && (is_begun || is_ended || matches!(spec.name, "ping" | "quit" | "reset"))
}

fn begin(call: &mut Call, of: Means) -> Ran {
    if of == Means::Shard && call.connection.running.is_some() {
        return Err(Refusal::Text("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client"));
    }
    let names = call.args.rest();
    let subscriptions = &mut call.connection.subscriptions;
    let bytes: usize = names.iter().map(Bytes::len).sum();
    if subscriptions.len() + names.len() > SUBSCRIPTIONS_MAX || subscriptions.bytes + bytes > SUBSCRIPTION_BYTES_MAX {
        return Err(Refusal::Text(
            "ERR a connection can't have more than 10000 subscriptions, or 4 MiB of their names",
        ));
    }
    // One that is wrong is refused before the others are joined.
    names.iter().filter(|_| of == Means::Pattern).try_for_each(|name| Glob::new(name.clone()).map(drop))?;
    let kind = match of {
        Means::Channel => "subscribe",
        Means::Pattern => "psubscribe",
        Means::Shard => "ssubscribe",
    };
    let mut told = Vec::with_capacity(names.len());
    for name in names {
        // A copy, since a slice would hold the bytes of the whole request.
        subscriptions.join(of, Bytes::copy_from_slice(&name))?;
        told.push(subscriptions.told(kind, of, Frame::Bulk(name)));
    }
    Ok(Step::Replies(told))
}

fn end(call: &mut Call, of: Means) -> Ran {
    let mut names = call.args.rest();
    let subscriptions = &mut call.connection.subscriptions;
    let kind = match of {
        Means::Channel => "unsubscribe",
        Means::Pattern => "punsubscribe",
        Means::Shard => "sunsubscribe",
    };
    if names.is_empty() {
        names = subscriptions.names(of);
    }
    if names.is_empty() {
        return Ok(subscriptions.told(kind, of, Frame::Null).into());
    }
    let mut told = Vec::with_capacity(names.len());
    for name in names {
        subscriptions.leave(of, &name);
        told.push(subscriptions.told(kind, of, Frame::Bulk(name)));
    }
    Ok(Step::Replies(told))
}

/// Publishes an event of a channel whose name begins so. The reply is how many messages that is at this node.
fn publish(call: &mut Call, begins: &str) -> Ran {
    let (name, payload) = (call.args.next()?, call.args.next()?);
    let name = std::str::from_utf8(&name).map_err(|_| Refusal::Text("ERR the name of a channel must be UTF-8"))?;
    let channel = format!("{begins}{name}");
    let name = channel.clone();
    let (command, common) = (EventsCommand::Notify { channel, payload }, Arc::clone(&call.connection.common));
    let plan = Plan::of(vec![Command::Events(command)], move |results| match results.into_iter().next() {
        Some(CommandResult::Events(_)) => Frame::count(common.audience.reached(name.as_bytes())),
        Some(CommandResult::Failed(failure)) => failure.into(),
        other => replies::unexpected(&other),
    });
    Ok(Step::Plan(Plan { is_write: true, ..plan }))
}

fn channels(call: &mut Call, of: Means) -> Ran {
    if call.args.left() > 1 {
        return Err(Refusal::Subcommand { name: text(call.args.word), of: "pubsub" });
    }
    let glob = if call.args.is_empty() { None } else { Some(Glob::new(call.args.next()?)?) };
    Ok(Frame::bulks(call.connection.common.audience.channels(of, glob.as_ref())).into())
}

fn listening(call: &mut Call, of: Means) -> Ran {
    let audience = &call.connection.common.audience;
    let names = call.args.rest();
    let counted = names.into_iter().flat_map(|name| {
        let count = Frame::count(audience.listening(of, &name));
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
