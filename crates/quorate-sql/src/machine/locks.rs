//! The commands of the store of locks.
//!
//! # Invariants
//!
//! - A command that fails has written nothing, so one that is alone in its entry needs no savepoint. What it has
//!   written before trouble of the node is undone with the transaction.
//! - A grant by a sweep counts its token from the same index on every node: that of the entry that sweeps.

use quorate_apply::{CommandContext, Trouble};
use quorate_env::Env;
use quorate_env::mutant::Mutant;
use quorate_locks::{Context, Locks, LocksCommand, LocksReply, Touched, next_due, sweep};
use quorate_model::codec::locks_reply_len;
use quorate_model::limits::RETURNED_BYTES_MAX;
use quorate_model::{Failure, FailureKind, StoreFault, Topic};

use super::SqlMachine;
use super::keys::fault;
use crate::ffi::hooks;
use crate::locks::{LockTables, topic};
use crate::vfs::clock;

/// What the machine knows of the store of locks between two commands.
#[derive(Debug, Default)]
pub(super) struct LocksState {
    /// The topics of those to whom commands and sweeps have done something.
    pub(super) touched: Vec<Topic>,
    /// Nothing ends before this time.
    quiet_until: u64,
}

impl LocksState {
    /// Must be called after a rollback: it may have brought back what was swept.
    pub(super) fn rolled_back(&mut self) {
        self.quiet_until = 0;
    }

    fn touch(&mut self, touched: Vec<Touched>) {
        self.touched.extend(touched.iter().map(|Touched { name, holder }| topic(name, holder)));
    }
}

impl SqlMachine {
    /// Runs a command.
    pub(super) fn locks(
        &mut self,
        command: &LocksCommand,
        CommandContext { returned, .. }: CommandContext<'_>,
    ) -> Result<LocksReply, Trouble> {
        let node = Env::current().filter(|_| Mutant::LeaseByNodeClock.is_on());
        let now = node.map_or_else(clock::stamp, |node| node.unix_nanos());
        let mut context = Context::new(now, self.index, self.determinism.budget.left());
        let last_rowid = self.db.connection().last_insert_rowid();
        let mut tables = LockTables::of(&mut self.db);
        let done = Locks::new(&mut tables, &mut context).run(command);
        self.locks.quiet_until = self.locks.quiet_until.min(tables.earliest_due());
        hooks::set_last_insert_rowid(self.db.connection(), last_rowid);
        self.determinism.budget.set_left(context.budget_left());
        self.locks.touch(context.take_touched());
        let reply = done?;
        // Only a read has a long reply, so nothing was written.
        *returned = returned.saturating_add(locks_reply_len(&reply));
        if *returned > RETURNED_BYTES_MAX && command.only_reads() {
            let text = format!("the replies have more than {RETURNED_BYTES_MAX} bytes; ask for less");
            return Err(Failure::new(FailureKind::TooBig, text).into());
        }
        Ok(reply)
    }

    /// Settles at most `max` locks in which something has ended.
    pub(super) fn sweep_locks(&mut self, now: u64, max: usize) -> Result<(), StoreFault> {
        if self.locks.quiet_until > now {
            return Ok(());
        }
        let mut context = Context::new(now, self.index, 0);
        let mut tables = LockTables::of(&mut self.db);
        let swept = sweep(&mut tables, &mut context, max).and_then(|_| next_due(&mut tables));
        self.locks.quiet_until = swept.map_err(fault)?.unwrap_or(u64::MAX);
        self.locks.touch(context.take_touched());
        Ok(())
    }

    /// Returns when something ends.
    pub(super) fn locks_due(&mut self) -> Result<Option<u64>, StoreFault> {
        if self.locks.quiet_until == u64::MAX {
            return Ok(None);
        }
        let due = next_due(&mut LockTables::of(&mut self.db)).map_err(fault)?;
        self.locks.quiet_until = due.unwrap_or(u64::MAX);
        Ok(due)
    }
}
