//! Agreement: nodes compare their outcomes. A node whose data differ from those of a majority stops serving and gets a
//! copy of the majority's data.
//!
//! About once a second, a node asks all voters for the running hash of outcomes after the last entry that it has
//! applied. After a verification it also asks for the logical hashes of their databases. Each node judges only itself.
//!
//! Invariants:
//! - Data are condemned only by a majority of all voters that agree with each other and not with this node: never by a
//!   single node, not even the leader. If there is no such majority, the node raises an alarm and sends no images to
//!   members, so that data that may be wrong do not become those of the majority.
//! - Condemned data are neither served, nor sent to other nodes, nor opened again. They are kept until the copy is
//!   verified. Meanwhile the node votes and keeps its log, but does not lead.
//! - After a second divergence within [`HEALED_ONCE_IN`], whose cause a copy does not fix, the node waits for an
//!   operator.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use quorate_consensus::ImageError;
use quorate_env::disk::{read_file, replace_file};
use quorate_env::mutant::Mutant;
use quorate_env::{Env, Instant, sleep, timeout};
use quorate_model::{GroupId, NodeId, Position, StateMachine, StoreFault};
use quorate_sql::logical_hash::is_bookkeeping;
use quorate_sql::store::Verification;
use quorate_wire::{CallFailure, Purpose, StreamError};

use super::gateway::Gateway;
use super::voters::Voters;
use crate::level::Level;
use crate::protocol::{self, Outcomes, OutcomesTold, Verified, VerifiedKind, Verify, method};
use crate::verify::HASHES_MAX;

mod judge;

use judge::{Verdict, judge};

/// How long a node may take to apply the requested entry, and to answer.
const APPLY_MAX: Duration = Duration::from_secs(1);
const ANSWER_MAX: Duration = Duration::from_secs(3);

/// A node heals itself at most once in this time.
const HEALED_ONCE_IN: Duration = Duration::from_secs(24 * 60 * 60);

/// The file in the data directory with the time of the last healing: nanoseconds since 1970-01-01 UTC, in decimal
/// digits.
const HEALED_FILE: &str = "HEALED";
const HEALED_BYTES_MAX: u64 = 32;

/// The pause between two attempts to get a copy; it grows.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_LONGEST: Duration = Duration::from_secs(30);

/// The advice after a second divergence.
const AGAIN: &str = "for the second time in a day: look at its disk and memory, then restart it";

/// Compares periodically, as long as the node runs.
pub(super) async fn watch(gateway: Weak<Gateway>) {
    let mut watch = Watch::default();
    loop {
        let Some(every) = gateway.upgrade().map(|gateway| gateway.consensus.timing().status) else { return };
        sleep(every + watch.pause).await;
        let Some(gateway) = gateway.upgrade() else { return };
        watch.compare(&gateway).await;
    }
}

/// Answers another node with the outcome hash after an entry.
pub(super) async fn answer_outcomes(gateway: &Gateway, request: Outcomes) -> Result<Bytes, CallFailure> {
    let limit = Duration::from_millis(request.millis).min(APPLY_MAX);
    let hash = match gateway.store.wait_applied(request.index, Instant::now() + limit).await {
        Ok(()) => {
            let store = gateway.store.clone();
            gateway.env.blocking(move || store.outcome_hash_at(request.index)).await.flatten()
        }
        Err(_) => None,
    };
    Ok(protocol::encode(&OutcomesTold { hash }))
}

/// The state of a node's comparisons with the other nodes.
#[derive(Default)]
struct Watch {
    /// The last entry whose verification was compared, and the one that is being compared, with the time of the first
    /// attempt.
    verified: Option<u64>,
    verifying: Option<(u64, Instant)>,
    /// Whether nodes differ, in outcomes or in the latest verification, and no majority shows whose data are right.
    outcomes_disputed: bool,
    tables_disputed: bool,
    /// Whether the difference was logged, and whether with what all nodes have answered.
    is_alarmed: bool,
    is_explained: bool,
    /// The nodes that hold the majority's data, once this node's data are condemned.
    sources: Vec<NodeId>,
    /// Whether an operator must heal the node.
    needs_operator: bool,
    /// An additional wait before the next request for a copy.
    pause: Duration,
}

