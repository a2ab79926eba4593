//! The clients of the second group: they add items, some of which expire, take them, read them and wait for them, and
//! check the answers.
//!
//! Each client has keys of its own and waits for one write before it begins the next, so it knows what its keys must
//! hold.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use quorate::Client;
use quorate_apply::memory_store::MemoryStore;
use quorate_consensus::Group;
use quorate_env::{Env, Rng, sleep, timeout};
use quorate_model::{
    Command, CommandResult, FailureKind, ItemsCommand, ItemsReply, Outcome, Position, Proposal, codec,
};

use super::WRITE_LIMIT;
use crate::cluster::{BESIDE, Cluster};
use crate::coverage::{ITEM_EXPIRED, ITEM_TAKEN, LED_APART};
use crate::history::History;
use crate::ledger::Ledger;
use crate::ledger::items::{Fate, Items};
use crate::watched::Watched;

mod waits;

/// The number of clients.
pub(super) const CLIENTS: u64 = 3;

/// The longest pause between two steps, in milliseconds.
const PAUSE_MILLIS: u64 = 700;

/// The longest time after which an item expires, in milliseconds.
const TTL_MILLIS: u64 = 5_000;

/// A client of the second group.
pub(super) struct ItemsClient {
    env: Env,
    cluster: Cluster,
    ledger: Ledger,
    items: Items,
    rng: Rng,
    stop: Arc<AtomicBool>,
    calm: u64,
    client: u64,
    /// The number of the next key.
    next: u64,
    /// Clients that wait on one node each.
    remotes: BTreeMap<&'static str, Client>,
}

/// A node's part in the group and its store, both of one life.
type Part = (Group, Arc<Watched<MemoryStore>>);

impl ItemsClient {
    pub(super) fn new(
        env: &Env,
        cluster: &Cluster,
        ledger: &Ledger,
        stop: &Arc<AtomicBool>,
        calm: u32,
        client: u64,
    ) -> Self {
        let (ledger, items, rng) = (ledger.clone(), ledger.items(), cluster.world().rng().fork());
        Self {
            env: env.clone(),
            cluster: cluster.clone(),
            ledger,
            items,
            rng,
            stop: Arc::clone(stop),
            calm: calm.into(),
            client,
            next: 0,
            remotes: BTreeMap::new(),
        }
    }

