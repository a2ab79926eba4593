//! The store for tests: items that may expire, on the engine in memory.
//!
//! It is small, but a whole store: [`ItemsCommand`] says what its commands do. "How to add a store" in CONTRIBUTING.md
//! takes it as its example.
//!
//! # Invariants
//!
//! - An item whose time has come does not exist for any command, whether or not it was swept.
//! - Each item that expires has one row in the table of due times.
//! - A command that does not apply is a reply, and writes nothing.

use bytes::Bytes;
use quorate_model::{
    Command, CommandResult, Failure, FailureKind, ItemsCommand, ItemsReply, Mode, Outcome, Proposal, ReadCheck, Stamp,
    StoreFault, Topic,
};
use xxhash_rust::xxh3::xxh3_64;

use crate::memory::Memory;
use crate::{CommandContext, Engine, Scope, Stores, Trouble, no_store};

/// The tables: the items by key, each with its due time before its value; and the due times, each before its key.
const ITEMS: u8 = 1;
const DUE: u8 = 2;

/// Bytes of a time, big-endian so that times are in order. 0 stands for never.
const TIME_BYTES: usize = 8;

/// The steps that a command takes of the entry's budget.
const COST: u64 = 10;

/// An item as it is kept.
struct Item {
    due: u64,
    value: Bytes,
}

/// Returns the topic of a key: touched when an item is added under it.
pub fn topic(key: &[u8]) -> Topic {
    Topic(xxh3_64(key))
}

impl Memory {
    /// Returns the value of the item under a key at the time `now`.
    pub fn item(&self, key: &Bytes, now: u64) -> Option<Bytes> {
        self.find(key).filter(|item| exists(item, now)).map(|item| item.value)
    }

    /// Returns the keys of all items, including those that have expired and are not swept yet.
    pub fn item_keys(&self) -> impl Iterator<Item = &Bytes> {
        self.rows().filter(|(table, ..)| *table == ITEMS).map(|(_, key, _)| key)
    }

    fn find(&self, key: &Bytes) -> Option<Item> {
        let (due, _) = self.row(ITEMS, key)?.split_first_chunk::<TIME_BYTES>()?;
        let value = self.row(ITEMS, key)?.slice(TIME_BYTES..);
        Some(Item { due: u64::from_be_bytes(*due), value })
    }

    fn add(&mut self, key: &Bytes, value: &Bytes, ttl: u64) -> Result<ItemsReply, Trouble> {
        if self.item(key, self.now).is_some() {
            return Ok(ItemsReply::Exists);
        }
        self.remove(key)?;
        let due = if ttl == 0 { 0 } else { self.now.saturating_add(ttl) };
        self.put_row(ITEMS, key.clone(), [&due.to_be_bytes()[..], value].concat().into())?;
        if due > 0 {
            self.put_row(DUE, due_key(due, key), Bytes::new())?;
        }
        self.touched.push(topic(key));
        Ok(ItemsReply::Done)
    }

    fn take(&mut self, key: &Bytes) -> Result<ItemsReply, Trouble> {
        let Some(value) = self.item(key, self.now) else { return Ok(ItemsReply::Missing) };
        self.remove(key)?;
        Ok(ItemsReply::Taken(value))
    }

    /// Removes an item, whether or not its time has come.
    fn remove(&mut self, key: &Bytes) -> Result<(), StoreFault> {
        let Some(Item { due, .. }) = self.find(key) else { return Ok(()) };
        self.remove_row(ITEMS, key.clone())?;
        if due > 0 { self.remove_row(DUE, due_key(due, key)) } else { Ok(()) }
    }

