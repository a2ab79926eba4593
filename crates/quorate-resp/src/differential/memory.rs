//! A door on keys in memory.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use quorate_keys::{
    Context, EventClasses, KeyChange, KeyCommand, Keys, KeysCommand, KeysReply, Memory, SpaceCommand, Version,
};
use quorate_locks::Locks;
use quorate_model::events::EventId;
use quorate_model::{Command, CommandResult, EventsReply, Failure, FailureKind};

use super::Value;
use crate::args::Moment;
use crate::batch::{Answered, Job};
use crate::connection::Connection;
use crate::cursors::Cursors;
use crate::door::Door;
use crate::frame::{Frame, Protocol};
use crate::host::{Host, Role};
use crate::notifications::NOTIFY;
use crate::plan::Premise;

/// The steps that a command may take.
const BUDGET: u64 = 1 << 40;

/// The rows that are swept at a time.
const SWEEP_ROWS: usize = 1_000;

/// A door on keys in memory, with one client.
#[derive(Debug)]
pub struct MemoryDoor {
    door: Door,
    input: BytesMut,
    tables: Memory,
    locks: quorate_locks::Memory,
    cursors: Arc<Cursors>,
    seed: u64,
    index: u64,
    jobs: u64,
    changes: Vec<KeyChange>,
}

/// A server with nothing to tell.
struct Alone;

impl Host for Alone {
    fn anonymous(&self) -> Result<Role, String> {
        Ok(Role::Write)
    }

    fn info(&self, _: &[String]) -> String {
        "# Server\r\n".to_owned()
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        vec![("appendonly", "yes".to_owned()), ("save", String::new()), (NOTIFY, String::new())]
    }
}

impl MemoryDoor {
    /// Returns a door on no keys.
    pub fn new(seed: u64) -> Self {
        let door = Door::new(Connection::new(1, "here".to_owned(), 0, Arc::default()));
        let (cursors, tables, locks) = (Arc::new(Cursors::new(seed)), Memory::default(), Default::default());
        Self { door, input: BytesMut::new(), tables, locks, cursors, seed, index: 0, jobs: 0, changes: Vec::new() }
    }

    /// Returns how many jobs were done.
    pub fn jobs(&self) -> u64 {
        self.jobs
    }

    /// Returns what has happened to keys since this was last asked.
    pub fn take_changes(&mut self) -> Vec<KeyChange> {
        std::mem::take(&mut self.changes)
    }

    /// Returns whether the connection was closed.
    pub fn is_closed(&self) -> bool {
        self.door.is_closing()
    }

    /// Sends bytes, at a time in nanoseconds since 1970, and returns the replies to the requests that are whole.
    pub fn send(&mut self, bytes: &[u8], now: u64) -> BytesMut {
        self.input.extend_from_slice(bytes);
        let mut out = BytesMut::new();
        loop {
            self.seed = self.seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let moment = Moment { now, seed: self.seed, space: 0, cursors: Arc::clone(&self.cursors) };
            let mut batch = self.door.take(&mut self.input, moment, &Alone);
            if batch.is_empty() {
                return out;
            }
            while let Some(job) = batch.job() {
                self.jobs += 1;
                let answered = self.run(job, now);
                batch.answer(answered);
            }
            self.door.finish(batch, &mut out);
        }
    }

    /// Sends requests, and returns their replies.
    ///
    /// # Errors
    ///
    /// A text, if a reply can't be read.
    pub fn ask(&mut self, requests: &[Vec<Bytes>], now: u64) -> Result<Vec<Value>, String> {
        let mut bytes = BytesMut::new();
        for request in requests {
            Frame::bulks(request.iter().cloned()).write(Protocol::Two, &mut bytes);
        }
        let out = self.send(&bytes, now);
        let (mut values, mut from) = (Vec::new(), 0);
        while let Some((value, read)) = Value::read(out.get(from..).unwrap_or_default())? {
            values.push(value);
            from += read;
        }
        Ok(values)
    }

    /// Removes what has expired, as a node does: it counts as a key or a field until then.
    ///
    /// # Errors
    ///
    /// A text, if the keys in memory are damaged.
    pub fn sweep(&mut self, now: u64) -> Result<(), String> {
        self.index += 1;
        let context = Context::new(now, Version::new(self.index, 0), BUDGET);
        let mut context = context.noting(EventClasses::ALL);
        while quorate_keys::sweep(&mut self.tables, &mut context, SWEEP_ROWS).map_err(|error| error.to_string())? > 0 {}
        self.changes.append(&mut context.take_changes());
        Ok(())
    }

    fn run(&mut self, job: Job, now: u64) -> Answered {
        match job {
            Job::Run { terms, commands, .. } => {
                self.index += 1;
                if !terms.premises.iter().all(|premise| self.holds(premise, now)) {
                    return Answered::Conflict;
                }
                let numbers = 0_u16..;
                let run = |(command, number)| self.run_command(command, now, number);
                Answered::Ran(commands.iter().zip(numbers).map(run).collect())
            }
            Job::Login { .. } => Answered::Login(Some(Role::Write)),
            // Nobody else changes keys meanwhile.
            Job::Wait(_) => Answered::TimedOut,
        }
    }

    fn holds(&mut self, premise: &Premise, now: u64) -> bool {
        let (key, version) = (premise.key.clone(), premise.version);
        let command = KeysCommand::Key(KeyCommand::Expect { key, version });
        self.command(&SpaceCommand { space: premise.space, command }, now, 0).is_ok()
    }

    fn run_command(&mut self, command: &Command, now: u64, number: u16) -> CommandResult {
        match command {
            Command::Keys(command) => {
                self.command(command, now, number).map_or_else(CommandResult::Failed, CommandResult::Keys)
            }
            Command::Locks(command) => {
                let mut context = quorate_locks::Context::new(now, self.index, BUDGET);
                let ran = Locks::new(&mut self.locks, &mut context).run(command);
                ran.map_or_else(|error| CommandResult::Failed(error.into()), CommandResult::Locks)
            }
            Command::Events(_) => EventsReply::Notified(EventId::START).into(),
            _ => CommandResult::Failed(Failure::new(FailureKind::Refused, "there are only keys and locks")),
        }
    }

    fn command(&mut self, command: &SpaceCommand, now: u64, number: u16) -> Result<KeysReply, Failure> {
        let context = Context::new(now, Version::new(self.index, number), BUDGET);
        let mut context = context.noting(EventClasses::ALL);
        let ran = Keys::new(&mut self.tables, &mut context, command.space).run(&command.command)?;
        self.changes.append(&mut context.take_changes());
        Ok(ran)
    }
}
