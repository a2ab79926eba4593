//! The node's log and its identity in it.

use std::sync::{Arc, Mutex};

use prost::Message;
use quorate_env::{Env, lock};
use quorate_model::GroupId;
use quorate_wal::{Durability, Wal, WalError};
use tokio::sync::oneshot;

use crate::identity::{ClusterId, Halt, Identity, Trial, durability_number};

/// What a node owns before it belongs to a cluster. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Home {
    pub(crate) env: Env,
    pub(crate) wal: Wal,
    /// Whether all that was ever written to the log must be in it: it was in use, and the machine has run on since.
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

    /// What handshakes say of this node.
    pub(crate) fn wire_identity(&self) -> &quorate_wire::Identity {
        &self.wire
    }

    /// Changes the identity: durably first, then in memory. `change` sees the present one and may refuse.
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

    /// Makes this node one of a cluster.
    pub(crate) async fn adopt(&self, cluster: ClusterId, epoch: u64, durability: Durability) -> Result<(), WalError> {
        let adopted = self.change(|identity| {
            identity.cluster = cluster.to_bytes();
            identity.epoch = epoch;
            identity.durability = durability_number(durability);
            Ok::<(), ()>(())
        });
        adopted.await.map(drop)
    }

    /// An image that ends at this index will take the place of the store's state.
    pub(crate) async fn brings_image(&self, end: u64) -> Result<(), WalError> {
        let noted = self.change(|identity| {
            identity.image_end_before = identity.image_end.replace(end);
            // An image in the place of damaged data may end before them.
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

    /// Notes what the next life must know of entries that can't be applied.
    pub(crate) async fn note_trial(&self, trial: Trial) -> Result<(), WalError> {
        let noted = self.change(|identity| {
            identity.trial = Some(trial);
            Ok::<(), ()>(())
        });
        noted.await.map(drop)
    }

    /// Notes all entries before which this node has promised to stop, as `halts` gives them when they are written.
    pub(crate) async fn note_halts(&self, halts: impl FnOnce() -> Vec<Halt>) -> Result<(), WalError> {
        let noted = self.change(|identity| {
            identity.halts = halts();
            Ok::<(), ()>(())
        });
        noted.await.map(drop)
    }

    /// Notes that this node may go on.
    pub(crate) async fn note_release(&self, halt: Halt) -> Result<(), WalError> {
        let noted = self.change(|identity| {
            identity.halts.retain(|known| *known != halt);
            Ok::<(), ()>(())
        });
        noted.await.map(drop)
    }

    /// Whether the log holds anything: the node is or was part of a living cluster.
    pub(crate) fn is_member(&self) -> bool {
        self.wal.last_log_id(GroupId::MAIN).is_some()
    }
}
