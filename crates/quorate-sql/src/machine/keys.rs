//! The commands of the store of keys.
//!
//! # Invariants
//!
//! - A command that fails has written nothing, so one that is alone in its entry needs no savepoint. What it has
//!   written before trouble of the node is undone with the transaction.
//! - What the commands of an entry return is bounded. A command with a brief reply is checked before it writes, so it
//!   needs no savepoint in a pipeline either.
//! - Its statements are not the user's: they leave `last_insert_rowid()` as it is, and take no steps but those that the
//!   logic charges.

use quorate_apply::{CommandContext, Trouble};
use quorate_keys::{Context, Keys, KeysError, Space, Version, next_due, sweep};
use quorate_model::codec::keys_reply_len;
use quorate_model::keys::limits::BRIEF_REPLY_BYTES;
use quorate_model::keys::{EventClasses, KeyChange, KeysReply, SpaceCommand};
use quorate_model::limits::RETURNED_BYTES_MAX;
use quorate_model::{Failure, StoreFault, Topic};

use super::SqlMachine;
use crate::classify;
use crate::ffi::hooks;
use crate::keys::{Ended, KeyTables, topic, topic_of_changes, topic_of_space};
use crate::vfs::clock;

/// What the machine knows of the store of keys between two commands.
#[derive(Debug, Default)]
pub(super) struct KeysState {
    /// The topics of keys and spaces that commands and sweeps have changed.
    touched: Vec<Topic>,
    /// The spaces that they have changed, each once.
    spaces: Vec<Space>,
    /// The classes of events that somebody wants to know of.
    pub(super) wanted: EventClasses,
    /// The events of the open transaction that nothing has undone.
    pub(super) changes: Vec<KeyChange>,
    /// Nothing is to be swept before this time.
    quiet_until: u64,
    /// Whether the last command that failed had written something.
    pub(super) failed_late: bool,
}

impl KeysState {
    /// Must be called after a rollback, with the number of changes before what the rollback has undone. Rows that a
    /// sweep had removed may be back.
    pub(super) fn rolled_back(&mut self, changes: usize) {
        self.quiet_until = 0;
        self.changes.truncate(changes);
    }

    fn touch(&mut self, context: &mut Context) {
        self.changes.append(&mut context.take_changes());
        for (space, key) in context.take_touched() {
            self.touched.push(topic(space, &key));
            self.add_space(space);
        }
        for space in context.take_flushed() {
            self.touched.push(topic_of_space(space));
            self.add_space(space);
        }
    }

    fn add_space(&mut self, space: Space) {
        if !self.spaces.contains(&space) {
            self.spaces.push(space);
        }
    }

    /// Takes the topics of what has changed.
    pub(super) fn take_touched(&mut self) -> Vec<Topic> {
        self.touched.extend(self.spaces.drain(..).map(topic_of_changes));
        std::mem::take(&mut self.touched)
    }
}

impl<E: Into<Failure>> From<Ended<E>> for Trouble {
    fn from(ended: Ended<E>) -> Self {
        match ended {
            Ended::Failed(error) => Self::Failure(error.into()),
            Ended::Sqlite(error) => Self::Fault(classify::own(&error)),
            Ended::Fault(fault) => Self::Fault(fault),
        }
    }
}

impl SqlMachine {
    /// Runs a command.
    pub(super) fn keys(
        &mut self,
        command: &SpaceCommand,
        CommandContext { earlier, returned }: CommandContext<'_>,
    ) -> Result<KeysReply, Trouble> {
        if command.command.replies_briefly() {
            check_returned(returned.saturating_add(BRIEF_REPLY_BYTES))?;
        }
        let version = Version::new(self.index, u16::try_from(earlier.len()).unwrap_or(u16::MAX));
        let context = Context::new(clock::stamp(), version, self.determinism.budget.left());
        let mut context = context.noting(self.keys.wanted);
        let conn = self.db.connection();
        let (last_rowid, changes) = (conn.last_insert_rowid(), conn.total_changes());
        let mut tables = KeyTables::of(&mut self.db);
        let done = Keys::new(&mut tables, &mut context, command.space).run(&command.command);
        let done = done.and_then(|reply| count_returned(returned, reply));
        self.keys.quiet_until = self.keys.quiet_until.min(tables.earliest_due());
        let conn = self.db.connection();
        hooks::set_last_insert_rowid(conn, last_rowid);
        self.keys.failed_late = done.is_err() && conn.total_changes() != changes;
        self.determinism.budget.set_left(context.budget_left());
        if done.is_err() {
            // It has written nothing, or what it has written is undone.
            drop(context.take_changes());
        }
        self.keys.touch(&mut context);
        Ok(done?)
    }

    /// Sweeps at most `max` rows of keys.
    pub(super) fn sweep_keys(&mut self, now: u64, max: usize) -> Result<(), StoreFault> {
        if self.keys.quiet_until > now {
            return Ok(());
        }
        let mut context = Context::new(now, Version::default(), 0).noting(self.keys.wanted);
        let mut tables = KeyTables::of(&mut self.db);
        let swept = sweep(&mut tables, &mut context, max).and_then(|_| next_due(&mut tables));
        self.keys.quiet_until = swept.map_err(fault)?.unwrap_or(u64::MAX);
        self.keys.touch(&mut context);
        Ok(())
    }

    /// Returns when keys are to be swept.
    pub(super) fn keys_due(&mut self) -> Result<Option<u64>, StoreFault> {
        if self.keys.quiet_until == u64::MAX {
            return Ok(None);
        }
        let due = next_due(&mut KeyTables::of(&mut self.db)).map_err(fault)?;
        self.keys.quiet_until = due.unwrap_or(u64::MAX);
        Ok(due)
    }
}

/// Adds a reply to the bytes that the commands of an entry return.
fn count_returned(returned: &mut usize, reply: KeysReply) -> Result<KeysReply, Ended> {
    *returned = returned.saturating_add(keys_reply_len(&reply));
    check_returned(*returned)?;
    Ok(reply)
}

fn check_returned(bytes: usize) -> Result<(), Ended> {
    let max = RETURNED_BYTES_MAX;
    if bytes <= max { Ok(()) } else { Err(KeysError::ReplyTooLong { max }.into()) }
}

/// Returns the fault of what no command has caused.
pub(super) fn fault<E: Into<Failure>>(ended: Ended<E>) -> StoreFault {
    match ended.into() {
        Trouble::Fault(fault) => fault,
        Trouble::Failure(failure) => StoreFault::Damaged(format!("what has expired can't be swept: {failure}")),
    }
}
