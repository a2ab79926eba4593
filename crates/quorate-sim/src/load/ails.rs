//! Statements that some, most or all nodes can't apply, each for one of several reasons.
//!
//! Invariant: a statement that less than a majority of the nodes can't apply is never rejected, unless the database of
//! another node was damaged, or the statement takes longer than a leader allows for an entry.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join;
use quorate::{Error, FailureKind};
use quorate_env::{Env, Instant, Rng, sleep};

use super::{WRITE_LIMIT, connected};
use crate::cluster::{Cluster, End as LifeEnd};
use crate::coverage::{AILED, REJECTED};
use crate::ledger::{End, Ledger};
use crate::program::Ailment;

/// One cluster in this many gets no such statements.
const SPARED_ONE_IN: u64 = 2;

/// The longest pause between two such statements, in milliseconds.
const PAUSE_MILLIS: u64 = 8_000;

/// How often, and how many times at most, the simulator checks whether a node is down.
const AWAY_LOOK_EVERY: Duration = Duration::from_millis(20);
const AWAY_LOOKS_MAX: u32 = 100;

/// How long the entries of a follower that can apply such a statement are delayed.
const LATE: Duration = Duration::from_millis(500);

/// How long before the statement the delay begins.
const LATE_BEFORE: Duration = Duration::from_millis(50);

/// The follower crashes within this many milliseconds after it has promised to stop before the statement.
const DIES_MAX_MILLIS: u64 = 20;

/// How often, and for how long, the simulator checks whether the only node that can apply a statement has done so.
const APPLIED_LOOK_EVERY: Duration = Duration::from_micros(200);
const APPLIED_MAX: Duration = Duration::from_millis(200);

/// How long that node is then down at most, in milliseconds, unless another fault starts it earlier.
const AWAY_MAX_MILLIS: u64 = 4_000;

/// The client that writes such statements.
pub(super) struct Ails {
    cluster: Cluster,
    ledger: Ledger,
    rng: Rng,
    stop: Arc<AtomicBool>,
    calm: u64,
}

impl Ails {
    pub(super) fn new(cluster: &Cluster, ledger: &Ledger, stop: &Arc<AtomicBool>, calm: u32) -> Self {
        let (cluster, ledger, stop) = (cluster.clone(), ledger.clone(), Arc::clone(stop));
        Self { rng: cluster.world().rng().fork(), cluster, ledger, stop, calm: calm.into() }
    }

    pub(super) async fn run(self, env: Env) {
        if self.rng.below(SPARED_ONE_IN) == 0 {
            return;
        }
        let Some(client) = connected(&env, &self.cluster).await else { return };
        let sql = client.sql().with_deadline(WRITE_LIMIT);
        for number in 1.. {
            sleep(Duration::from_millis(self.rng.below(PAUSE_MILLIS * self.calm))).await;
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let kind = usize::try_from(self.rng.below(Ailment::ALL.len() as u64)).unwrap_or_default();
            let Some(ailment) = Ailment::ALL.get(kind).copied() else { return };
            let nodes = self.cluster.names().len();
            // Half of the statements fail on all nodes.
            let all = (1 << nodes) - 1;
            let mut mask = if self.rng.chance(0.5) { all } else { self.rng.below(all) };
            if self.rng.chance(0.3)
                && let Some(running) = self.while_a_node_is_down().await
            {
                mask = running;
            }
            let late = if mask == all && self.rng.chance(0.4) { self.hold_up_follower().await } else { None };
            if let Some(late) = late {
                mask &= !(1 << late);
            }
            // If only a minority can apply the entry, only these nodes can send the others a copy of their data, so
            // they must not lose them.
            let may_be_lost = !self.cluster.keeps_disks() || self.cluster.has_foreign_data();
            while may_be_lost && mask.count_ones() as usize > nodes / 2 {
                mask = self.rng.below(all);
            }
            self.ledger.ailed(number, End::Unknown);
            let begun = Instant::now();
            let failed_before = self.cluster.history().disks_failed();
            let statement = "INSERT INTO ails (number, x) VALUES (?, ail(?, ?))";
            let done = sql.execute(statement, (number, ailment.number(), mask.cast_signed()));
            let dies = async {
                match late {
                    Some(late) => self.kill_once_promised(late).await,
                    None => self.kill_once_applied(all & !mask, number).await,
                }
            };
            let (done, ()) = join(done, dies).await;
            self.cluster.world().trace().add("ails", format_args!("{number}: {ailment:?} of {mask:b}: {done:?}"));
            let is_of_most = mask.count_ones() as usize > nodes / 2;
            // A disk that fails meanwhile is one more node that can't apply the entry.
            let has_disk_failed = self.cluster.history().disks_failed() > failed_before;
            let may_reject = is_of_most || has_disk_failed || ailment == Ailment::Slow && mask != 0;
            self.note(number, may_reject, done.map(drop));
            // While the cluster gets over such a statement it applies no others, and half of the time is for these.
            sleep(begun.elapsed()).await;
        }
    }

