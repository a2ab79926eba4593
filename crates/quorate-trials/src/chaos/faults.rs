//! The kinds of faults, their order, and what each does.
//!
//! Invariants:
//! - All faults of a round hit the same minority of the nodes. Only `RestartAll` hits all nodes.
//! - A fault counts only once its effect was observed: a full disk when its node reported it, a failing sync when its
//!   node ended.
//! - A round is undone before the next one begins.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate::Client;
use quorate_env::Rng;
use rustix::process::Signal;

use super::fleet::Fleet;
use super::world::Cut;
use crate::harness::{Result, until};

/// How long a node under writes may take to notice that its disk is full, or that a sync fails.
const NOTICE_MAX: Duration = Duration::from_secs(30);

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A node is killed by SIGKILL, and started again a little later.
    Kill,
    /// A node is paused by SIGSTOP for longer than any lease or election takes, then continued by SIGCONT.
    Stop,
    /// A minority with the leader is cut off from the other nodes. Clients reach all nodes.
    LeaderInMinority,
    /// A minority without the leader is cut off from the other nodes. Clients reach all nodes.
    LeaderInMajority,
    /// Packets from the other nodes to a node are lost.
    Deaf,
    /// Packets from a node to the other nodes are lost.
    Mute,
    /// A node is cut off from the other nodes and from clients.
    Isolated,
    /// Packets from a node are late.
    Slow,
    /// The file system of a node is filled, and freed again.
    Full,
    /// Syncs of a node fail; the node ends, and is started again.
    SyncError,
    /// All nodes are killed, and started again.
    RestartAll,
}

impl Kind {
    pub const PARTITIONS: [Self; 5] =
        [Self::LeaderInMinority, Self::LeaderInMajority, Self::Deaf, Self::Mute, Self::Isolated];

    /// Returns whether the fault needs namespaces.
    pub fn needs_own_world(self) -> bool {
        Self::PARTITIONS.contains(&self) || matches!(self, Self::Slow | Self::Full)
    }

    /// Returns whether the other nodes must serve while the fault lasts.
    pub fn leaves_a_majority(self) -> bool {
        self != Self::RestartAll
    }
}

/// Faults that strike together.
#[derive(Clone, Debug)]
pub struct Round {
    pub kind: Kind,
    /// Another kind that strikes the same nodes.
    pub also: Option<Kind>,
    /// Whether the leader is among the victims, if the kind does not determine it.
    leader: bool,
    /// How long the faults last.
    pub lasts: Duration,
}

/// Returns rounds with the wanted number of each kind, in an order that depends on the seed.
pub fn plan(wanted: &BTreeMap<Kind, u64>, rng: &Rng) -> Vec<Round> {
    let kinds: Vec<Kind> = wanted.iter().flat_map(|(kind, count)| (0..*count).map(|_| *kind)).collect();
    let mut drawn: Vec<(u64, Kind)> = kinds.into_iter().map(|kind| (rng.next_u64(), kind)).collect();
    drawn.sort_unstable();
    let round = |(_, kind): (u64, Kind)| {
        let is_cut = Kind::PARTITIONS.contains(&kind);
        let second = if rng.chance(0.5) { Kind::Kill } else { Kind::Stop };
        // A node that was started again would still be cut off, so it stays down or paused until the round is undone.
        let also = Some(second).filter(|second| is_cut && rng.chance(0.25) && wanted.contains_key(second));
        let lasts = Duration::from_millis(match kind {
            Kind::Kill => rng.below(3000),
            Kind::RestartAll => rng.below(500),
            _ => 1500 + rng.below(4500),
        });
        Round { kind, also, leader: rng.chance(0.5), lasts }
    };
    drawn.into_iter().map(round).collect()
}

/// A round in progress.
pub struct Struck {
    round: Round,
    victims: Vec<usize>,
    cut: Cut,
}

impl Round {
    /// Chooses the victims: at most as many as the cluster can lose.
    fn victims(&self, fleet: &Fleet, leader: usize, rng: &Rng) -> Vec<usize> {
        if self.kind == Kind::RestartAll {
            return (0..fleet.count()).collect();
        }
        let with_leader = match self.kind {
            Kind::LeaderInMinority => true,
            Kind::LeaderInMajority => false,
            _ => self.leader,
        };
        let mut others: Vec<usize> = (0..fleet.count()).filter(|number| *number != leader).collect();
        let minority_max = (fleet.count() as u64 - 1) / 2;
        let count = 1 + rng.below(minority_max);
        let mut victims = if with_leader { vec![leader] } else { Vec::new() };
        while (victims.len() as u64) < count {
            let at = usize::try_from(rng.below(others.len() as u64)).unwrap_or(0);
            victims.push(others.swap_remove(at));
        }
        victims
    }

