//! Exactly-once retries: the requests of each session and their outcomes.
//!
//! Sessions are stored in `_quorate_sessions`, each with its small outcomes above the floor ([`recent`]). The other
//! outcomes are stored in `_quorate_outcomes`. Both tables change in the same transaction as the data, so a retry finds
//! either its outcome or no trace of the first attempt. The sessions are cached in memory, without the contents of
//! `_quorate_outcomes`. If a batch is rolled back, its changes to the cache are undone.
//!
//! # Invariants
//!
//! - Whether a request is admitted depends only on the entries before it: not on where batches ended, on a restart, or
//!   on when rows of expired sessions are removed. A session that was idle too long is refused whether or not its row
//!   still exists.
//! - The work per entry is bounded: at most [`EXPIRED_PER_ENTRY`] sessions end, each with at most [`SESSION_WINDOW`]
//!   outcomes.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use quorate_env::mutant::Mutant;
use quorate_model::codec::{append_outcome, canonical_outcome_len, decode_outcome};
use quorate_model::limits::{KEPT_OUTCOME_BYTES_MAX, SESSION_WINDOW};
use quorate_model::{Failure, FailureKind, Origin, Outcome, StoreFault};
use rusqlite::{Connection, Row, params};

use crate::apply::Db;
use crate::classify;

mod recent;

use recent::Recent;

/// Nanoseconds between stamps after which an idle session ends: a day.
pub const SESSION_IDLE_NANOS: u64 = 24 * 60 * 60 * 1_000_000_000;

/// The most sessions of a store. Opening one more ends the one that was idle longest.
pub const SESSIONS_MAX: usize = 65_536;

/// The most expired sessions that one entry removes.
pub const EXPIRED_PER_ENTRY: usize = 2;

/// The most small outcomes that all sessions together keep in their rows, and in memory.
const SMALL_MAX: usize = 1 << 20;

/// The tables of sessions.
pub(crate) const TABLES: [&str; 2] = [
    "CREATE TABLE _quorate_sessions (
    session INTEGER PRIMARY KEY, used INTEGER NOT NULL, floor INTEGER NOT NULL, highest INTEGER NOT NULL, recent BLOB
) STRICT",
    "CREATE TABLE _quorate_outcomes (
    session INTEGER NOT NULL, sequence INTEGER NOT NULL, outcome BLOB, PRIMARY KEY (session, sequence)
) STRICT, WITHOUT ROWID",
];

/// Adds the column that the first layout did not have.
const UPGRADE: &str = "ALTER TABLE _quorate_sessions ADD COLUMN recent BLOB";

const ANY: &str = "SELECT session, used, floor, highest FROM _quorate_sessions LIMIT 0";
const ALL: &str = "SELECT session, used, floor, highest, recent,
    (SELECT max(sequence) FROM _quorate_outcomes o WHERE o.session = s.session) FROM _quorate_sessions s";
const PUT: &str = "REPLACE INTO _quorate_sessions (session, used, floor, highest, recent) VALUES (?1, ?2, ?3, ?4, ?5)";
const REMOVE: &str = "DELETE FROM _quorate_sessions WHERE session = ?1";
const END_ALL: [&str; 2] = ["DELETE FROM _quorate_sessions", "DELETE FROM _quorate_outcomes"];
const ANY_OUTCOME: &str = "SELECT session, sequence, outcome FROM _quorate_outcomes LIMIT 0";
const OUTCOME: &str = "SELECT outcome FROM _quorate_outcomes WHERE session = ?1 AND sequence = ?2";
const KEEP: &str = "REPLACE INTO _quorate_outcomes (session, sequence, outcome) VALUES (?1, ?2, ?3)";
const FORGET: &str = "DELETE FROM _quorate_outcomes WHERE session = ?1 AND sequence <= ?2";

/// Upgrades the tables from an older layout.
pub(crate) fn upgrade(conn: &Connection) -> rusqlite::Result<()> {
    if conn.prepare(ALL).is_ok() { Ok(()) } else { conn.execute(UPGRADE, []).map(drop) }
}

/// Fails if the tables do not exist, or do not have the layout of this version or an earlier one.
pub(crate) fn check_tables(conn: &Connection) -> rusqlite::Result<()> {
    [ANY, ANY_OUTCOME].iter().try_for_each(|sql| conn.prepare(sql).map(drop))
}

