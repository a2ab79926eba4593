//! The node's log and its identity in it.

use std::sync::{Arc, Mutex, OnceLock};

use prost::Message;
use quorate_env::{Env, lock};
use quorate_model::GroupId;
use quorate_wal::{Durability, Wal, WalError};
use tokio::sync::oneshot;

use crate::identity::{ClusterId, Identity, durability_number};

/// The state that a node has even before it belongs to a cluster. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Home {
    pub(crate) env: Env,
    pub(crate) wal: Wal,
    /// Whether the log must contain everything that was ever written to it: it was in use before this start, and the
    /// machine was not restarted since.
    pub(crate) is_complete: bool,
    identity: Arc<Mutex<Arc<Identity>>>,
    /// Set once this node was removed from its cluster, with the reason.
    removed: Arc<OnceLock<String>>,
    wire: quorate_wire::Identity,
    saving: Arc<tokio::sync::Mutex<()>>,
}

impl Home {
    pub(crate) fn new(env: Env, wal: Wal, identity: Identity, is_complete: bool) -> Self {
        let wire = quorate_wire::Identity::new(identity.cluster().0, identity.id);
        let identity = Arc::new(Mutex::new(Arc::new(identity)));
        Self { env, wal, is_complete, identity, removed: Arc::default(), wire, saving: Arc::default() }
    }

    pub(crate) fn identity(&self) -> Arc<Identity> {
        Arc::clone(&lock(&self.identity))
    }

    /// Returns the reason if this node was removed from its cluster, and so takes no further part in it.
    pub(crate) fn removed(&self) -> Option<&str> {
        self.removed.get().map(String::as_str)
    }

    /// Ends this node's part in its cluster. From here on all calls fail with the reason.
    pub(crate) fn set_removed(&self, why: String) {
        // The first reason stays.
        let _ = self.removed.set(why);
    }

    /// The identity that this node gives in handshakes.
    pub(crate) fn wire_identity(&self) -> &quorate_wire::Identity {
        &self.wire
    }

    /// Changes the identity, first in the log, durably, and then in memory. `change` gets the present identity and may
    /// refuse.
    pub(crate) async fn change<E>(
        &self,
        change: impl FnOnce(&mut Identity) -> Result<(), E>,
    ) -> Result<Result<(), E>, WalError> {
        let _saving = self.saving.lock().await;
        let mut next = Identity::clone(&self.identity());
        if let Err(refused) = change(&mut next) {
            return Ok(Err(refused));
        }
        let (sender, receiver) = oneshot::channel();
        let done = Box::new(move |result| drop(sender.send(result)));
        self.wal.save_identity(next.encode_to_vec().into(), done)?;
        receiver.await.unwrap_or(Err(WalError::Closed))?;
        self.wire.set(next.cluster().0, next.id);
        *lock(&self.identity) = Arc::new(next);
        Ok(Ok(()))
    }

    /// Records the cluster that this node belongs to.
    pub(crate) async fn adopt(&self, cluster: ClusterId, epoch: u64, durability: Durability) -> Result<(), WalError> {
        let adopted = self.change(|identity| {
            identity.cluster = cluster.to_bytes();
            identity.epoch = epoch;
            identity.durability = durability_number(durability);
            Ok::<(), ()>(())
        });
        adopted.await.map(drop)
    }

    /// Whether the log of `main` has an entry, or had one: then the node is or was part of a living cluster.
    pub(crate) fn is_member(&self) -> bool {
        self.wal.last_log_id(GroupId::MAIN).is_some()
    }
}
