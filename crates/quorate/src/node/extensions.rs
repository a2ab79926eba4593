//! Enables extensions: once every voter has announced a function or collation, the leader proposes it, and commands may
//! use it from that entry on ([`quorate_sql::extensions`]).
//!
//! Invariant: the leader proposes only what every voter has announced to this leader directly.

use std::collections::BTreeSet;
use std::sync::Weak;
use std::time::Duration;

use bytes::Bytes;
use quorate_env::sleep;
use quorate_model::{Proposal, SqlCommand, codec};

use super::gateway::Gateway;
use super::voters::Voters;
use crate::protocol::{self, Announced, method};

/// How long a start may wait until the program's extensions are enabled.
pub(super) const ENABLE_MAX: Duration = Duration::from_secs(3);

/// How long a voter may take to announce its extensions.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// Answers another node with the extensions of this one.
pub(super) fn announce(gateway: &Gateway) -> Bytes {
    let names = gateway.store.options().extensions.names().map(str::to_owned).collect();
    protocol::encode(&Announced { names })
}

/// Returns when all extensions of this node are enabled. Until then it checks periodically, as long as the node runs.
pub(super) async fn enable(gateway: Weak<Gateway>) {
    while let Some(gateway) = gateway.upgrade() {
        let store = gateway.store.clone();
        let left = gateway.env.blocking(move || store.validator().not_enabled()).await;
        match left {
            Some(Ok(left)) if left.is_empty() => return,
            Some(Ok(left)) if gateway.consensus.main().is_leader() => propose(&gateway, left).await,
            // The leader proposes them. A read that failed is tried again.
            _ => {}
        }
        let every = gateway.consensus.timing().status;
        drop(gateway);
        sleep(every).await;
    }
}

/// Proposes the names that all voters have announced.
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
    if let Err(error) = gateway.consensus.main().propose(proposal).await {
        tracing::info!(%error, "functions and collations could not be enabled; the node tries again");
    }
}
