//! Makes the log of a group and its store agree when the node starts.
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
//! forget that the machine was restarted ([`accept_reboot`]).

use quorate_model::{LogId, StateMachine};
use quorate_wal::{Wal, WalError};
use tokio::sync::oneshot;

use crate::error::StartError;
use crate::group_log::GroupLog;

/// Makes the log agree with the store, or fails and says which of them is damaged.
pub(crate) fn reconcile(log: &GroupLog, store: &dyn StateMachine) -> Result<(), StartError> {
    let applied = store.applied().log_id;
    check_store(log, applied)?;
    if let Some(applied) = applied {
        check_log(log, applied)?;
        continue_after(log, applied)?;
    }
    Ok(())
}

fn check_store(log: &GroupLog, applied: Option<LogId>) -> Result<(), StartError> {
    let purged = log.purged();
    if applied.is_none() && purged.is_none() {
        // The log still has all entries: applying them fills the empty database.
        return Ok(());
    }
    let database = applied.map(|id| id.index);
    match purged.map(|id| id.index).max(log.notes().stored) {
        Some(held) if database < Some(held) => Err(StartError::StoreCut { group: log.group(), database, held }),
        _ => Ok(()),
    }
}

fn check_log(log: &GroupLog, applied: LogId) -> Result<(), StartError> {
    let (end, database) = (log.last().map_or(0, |id| id.index), applied.index);
    let notes = log.notes();
    let is_image = [notes.image_end, notes.image_end_before].contains(&Some(database));
    if end >= database || is_image || !log.home().is_complete {
        return Ok(());
    }
    Err(StartError::LogCut { log: end, database })
}

/// If the log does not hold the last applied entry, removes all entries up to it and those that contradict it.
fn continue_after(log: &GroupLog, applied: LogId) -> Result<(), WalError> {
    let is_purged = log.purged().is_some_and(|purged| purged.index >= applied.index);
    if is_purged || log.id_at(applied.index) == Some(applied) {
        return Ok(());
    }
    log.wal().truncate_after(log.group(), applied.index.checked_sub(1))?;
    log.wal().purge(log.group(), applied)
}

/// Lets the log forget that the machine was restarted, once all groups agree with their stores.
pub(crate) async fn accept_reboot(wal: &Wal) -> Result<(), StartError> {
    let (sender, receiver) = oneshot::channel();
    wal.accept_reboot(Box::new(move |result| drop(sender.send(result))))?;
    Ok(receiver.await.unwrap_or(Err(WalError::Closed))?)
}
