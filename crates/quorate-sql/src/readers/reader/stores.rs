//! Reads of the stores beside SQL, which take no text from users.

use quorate_keys::{Keys, Version};
use quorate_locks::{Locks, LocksCommand, LocksReply};
use quorate_model::Failure;
use quorate_model::codec::keys_reply_len;
use quorate_model::events::{EventsAnswer, EventsQuery};
use quorate_model::keys::{KeysReply, SpaceCommand};

use super::super::error::ReadError;
use super::super::guard::Allowance;
use super::{Known, Reader};
use crate::events::EventTables;
use crate::ffi::database::Database;
use crate::keys::{Ended, KeyTables};
use crate::locks::LockTables;
use crate::metrics::Counts;

/// What the log of slow queries says of commands on keys.
const KEYS: &str = "commands on keys";

/// What it says of commands on locks.
const LOCKS: &str = "a command on locks";

/// What it says of queries for events.
const EVENTS: &str = "a query for events";

/// What it says of the counts of stores.
const COUNTS: &str = "counts of the stores";

impl Reader {
    /// Runs commands on keys that only read, on one state and at the time of the cluster. They end after the one whose
    /// reply brings the bytes of all replies to `bytes_max`. Returns `None` if a first try reached its limit.
    pub(in crate::readers) fn keys(
        &mut self,
        commands: &[SpaceCommand],
        bytes_max: usize,
        allowance: Allowance,
    ) -> Result<Option<Vec<Result<KeysReply, Failure>>>, ReadError> {
        // The limits of the commands and the guard bound their work.
        let mut context = quorate_keys::Context::new(self.time.now(), Version::default(), u64::MAX);
        self.of_store(KEYS, allowance, |database| {
            let (mut answers, mut bytes) = (Vec::with_capacity(commands.len()), 0_usize);
            for SpaceCommand { space, command } in commands {
                let answer = match Keys::new(&mut KeyTables::of(database), &mut context, *space).run(command) {
                    Err(Ended::Failed(error)) => Err(Failure::from(error)),
                    ran => Ok(ran?),
                };
                bytes = bytes.saturating_add(answer.as_ref().map_or(0, keys_reply_len));
                answers.push(answer);
                if bytes >= bytes_max {
                    break;
                }
            }
            Ok::<_, Ended>(answers)
        })
    }

    /// Runs a command on locks that only reads, at the time of the cluster. Returns `None` if a first try reached its
    /// limit.
    pub(in crate::readers) fn locks(
        &mut self,
        command: &LocksCommand,
        allowance: Allowance,
    ) -> Result<Option<LocksReply>, ReadError> {
        // As for keys.
        let mut context = quorate_locks::Context::new(self.time.now(), 0, u64::MAX);
        self.of_store(LOCKS, allowance, |database| Locks::new(&mut LockTables::of(database), &mut context).run(command))
    }

    /// Answers a query for events. Returns `None` if a first try reached its limit.
    pub(in crate::readers) fn events(
        &mut self,
        query: &EventsQuery,
        allowance: Allowance,
    ) -> Result<Option<EventsAnswer>, ReadError> {
        self.of_store(EVENTS, allowance, |database| EventTables::of(database).answer(query))
    }

    /// Reads the counts that the stores of keys and events keep, and counts the leases and waits of locks. Returns
    /// `None` if a first try reached its limit.
    pub(in crate::readers) fn counts(&mut self, allowance: Allowance) -> Result<Option<Counts>, ReadError> {
        self.of_store(COUNTS, allowance, |database| {
            let [keys, flushed_keys] = KeyTables::of(database).count_all()?;
            let [leases, lock_waits] = LockTables::of(database).counts()?;
            let counts = EventTables::of(database).counts()?;
            Ok::<_, Ended>(Counts { keys, flushed_keys, leases, lock_waits, ..counts })
        })
    }

    /// Reads the tables of a store in a transaction. One that an error leaves open ends with the use of the reader.
    fn of_store<T, E: Into<Failure>>(
        &mut self,
        what: &str,
        allowance: Allowance,
        read: impl FnOnce(&mut Database<Known>) -> Result<T, Ended<E>>,
    ) -> Result<Option<T>, ReadError> {
        let answer = self.guarded(what, allowance, |reader| {
            reader.end_paused();
            reader.own(|database| {
                let is_alone = database.connection().is_autocommit();
                if is_alone {
                    database.execute("BEGIN", [])?;
                }
                let answer = read(database)?;
                if is_alone {
                    database.execute("COMMIT", [])?;
                }
                Ok::<_, Ended<E>>(answer)
            })
        });
        answer.inspect_err(|error| self.suspicions.note(&self.generation, error, None))
    }
}
