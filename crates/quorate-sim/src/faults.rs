//! What goes wrong, drawn from the seed.
//!
//! Invariant (the atlas): what is acknowledged stays on the disks of a majority. Power may fail anywhere and
//! everywhere, because disks keep what was synced; but no disk is lost while another lost one is not yet made good.
//! With durability `os` a loss of power counts as that of a disk.

use std::collections::BTreeSet;
use std::time::Duration;

use quorate_env::{Instant, Rng, sleep};
use quorate_env_sim::Pace;

use crate::cluster::{Cluster, End, NAMES};

/// How far a clock may be wrong, in seconds.
const CLOCK_WRONG_MAX: u64 = 6 * 3600;

/// How often it is looked who leads.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How often states are compared.
const SAMPLE_EVERY: Duration = Duration::from_millis(1_500);

/// Lives that were ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct Crashes {
    /// By power failures.
    pub power: u32,
    /// By kills.
    pub kill: u32,
    /// Together with the disk.
    pub wipe: u32,
    /// Together with a part of what the disk held.
    pub damage: u32,
    /// By removal from the cluster; a new directory takes its place.
    pub removal: u32,
}

impl Crashes {
    /// All.
    pub fn total(self) -> u32 {
        self.power + self.kill + self.wipe + self.damage + self.removal
    }
}

/// Makes things go wrong, and right again.
pub struct Faults {
    cluster: Cluster,
    rng: Rng,
    crashes: Crashes,
    /// The node whose disk was lost, or a part of it, and is not yet made good.
    lost: Option<&'static str>,
    paused: BTreeSet<&'static str>,
    sampled: Option<Instant>,
}

/// One thing that goes wrong.
#[derive(Clone, Copy, Debug)]
enum Fault {
    End(End, Whom),
    Remove(Whom),
    Transfer,
    Isolate(Whom),
    Cut,
    CutWay,
    Reset,
    Pause,
    Clock,
    Slow,
}

#[derive(Clone, Copy, Debug)]
enum Whom {
    Leader,
    One,
    Two,
    All,
}

/// What may go wrong, each with how often.
const ATLAS: [(u64, Fault); 22] = [
    (3, Fault::End(End::Power, Whom::One)),
    (3, Fault::End(End::Power, Whom::Leader)),
    (2, Fault::End(End::Power, Whom::Two)),
    (2, Fault::End(End::Power, Whom::All)),
    (2, Fault::End(End::Kill, Whom::One)),
    (3, Fault::End(End::Kill, Whom::Leader)),
    (1, Fault::End(End::Kill, Whom::All)),
    (2, Fault::End(End::Wipe, Whom::One)),
    (1, Fault::End(End::Wipe, Whom::Leader)),
    (1, Fault::End(End::BadLog, Whom::One)),
    (1, Fault::End(End::BadDatabase, Whom::One)),
    (1, Fault::Remove(Whom::One)),
    (1, Fault::Remove(Whom::Leader)),
    (2, Fault::Transfer),
    (2, Fault::Isolate(Whom::One)),
    (2, Fault::Isolate(Whom::Leader)),
    (2, Fault::Cut),
    (2, Fault::CutWay),
    (1, Fault::Reset),
    (2, Fault::Pause),
    (2, Fault::Clock),
    (2, Fault::Slow),
];

impl Faults {
    /// None yet.
    pub fn new(cluster: &Cluster) -> Self {
        Self {
            cluster: cluster.clone(),
            rng: cluster.world().rng().fork(),
            crashes: Crashes::default(),
            lost: None,
            paused: BTreeSet::new(),
            sampled: None,
        }
    }

    /// What was ended so far.
    pub fn crashes(&self) -> Crashes {
        self.crashes
    }

    /// One or two things go wrong for a while, then all is mended.
    pub async fn round(&mut self) {
        for _ in 0..=self.rng.below(2) {
            let fault = self.draw();
            self.inject(fault).await;
            self.pass_up_to(700).await;
        }
        self.pass_up_to(3_000).await;
        self.mend().await;
        self.pass_up_to(2_500).await;
    }

    /// Everything is mended and every node that is down is started.
    pub async fn mend(&mut self) {
        let world = self.cluster.world().clone();
        world.net().heal_all();
        for name in std::mem::take(&mut self.paused) {
            if let Some(host) = world.host(name) {
                host.resume();
            }
        }
        let mut down: Vec<&'static str> = NAMES.into_iter().filter(|name| !self.cluster.is_alive(name)).collect();
        while !down.is_empty() {
            let next = self.below(down.len());
            self.cluster.start(down.remove(next));
            self.pass_up_to(150).await;
        }
        for name in NAMES {
            if let Some(host) = world.host(name) {
                host.set_pace(Pace::default());
            }
        }
    }

