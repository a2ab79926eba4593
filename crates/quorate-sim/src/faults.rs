//! Injects faults that are drawn from the seed, and ends them again.
//!
//! Invariant, which limits what may be drawn from the [`ATLAS`]: acknowledged data stay on the disks of a majority.
//! Power may fail on any number of nodes at once, because disks keep what was synced. But no disk is lost while the
//! node of an earlier lost disk has not recovered. With durability `os` a power failure counts as a lost disk.

use std::collections::BTreeSet;
use std::time::Duration;

use quorate_apply::session::SESSION_IDLE_NANOS;
use quorate_env::{Instant, Rng, sleep};
use quorate_env_sim::{Fault as DiskFault, Latency, Pace, SimDisk};

use crate::atlas::{ATLAS, Fault, Whom};
use crate::cluster::{Cluster, End};
use crate::coverage::{Coverage, Phase};
use crate::scenario::Plan;

mod ends;

/// The largest errors of a clock: its offset in seconds, for the two kinds of offsets, and its drift in millionths.
const CLOCK_WRONG_MAX: u64 = 6 * 3600;
const CLOCK_YEAR: u64 = 365 * 24 * 3600;
const CLOCK_DRIFT_MAX: u64 = 100_000;

/// How long an archiver is cut off until another has taken over, at most.
const TAKEN_OVER_MAX: Duration = Duration::from_secs(4);

/// By how many nanoseconds all clocks jump when a day passes: the time after which an idle session expires, one second
/// by which a stamp may be ahead of the clocks, and another second.
const DAY_NANOS: u64 = SESSION_IDLE_NANOS + 2_000_000_000;

/// How often the nodes are checked.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How often states are compared.
const SAMPLE_EVERY: Duration = Duration::from_millis(1_500);

/// The failing I/O operation, or the one in which a life ends, is at most this many operations after the fault was
/// drawn.
const OPERATIONS_MAX: u64 = 60;

/// The bytes that a full disk still has room for are fewer than this.
const ROOM_MAX: u64 = 48 << 10;

/// The longest read transaction of an outside reader, in milliseconds. It may outlast the other faults of its round.
const READER_MAX_MILLIS: u64 = 6_000;

/// The latency of a slow network.
const SLOW_NET: Latency =
    Latency { usual_max: Duration::from_millis(60), slow: 0.02, slow_max: Duration::from_millis(700) };

/// The file that holds the entries applied last.
const DATABASE_WAL: &str = "quorate.db-wal";

/// How often a flapping link is cut at most.
const FLAPS_MAX: u64 = 8;

/// The number of process lives that ended, by cause.
#[derive(Clone, Copy, Debug, Default)]
pub struct Crashes {
    /// By power failures.
    pub power: u32,
    /// By kills.
    pub kill: u32,
    /// By the loss of the whole disk.
    pub wipe: u32,
    /// By a kill together with damage to a file.
    pub damage: u32,
    /// By removal from the cluster; a node with an empty directory takes its place.
    pub removal: u32,
    /// By the failure of a disk.
    pub failure: u32,
}

impl Crashes {
    /// Returns the sum of all causes.
    pub fn total(self) -> u32 {
        self.power + self.kill + self.wipe + self.damage + self.removal + self.failure
    }
}

/// The generator of faults.
pub struct Faults {
    cluster: Cluster,
    rng: Rng,
    crashes: Crashes,
    partitions: u64,
    coverage: Coverage,
    /// The numbers of the faults that are left out.
    skipped: BTreeSet<u32>,
    /// The node that has lost data and has not recovered yet.
    lost: Option<&'static str>,
    /// Nodes whose data were changed. It happens only once to each node, because a node that diverges again within a
    /// day needs an operator.
    tampered: BTreeSet<&'static str>,
    /// The one node that changes its address.
    moves: Option<&'static str>,
    /// How many reads found a bad page that their node then noticed.
    damage_read: u64,
    paused: BTreeSet<&'static str>,
    sampled: Option<Instant>,
    /// By how many nanoseconds all clocks have jumped.
    passed: i64,
    /// How many times longer than usual faults last.
    calm: u32,
    /// The class of every second fault.
    favoured: Option<&'static str>,
}

