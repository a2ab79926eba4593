//! Format levels: which one the cluster uses, and when the leader raises it.
//!
//! Every node announces the highest level that its program understands, in its status and when it asks to join. Once
//! every member, learners too, has announced a higher level than the cluster uses, the leader proposes to raise it.
//! Proposals that need the level are accepted from that entry on. The other groups follow the level of `main`.
//!
//! # Invariants
//!
//! - The leader asks every member again right before it proposes a level. A member that is silent may come back as an
//!   older program, so the leader waits for it.
//! - A node that does not understand the level that the cluster uses, or is raising to, is not admitted.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use openraft::rt::WatchReceiver;
use quorate_env::mutant::Mutant;
use quorate_env::sleep;
use quorate_model::limits::BASE_LEVEL;
use quorate_model::{ControlCommand, NodeId, Proposal, codec};

use crate::Member;
use crate::group::Group;
use crate::peer_service::PeerService;

/// A proposal needs a level that the cluster does not use yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelTooLow {
    /// The level that it needs.
    pub needed: u32,
    /// The level that the cluster uses.
    pub used: u32,
    /// The members that do not understand the needed level, or have not said lately that they do.
    pub old: Vec<String>,
}

impl fmt::Display for LevelTooLow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { needed, used, old } = self;
        write!(f, "this needs format level {needed}, and the cluster uses {used}: ")?;
        if old.is_empty() {
            write!(f, "the leader is about to raise it; try again")
        } else {
            write!(f, "upgrade {} to a version that understands it", old.join(", "))
        }
    }
}

impl std::error::Error for LevelTooLow {}

impl LevelTooLow {
    /// Returns whether the same proposal may succeed later without intervention: the level is about to rise.
    pub fn is_retryable(&self) -> bool {
        self.old.is_empty()
    }
}

impl Group {
    /// Fails unless the group uses a format level that is at least `needed`.
    pub fn check_level(&self, needed: u32) -> Result<(), LevelTooLow> {
        if needed <= BASE_LEVEL {
            return Ok(());
        }
        let used = self.store.applied().level;
        if needed <= used || Mutant::LevelNotChecked.is_on() {
            return Ok(());
        }
        let members = members(self);
        let old = members.iter().filter_map(|(id, member)| match announced(self, *id) {
            Some(level) if level >= needed => None,
            Some(_) => Some(format!("'{}'", member.name)),
            None => Some(format!("'{}' (silent)", member.name)),
        });
        Err(LevelTooLow { needed, used, old: old.collect() })
    }
}

/// Returns the level that a member has announced lately.
pub(crate) fn announced(group: &Group, id: u64) -> Option<u32> {
    if id == *group.raft.node_id() { Some(group.config.level) } else { group.peers.level(NodeId(id)) }
}

/// Raises the level of `main` when this node leads it and every member understands a higher one. Never returns.
pub(crate) async fn raise(service: Arc<PeerService>, main: Group) {
    loop {
        sleep(service.config.timing.status).await;
        if next(&main, |id| announced(&main, id)).is_none() {
            continue;
        }
        // An earlier answer may be that of a newer program, in whose place an older one runs now.
        let answers = service.peers.ask_all().await;
        let answered = |id| answers.values().find(|status| status.id == id).map(|status| status.level);
        let own = *main.raft.node_id();
        let known = |id| if id == own { Some(service.config.level) } else { answered(id) };
        if let Some(level) = next(&main, known) {
            // From here on no older node is admitted, although the level is not raised yet.
            service.raising.fetch_max(level, Ordering::AcqRel);
            propose(&main, level).await;
        }
    }
}

/// Raises the level of another group to that of `main` when this node leads the group. Never returns.
pub(crate) async fn follow(main: Group, group: Group) {
    loop {
        sleep(main.config.timing.status).await;
        let level = main.store.applied().level;
        if group.raft.is_leader() && group.store.applied().level < level {
            propose(&group, level).await;
        }
    }
}

/// Returns the level to raise to, if this node leads and the level of every member is known.
fn next(main: &Group, level_of: impl Fn(u64) -> Option<u32>) -> Option<u32> {
    let used = main.store.applied().level;
    if !main.raft.is_leader() || main.config.level <= used {
        return None;
    }
    let levels = members(main).into_keys().map(level_of);
    let common = levels.collect::<Option<Vec<u32>>>()?.into_iter().min()?;
    Some(common.min(main.config.level)).filter(|level| *level > used)
}

/// Returns the members, learners too.
fn members(group: &Group) -> BTreeMap<u64, Member> {
    let metrics = group.raft.metrics();
    let metrics = metrics.borrow_watched();
    metrics.membership_config.membership().nodes().map(|(id, member)| (*id, member.clone())).collect()
}

async fn propose(group: &Group, level: u32) {
    let Ok(proposal) = codec::encode_proposal(&Proposal::new(None, vec![ControlCommand::Raise(level).into()])) else {
        return;
    };
    match group.combiner.propose(proposal).await {
        Ok((_, Ok(_))) => tracing::info!(event = "level_raised", level, "every member understands this format level"),
        Ok((_, Err(failure))) => {
            tracing::info!(%failure, "the format level could not be raised; the leader tries again")
        }
        Err(error) => tracing::info!(%error, "the format level could not be raised; the leader tries again"),
    }
}