    pub(super) async fn run(mut self) {
        while !self.stop.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(self.rng.below(PAUSE_MILLIS * self.calm))).await;
            let Some(part) = self.name().and_then(|name| self.part_of(name)) else { continue };
            if part.0.check_level(Command::Items(ItemsCommand::Abort).level()).is_err() {
                continue;
            }
            if self.cluster.leads_apart() {
                self.ledger.happened(LED_APART);
            }
            match self.rng.below(10) {
                0..3 => self.add(&part, 0).await,
                3..5 => self.add(&part, (1 + self.rng.below(TTL_MILLIS)) * 1_000_000).await,
                5..7 => self.take(&part).await,
                7 => self.wait(&part).await,
                _ => self.read(&part).await,
            }
        }
    }

    /// Returns the name of a random node.
    fn name(&self) -> Option<&'static str> {
        let at = usize::try_from(self.rng.below(self.cluster.names().len() as u64)).ok()?;
        self.cluster.names().get(at).copied()
    }

    /// Returns a node's part in the group, if the node serves.
    fn part_of(&self, name: &'static str) -> Option<Part> {
        Some((self.cluster.group(name)?, self.cluster.items(name)?))
    }

    fn history(&self) -> &History {
        self.cluster.history_of(BESIDE)
    }

    fn next_key(&mut self) -> Bytes {
        self.next += 1;
        format!("{}-{}", self.client, self.next).into()
    }

    /// Adds an item. Its value is its key. An attempt whose result is unknown is repeated once.
    async fn add(&mut self, part: &Part, ttl: u64) {
        let key = self.next_key();
        self.add_key(part, key, ttl).await;
    }

    /// Adds an item under a key. Returns where, if that is known.
    async fn add_key(&self, part: &Part, key: Bytes, ttl: u64) -> Option<Position> {
        self.items.begin(&key, Fate::Unknown);
        let command = ItemsCommand::Add { key: key.clone(), value: key.clone(), ttl };
        let mut is_certain = true;
        for _ in 0..2 {
            match self.propose(part, &command).await {
                Some((position, ItemsReply::Done)) => {
                    self.items.ended(&key, self.fate(position, ttl));
                    return Some(position);
                }
                // An earlier attempt may have been done.
                Some((_, ItemsReply::Exists)) if !is_certain => {
                    self.items.ended(&key, if ttl == 0 { Fate::Kept } else { Fate::Unknown });
                    return None;
                }
                Some((position, reply)) => {
                    self.violation(format!("the first Add of {key:?} was answered at {position} by {reply:?}"));
                    return None;
                }
                None => is_certain = false,
            }
        }
        None
    }

    /// What becomes of an item that was added at a position.
    fn fate(&self, position: Position, ttl: u64) -> Fate {
        match (ttl, self.history().time_at(position.index)) {
            (0, _) => Fate::Kept,
            (ttl, Some(now)) => Fate::Expires(now.saturating_add(ttl)),
            // A node has applied it, and has not told yet.
            (_, None) => Fate::Unknown,
        }
    }

    /// Takes an item away.
    async fn take(&self, part: &Part) {
        let Some((key, before)) = self.items.pick(self.client, &self.rng) else { return };
        self.items.ended(&key, Fate::Unknown);
        match self.propose(part, &ItemsCommand::Take(key.clone())).await {
            Some((_, ItemsReply::Taken(value))) if value == key => {
                self.ledger.happened(ITEM_TAKEN);
                self.items.ended(&key, Fate::Gone);
            }
            Some((position, ItemsReply::Missing)) => {
                let now = self.history().time_at(position.index);
                let has_expired = matches!(before, Fate::Expires(due) if now.is_none_or(|now| now >= due));
                if !has_expired {
                    self.violation(format!("{key:?} is missing at {position}, applied at {now:?}; it was {before:?}"));
                }
                self.ledger.happened(ITEM_EXPIRED);
                self.items.ended(&key, Fate::Gone);
            }
            Some((position, reply)) => {
                self.violation(format!("Take of {key:?} was answered at {position} by {reply:?}"));
            }
            None => {}
        }
    }

    /// Reads the client's items at a linearizable position.
    async fn read(&self, part: &Part) {
        let (group, items) = part;
        let expected = self.items.of(self.client);
        let Ok(Ok(position)) = timeout(WRITE_LIMIT, group.read_position()).await else { return };
        self.check_position(position);
        if timeout(WRITE_LIMIT, items.store().applied_to(position.index)).await.is_err() {
            let end = self.history().last_index();
            if position.index > end {
                self.violation(format!("a read position is {position}, and no node has applied more than {end}"));
            }
            return;
        }
        self.ledger.read();
        let wrong = items.store().read(|memory, applied| {
            let is_wrong = |(key, fate): &&(Bytes, Fate)| match fate {
                Fate::Kept => memory.item(key, 0).is_none(),
                Fate::Gone => memory.item(key, 0).is_some(),
                Fate::Expires(_) | Fate::Unknown => false,
            };
            expected.iter().find(is_wrong).map(|(key, fate)| (key.clone(), *fate, applied.index()))
        });
        if let Some((key, fate, index)) = wrong {
            self.violation(format!("a read at {position}, applied up to {index}: {key:?} was {fate:?}, but is not"));
        }
    }

    /// Proposes a command. Returns its position and the reply; `None` if it was not done, or may have been.
    async fn propose(&self, (group, _): &Part, command: &ItemsCommand) -> Option<(Position, ItemsReply)> {
        let proposal = Proposal::new(None, vec![Command::Items(command.clone())]);
        let bytes = codec::encode_proposal(&proposal).ok()?;
        let proposed = timeout(WRITE_LIMIT, group.propose(bytes)).await;
        self.cluster.world().trace().add("items", format_args!("{command:?} {proposed:?}"));
        match proposed.ok()? {
            Ok((position, outcome)) => {
                self.check_position(position);
                Some((position, self.reply(position, outcome)?))
            }
            Err(_) => None,
        }
    }

    fn reply(&self, position: Position, outcome: Outcome) -> Option<ItemsReply> {
        match outcome.as_ref().map(|reply| reply.results.as_slice()) {
            Ok([CommandResult::Items(reply)]) => Some(reply.clone()),
            Err(failure) if failure.kind == FailureKind::Rejected && self.cluster.may_reject() => None,
            _ => {
                self.violation(format!("at {position} the outcome is {outcome:?}"));
                None
            }
        }
    }

    fn check_position(&self, position: Position) {
        if position.group != BESIDE {
            self.violation(format!("{position} is a position of another group"));
        }
    }

    fn violation(&self, what: String) {
        self.history().violation(what);
    }
}
