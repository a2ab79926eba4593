//! Runs one seed: a cluster is created, works under faults, recovers after their end, and is compared with the results
//! that its clients got.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use quorate::{Level, Sql, Status, config::Durability};
use quorate_env::{Instant, Rng, lock, sleep};
use quorate_env_sim::SimWorld;
use quorate_model::GroupId;
use quorate_model::limits::FORMAT_LEVEL;

use crate::archive::SimArchive;
use crate::cluster::{BESIDE, Cluster, End, SEGMENT_BYTES};
use crate::coverage::{Coverage, DAMAGE_READ, EXPIRED, EXPIRED_RETRY, HEALED, WORK_RIGHT, WORK_WRONG};
use crate::faults::{Crashes, Faults};
use crate::history::History;
use crate::ledger::{Counts, Ledger};
use crate::load::{self, Load};
use crate::vfs;

/// How often the simulator checks whether a node that is down runs again.
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// How long the creation of a cluster may take, and how long after the end of all faults until the cluster is whole and
/// serves.
const SETTLE_MAX: Duration = Duration::from_secs(60);

/// How often an operator makes decisions that the nodes can't make.
const DECISIONS_MAX: u32 = 8;

/// The maximum size of the log of an idle node.
const RESTING_BYTES: u64 = 2 * SEGMENT_BYTES;

/// How long nodes with damaged databases are watched. It is longer than a member must be silent before another node may
/// replace it.
const DAMAGED_WAIT: Duration = Duration::from_secs(15);

/// A run fails after this many times its planned time, the time for which nodes were stuck, and, if a disk was lost,
/// the time until an operator comes.
const OVERTIME: u32 = 6;

/// How long writes wait each time that nodes are stuck in a statement. It may be as long as a short run is planned to
/// take.
const STUCK_WAIT: Duration = Duration::from_secs(12);

/// If a disk was lost, an operator makes decisions after this many times the planned time, because the cluster may be
/// waiting for the voter whose disk it was.
const OPERATOR_COMES: u32 = 3;

/// How long a seed runs, and how much must happen in it.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Virtual time from the creation of the cluster to the last fault, at least.
    pub time: Duration,
    /// The number of process lives that must end.
    pub crashes: u32,
    /// The number of writes that must be acknowledged.
    pub writes: u64,
    /// How many of the last events a failure contains.
    pub told_events: usize,
    /// The durability of the cluster. With `os` only one machine at a time loses power, because acknowledged writes do
    /// not survive more than that.
    pub durability: Durability,
    /// Virtual time at which the run is stopped, to look at the events until then.
    pub until: Option<Duration>,
    /// How many times longer than usual faults and the pauses of clients last.
    pub calm: u32,
    /// A class of faults from which every second fault is drawn, where that is possible.
    pub favoured: Option<&'static str>,
}

impl Plan {
    /// The plan that a release must pass.
    pub const FULL: Self = Self {
        time: Duration::from_secs(60),
        crashes: 5,
        writes: 1_000,
        told_events: 40,
        durability: Durability::Fsync,
        until: None,
        calm: 1,
        favoured: None,
    };
    /// Nodes are away for long, and come back to a cluster that has purged the entries that they need.
    pub const LONG: Self = Self { time: Duration::from_secs(3_600), calm: 60, ..Self::FULL };
    /// The plan of the daily tests.
    pub const SHORT: Self = Self { time: Duration::from_secs(12), crashes: 2, writes: 100, ..Self::FULL };
}

/// What happened in a seed that passed.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// Virtual time of the whole run.
    pub time: Duration,
    /// The number of nodes.
    pub nodes: usize,
    /// The number of process lives that ended.
    pub crashes: Crashes,
    /// How often nodes were separated from each other.
    pub partitions: u64,
    /// Which faults struck nodes in which phases.
    pub coverage: Coverage,
    /// How many writes ended in each way.
    pub counts: Counts,
    /// The number of images that were installed.
    pub installs: u64,
    /// The last index of the log.
    pub last_index: u64,
    /// How many states were compared with the state of another node at the same index.
    pub compared: u64,
    /// How long it took from the end of all faults until the cluster was whole and served.
    pub settled: Duration,
    /// The number of events.
    pub events: u64,
    /// The hash of all events.
    pub trace_hash: u64,
}

