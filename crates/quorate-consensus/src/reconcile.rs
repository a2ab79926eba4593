//! What a start makes of a log and a store that do not fit together.
//!
//! - *The log ends before the store.* It has lost entries that this node acknowledged, and perhaps more than those: the
//!   node must come back as a new member. Not so when the machine was restarted: a leader may have applied what its own
//!   log had not synced and others had. Nor where the state is that of an image, which comes before the entries. And a
//!   new member may have the store of an earlier one: what was applied was committed, whoever applied it.
//! - *The store ends before what it durably held, or before what was purged.* Its files are damaged: SQLite silently
//!   cuts a write-ahead log at a frame that has rotted, though pages of later frames may be in the database file
//!   already. Entries must not be applied a second time to those.
//! - *The log has another entry where the store ends.* The power failed while a new leader's entries took the place of
//!   others: the store had kept them, the log had not yet.
//!
//! Invariant: when this is done, the store's last entry is the log's, or purged; and the restart of the machine is
//! forgotten no sooner than its consequences are durable.

use quorate_model::{GroupId, LogId, Store};
use quorate_wal::{Restart, Wal, WalError};
use tokio::sync::oneshot;

use crate::error::StartError;
use crate::home::Home;

/// Makes the log fit the store, or says which of them is damaged.
pub(crate) async fn reconcile(home: &Home, store: &dyn Store, restart: Restart) -> Result<(), StartError> {
    let applied = store.applied().log_id;
    check_store(home, applied)?;
    if let Some(applied) = applied {
        check_log(home, applied)?;
        go_on_behind(&home.wal, applied)?;
    }
    if restart == Restart::Rebooted {
        accept_reboot(&home.wal).await?;
    }
    Ok(())
}

fn check_store(home: &Home, applied: Option<LogId>) -> Result<(), StartError> {
    let purged = home.wal.purged(GroupId::MAIN).map(|id| id.index);
    // An empty database is whole once the log, from which nothing was purged, is applied to it.
    let Some(held) =
        purged.max(home.identity().stored).filter(|_| applied.or(home.wal.purged(GroupId::MAIN)).is_some())
    else {
        return Ok(());
    };
    let database = applied.map(|id| id.index);
    if database >= Some(held) { Ok(()) } else { Err(StartError::StoreCut { database, held }) }
}

fn check_log(home: &Home, applied: LogId) -> Result<(), StartError> {
    let (log, database) = (home.wal.last_log_id(GroupId::MAIN).map_or(0, |id| id.index), applied.index);
    let identity = home.identity();
    let is_image = [identity.image_end, identity.image_end_before].contains(&Some(database));
    if log >= database || is_image || !home.is_complete { Ok(()) } else { Err(StartError::LogCut { log, database }) }
}

/// Lets the log begin after what was applied, where it does not hold that entry.
fn go_on_behind(wal: &Wal, applied: LogId) -> Result<(), WalError> {
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