/// Ends all sessions.
pub(crate) fn end_all(conn: &Connection) -> rusqlite::Result<()> {
    END_ALL.iter().try_for_each(|sql| conn.execute(sql, []).map(drop))
}

/// The largest sequence, limited by SQLite's integers.
const SEQUENCE_MAX: u64 = i64::MAX as u64;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Session {
    /// The stamp of its latest request.
    used: u64,
    /// The client has discarded the outcomes up to this sequence.
    floor: u64,
    /// The highest sequence that was admitted.
    highest: u64,
    /// Its small outcomes.
    recent: Recent,
    /// No sequence above this has an outcome in `_quorate_outcomes`; 0 if there is none above the floor.
    highest_in_table: u64,
}

/// The answer of a session to a request.
#[derive(Debug, PartialEq)]
pub(crate) enum Admission {
    /// The request is new and must be run.
    Fresh,
    /// The request was run before, with this outcome, or it can no longer be run.
    Answered(Outcome),
}

/// The sessions as of the last entry.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    all: BTreeMap<u64, Session>,
    /// By last use, the longest idle first.
    by_use: BTreeSet<(u64, u64)>,
    /// The number of small outcomes of all sessions.
    small: usize,
    /// The sessions that the present batch has changed, with their state before it.
    before: BTreeMap<u64, Option<Session>>,
    /// Outcomes of `_quorate_outcomes` to delete when the present batch ends: a session, and the last sequence to
    /// delete.
    given_up: BTreeMap<u64, u64>,
    /// Outcomes of the present batch for `_quorate_outcomes`, by session and sequence; `None` for one that is too large
    /// to keep. They are written when the batch ends, because some of them may be discarded again by then.
    fresh: BTreeMap<(u64, u64), Option<Vec<u8>>>,
    /// An empty buffer for the next outcome.
    encoded: Vec<u8>,
}

impl Sessions {
    /// Loads the sessions from the database.
    pub(crate) fn load(conn: &Connection) -> Result<Self, StoreFault> {
        let own = |error: rusqlite::Error| classify::own(&error);
        let mut sessions = Self::default();
        let mut statement = conn.prepare(ALL).map_err(own)?;
        let mut rows = statement.query([]).map_err(own)?;
        while let Some(row) = rows.next().map_err(own)?.filter(|_| !Mutant::SessionsForgotten.is_on()) {
            let (id, session) = Session::of(row).map_err(own)?;
            let damaged = || StoreFault::Damaged(format!("the outcomes of session {id} can't be decoded"));
            sessions.replace(id, Some(session.ok_or_else(damaged)?));
        }
        Ok(sessions)
    }

    /// The number of sessions.
    pub(crate) fn count(&self) -> u64 {
        self.all.len() as u64
    }

    /// The number of outcomes that the sessions keep in their rows.
    #[cfg(test)]
    pub(crate) fn small(&self) -> usize {
        self.small
    }

    /// Ends some expired sessions at the start of an entry.
    pub(crate) fn begin(&mut self, now: u64) {
        for _ in 0..EXPIRED_PER_ENTRY {
            match self.by_use.first() {
                Some((used, id)) if expired(*used, now) => self.end(*id),
                _ => break,
            }
        }
    }

    /// Decides whether a request is to be run.
    pub(crate) fn admit(&mut self, db: &mut Db, origin: Origin, now: u64) -> Result<Admission, StoreFault> {
        let (id, sequence) = (origin.session.0, origin.sequence);
        let has_ended = self.all.get(&id).is_none_or(|session| expired(session.used, now));
        if has_ended && Mutant::ExpiredIsFresh.is_on() {
            self.end(id);
            self.open(id, now);
        } else if has_ended {
            return Ok(answered(FailureKind::SessionExpired, "the session is not known, or was idle for too long"));
        }
        self.use_and_raise(id, now, origin.floor.min(SEQUENCE_MAX));
        let Some(session) = self.all.get_mut(&id) else { return Ok(Admission::Fresh) };
        if sequence <= session.floor {
            return Ok(answered(FailureKind::OutcomeForgotten, "the outcome was given up by the client"));
        }
        if sequence - session.floor > SESSION_WINDOW || sequence > SEQUENCE_MAX {
            let floor = session.floor;
            let text =
                format!("a session may have {SESSION_WINDOW} requests above its floor, {floor}; send fewer at a time");
            return Ok(answered(FailureKind::WindowExceeded, text));
        }
        if sequence > session.highest {
            session.highest = sequence;
            return Ok(Admission::Fresh);
        }
        match session.recent.get(sequence) {
            Some(bytes) => again(id, sequence, bytes),
            None if sequence <= session.highest_in_table => self.look_up(db, id, sequence),
            None => Ok(Admission::Fresh),
        }
    }

