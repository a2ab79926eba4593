//! How lives end: at once, in the middle of an I/O, in a phase, with the disk, by removal.
//!
//! Invariant: a life that ends is counted, with the phases that it was in.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Either, select};
use quorate_env::{Instant, sleep};

use super::{DATABASE_WAL, Faults, OPERATIONS_MAX, SLOW_NET};
use crate::atlas::{Fault, Whom};
use crate::cluster::End;
use crate::coverage::Phase;

/// How long to wait until a life is told to do the I/O in which it ends.
const OPERATIONS_WAIT: Duration = Duration::from_millis(800);

/// How long to wait until somebody is in a phase, and how often to look.
const HUNT_MAX: Duration = Duration::from_secs(3);
const HUNT_EVERY: Duration = Duration::from_millis(1);

/// How often a node with a bad page is read from.
const READ_EVERY: Duration = Duration::from_millis(50);

/// How long a leader has been slow at most when it is killed, and an image been on its way when it is damaged.
const SLOW_MAX_MILLIS: u64 = 300;
const BAD_IMAGE_MAX_MILLIS: u64 = 15;

/// How long after the request the leader is killed that is to remove a member.
const REMOVAL_MAX_MILLIS: u64 = 60;

impl Faults {
    /// Lives end at once.
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

    /// Lives end in the middle of what they tell their disks, if they tell them anything soon.
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

    /// A life ends as soon as a node is in a phase, if one soon is. `one` gives reason to some phases.
    pub(super) async fn hunt(
        &mut self,
        class: &'static str,
        (end, phase, whom): (End, Phase, Whom),
        one: &'static str,
    ) {
        if phase.is_of_images() {
            self.end(End::Wipe.name(), End::Wipe, vec![one]).await;
            // Who is to send it, perhaps, can't bring its file up to date.
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
        let mut prey = self.cluster.names().to_vec();
        if let (Phase::Append, Whom::Leader) = (phase, whom) {
            // Who is slow has not yet written what others have committed.
            prey = self.some(whom);
            prey.iter().for_each(|name| self.afflict(Fault::Slow, name, one));
            self.pass_up_to(SLOW_MAX_MILLIS).await;
        }
        let limit = Instant::now() + HUNT_MAX;
        while Instant::now() < limit {
            let is_in = |name: &&'static str| self.cluster.is_alive(name) && self.cluster.phases(name).contains(&phase);
            if let Some(name) = prey.iter().copied().find(is_in) {
                let struck = if let Whom::All = whom { self.some(whom) } else { vec![name] };
                // One node has lost its disk already for these phases; another must not forget what it promised.
                let is_second = phase.is_of_images() && name != one && self.loses(end);
                self.end(class, if is_second { End::Kill } else { end }, struck).await;
                // A fast restart, while its peers have not missed it.
                if self.rng.chance(0.5) && !self.cluster.is_alive(name) {
                    self.cluster.start(name);
                }
                return;
            }
            self.pass(HUNT_EVERY).await;
        }
    }

    /// A disk is lost, and the image that makes it good is on its way for long.
    pub(super) async fn slow_image(&mut self, name: &'static str) {
        self.end(End::Wipe.name(), End::Wipe, vec![name]).await;
        self.cluster.start(name);
        match self.cluster.leader().filter(|_| self.rng.chance(0.5)) {
            // It writes on while it sends, and its database wants to change beside the image.
            Some(sender) => self.slow_down(sender),
            None => self.cluster.world().net().set_latency(SLOW_NET),
        }
        // What is sent was written before, and not all of it was synced.
        let fails = self.rng.chance(0.3).then(|| self.cluster.leader()).flatten();
        fails.into_iter().for_each(|leader| self.cluster.doom(leader, |disk| disk.fail_sync_of(DATABASE_WAL)));
    }

    /// A disk is lost, and does not keep the image that is to make it good.
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

    /// Somebody changes a node's data, once. Perhaps another one is away, and of three nodes two
    /// hold different things.
    pub(super) async fn tamper(&mut self, struck: Vec<&'static str>, one: &'static str, other: &'static str) {
        for name in struck {
            if !self.tampered.insert(name) {
                continue;
            }
            self.lost = Some(name);
            self.cluster.tamper(name);
            if self.rng.chance(0.5) {
                let away = if one == name { other } else { one };
                self.end(End::Kill.name(), End::Kill, vec![away]).await;
            }
        }
    }

    /// A page of a node's database goes bad, and somebody reads all rows there until that shows. Where it does not, the
    /// disk is replaced: the damage would come to light at any time.
    pub(super) async fn bad_page(&mut self, struck: Vec<&'static str>) {
        for name in struck {
            // One that stands still takes no note of anything.
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

    /// A node is killed, and comes back at another address. One node of a cluster does, so that who knows the former
    /// addresses still finds the others.
    pub(super) async fn relocate(&mut self, struck: Vec<&'static str>) {
        for name in struck {
            let name = *self.moves.get_or_insert(name);
            self.end(End::Kill.name(), End::Kill, vec![name]).await;
            self.cluster.move_away(name);
        }
    }

    /// An operator removes a node and gives its name to an empty directory, which joins when the node starts.
    ///
    /// Where the removal is in doubt, or was refused, this is a lost disk.
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
