//! The ways in which process lives end: at once, in the middle of an I/O, in a phase, with the loss of the disk, by
//! removal.
//!
//! Invariant: each life that a fault ends is counted.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Either, select};
use quorate_env::{Instant, sleep};

use super::{DATABASE_WAL, Faults, OPERATIONS_MAX, SLOW_NET};
use crate::atlas::{Fault, Whom};
use crate::cluster::End;
use crate::coverage::Phase;

/// How long to wait for the I/O in which a life is to end.
const OPERATIONS_WAIT: Duration = Duration::from_millis(800);

/// How long to wait until a node is in a phase, and how often to check.
const HUNT_MAX: Duration = Duration::from_secs(3);
const HUNT_EVERY: Duration = Duration::from_millis(1);

/// How often a node with a bad page is read.
const READ_EVERY: Duration = Duration::from_millis(50);

/// How long a leader is slow at most before it is killed, and how long an image has been arriving at most before it is
/// damaged.
const SLOW_MAX_MILLIS: u64 = 300;
const BAD_IMAGE_MAX_MILLIS: u64 = 15;

/// How long after a request to remove a member the leader is killed at most.
const REMOVAL_MAX_MILLIS: u64 = 60;

impl Faults {
    /// Ends the lives of nodes at once.
    pub(super) async fn end(&mut self, class: &'static str, end: End, struck: Vec<&'static str>) {
        for name in struck {
            if !self.cluster.is_alive(name) {
                continue;
            }
            let end = if self.cluster.keeps_disks() && self.loses(end) { End::Kill } else { end };
            match end {
                End::Power => self.crashes.power += 1,
                End::Kill => self.crashes.kill += 1,
                End::Wipe => self.crashes.wipe += 1,
                End::BadLog | End::BadDatabase | End::BadPointer => self.crashes.damage += 1,
            }
            if self.loses(end) {
                self.lost = Some(name);
            }
            self.paused.remove(name);
            self.coverage.struck(class, &self.cluster.phases(name));
            self.cluster.end(name, end).await;
        }
    }

    /// Ends the lives of nodes in the middle of an I/O. A life in which no such I/O comes soon ends at the limit.
    pub(super) async fn end_at_io(&mut self, class: &'static str, end: End, struck: Vec<&'static str>) {
        let world = self.cluster.world().clone();
        for name in &struck {
            let (after, syncs) = (self.rng.below(OPERATIONS_MAX), self.rng.chance(0.5));
            self.cluster.doom(name, |disk| if syncs { disk.stop_sync_after(after) } else { disk.stop_after(after) });
        }
        let limit = Instant::now() + OPERATIONS_WAIT;
        let mut left = struck;
        while !left.is_empty() {
            let is_over = Instant::now() >= limit;
            let (now, later) = left.into_iter().partition(|name| is_over || world.disk(name).has_stopped());
            left = later;
            self.end(class, end, now).await;
            if !left.is_empty() {
                self.pass(Duration::from_millis(1)).await;
            }
        }
    }

    /// Ends a life as soon as a node is in a phase, if one soon is. The node `one` loses its disk or restarts where the
    /// phase requires that.
    pub(super) async fn hunt(
        &mut self,
        class: &'static str,
        (end, phase, whom): (End, Phase, Whom),
        one: &'static str,
    ) {
        if phase.is_of_images() {
            self.end(End::Wipe.name(), End::Wipe, vec![one]).await;
            // Sometimes a reader keeps the leader from completing a checkpoint, which it needs to send an image.
            let reads = self.rng.chance(0.3).then(|| self.cluster.leader()).flatten();
            reads.into_iter().for_each(|leader| self.read(leader));
        } else if phase == Phase::Starts {
            self.end(class, End::Kill, vec![one]).await;
        } else if phase == Phase::Elected {
            self.end(class, End::Kill, self.some(Whom::Leader)).await;
        }
        if !self.cluster.is_alive(one) {
            self.cluster.start(one);
        }
        let mut candidates = self.cluster.names().to_vec();
        if let (Phase::Append, Whom::Leader) = (phase, whom) {
            // A slow node has often not written entries yet that the others have committed.
            candidates = self.some(whom);
            candidates.iter().for_each(|name| self.afflict(Fault::Slow, name, one));
            self.pass_up_to(SLOW_MAX_MILLIS).await;
        }
        let limit = Instant::now() + HUNT_MAX;
        while Instant::now() < limit {
            let is_in = |name: &&'static str| self.cluster.is_alive(name) && self.cluster.phases(name).contains(&phase);
            if let Some(name) = candidates.iter().copied().find(is_in) {
                let struck = if let Whom::All = whom { self.some(whom) } else { vec![name] };
                // `one` has already lost its disk for these phases, so another node must not lose data too.
                let is_second = phase.is_of_images() && name != one && self.loses(end);
                self.end(class, if is_second { End::Kill } else { end }, struck).await;
                // A restart so fast that its peers have not noticed its absence.
                if self.rng.chance(0.5) && !self.cluster.is_alive(name) {
                    self.cluster.start(name);
                }
                return;
            }
            self.pass(HUNT_EVERY).await;
        }
    }

