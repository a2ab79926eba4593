//! Makes a node's log and its store agree when the node starts.
//!
//! - *The log ends before the store.* The log has lost entries that this node acknowledged, and perhaps votes: the node
//!   must come back as a new member. There are three innocent causes. The machine was restarted: a leader may have
//!   applied entries that the others had synced and its own log had not. The store is an image, which arrives before
//!   the entries. The node is a new member and kept the store of its former self, which holds only committed entries.
//! - *The store ends before an index that it held durably, or that the log has purged.* The store's files are damaged.
//!   SQLite silently cuts a write-ahead log at a corrupt frame, but a checkpoint may already have copied pages of later
//!   frames into the database file. Applying the entries again would apply them twice to those pages.
//! - *The log has a different entry at the store's last index.* The power failed while the log replaced entries by
//!   those of a new leader: the store had synced the new entry, the log had not.
//!
//! Invariant: afterwards the log holds the store's last entry, or has purged it. Only when that is durable does the log
//! forget that the machine was restarted.

use quorate_model::{GroupId, LogId, StateMachine};
use quorate_wal::{Restart, Wal, WalError};
use tokio::sync::oneshot;

use crate::error::StartError;
use crate::home::Home;

/// Makes the log agree with the store, or fails and says which of them is damaged.
pub(crate) async fn reconcile(home: &Home, store: &dyn StateMachine, restart: Restart) -> Result<(), StartError> {
    let applied = store.applied().log_id;
    check_store(home, applied)?;
    if let Some(applied) = applied {
        check_log(home, applied)?;
        continue_after(&home.wal, applied)?;
    }
    if restart == Restart::Rebooted {
        accept_reboot(&home.wal).await?;
    }
    Ok(())
}

fn check_store(home: &Home, applied: Option<LogId>) -> Result<(), StartError> {
    let purged = home.wal.purged(GroupId::MAIN);
    if applied.is_none() && purged.is_none() {
        // The log still has all entries: applying them fills the empty database.
        return Ok(());
    }
    let database = applied.map(|id| id.index);
    match purged.map(|id| id.index).max(home.identity().stored) {
        Some(held) if database < Some(held) => Err(StartError::StoreCut { database, held }),
        _ => Ok(()),
    }
}

fn check_log(home: &Home, applied: LogId) -> Result<(), StartError> {
    let (log, database) = (home.wal.last_log_id(GroupId::MAIN).map_or(0, |id| id.index), applied.index);
    let identity = home.identity();
    let is_image = [identity.image_end, identity.image_end_before].contains(&Some(database));
    if log >= database || is_image || !home.is_complete { Ok(()) } else { Err(StartError::LogCut { log, database }) }
}

/// If the log does not hold the last applied entry, removes all entries up to it and those that contradict it.
fn continue_after(wal: &Wal, applied: LogId) -> Result<(), WalError> {
    let is_purged = wal.purged(GroupId::MAIN).is_some_and(|purged| purged.index >= applied.index);
    if is_purged || wal.log_id_at(GroupId::MAIN, applied.index) == Some(applied) {
        return Ok(());
    }
    wal.truncate_after(GroupId::MAIN, applied.index.checked_sub(1))?;
    wal.purge(GroupId::MAIN, applied)
}

async fn accept_reboot(wal: &Wal) -> Result<(), StartError> {
    let (sender, receiver) = oneshot::channel();
    wal.accept_reboot(Box::new(move |result| drop(sender.send(result))))?;
    Ok(receiver.await.unwrap_or(Err(WalError::Closed))?)
}