    /// Begins the round.
    pub async fn strike(self, fleet: &mut Fleet, probe: &Client, rng: &Rng) -> Result<Struck> {
        let leader = until("a leader", NOTICE_MAX, async || fleet.leader(probe).await).await?;
        let victims = self.victims(fleet, leader, rng);
        let cut = if rng.chance(0.7) { Cut::Silent } else { Cut::Refused };
        let struck = Struck { round: self, victims, cut };
        struck.cut(fleet, true).await?;
        for victim in &struck.victims {
            struck.strike_one(fleet, *victim, probe).await?;
        }
        Ok(struck)
    }
}

impl Struck {
    /// Describes the faults and names the victims.
    pub fn describe(&self, fleet: &Fleet) -> String {
        let names: Vec<&str> = self.victims.iter().map(|victim| fleet.nodes[*victim].name.as_str()).collect();
        let also = self.round.also.map(|also| format!(" and {also:?}")).unwrap_or_default();
        format!("{:?}{also} of {}", self.round.kind, names.join(", "))
    }

    fn has(&self, kind: Kind) -> bool {
        self.round.kind == kind || self.round.also == Some(kind)
    }

    async fn strike_one(&self, fleet: &mut Fleet, victim: usize, probe: &Client) -> Result<()> {
        let name = fleet.nodes[victim].name.clone();
        match self.round.kind {
            Kind::Isolated => fleet.world.plug(&name, false).await?,
            Kind::Slow => fleet.world.slow(&name, true).await?,
            Kind::Full => {
                let before = fleet.said_bytes(victim);
                fleet.fill(victim, true)?;
                until("a node to report that its disk is full", NOTICE_MAX, async || {
                    // Write a large row: small ones might still fit for a long time. Ignore the outcome.
                    let _ = probe.sql().execute("INSERT INTO filler VALUES (zeroblob(500000))", ()).await;
                    fleet.said_after(victim, before).ok()?.contains("no space left").then_some(())
                })
                .await?;
            }
            Kind::SyncError => {
                fleet.fail_syncs(victim, true)?;
                fleet.ended(victim, NOTICE_MAX).await?;
            }
            _ => {}
        }
        if self.has(Kind::Kill) || self.has(Kind::RestartAll) {
            fleet.kill(victim).await?;
        }
        if self.has(Kind::Stop) {
            fleet.signal(victim, Signal::STOP)?;
        }
        Ok(())
    }

    /// Undoes the faults of the round.
    pub async fn heal(&self, fleet: &mut Fleet, probe: &Client) -> Result<()> {
        if self.has(Kind::Full) {
            probe.sql().with_deadline(NOTICE_MAX).execute("DELETE FROM filler", ()).await?;
        }
        self.cut(fleet, false).await?;
        for victim in &self.victims {
            let name = fleet.nodes[*victim].name.clone();
            match self.round.kind {
                Kind::Isolated => fleet.world.plug(&name, true).await?,
                Kind::Slow => fleet.world.slow(&name, false).await?,
                Kind::Full => fleet.fill(*victim, false)?,
                Kind::SyncError => {
                    fleet.fail_syncs(*victim, false)?;
                    fleet.serve(*victim)?;
                }
                _ => {}
            }
            if self.has(Kind::Kill) || self.has(Kind::RestartAll) {
                fleet.serve(*victim)?;
            }
            if self.has(Kind::Stop) {
                fleet.signal(*victim, Signal::CONT)?;
            }
        }
        Ok(())
    }

    /// Cuts the victims off from the other nodes, or connects them again.
    async fn cut(&self, fleet: &Fleet, apart: bool) -> Result<()> {
        let (to_others, from_others) = match self.round.kind {
            Kind::LeaderInMinority | Kind::LeaderInMajority => (true, true),
            Kind::Mute => (true, false),
            Kind::Deaf => (false, true),
            _ => return Ok(()),
        };
        for victim in &self.victims {
            for other in (0..fleet.count()).filter(|other| !self.victims.contains(other)) {
                for (from, to) in [(*victim, other), (other, *victim)] {
                    if if from == *victim { to_others } else { from_others } {
                        let from = &fleet.nodes[from].name;
                        match apart {
                            true => fleet.world.cut(from, to, self.cut).await?,
                            false => fleet.world.join(from, to, self.cut).await?,
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns what the round counts as: each node that was killed or stopped, and the round itself.
    pub fn counts(&self) -> BTreeMap<Kind, u64> {
        let each = |kind| if matches!(kind, Kind::Kill | Kind::Stop) { self.victims.len() as u64 } else { 1 };
        [Some(self.round.kind), self.round.also].into_iter().flatten().map(|kind| (kind, each(kind))).collect()
    }

    pub fn round(&self) -> &Round {
        &self.round
    }
}
