//! Agreement: nodes compare what they have done, and one whose data are not those of a majority takes itself out of
//! service and gets a copy of theirs.
//!
//! A node asks all voters, about once a second, for the running hash of outcomes behind the last entry that it has
//! applied; and after a verification for the logical hashes of their databases. Each judges itself alone.
//!
//! Invariants:
//! - Data are condemned by a majority of all voters that agree with each other and not with this node: never by the
//!   word of one, be it the leader. Where there is no such majority there is an alarm, and members are sent no images,
//!   so that what may be wrong does not become the majority's.
//! - Condemned data are neither served nor given away, nor opened again. They stay until the copy is verified. The
//!   node votes and keeps its log meanwhile; it does not lead.
//! - What happens a second time within [`HEALED_ONCE_IN`] has a cause that a copy does not mend: it waits for a person.

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
use quorate_sql::logical_hash::is_reserved;
use quorate_sql::store::Verification;
use quorate_wire::{CallFailure, Purpose, StreamError};

use super::gateway::Gateway;
use super::voters::Voters;
use crate::level::Level;
use crate::protocol::{self, Outcomes, OutcomesTold, Verified, VerifiedKind, Verify, method};

mod judge;

use judge::{Verdict, judge};

/// How long a node may take to apply what it is asked for, and then to answer.
const APPLY_MAX: Duration = Duration::from_secs(1);
const ANSWER_MAX: Duration = Duration::from_secs(3);

/// How long the others may take to compute their hashes.
const HASHES_MAX: Duration = Duration::from_secs(330);

/// How often a node heals itself.
const HEALED_ONCE_IN: Duration = Duration::from_secs(24 * 60 * 60);

/// Keeps, in the data directory, when it did last: nanoseconds since 1970-01-01 UTC, in decimal digits.
const HEALED_FILE: &str = "HEALED";
const HEALED_BYTES_MAX: u64 = 32;

/// Between two attempts to get a copy: the pause grows.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_LONGEST: Duration = Duration::from_secs(30);

/// What to do where a copy does not mend it.
const AGAIN: &str = "for the second time in a day: look at its disk and memory, then restart it";

/// Looks again and again, as long as the node runs.
pub(super) async fn watch(gateway: Weak<Gateway>) {
    let mut watch = Watch::default();
    loop {
        let Some(every) = gateway.upgrade().map(|gateway| gateway.consensus.timing().status) else { return };
        sleep(every + watch.pause).await;
        let Some(gateway) = gateway.upgrade() else { return };
        watch.look(&gateway).await;
    }
}

/// Answers another node.
pub(super) async fn told(gateway: &Gateway, asked: Outcomes) -> Result<Bytes, CallFailure> {
    let limit = Duration::from_millis(asked.millis).min(APPLY_MAX);
    let hash = match gateway.store.wait_applied(asked.index, Instant::now() + limit).await {
        Ok(()) => {
            let store = gateway.store.clone();
            gateway.env.blocking(move || store.outcome_hash_at(asked.index)).await.flatten()
        }
        Err(_) => None,
    };
    Ok(protocol::encode(&OutcomesTold { hash }))
}

/// What a node knows of its own agreement with the others.
#[derive(Default)]
struct Watch {
    /// The entry whose verification was compared, or is being compared since then.
    verified: Option<u64>,
    verifying: Option<(u64, Instant)>,
    /// By outcomes, and by the latest verification, nodes differ and no majority says whose data are right.
    outcomes_disputed: bool,
    tables_disputed: bool,
    /// That nodes differ was told.
    is_told: bool,
    /// Who holds the data of the majority, once this node's are condemned.
    sources: Vec<NodeId>,
    /// It is for a person to heal it.
    waits: bool,
    /// How much longer it waits before it asks for a copy again.
    pause: Duration,
}