    /// Wipes a node, and makes the transfer of the image that restores it slow.
    pub(super) async fn slow_image(&mut self, name: &'static str) {
        self.end(End::Wipe.name(), End::Wipe, vec![name]).await;
        self.cluster.start(name);
        match self.cluster.leader().filter(|_| self.rng.chance(0.5)) {
            // The sender continues to write while it sends, so its database changes during the transfer.
            Some(sender) => self.slow_down(sender),
            None => self.cluster.world().net().set_latency(SLOW_NET),
        }
        // The image contains data that were written and not all synced before; sometimes their sync fails.
        let fails = self.rng.chance(0.3).then(|| self.cluster.leader()).flatten();
        fails.into_iter().for_each(|leader| self.cluster.doom(leader, |disk| disk.fail_sync_of(DATABASE_WAL)));
    }

    /// Wipes a node, and damages the image that is to restore it while the image arrives.
    pub(super) async fn bad_image(&mut self, name: &'static str) {
        self.end(End::Wipe.name(), End::Wipe, vec![name]).await;
        self.cluster.start(name);
        let limit = Instant::now() + HUNT_MAX;
        while Instant::now() < limit && !self.cluster.phases(name).contains(&Phase::GetsImage) {
            self.pass(HUNT_EVERY).await;
        }
        self.pass_up_to(BAD_IMAGE_MAX_MILLIS).await;
        self.cluster.damage_image(name);
    }

    /// Changes a node's data, at most once for each node. Half of the time another node is killed first, so that of
    /// three nodes the remaining two hold different data.
    pub(super) async fn tamper(&mut self, struck: Vec<&'static str>, one: &'static str, other: &'static str) {
        for name in struck {
            if !self.tampered.insert(name) {
                continue;
            }
            self.lost = Some(name);
            self.cluster.tamper(name);
            if self.rng.chance(0.5) {
                // The data are changed only while no node is away.
                let limit = Instant::now() + HUNT_MAX;
                while Instant::now() < limit && self.cluster.is_target(name) {
                    self.pass(HUNT_EVERY).await;
                }
                let away = if one == name { other } else { one };
                self.end(End::Kill.name(), End::Kill, vec![away]).await;
            }
        }
    }

    /// Overwrites a page of a node's database, and reads all rows there until the damage is found. If no read finds it
    /// in time, the disk is replaced: otherwise the damage could be found at any later time.
    pub(super) async fn bad_page(&mut self, struck: Vec<&'static str>) {
        for name in struck {
            // A paused node can't notice damage.
            self.resume(name);
            if !self.cluster.spoil_page(name) {
                continue;
            }
            self.lost = Some(name);
            let limit = Instant::now() + HUNT_MAX;
            while Instant::now() < limit && self.cluster.is_spoiled(name) {
                self.damage_read += u64::from(self.cluster.read_all(name).await);
                self.pass(READ_EVERY).await;
            }
            if self.cluster.is_spoiled(name) {
                self.end(End::Wipe.name(), End::Wipe, vec![name]).await;
            }
        }
    }

    /// Kills a node and gives it another address. Only one node of a cluster moves, so that a client that knows the
    /// original addresses can still reach the others.
    pub(super) async fn relocate(&mut self, struck: Vec<&'static str>) {
        for name in struck {
            let name = *self.moves.get_or_insert(name);
            self.end(End::Kill.name(), End::Kill, vec![name]).await;
            self.cluster.move_away(name);
        }
    }

    /// Removes a node, as an operator does, and gives its name to an empty directory, which joins when the node starts.
    ///
    /// If the removal fails or its result is unknown, this counts as a lost disk.
    pub(super) async fn remove(&mut self, struck: Vec<&'static str>, is_cut: bool) {
        for name in struck {
            let cluster = self.cluster.clone();
            let removing = cluster.remove(name).boxed();
            let time = Duration::from_millis(self.rng.below(REMOVAL_MAX_MILLIS));
            let removed = match select(removing, sleep(if is_cut { time } else { Duration::MAX }).boxed()).await {
                Either::Left((removed, _)) => removed,
                Either::Right((_, removing)) => {
                    let leader = self.cluster.leader().filter(|leader| *leader != name);
                    self.end(End::Kill.name(), End::Kill, leader.into_iter().collect()).await;
                    removing.await
                }
            };
            self.cluster.world().trace().add("faults", format_args!("removal of {name}: {removed:?}"));
            self.crashes.removal += u32::from(removed.is_ok());
            self.crashes.wipe += u32::from(removed.is_err());
            self.lost = Some(name);
            self.paused.remove(name);
            self.cluster.end(name, End::Wipe).await;
        }
    }
}