/// A seed that failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("seed {seed} failed, trace {trace_hash:016x}:\n{}\nthe last events were\n{tail}", violations.join("\n"))]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The violations that were found.
    pub violations: Vec<String>,
    /// The number of faults that were drawn.
    pub faults: u32,
    /// The hash of all events.
    pub trace_hash: u64,
    /// The last events.
    pub tail: String,
}

impl Failure {
    /// Returns `false`, because the seed would fail in the same way again.
    pub fn is_retryable(&self) -> bool {
        false
    }
}

/// Runs a seed.
pub fn run(seed: u64, plan: &Plan) -> Result<Report, Box<Failure>> {
    run_without(seed, plan, &BTreeSet::new())
}

/// Runs a seed without some of its faults, given by their numbers. Such a run need not reach the crashes and writes
/// that the plan demands.
///
/// A process runs one seed at a time, because SQLite's own randomness is shared by the whole process.
pub fn run_without(seed: u64, plan: &Plan, skipped: &BTreeSet<u32>) -> Result<Report, Box<Failure>> {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = lock(&ALONE);
    vfs::seed_randomness(seed);
    let world = SimWorld::new(seed);
    let history = History::new(world.trace());
    let limit = plan.until.unwrap_or(plan.time * (OVERTIME + OPERATOR_COMES + 1) + SETTLE_MAX * 4);
    let ran = world.run_within(limit, live(&world, &history, plan, skipped));
    let mut violations = history.violations();
    match ran {
        Ok(Some(report)) if violations.is_empty() => {
            return Ok(Report { events: world.trace().count(), trace_hash: world.trace().hash(), ..report });
        }
        Ok(_) => {}
        Err(error) => violations.push(error.to_string()),
    }
    let (trace_hash, tail) = (world.trace().hash(), world.trace().tail(plan.told_events));
    Err(Box::new(Failure { seed, violations, faults: history.faults(), trace_hash, tail }))
}

/// Returns `None` if the run could not continue; the history says why.
async fn live(world: &SimWorld, history: &History, plan: &Plan, skipped: &BTreeSet<u32>) -> Option<Report> {
    let cluster = Cluster::new(world, history, plan.durability).archived(plan.calm);
    let ledger = Ledger::default();
    let mut faults = Faults::new(&cluster, skipped.clone(), plan);
    create(&cluster).await?;
    let load = Load::start(&cluster, &ledger, plan.calm);
    let demands = if skipped.is_empty() { *plan } else { Plan { crashes: 0, writes: 0, ..*plan } };
    run_faults(&cluster, &ledger, &mut faults, &demands).await?;
    faults.mend().await;
    cluster.archive().into_iter().for_each(SimArchive::calm);
    let mended = Instant::now();
    serves(&cluster).await?;
    let settled = mended.elapsed();
    cluster.reviving(load.end()).await;
    compare(&cluster, &ledger).await?;
    logs(&cluster).await;
    rest(&cluster, &ledger).await?;
    cluster.end_archive().await;
    all_damaged(&cluster).await;
    Some(Report {
        seed: world.seed(),
        time: world.elapsed(),
        nodes: cluster.names().len(),
        crashes: faults.crashes(),
        partitions: faults.partitions(),
        coverage: met(&faults, &ledger, &cluster),
        counts: ledger.counts(),
        installs: history.installs(),
        last_index: history.last_index(),
        compared: history.compared(),
        settled,
        events: 0,
        trace_hash: 0,
    })
}

/// Returns which faults struck, and everything else that a run of many seeds must have met.
fn met(faults: &Faults, ledger: &Ledger, cluster: &Cluster) -> Coverage {
    let history = cluster.history();
    let ((right, wrong), (expired, expired_retries)) = (history.prefetched(), history.expired());
    let seen = [
        (WORK_RIGHT, right),
        (WORK_WRONG, wrong),
        (HEALED, history.healed()),
        (DAMAGE_READ, faults.damage_read()),
        (EXPIRED, expired),
        (EXPIRED_RETRY, expired_retries),
    ];
    let archived = cluster.archive().into_iter().flat_map(SimArchive::happenings);
    let all = seen.into_iter().chain(ledger.happenings()).chain(archived);
    all.fold(faults.coverage().clone(), |coverage, (what, count)| coverage.with(what, count))
}