impl Watch {
    async fn look(&mut self, gateway: &Arc<Gateway>) {
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
        let told = voters.ask(gateway, method::OUTCOMES, ask, ANSWER_MAX, read).await;
        if told.is_empty() {
            return;
        }
        let verdict = judge(&own, voters.own, &told, voters.count());
        self.outcomes_disputed = verdict.is_open();
        self.follow(gateway, verdict, format!("outcomes up to entry {index}")).await;
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
            VerifiedKind::Hashes(hashes) => Some((id, of_users(hashes.by_table()?))),
            _ => None,
        };
        let told: Vec<_> = answers.into_iter().filter_map(hashes).collect();
        let verdict = judge(&of_users((*own).clone()), voters.own, &told, voters.count());
        self.tables_disputed = verdict.is_open();
        self.follow(gateway, verdict, format!("tables behind entry {index}")).await;
    }

    /// Does what a verdict asks for.
    async fn follow(&mut self, gateway: &Gateway, verdict: Verdict, what: String) {
        let is_disputed = self.outcomes_disputed || self.tables_disputed;
        gateway.consensus.withhold_images(is_disputed);
        match verdict {
            Verdict::Agrees => self.is_told &= is_disputed,
            Verdict::Open => self.tell(gateway, format!("{what}: too few have answered to tell whose data are right")),
            Verdict::OthersDiffer(ids) => {
                let ids = ids.iter().map(NodeId::to_string).collect::<Vec<_>>().join(", ");
                self.tell(gateway, format!("{what}: {ids} differs from the majority"));
            }
            Verdict::Split => {
                self.tell(gateway, format!("{what}: no majority agrees, so nobody can tell whose data are right"));
            }
            Verdict::Differs(sources) => {
                gateway.metrics.divergences.inc();
                gateway.metrics.disagreements.inc();
                self.condemn(gateway, sources, what).await;
            }
        }
    }

    /// Tells, once, that nodes differ.
    fn tell(&mut self, gateway: &Gateway, what: String) {
        if !std::mem::replace(&mut self.is_told, true) {
            gateway.metrics.disagreements.inc();
            tracing::error!(event = "disagreement", what, "nodes of the cluster hold different data");
        }
    }

    async fn condemn(&mut self, gateway: &Gateway, sources: Vec<NodeId>, what: String) {
        let (env, store) = (gateway.env.clone(), gateway.store.clone());
        let (inside, path) = (env.clone(), healed_file(gateway));
        let waits = env.blocking(move || was_healed_lately(&inside, path)).await.unwrap_or(true);
        (self.sources, self.waits) = (sources, waits);
        let text = "this node's data differ from those of a majority: it serves nothing";
        if waits {
            tracing::error!(event = "diverged", what, "{text}; {AGAIN}");
        } else {
            tracing::error!(event = "diverged", what, "{text} until it has a copy of theirs");
        }
        let todo = if waits { AGAIN } else { "this node takes a copy of theirs" };
        let what = format!("{what}; {todo}");
        // Nobody waits for what it notes.
        let _ = env.blocking(move || store.set_aside(&what)).await;
    }

    /// Gets a copy from one of those who hold the right data, once this node leads no longer: clients of a leader wait
    /// for outcomes, and a copy brings none.
    async fn heal(&mut self, gateway: &Gateway) {
        if self.waits || gateway.consensus.is_leader() {
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
                Err(error) => tracing::warn!(%error, source = %source, "no copy came"),
            }
        }
        self.pause = self.pause.saturating_mul(2).clamp(PAUSE_FIRST, PAUSE_LONGEST);
    }
}

/// Replaces this node's data by those of another; returns where they stand.
async fn copy_from(gateway: &Gateway, source: NodeId) -> Result<u64, ImageError> {
    let stream = gateway.consensus.open_stream(source, Purpose::Image, method::BACKUP).await;
    let (mut sender, mut pieces) = stream.ok_or(StreamError::Broken)?;
    let level = Level::AtLeast(position(gateway, gateway.store.applied().index()));
    let ask = protocol::encode(&protocol::Backup::new(level, millis(ANSWER_MAX)));
    timeout(ANSWER_MAX, sender.send(ask)).await??;
    sender.finish();
    Ok(gateway.consensus.replace_store(&mut pieces).await?.index())
}

/// The store's own tables may differ between versions, for a while.
fn of_users(mut tables: BTreeMap<String, u128>) -> BTreeMap<String, u128> {
    tables.retain(|name, _| !is_reserved(name));
    tables
}

fn position(gateway: &Gateway, index: u64) -> Position {
    Position { epoch: gateway.store.options().identity.epoch, group: GroupId::MAIN, index }
}

fn healed_file(gateway: &Gateway) -> PathBuf {
    gateway.data_dir.join(HEALED_FILE)
}

/// What can't be read counts as no.
fn was_healed_lately(env: &Env, path: PathBuf) -> bool {
    let bytes = read_file(&**env.disk(), &path, HEALED_BYTES_MAX).unwrap_or_default();
    let when = std::str::from_utf8(&bytes).ok().and_then(|digits| digits.trim().parse().ok()).map(Duration::from_nanos);
    when.is_some_and(|when| Duration::from_nanos(env.unix_nanos()).saturating_sub(when) < HEALED_ONCE_IN)
}

fn note_healed(env: &Env, path: PathBuf) {
    let digits = env.unix_nanos().to_string();
    if let Err(error) = replace_file(&**env.disk(), &path, digits.as_bytes()) {
        tracing::warn!(%error, "that this node was healed can't be noted");
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
