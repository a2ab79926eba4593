//! The faults: which there are, in which order they strike, and what each does.
//!
//! Invariants:
//! - A round harms a minority of the nodes, the same ones by all its faults; only the restart of all harms all.
//! - A fault counts once it was seen to do what it should: a full disk when its node said so, a failing sync when its
//!   node ended.
//! - What a round did is undone before the next.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate::Client;
use quorate_env::Rng;
use rustix::process::Signal;

use super::fleet::Fleet;
use super::harness::{Result, until};
use super::world::Cut;

/// How long a node may take to notice that its disk is full, or that a sync fails, while it is written to.
const NOTICE_MAX: Duration = Duration::from_secs(30);

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// SIGKILL, and a new process a little later.
    Kill,
    /// SIGSTOP for longer than any lease or election takes, then SIGCONT.
    Stop,
    /// The leader and who is with it, a minority, hear and reach no other node. Clients reach all.
    LeaderInMinority,
    /// A minority without the leader hears and reaches no other node. Clients reach all.
    LeaderInMajority,
    /// What the others send to a node is lost.
    Deaf,
    /// What a node sends to the others is lost.
    Mute,
    /// Nobody reaches a node, clients neither.
    Isolated,
    /// What a node sends is late.
    Slow,
    /// The file system of a node is full, and has room again.
    Full,
    /// Syncs of a node fail; it ends, and is started again.
    SyncError,
    /// All nodes are killed, and started again.
    RestartAll,
}

impl Kind {
    pub const PARTITIONS: [Self; 5] =
        [Self::LeaderInMinority, Self::LeaderInMajority, Self::Deaf, Self::Mute, Self::Isolated];

    /// Whether it needs namespaces.
    pub fn needs_own_world(self) -> bool {
        Self::PARTITIONS.contains(&self) || matches!(self, Self::Slow | Self::Full)
    }

    /// Whether the rest must serve while it lasts.
    pub fn leaves_a_majority(self) -> bool {
        self != Self::RestartAll
    }
}

/// Faults that strike together.
#[derive(Clone, Debug)]
pub struct Round {
    pub kind: Kind,
    /// Strikes the same nodes as well.
    pub also: Option<Kind>,
    /// Whether the leader is among those that are struck, where the kind does not say.
    leader: bool,
    /// How long they last.
    pub lasts: Duration,
}

/// So many of each kind, in an order that the seed makes.
pub fn plan(wanted: &BTreeMap<Kind, u64>, rng: &Rng) -> Vec<Round> {
    let kinds: Vec<Kind> = wanted.iter().flat_map(|(kind, count)| (0..*count).map(|_| *kind)).collect();
    let mut drawn: Vec<(u64, Kind)> = kinds.into_iter().map(|kind| (rng.next_u64(), kind)).collect();
    drawn.sort_unstable();
    let round = |(_, kind): (u64, Kind)| {
        let is_cut = Kind::PARTITIONS.contains(&kind);
        let second = if rng.chance(0.5) { Kind::Kill } else { Kind::Stop };
        // Restarted, it would be cut off once more: here it stays down or still until all is undone.
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

/// A round that has struck.
pub struct Struck {
    round: Round,
    victims: Vec<usize>,
    cut: Cut,
}

impl Round {
    /// Draws the victims: as many as a cluster can lose, or fewer.
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

    /// Strikes.
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
    /// Names those that were struck.
    pub fn tell(&self, fleet: &Fleet) -> String {
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
                until("a node's word that its disk is full", NOTICE_MAX, async || {
                    // What others write fits for long into what the node has. Whether this succeeds is no matter.
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

    /// Undoes it.
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

    /// Cuts the victims off the others, or joins them.
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

    /// What it counts as: each node that was killed or stopped, and the round itself.
    pub fn counts(&self) -> BTreeMap<Kind, u64> {
        let each = |kind| if matches!(kind, Kind::Kill | Kind::Stop) { self.victims.len() as u64 } else { 1 };
        [Some(self.round.kind), self.round.also].into_iter().flatten().map(|kind| (kind, each(kind))).collect()
    }

    pub fn round(&self) -> &Round {
        &self.round
    }
}