async fn create(cluster: &Cluster) -> Option<()> {
    cluster.names().iter().for_each(|name| cluster.start(name));
    if !cluster.until(SETTLE_MAX, Cluster::is_whole).await {
        cluster.history().violation("the cluster was not created in time".to_owned());
        return None;
    }
    let sql = any(cluster)?;
    let prepared = load::prepare(&sql, cluster.world()).await;
    prepared.map_err(|error| cluster.history().violation(format!("the tables can't be created: {error}"))).ok()?;
    if !cluster.until(SETTLE_MAX, Cluster::is_whole).await {
        cluster.history().violation("the tables did not reach all nodes in time".to_owned());
        return None;
    }
    cluster.has_tables();
    Some(())
}

async fn run_faults(cluster: &Cluster, ledger: &Ledger, faults: &mut Faults, plan: &Plan) -> Option<()> {
    let begun = Instant::now();
    let is_done = |faults: &Faults| {
        begun.elapsed() >= plan.time
            && faults.crashes().total() >= plan.crashes
            && ledger.counts().acknowledged >= plan.writes
    };
    let is_disk_lost = |faults: &Faults| faults.crashes().wipe > 0;
    while !is_done(faults) {
        if !cluster.history().violations().is_empty() {
            return None;
        }
        let times = OVERTIME + if is_disk_lost(faults) { OPERATOR_COMES } else { 0 };
        if begun.elapsed() > plan.time * times + STUCK_WAIT * cluster.times_stuck() {
            let (counts, crashes, summary) = (ledger.counts(), faults.crashes(), cluster.summary());
            cluster.history().violation(format!("too little progress: {counts:?}, {crashes:?}; {summary}"));
            return None;
        }
        faults.round().await;
        if cluster.archive().is_some_and(SimArchive::is_due) {
            cluster.reviving(cluster.examine_archive()).await;
        }
        if begun.elapsed() > plan.time * OPERATOR_COMES && is_disk_lost(faults) {
            cluster.decide().await;
        }
    }
    Some(())
}

/// Checks that the cluster becomes whole after the faults, and that each node can write.
async fn serves(cluster: &Cluster) -> Option<()> {
    for _ in 0..DECISIONS_MAX {
        if cluster.until(SETTLE_MAX / 4, Cluster::is_whole).await {
            break;
        }
        cluster.decide().await;
    }
    let deadline = Instant::now() + SETTLE_MAX;
    if !cluster.until(SETTLE_MAX, Cluster::is_whole).await {
        let statuses = cluster.statuses();
        cluster
            .history()
            .violation(format!("the cluster did not become whole in time after the faults: {statuses:#?}"));
        return None;
    }
    for name in cluster.names() {
        if let Err(error) = writes(cluster, name, deadline).await {
            cluster.history().violation(format!("{name} does not serve after the faults: {error}"));
        }
    }
    Some(())
}

/// Writes through a node, in this life or, if the node crashes while it applies an entry, in the next one.
async fn writes(cluster: &Cluster, name: &'static str, deadline: Instant) -> Result<(), String> {
    let mut failed = "it is down".to_owned();
    while Instant::now() < deadline {
        let Some(sql) = cluster.sql(name) else {
            cluster.reviving(sleep(LOOK_EVERY)).await;
            continue;
        };
        let sql = sql.with_deadline(deadline.saturating_duration_since(Instant::now()));
        match cluster.reviving(sql.execute("UPDATE totals SET moved = 0 WHERE client = 0", ())).await {
            Ok(_) => return Ok(()),
            Err(error) => failed = error.to_string(),
        }
    }
    Err(failed)
}

/// Checks that all nodes reach the same index with the same state, and compares their data with the ledger of the
/// clients.
async fn compare(cluster: &Cluster, ledger: &Ledger) -> Option<()> {
    if !cluster.until(SETTLE_MAX, Cluster::nothing_is_due).await {
        cluster.history().violation("items that have expired are not swept".to_owned());
        return None;
    }
    if !cluster.until(SETTLE_MAX, |cluster| cluster.is_whole() && cluster.indexes_are_equal()).await {
        cluster.look();
        let statuses = cluster.statuses();
        cluster.history().violation(format!("the nodes do not reach the same index: {statuses:#?}"));
        return None;
    }
    cluster.look();
    cluster.sample();
    cluster.compare_items(&ledger.items());
    let sql = any(cluster)?.at(Level::Linearizable);
    match cluster.reviving(load::held(&sql, cluster.world())).await {
        Ok(held) => ledger.check(held, cluster.history()),
        Err(error) => cluster.history().violation(format!("the tables can't be read: {error}")),
    }
    Some(())
}