    /// Lets time pass, with open eyes.
    pub async fn pass(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            sleep(LOOK_EVERY.min(end - Instant::now())).await;
            self.cluster.look();
            if self.sampled.is_none_or(|last| last.elapsed() >= SAMPLE_EVERY) {
                self.sampled = Some(Instant::now());
                self.cluster.sample();
            }
        }
    }

    async fn pass_up_to(&mut self, millis: u64) {
        let time = Duration::from_millis(self.rng.below(millis));
        self.pass(time).await;
    }

    fn draw(&mut self) -> Fault {
        if self.cluster.is_whole() {
            self.lost = None;
        }
        loop {
            let mut left = self.rng.below(ATLAS.iter().map(|(weight, _)| weight).sum());
            let drawn = ATLAS.iter().find(|(weight, _)| match left.checked_sub(*weight) {
                Some(rest) => {
                    left = rest;
                    false
                }
                None => true,
            });
            match drawn {
                Some((_, fault)) if self.may(*fault) => return *fault,
                _ => {}
            }
        }
    }

    /// Whether what is acknowledged stays on a majority.
    fn may(&self, fault: Fault) -> bool {
        let is_only_one = matches!(fault, Fault::End(_, Whom::One | Whom::Leader) | Fault::Remove(_));
        let is_loss = match fault {
            Fault::End(end, _) => self.loses(end),
            Fault::Remove(_) => true,
            _ => false,
        };
        !is_loss || (is_only_one && self.lost.is_none() && self.cluster.is_whole())
    }

    /// Whether a node whose life ends so does not hold any more what it has promised.
    fn loses(&self, end: End) -> bool {
        match end {
            End::Kill => false,
            End::Power => self.cluster.forgets_without_power(),
            End::Wipe | End::BadLog | End::BadDatabase => true,
        }
    }

    async fn inject(&mut self, fault: Fault) {
        let world = self.cluster.world().clone();
        world.trace().add("faults", format_args!("{fault:?}"));
        let (one, other) = self.pair();
        match fault {
            Fault::End(end, whom) => self.end(end, whom).await,
            Fault::Remove(whom) => self.remove(whom).await,
            // Whether it succeeds is no matter: leadership may be in doubt for a while.
            Fault::Transfer => drop(self.cluster.transfer(one).await),
            Fault::Isolate(whom) => self.some(whom).into_iter().for_each(|name| world.net().isolate(name)),
            Fault::Cut => world.net().cut(one, other),
            Fault::CutWay => world.net().cut_way(one, other),
            Fault::Reset => world.net().reset(one, other),
            Fault::Pause => {
                if let Some(host) = world.host(one) {
                    host.pause();
                    self.paused.insert(one);
                }
            }
            Fault::Clock => {
                let seconds = i64::try_from(self.rng.below(2 * CLOCK_WRONG_MAX)).unwrap_or(0);
                let wrong = seconds - i64::try_from(CLOCK_WRONG_MAX).unwrap_or(0);
                world.clock(one).set_offset(wrong * 1_000_000_000);
            }
            Fault::Slow => {
                if let Some(host) = world.host(one) {
                    let busy_max = Duration::from_millis(40);
                    host.set_pace(Pace { postpone: 0.2, busy: 0.8, busy_max, stall: 0.05, ..Pace::default() });
                }
            }
        }
    }

    async fn end(&mut self, end: End, whom: Whom) {
        for name in self.some(whom) {
            if !self.cluster.is_alive(name) {
                continue;
            }
            match end {
                End::Power => self.crashes.power += 1,
                End::Kill => self.crashes.kill += 1,
                End::Wipe => self.crashes.wipe += 1,
                End::BadLog | End::BadDatabase => self.crashes.damage += 1,
            }
            if self.loses(end) {
                self.lost = Some(name);
            }
            self.paused.remove(name);
            self.cluster.end(name, end).await;
        }
    }

    /// An operator removes a node and gives its name to an empty directory, which joins when the node starts.
    ///
    /// Where the removal is in doubt, or was refused, this is a lost disk.
    async fn remove(&mut self, whom: Whom) {
        for name in self.some(whom) {
            let removed = self.cluster.remove(name).await;
            self.cluster.world().trace().add("faults", format_args!("removal of {name}: {removed:?}"));
            self.crashes.removal += u32::from(removed.is_ok());
            self.crashes.wipe += u32::from(removed.is_err());
            self.lost = Some(name);
            self.paused.remove(name);
            self.cluster.end(name, End::Wipe).await;
        }
    }

    fn some(&self, whom: Whom) -> Vec<&'static str> {
        let mut names = NAMES.to_vec();
        names.rotate_left(self.below(NAMES.len()));
        match whom {
            Whom::Leader => self.cluster.leader().map_or_else(|| names.split_off(2), |leader| vec![leader]),
            Whom::One => names.split_off(2),
            Whom::Two => names.split_off(1),
            Whom::All => names,
        }
    }

    /// Two different nodes.
    fn pair(&self) -> (&'static str, &'static str) {
        let [a, b, c] = NAMES;
        let pairs = [(a, b), (b, c), (c, a), (b, a), (c, b), (a, c)];
        pairs.get(self.below(pairs.len())).copied().unwrap_or((a, b))
    }

    fn below(&self, bound: usize) -> usize {
        usize::try_from(self.rng.below(u64::try_from(bound).unwrap_or(0))).unwrap_or(0)
    }
}
