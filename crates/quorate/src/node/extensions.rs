//! Enabling extensions: once every voter has announced a function or collation, the leader proposes it, and from that
//! entry on commands may use it ([`quorate_sql::extensions`]).
//!
//! Invariant: nothing is proposed that a voter has not announced to this leader itself.

use std::collections::BTreeSet;
use std::sync::Weak;
use std::time::Duration;

use bytes::Bytes;
use quorate_env::sleep;
use quorate_model::{Proposal, SqlCommand, codec};

use super::gateway::Gateway;
use super::voters::Voters;
use crate::protocol::{self, Announced, method};

/// How long a start may wait until what the program brings along may be used.
pub(super) const ENABLE_MAX: Duration = Duration::from_secs(3);

/// How long a voter may take to announce what it has.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// Answers another node.
pub(super) fn announce(gateway: &Gateway) -> Bytes {
    let names = gateway.store.options().extensions.names().map(str::to_owned).collect();
    protocol::encode(&Announced { names })
}

/// Ends when all that this node has is enabled. Until then it looks again and again, as long as the node runs.
pub(super) async fn enable(gateway: Weak<Gateway>) {
    while let Some(gateway) = gateway.upgrade() {
        let store = gateway.store.clone();
        let left = gateway.env.blocking(move || store.validator().not_enabled()).await;
        match left {
            Some(Ok(left)) if left.is_empty() => return,
            Some(Ok(left)) if gateway.consensus.is_leader() => propose(&gateway, left).await,
            // The leader does it. What can't be read now may be later.
            _ => {}
        }
        let every = gateway.consensus.timing().status;
        drop(gateway);
        sleep(every).await;
    }
}

/// Proposes those of such names that all voters have.
async fn propose(gateway: &Gateway, names: Vec<String>) {
    let voters = Voters::of(gateway);
    let read = |bytes| Some(protocol::decode::<Announced>(bytes).ok()?.names.into_iter().collect::<BTreeSet<_>>());
    let announced = voters.ask(gateway, method::EXTENSIONS, Bytes::new(), ANSWER_MAX, read).await;
    if announced.len() < voters.others.len() {
        return;
    }
    let has_everybody = |name: &String| announced.iter().all(|(_, names)| names.contains(name));
    let names: Vec<String> = names.into_iter().filter(has_everybody).collect();
    if names.is_empty() {
        return;
    }
    tracing::info!(?names, "every voter has these functions and collations: writes may use them");
    let Ok(proposal) = codec::encode_proposal(&Proposal::new(None, vec![SqlCommand::Extend(names).into()])) else {
        return;
    };
    if let Err(error) = gateway.consensus.propose(proposal).await {
        tracing::info!(%error, "they could not be enabled now");
    }
}