impl Faults {
    /// Creates a generator of the faults of a plan that leaves out the `skipped` ones.
    pub fn new(cluster: &Cluster, skipped: BTreeSet<u32>, plan: &Plan) -> Self {
        Self {
            cluster: cluster.clone(),
            rng: cluster.world().rng().fork(),
            crashes: Crashes::default(),
            partitions: 0,
            coverage: Coverage::default(),
            skipped,
            lost: None,
            tampered: BTreeSet::new(),
            moves: None,
            damage_read: 0,
            paused: BTreeSet::new(),
            sampled: None,
            passed: 0,
            calm: plan.calm,
            favoured: plan.favoured,
        }
    }

    /// Returns how many process lives have ended so far.
    pub fn crashes(&self) -> Crashes {
        self.crashes
    }

    /// Returns how often nodes were separated from each other.
    pub fn partitions(&self) -> u64 {
        self.partitions
    }

    /// Returns how many reads found a bad page that their node then noticed.
    pub fn damage_read(&self) -> u64 {
        self.damage_read
    }

    /// Returns which faults struck nodes in which phases.
    pub fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    /// Injects one or two faults, lets them last for a while, and then ends all faults.
    pub async fn round(&mut self) {
        self.cluster.archive().into_iter().for_each(|archive| archive.storm(true));
        for _ in 0..=self.rng.below(2) {
            let fault = self.draw();
            let number = self.cluster.history().next_fault();
            if !self.skipped.contains(&number) {
                self.cluster.world().trace().add("faults", format_args!("#{number} {fault:?}"));
                self.inject(fault).await;
            }
            self.last_up_to(700).await;
            // A node that comes back early is exposed to the next fault, perhaps while it receives an image.
            if self.rng.chance(0.4) {
                self.start_down().await;
            }
        }
        self.last_up_to(3_000).await;
        self.mend().await;
        self.last_up_to(2_500).await;
    }

    /// Resumes a node that was paused.
    fn resume(&mut self, name: &'static str) {
        let host = self.cluster.world().host(name).filter(|_| self.paused.remove(name));
        host.iter().for_each(|host| host.resume());
    }

    /// Ends all faults and starts every node that is down.
    pub async fn mend(&mut self) {
        let world = self.cluster.world().clone();
        self.cluster.archive().into_iter().for_each(|archive| archive.storm(false));
        world.net().heal_all();
        self.cluster.spare();
        world.net().set_latency(Latency::default());
        self.paused.clone().into_iter().for_each(|name| self.resume(name));
        // Data that a failed sync has lost silently are missing only after the next power failure.
        let cuts_power = self.rng.chance(0.5) && !self.cluster.forgets_without_power();
        self.crashes.failure += self.cluster.mend_disks(if cuts_power { End::Power } else { End::Kill }).await;
        self.start_down().await;
        for name in self.cluster.names() {
            if let Some(host) = world.host(name) {
                host.set_pace(Pace::default());
            }
            world.clock(name).set_drift(0);
        }
    }

    /// Starts every node that is down, in random order.
    async fn start_down(&mut self) {
        let names = self.cluster.names().iter().copied();
        let mut down: Vec<&'static str> = names.filter(|name| !self.cluster.is_alive(name)).collect();
        while !down.is_empty() {
            let next = self.below(down.len());
            self.cluster.start(down.remove(next));
            self.pass_up_to(150).await;
        }
    }