    /// Waits until a node is down. Returns the bits of the nodes that run.
    async fn while_a_node_is_down(&self) -> Option<u64> {
        let names = self.cluster.names();
        for _ in 0..AWAY_LOOKS_MAX {
            let running = names.iter().zip(0..).filter(|(name, _)| self.cluster.is_alive(name));
            let running: Vec<u32> = running.map(|(_, place)| place).collect();
            if running.len() < names.len() {
                return Some(running.iter().map(|place| 1 << place).sum());
            }
            sleep(AWAY_LOOK_EVERY).await;
        }
        None
    }

    /// Delays the next entries of a random follower. Returns its place in the list of nodes.
    async fn hold_up_follower(&self) -> Option<usize> {
        let (names, leader) = (self.cluster.names(), self.cluster.leader()?);
        let followers = (0..names.len()).filter(|place| names.get(*place).is_some_and(|name| *name != leader));
        let followers: Vec<usize> = followers.collect();
        let drawn = usize::try_from(self.rng.below(followers.len() as u64)).unwrap_or_default();
        let place = followers.get(drawn).copied()?;
        self.cluster.hold_up(names.get(place)?, LATE);
        sleep(LATE_BEFORE).await;
        Some(place)
    }

    /// Crashes a node once it has promised to stop before an entry that it has not tried to apply.
    async fn kill_once_promised(&self, place: usize) {
        let Some(name) = self.cluster.names().get(place) else { return };
        let limit = Instant::now() + LATE;
        while !self.cluster.has_promised(name) {
            if Instant::now() > limit {
                return;
            }
            sleep(Duration::from_millis(1)).await;
        }
        sleep(Duration::from_millis(self.rng.below(DIES_MAX_MILLIS))).await;
        self.cluster.dies(name);
    }

    /// If only one node can apply a statement, possibly kills it as soon as it has done so, for a while: the others
    /// must not conclude from its silence that it has not.
    async fn kill_once_applied(&self, able: u64, number: i64) {
        let names = self.cluster.names();
        if able.count_ones() != 1 || !self.rng.chance(0.5) {
            return;
        }
        let Some(name) = names.get(able.trailing_zeros() as usize) else { return };
        let limit = Instant::now() + APPLIED_MAX;
        while !self.cluster.has_applied_ail(name, number) {
            if Instant::now() > limit {
                return;
            }
            sleep(APPLIED_LOOK_EVERY).await;
        }
        self.cluster.end(name, LifeEnd::Kill).await;
        sleep(Duration::from_millis(self.rng.below(AWAY_MAX_MILLIS))).await;
        if !self.cluster.is_alive(name) {
            self.cluster.start(name);
        }
    }

    fn note(&self, number: i64, may_reject: bool, done: Result<(), Error>) {
        let history = self.cluster.history();
        match done {
            Ok(()) => {
                self.ledger.happened(AILED);
                self.ledger.ailed(number, End::Acknowledged(None));
            }
            Err(Error::Failed(failure)) => {
                if failure.kind == FailureKind::Rejected {
                    self.ledger.happened(REJECTED);
                    if !may_reject && !history.was_any_spoiled() {
                        history
                            .violation(format!("statement {number} was rejected, although most nodes could apply it"));
                    }
                }
                self.ledger.ailed(number, End::NotDone);
            }
            Err(Error::Forbidden(text)) => history.violation(format!("statement {number} is forbidden: {text}")),
            Err(_) => {}
        }
    }
}