    /// Records that a session is in use, and drops the outcomes that its client has discarded.
    fn use_and_raise(&mut self, id: u64, now: u64, floor: u64) {
        self.remember(id);
        let Some(session) = self.all.get_mut(&id) else { return };
        self.by_use.remove(&(session.used, id));
        self.by_use.insert((now, id));
        session.used = now;
        if floor <= session.floor {
            return;
        }
        session.floor = floor;
        self.small -= session.recent.len();
        session.recent.forget(floor);
        self.small += session.recent.len();
        if session.highest_in_table > 0 {
            session.highest_in_table = if session.highest_in_table > floor { session.highest_in_table } else { 0 };
            self.give_up(id, floor);
        }
    }

    /// Opens a session whose id is the index of its entry.
    pub(crate) fn open(&mut self, id: u64, now: u64) {
        if self.all.len() >= SESSIONS_MAX
            && let Some((_, oldest)) = self.by_use.first().copied()
        {
            self.end(oldest);
        }
        self.remember(id);
        self.replace(id, Some(Session { used: now, ..Session::default() }));
    }

    /// Ends a session and discards its outcomes. Does nothing if the session does not exist.
    pub(crate) fn end(&mut self, id: u64) {
        if !self.all.contains_key(&id) {
            return;
        }
        self.remember(id);
        if self.replace(id, None).is_some_and(|session| session.highest_in_table > 0) {
            self.give_up(id, SEQUENCE_MAX);
        }
    }

    /// Keeps the outcome of a new request at the end of its entry.
    pub(crate) fn keep(&mut self, origin: Origin, outcome: &Outcome) {
        let (id, sequence) = (origin.session.0, origin.sequence);
        // The entry may have ended its own session.
        let Some(session) = self.all.get_mut(&id).filter(|_| !Mutant::OutcomeNotKept.is_on()) else { return };
        let mut bytes = std::mem::take(&mut self.encoded);
        append_outcome(&mut bytes, outcome);
        if self.small < SMALL_MAX && session.recent.keep(sequence, &bytes) {
            self.small += 1;
            bytes.clear();
            self.encoded = bytes;
        } else {
            session.highest_in_table = session.highest_in_table.max(sequence);
            self.fresh.insert((id, sequence), Some(bytes).filter(|bytes| is_kept(outcome, bytes.len())));
        }
    }

    fn give_up(&mut self, id: u64, upto: u64) {
        let known = self.given_up.entry(id).or_default();
        *known = upto.max(*known);
    }

    /// Looks up a request that may have been run in `_quorate_outcomes`.
    fn look_up(&self, db: &mut Db, id: u64, sequence: u64) -> Result<Admission, StoreFault> {
        let key = params![id.cast_signed(), sequence.cast_signed()];
        let found = match self.fresh.get(&(id, sequence)) {
            Some(bytes) => Some(bytes.clone()),
            None => db
                .first_row(OUTCOME, key, |row| row.get::<_, Option<Vec<u8>>>(0))
                .map_err(|error| classify::own(&error))?,
        };
        match found {
            None => Ok(Admission::Fresh),
            Some(None) => Ok(answered(
                FailureKind::OutcomeTooBig,
                "it was done, but what it returned was too large to be kept for a retry",
            )),
            Some(Some(bytes)) => again(id, sequence, &bytes),
        }
    }