    /// Lets time pass, and checks the nodes meanwhile.
    pub async fn pass(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            sleep((LOOK_EVERY * self.calm).min(end - Instant::now())).await;
            self.cluster.look();
            self.cluster.revive().await;
            if self.sampled.is_none_or(|last| last.elapsed() >= SAMPLE_EVERY * self.calm) {
                self.sampled = Some(Instant::now());
                self.cluster.sample();
            }
        }
    }

    async fn pass_up_to(&mut self, millis: u64) {
        let time = Duration::from_millis(self.rng.below(millis));
        self.pass(time).await;
    }

    /// Lets the present faults last for a while.
    async fn last_up_to(&mut self, millis: u64) {
        self.pass_up_to(millis.saturating_mul(u64::from(self.calm))).await;
    }

    fn draw(&mut self) -> Fault {
        if self.cluster.is_whole() {
            self.lost = None;
            self.cluster.all_is_good();
        }
        let is_possible = |class: &&str| ATLAS.iter().any(|(_, fault)| fault.class() == *class && self.may(*fault));
        let class = self.favoured.filter(|class| self.rng.chance(0.5) && is_possible(class));
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
                Some((_, fault)) if class.is_none_or(|class| fault.class() == class) && self.may(*fault) => {
                    return *fault;
                }
                _ => {}
            }
        }
    }

    /// Whether a fault leaves acknowledged data on a majority.
    fn may(&self, fault: Fault) -> bool {
        let (is_loss, whom) = match fault {
            Fault::End(end, whom) | Fault::EndAtIo(end, whom) => (self.loses(end), whom),
            Fault::EndIn(end, phase, whom) => (self.loses(end) || phase.is_of_images(), whom),
            Fault::Remove(whom) | Fault::RemoveKilled(whom) | Fault::Tamper(whom) | Fault::BadPage(whom) => {
                (true, whom)
            }
            Fault::SlowImage | Fault::BadImage => (true, Whom::One),
            Fault::Depose if self.cluster.archiver().is_none() => return false,
            _ => (false, Whom::One),
        };
        if matches!(fault, Fault::BadPage(_)) && self.cluster.keeps_disks() {
            return false;
        }
        let is_only_one = matches!(whom, Whom::One | Whom::Leader);
        !is_loss || (is_only_one && self.lost.is_none() && self.cluster.is_whole())
    }

    /// Whether a node whose life ends in this way may lose acknowledged data.
    fn loses(&self, end: End) -> bool {
        match end {
            End::Kill | End::BadPointer => false,
            End::Power => self.cluster.forgets_without_power(),
            End::Wipe | End::BadLog | End::BadDatabase => true,
        }
    }

    async fn inject(&mut self, fault: Fault) {
        let (one, other) = self.pair();
        let struck = match fault {
            Fault::End(_, whom)
            | Fault::EndAtIo(_, whom)
            | Fault::Remove(whom)
            | Fault::RemoveKilled(whom)
            | Fault::Isolate(whom)
            | Fault::WriteFails(whom)
            | Fault::ReadFails(whom)
            | Fault::SyncFails(whom)
            | Fault::Full(whom)
            | Fault::Reader(whom)
            | Fault::Tamper(whom)
            | Fault::BadPage(whom)
            | Fault::Move(whom) => self.some(whom),
            Fault::Depose => self.cluster.archiver().into_iter().collect(),
            _ => vec![one],
        };
        let class = fault.class();
        self.partitions += u64::from(fault.is_partition());
        match fault {
            // The functions that these call record the phases when the lives end.
            Fault::End(end, _) => return self.end(class, end, struck).await,
            Fault::EndAtIo(end, _) => return self.end_at_io(class, end, struck).await,
            Fault::EndIn(end, phase, whom) => return self.hunt(class, (end, phase, whom), one).await,
            _ => {}
        }
        let phases: BTreeSet<Phase> = struck.iter().flat_map(|name| self.cluster.phases(name)).collect();
        self.coverage.struck(class, &phases);
        match fault {
            Fault::Remove(_) => self.remove(struck, false).await,
            Fault::RemoveKilled(_) => self.remove(struck, true).await,
            Fault::SlowImage => self.slow_image(one).await,
            Fault::BadImage => self.bad_image(one).await,
            // The result does not matter: there may be no leader at this moment.
            Fault::Transfer => drop(self.cluster.transfer(one).await),
            Fault::Verify => self.cluster.verify().await,
            Fault::Depose => self.depose(struck).await,
            Fault::Flap => self.flap(one, other).await,
            Fault::Day => self.day().await,
            Fault::Tamper(_) => self.tamper(struck, one, other).await,
            Fault::BadPage(_) => self.bad_page(struck).await,
            Fault::Move(_) => self.relocate(struck).await,
            _ => struck.into_iter().for_each(|name| self.afflict(fault, name, other)),
        }
    }

    /// Applies a fault that takes effect at once and lasts.
    fn afflict(&mut self, fault: Fault, name: &'static str, other: &'static str) {
        let world = self.cluster.world().clone();
        let (rng, clock, host) = (&self.rng, world.clock(name), world.host(name));
        let either_way = |most: u64| {
            let wrong = i64::try_from(rng.below(2 * most)).unwrap_or(0);
            wrong - i64::try_from(most).unwrap_or(0)
        };
        match fault {
            Fault::Isolate(_) => world.net().isolate(name),
            Fault::Cut => world.net().cut(name, other),
            Fault::CutWay => world.net().cut_way(name, other),
            Fault::Reset => world.net().reset(name, other),
            Fault::Garble => world.net().garble(name, other),
            Fault::Latency => world.net().set_latency(SLOW_NET),
            Fault::Pause => {
                if let Some(host) = host {
                    host.pause();
                    self.paused.insert(name);
                }
            }
            Fault::Clock => clock.set_offset(self.passed + either_way(CLOCK_WRONG_MAX) * 1_000_000_000),
            Fault::ClockYear => {
                let sign = if rng.chance(0.5) { 1 } else { -1 };
                clock.set_offset(self.passed + sign * i64::try_from(CLOCK_YEAR).unwrap_or(0) * 1_000_000_000);
            }
            Fault::Drift => clock.set_drift(either_way(CLOCK_DRIFT_MAX)),
            Fault::Slow => self.slow_down(name),
            Fault::WriteFails(_) => self.fails(name, |disk, after| disk.fail_after(after, DiskFault::Io)),
            Fault::ReadFails(_) => self.fails(name, SimDisk::fail_read_after),
            Fault::SyncFails(_) if rng.chance(0.3) => {
                self.cluster.doom(name, |disk| disk.fail_sync_of(DATABASE_WAL));
            }
            Fault::SyncFails(_) => self.fails(name, SimDisk::fail_sync_after),
            Fault::Full(_) => self.cluster.fill_disk(name, Some(rng.below(ROOM_MAX))),
            Fault::Reader(_) => self.read(name),
            _ => {}
        }
    }

    /// Makes a node's disk and processor slow.
    fn slow_down(&self, name: &'static str) {
        if let Some(host) = self.cluster.world().host(name) {
            let busy_max = Duration::from_millis(40);
            host.set_pace(Pace { postpone: 0.2, busy: 0.8, busy_max, stall: 0.05, ..Pace::default() });
        }
    }

    /// Reads a node's database file from outside for a while.
    fn read(&self, name: &'static str) {
        let time = Duration::from_millis(self.rng.below(READER_MAX_MILLIS));
        self.cluster.read_until(name, Instant::now() + time);
    }

    /// Makes an operation on a node's disk fail, some operations later.
    fn fails(&self, name: &'static str, fail: impl FnOnce(&SimDisk, u64)) {
        let after = self.rng.below(OPERATIONS_MAX);
        self.cluster.doom(name, |disk| fail(disk, after));
    }

    /// Cuts off the archiver until another has taken over. It does not hear of that before the round ends.
    async fn depose(&mut self, struck: Vec<&'static str>) {
        let cluster = self.cluster.clone();
        let Some(archive) = cluster.archive() else { return };
        struck.into_iter().for_each(|name| cluster.world().net().isolate(name));
        let (token, end) = (archive.token(), Instant::now() + TAKEN_OVER_MAX * self.calm);
        while archive.token() == token && Instant::now() < end {
            self.pass(LOOK_EVERY * self.calm).await;
        }
    }

    /// Cuts and restores a link several times.
    async fn flap(&mut self, one: &str, other: &str) {
        for _ in 0..=self.rng.below(FLAPS_MAX) {
            self.cluster.world().net().cut(one, other);
            self.pass_up_to(250).await;
            self.cluster.world().net().heal(one, other);
            self.pass_up_to(250).await;
        }
    }

    /// Lets more than a day pass at once, mostly right after the leader was killed, when clients do not know which of
    /// their writes were done.
    async fn day(&mut self) {
        if self.rng.chance(0.7) {
            self.end(End::Kill.name(), End::Kill, self.some(Whom::Leader)).await;
        }
        let nanos = i64::try_from(DAY_NANOS).unwrap_or(0);
        self.passed += nanos;
        for name in self.cluster.names() {
            self.cluster.world().clock(name).jump(nanos);
        }
    }

    fn some(&self, whom: Whom) -> Vec<&'static str> {
        let mut names = self.cluster.names().to_vec();
        let first = self.below(names.len());
        names.rotate_left(first);
        match whom {
            Whom::Leader => {
                names.truncate(1);
                self.cluster.leader().map_or(names, |leader| vec![leader])
            }
            Whom::One => {
                names.truncate(1);
                names
            }
            Whom::Two => {
                names.truncate(2);
                names
            }
            Whom::All => names,
        }
    }

    /// Returns two different nodes.
    fn pair(&self) -> (&'static str, &'static str) {
        let mut names = self.cluster.names().to_vec();
        let one = names.remove(self.below(names.len()));
        let other = names.remove(self.below(names.len()));
        (one, other)
    }

    fn below(&self, bound: usize) -> usize {
        usize::try_from(self.rng.below(u64::try_from(bound).unwrap_or(0))).unwrap_or(0)
    }
}