impl Watch {
    async fn compare(&mut self, gateway: &Arc<Gateway>) {
        if gateway.consensus.removed().is_some() || Mutant::OutcomesNotCompared.is_on() {
            return;
        }
        match gateway.store.fault() {
            Some(StoreFault::Diverged(_)) => self.heal(gateway).await,
            Some(_) => {}
            None => {
                let voters = Voters::of(gateway);
                self.compare_outcomes(gateway, &voters).await;
                self.compare_verification(gateway, &voters).await;
            }
        }
    }

    async fn compare_outcomes(&mut self, gateway: &Gateway, voters: &Voters) {
        let store = gateway.store.clone();
        let Some((index, own)) = gateway.env.blocking(move || store.outcome_hash()).await.flatten() else { return };
        let ask = protocol::encode(&Outcomes { index, millis: millis(APPLY_MAX) });
        let read = |bytes| protocol::decode::<OutcomesTold>(bytes).ok()?.hash;
        let answers = voters.ask(gateway, method::OUTCOMES, ask, ANSWER_MAX, read).await;
        if answers.is_empty() {
            return;
        }
        let verdict = judge(&own, voters.own, &answers, voters.count());
        self.outcomes_disputed = verdict.is_open();
        self.act_on(gateway, verdict, format!("outcomes up to entry {index}")).await;
    }

    async fn compare_verification(&mut self, gateway: &Gateway, voters: &Voters) {
        let Some((index, Verification::Done(own))) = gateway.store.latest_verification() else { return };
        if self.verified >= Some(index) {
            return;
        }
        let since = match self.verifying.filter(|(known, _)| *known == index) {
            Some((_, since)) => since,
            None => self.verifying.insert((index, Instant::now())).1,
        };
        let ask = protocol::encode(&Verify { position: position(gateway, index).into(), millis: 0 });
        let read = |bytes| protocol::decode::<Verified>(bytes).ok()?.kind;
        let answers = voters.ask(gateway, method::VERIFY, ask, ANSWER_MAX, read).await;
        let is_open = answers.iter().any(|(_, kind)| matches!(kind, VerifiedKind::NotYet(_)));
        if !is_open && answers.len() == voters.others.len() || since.elapsed() > HASHES_MAX {
            self.verified = Some(index);
        }
        let hashes = |(id, kind)| match kind {
            VerifiedKind::Hashes(hashes) => Some((id, of_data(hashes.by_table()?))),
            _ => None,
        };
        let answers: Vec<_> = answers.into_iter().filter_map(hashes).collect();
        let verdict = judge(&of_data((*own).clone()), voters.own, &answers, voters.count());
        self.tables_disputed = verdict.is_open();
        self.act_on(gateway, verdict, format!("tables as of entry {index}")).await;
    }

    /// Acts on a verdict.
    async fn act_on(&mut self, gateway: &Gateway, verdict: Verdict, what: String) {
        let is_disputed = self.outcomes_disputed || self.tables_disputed;
        gateway.consensus.main().withhold_images(is_disputed);
        match verdict {
            Verdict::Agrees => {
                self.is_alarmed &= is_disputed;
                self.is_explained &= is_disputed;
            }
            Verdict::Open => {
                let what = format!("{what}: too few nodes have answered to tell whose data are right");
                self.raise_alarm(gateway, what, false);
            }
            Verdict::OthersDiffer(ids) => {
                let ids = ids.iter().map(NodeId::to_string).collect::<Vec<_>>().join(", ");
                self.raise_alarm(gateway, format!("{what}: {ids} differs from the majority"), true);
            }
            Verdict::Split => {
                let what = format!("{what}: no majority agrees, so it is not known whose data are right");
                self.raise_alarm(gateway, what, true);
            }
            Verdict::Differs(sources) => {
                self.condemn(gateway, sources, what).await;
                // Counted once the node serves nothing: a count without a fault then means that the node is healed.
                gateway.metrics.divergences.inc();
                gateway.metrics.disagreements.inc();
            }
        }
    }