    /// Writes all changes of the batch so far, each time in full. The caller commits.
    pub(crate) fn write(&self, db: &mut Db) -> rusqlite::Result<()> {
        for (id, upto) in &self.given_up {
            db.execute(FORGET, params![id.cast_signed(), upto.cast_signed()])?;
        }
        for ((id, sequence), bytes) in &self.fresh {
            if self.given_up.get(id).is_none_or(|upto| sequence > upto) {
                db.execute(KEEP, params![id.cast_signed(), sequence.cast_signed(), bytes])?;
            }
        }
        for id in self.before.keys() {
            match self.all.get(id) {
                None => db.execute(REMOVE, [id.cast_signed()])?,
                Some(session) => {
                    let [id, used, floor, highest] =
                        [*id, session.used, session.floor, session.highest].map(u64::cast_signed);
                    db.execute(PUT, params![id, used, floor, highest, session.recent.encode()])?
                }
            };
        }
        Ok(())
    }

    /// Keeps the changes after COMMIT.
    pub(crate) fn adopt(&mut self) {
        self.before.clear();
        self.given_up.clear();
        self.fresh.clear();
    }

    /// Undoes the changes after a rollback.
    pub(crate) fn undo(&mut self) {
        for (id, session) in std::mem::take(&mut self.before) {
            self.replace(id, session);
        }
        self.adopt();
    }

    /// Remembers the state of a session before the batch. Must be called before the session changes.
    fn remember(&mut self, id: u64) {
        if let Entry::Vacant(place) = self.before.entry(id) {
            place.insert(self.all.get(&id).cloned());
        }
    }

    /// Replaces a session, and returns the old one.
    fn replace(&mut self, id: u64, session: Option<Session>) -> Option<Session> {
        if let Some(new) = &session {
            self.by_use.insert((new.used, id));
            self.small += new.recent.len();
        }
        let new_used = session.as_ref().map(|new| new.used);
        let old = match session {
            Some(session) => self.all.insert(id, session),
            None => self.all.remove(&id),
        };
        if let Some(old) = &old {
            self.small -= old.recent.len();
            if new_used != Some(old.used) {
                self.by_use.remove(&(old.used, id));
            }
        }
        old
    }
}

impl Session {
    /// Decodes a row of [`ALL`]. The session is `None` if its small outcomes can't be decoded.
    fn of(row: &Row<'_>) -> rusqlite::Result<(u64, Option<Self>)> {
        let number = |column| row.get::<_, i64>(column).map(i64::cast_unsigned);
        let highest_in_table = row.get::<_, Option<i64>>(5)?.map_or(0, i64::cast_unsigned);
        let bytes = row.get_ref(4)?.as_blob_or_null()?.unwrap_or_default();
        let (used, floor, highest) = (number(1)?, number(2)?, number(3)?);
        let session = Recent::decode(bytes).map(|recent| Self { used, floor, highest, recent, highest_in_table });
        Ok((number(0)?, session))
    }
}

/// Decodes the small outcomes of a row and encodes them again; `None` if they can't be decoded.
pub(crate) fn reencode(bytes: &[u8]) -> Option<Vec<u8>> {
    Recent::decode(bytes).map(|recent| recent.encode())
}

/// Whether an outcome of so many encoded bytes is kept whole. Its canonical bytes decide, because the texts in it may
/// differ between nodes, and the answer to a retry may not. They are at most some five times as many as the encoded
/// bytes, so those of most outcomes need not be counted.
fn is_kept(outcome: &Outcome, encoded: usize) -> bool {
    encoded <= KEPT_OUTCOME_BYTES_MAX / 8 || canonical_outcome_len(outcome) <= KEPT_OUTCOME_BYTES_MAX
}

fn expired(used: u64, now: u64) -> bool {
    now.saturating_sub(used) > SESSION_IDLE_NANOS
}

fn answered(kind: FailureKind, text: impl Into<String>) -> Admission {
    Admission::Answered(Err(Failure::new(kind, text)))
}

/// The answer to a request whose outcome was kept as these bytes.
fn again(id: u64, sequence: u64, bytes: &[u8]) -> Result<Admission, StoreFault> {
    let unsupported = |error| StoreFault::Unsupported(format!("outcome {sequence} of session {id}: {error}"));
    decode_outcome(&Bytes::copy_from_slice(bytes)).map(Admission::Answered).map_err(unsupported)
}
