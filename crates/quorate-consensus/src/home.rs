//! The node's log and its identity in it.

use std::sync::{Arc, Mutex};

use prost::Message;
use quorate_env::{Env, lock};
use quorate_model::GroupId;
use quorate_wal::{Durability, Wal, WalError};
use tokio::sync::oneshot;

use crate::identity::{ClusterId, Halt, Identity, Trial, durability_number};

/// The state that a node has even before it belongs to a cluster. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Home {
    pub(crate) env: Env,
    pub(crate) wal: Wal,
    /// Whether the log must contain everything that was ever written to it: it was in use before this start, and the
    /// machine was not restarted since.
    pub(crate) is_complete: bool,
    identity: Arc<Mutex<Arc<Identity>>>,
    wire: quorate_wire::Identity,
    saving: Arc<tokio::sync::Mutex<()>>,
}

impl Home {
    pub(crate) fn new(env: Env, wal: Wal, identity: Identity, is_complete: bool) -> Self {
        let wire = quorate_wire::Identity::new(identity.cluster().0, identity.id);
        Self { env, wal, is_complete, identity: Arc::new(Mutex::new(Arc::new(identity))), wire, saving: Arc::default() }
    }

    pub(crate) fn identity(&self) -> Arc<Identity> {
        Arc::clone(&lock(&self.identity))
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

    /// Records that an image which ends at this index is about to replace the store's state.
    pub(crate) async fn note_image(&self, end: u64) -> Result<(), WalError> {
        let noted = self.change(|identity| {
            identity.image_end_before = identity.image_end.replace(end);
            // An image that replaces damaged data may end before that data.
            identity.stored = identity.stored.min(Some(end));
            Ok::<(), ()>(())
        });
        noted.await.map(drop)
    }

    /// Records that the store durably holds everything up to this index.
    pub(crate) async fn note_stored(&self, index: u64) -> Result<(), WalError> {
        let noted = self.change(|identity| {
            identity.stored = Some(index);
            Ok::<(), ()>(())
        });
        noted.await.map(drop)
    }

    /// Records what the next start must know about entries that can't be applied.
    pub(crate) async fn note_trial(&self, trial: Trial) -> Result<(), WalError> {
        let noted = self.change(|identity| {
            identity.trial = Some(trial);
            Ok::<(), ()>(())
        });
        noted.await.map(drop)
    }

    /// Records all entries before which this node has promised to stop. `halts` is called when they are written.
    pub(crate) async fn note_halts(&self, halts: impl FnOnce() -> Vec<Halt>) -> Result<(), WalError> {
        let noted = self.change(|identity| {
            identity.halts = halts();
            Ok::<(), ()>(())
        });
        noted.await.map(drop)
    }

    /// Records that this node is released from a promise.
    pub(crate) async fn note_release(&self, halt: Halt) -> Result<(), WalError> {
        let noted = self.change(|identity| {
            identity.halts.retain(|known| *known != halt);
            Ok::<(), ()>(())
        });
        noted.await.map(drop)
    }

    /// Whether the log has an entry, or had one: then the node is or was part of a living cluster.
    pub(crate) fn is_member(&self) -> bool {
        self.wal.last_log_id(GroupId::MAIN).is_some()
    }
}