/// Checks that the logs of the nodes hold the same entries where they overlap.
async fn logs(cluster: &Cluster) {
    for name in cluster.names() {
        cluster.end(name, End::Kill).await;
    }
    for group in [GroupId::MAIN, BESIDE] {
        compare_logs(cluster, group);
    }
}

fn compare_logs(cluster: &Cluster, group: GroupId) {
    let mut logs = Vec::new();
    for name in cluster.names() {
        match cluster.log(name, group) {
            Ok(log) => logs.push((name, log)),
            Err(error) => cluster.history().violation(format!("the log of {name} can't be read: {error}")),
        }
    }
    for (name, log) in logs.iter().skip(1) {
        let Some((first_name, first)) = logs.first() else { return };
        for (index, entry) in log {
            if let Some(other) = first.get(index).filter(|other| *other != entry) {
                let text = format!("at {index} the log of {name} has {entry}, that of {first_name} has {other}");
                cluster.history().violation(text);
            }
        }
    }
}

/// Starts all nodes again after they were killed at once. Checks that their logs become small while the cluster is
/// idle, and that nothing is lost.
async fn rest(cluster: &Cluster, ledger: &Ledger) -> Option<()> {
    cluster.names().iter().for_each(|name| cluster.start(name));
    serves(cluster).await?;
    let is_small = |cluster: &Cluster| cluster.statuses().iter().all(|status| status.log_bytes <= RESTING_BYTES);
    if !cluster.until(SETTLE_MAX, |cluster| cluster.is_whole() && is_small(cluster)).await {
        let bytes: Vec<u64> = cluster.statuses().iter().map(|status| status.log_bytes).collect();
        cluster.history().violation(format!("the logs of idle nodes do not become small: {bytes:?}"));
    }
    let is_raised = |cluster: &Cluster| cluster.statuses().iter().all(|status| status.format_level == FORMAT_LEVEL);
    if !cluster.until(SETTLE_MAX, is_raised).await {
        let levels: Vec<u32> = cluster.statuses().iter().map(|status| status.format_level).collect();
        cluster.history().violation(format!("all nodes run the current version, and use the format levels {levels:?}"));
    }
    compare(cluster, ledger).await
}

/// Damages the databases of all nodes, or of all nodes but one whose disk is lost. No node can tell what was
/// acknowledged, so none may serve: an operator must decide what to do with the data that are left.
async fn all_damaged(cluster: &Cluster) {
    let rng = cluster.world().rng().fork();
    let wiped = if rng.chance(0.3) { pick(&rng, cluster.names()) } else { None };
    for name in cluster.names() {
        cluster.end(name, if wiped == Some(*name) { End::Wipe } else { End::BadDatabase }).await;
    }
    for name in cluster.names() {
        // Other files also show that there was a cluster, so some nodes lose the file that names it.
        if rng.chance(0.3) {
            cluster.lose_cluster_file(name);
        }
        cluster.start(name);
    }
    // A node that has neither members nor entries does not count as serving. It may have started because it took
    // another node, which had not examined its damaged database yet, for a member; it waits in vain.
    let is_part = |status: &Status| !status.members.is_empty() || status.last_index > 0;
    if cluster.until(DAMAGED_WAIT, |cluster| cluster.statuses().iter().any(is_part)).await {
        let statuses = cluster.statuses();
        cluster.history().violation(format!("nodes whose databases are all damaged serve: {statuses:#?}"));
    }
}

fn pick(rng: &Rng, names: &[&'static str]) -> Option<&'static str> {
    names.get(usize::try_from(rng.below(names.len() as u64)).ok()?).copied()
}

fn any(cluster: &Cluster) -> Option<Sql> {
    let sql = cluster.names().iter().find_map(|name| cluster.sql(name));
    if sql.is_none() {
        cluster.history().violation("no node serves".to_owned());
    }
    sql
}