    fn run_items(&mut self, command: &ItemsCommand) -> Result<ItemsReply, Trouble> {
        self.budget = self.budget.checked_sub(COST).ok_or_else(out_of_budget)?;
        match command {
            ItemsCommand::Add { key, value, ttl } => self.add(key, value, *ttl),
            ItemsCommand::Take(key) => self.take(key),
            ItemsCommand::Expect { key, value } if self.item(key, self.now).as_ref() == Some(value) => {
                Ok(ItemsReply::Done)
            }
            ItemsCommand::Expect { .. } => {
                Err(Failure::new(FailureKind::Conflict, "the item has another value; read it again").into())
            }
            ItemsCommand::Abort => {
                self.roll_back();
                Err(Failure::new(FailureKind::Constraint, "the transaction was rolled back").into())
            }
        }
    }
}

impl Stores for Memory {
    /// A command that fails has written nothing.
    fn scope_of(&mut self, proposal: &Proposal) -> Scope {
        match (proposal.mode, proposal.commands.as_slice()) {
            (Mode::Atomic, [_]) => Scope::Bare,
            _ => Scope::Undoable,
        }
    }

    fn scope_of_step(&mut self, _: &Command) -> Scope {
        Scope::Undoable
    }

    fn enter(&mut self, now: u64, _: u32) -> Result<(), StoreFault> {
        self.now = now;
        Ok(())
    }

    fn hidden_fault(&mut self) -> Option<StoreFault> {
        None
    }

    fn leave(&mut self, _: u64, _: &Proposal) {}

    fn begin_commands(&mut self, _: Option<u64>, _: u64, budget: u64) -> Result<(), StoreFault> {
        self.budget = budget;
        Ok(())
    }

    fn end_commands(&mut self) {}

    fn budget_left(&self) -> u64 {
        self.budget
    }

    fn resume_budget(&mut self, steps: u64) {
        self.budget = steps;
    }

    fn set_stamp(&mut self, stamp: Stamp) {
        self.now = stamp.now;
    }

    fn clear_stamp(&mut self) {}

    fn read_check(&mut self, _: &ReadCheck) -> Result<(), Trouble> {
        Err(no_store())
    }

    fn run(&mut self, command: &Command, _: CommandContext<'_>) -> Result<CommandResult, Trouble> {
        match command {
            Command::Items(command) => self.run_items(command).map(CommandResult::Items),
            Command::Control(_) | Command::Sql(_) | Command::Keys(_) | Command::Locks(_) | Command::Events(_) => {
                Err(no_store())
            }
        }
    }

    fn run_outside(&mut self, _: &Command) -> Option<Result<Outcome, StoreFault>> {
        None
    }

    fn seal(&mut self) -> Result<(), Trouble> {
        Ok(())
    }

    fn sweep(&mut self, now: u64, max: usize) -> Result<(), StoreFault> {
        for _ in 0..max {
            let Some((due, key)) = self.first_due().filter(|(due, _)| *due <= now) else { break };
            self.remove_row(ITEMS, key.clone())?;
            self.remove_row(DUE, due_key(due, &key))?;
        }
        Ok(())
    }

    fn next_due(&mut self) -> Result<Option<u64>, StoreFault> {
        Ok(self.first_due().map(|(due, _)| due))
    }

    fn take_touched(&mut self) -> Vec<Topic> {
        std::mem::take(&mut self.touched)
    }

    fn only_reads(&mut self, command: &Command) -> bool {
        matches!(command, Command::Items(ItemsCommand::Expect { .. }))
    }
}

impl Memory {
    /// The item that is due next.
    fn first_due(&self) -> Option<(u64, Bytes)> {
        let (key, _) = self.first_row(DUE)?;
        let (due, _) = key.split_first_chunk::<TIME_BYTES>()?;
        Some((u64::from_be_bytes(*due), key.slice(TIME_BYTES..)))
    }
}

fn exists(item: &Item, now: u64) -> bool {
    item.due == 0 || item.due > now
}

fn due_key(due: u64, key: &Bytes) -> Bytes {
    [&due.to_be_bytes()[..], key].concat().into()
}

fn out_of_budget() -> Failure {
    Failure::new(FailureKind::Budget, "the entry needs more steps than its budget has; ask for more (with_budget)")
}

#[cfg(test)]
mod tests;