    /// Logs, once, that nodes differ, and once more if only then enough of them have answered to explain it.
    fn raise_alarm(&mut self, gateway: &Gateway, what: String, is_explained: bool) {
        let was_alarmed = std::mem::replace(&mut self.is_alarmed, true);
        if was_alarmed && (self.is_explained || !is_explained) {
            return;
        }
        self.is_explained = is_explained;
        if !was_alarmed {
            gateway.metrics.disagreements.inc();
        }
        tracing::error!(event = "disagreement", what, "nodes of the cluster hold different data");
    }

    async fn condemn(&mut self, gateway: &Gateway, sources: Vec<NodeId>, what: String) {
        let (env, store) = (gateway.env.clone(), gateway.store.clone());
        let (inside, path) = (env.clone(), healed_file(gateway));
        let needs_operator = env.blocking(move || was_healed_lately(&inside, path)).await.unwrap_or(true);
        (self.sources, self.needs_operator) = (sources, needs_operator);
        let text = "this node's data differ from those of a majority: it serves nothing";
        if needs_operator {
            tracing::error!(event = "diverged", what, "{text}; {AGAIN}");
        } else {
            tracing::error!(event = "diverged", what, "{text} until it has a copy of theirs");
        }
        let todo = if needs_operator { AGAIN } else { "this node takes a copy of theirs" };
        let what = format!("{what}; {todo}");
        // The result is not needed.
        let _ = env.blocking(move || store.set_aside(&what)).await;
    }

    /// Gets a copy from a node that holds the right data, once this node no longer leads: clients of a leader wait for
    /// outcomes, and a copy contains none.
    async fn heal(&mut self, gateway: &Gateway) {
        if self.needs_operator || gateway.consensus.main().is_leader() {
            return;
        }
        for source in self.sources.clone() {
            match copy_from(gateway, source).await {
                Ok(index) => {
                    tracing::info!(event = "healed", index, "this node has a copy of the majority's data");
                    let (env, path) = (gateway.env.clone(), healed_file(gateway));
                    let _ = gateway.env.blocking(move || note_healed(&env, path)).await;
                    self.pause = Duration::ZERO;
                    return;
                }
                Err(error) => tracing::warn!(%error, source = %source, "no copy could be fetched"),
            }
        }
        self.pause = self.pause.saturating_mul(2).clamp(PAUSE_FIRST, PAUSE_LONGEST);
    }
}

/// Replaces this node's data with those of another; returns the index of the new state.
async fn copy_from(gateway: &Gateway, source: NodeId) -> Result<u64, ImageError> {
    let stream = gateway.consensus.open_stream(source, Purpose::Image, method::BACKUP).await;
    let (mut sender, mut pieces) = stream.ok_or(StreamError::Broken)?;
    let level = Level::AtLeast(position(gateway, gateway.store.applied().index()));
    let ask = protocol::encode(&protocol::Backup::new(level, millis(ANSWER_MAX)));
    timeout(ANSWER_MAX, sender.send(ask)).await??;
    sender.finish();
    Ok(gateway.consensus.main().replace_store(&mut pieces).await?.index())
}

/// Keeps only the tables of data: the store's records may differ between versions for a while.
fn of_data(mut tables: BTreeMap<String, u128>) -> BTreeMap<String, u128> {
    tables.retain(|name, _| !is_bookkeeping(name));
    tables
}

fn position(gateway: &Gateway, index: u64) -> Position {
    Position { epoch: gateway.store.options().identity.epoch, group: GroupId::MAIN, index }
}

fn healed_file(gateway: &Gateway) -> PathBuf {
    gateway.data_dir.join(HEALED_FILE)
}

/// Returns whether the node was healed recently; an unreadable file counts as no.
fn was_healed_lately(env: &Env, path: PathBuf) -> bool {
    let bytes = read_file(&**env.disk(), &path, HEALED_BYTES_MAX).unwrap_or_default();
    let when = std::str::from_utf8(&bytes).ok().and_then(|digits| digits.trim().parse().ok()).map(Duration::from_nanos);
    when.is_some_and(|when| Duration::from_nanos(env.unix_nanos()).saturating_sub(when) < HEALED_ONCE_IN)
}

fn note_healed(env: &Env, path: PathBuf) {
    let digits = env.unix_nanos().to_string();
    if let Err(error) = replace_file(&**env.disk(), &path, digits.as_bytes()) {
        tracing::warn!(%error, "the time of the healing can't be recorded");
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
