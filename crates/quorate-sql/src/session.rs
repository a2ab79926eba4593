//! Exactly-once retries: who asked what, and what came of it.
//!
//! Sessions live in `_quorate_sessions`, the outcomes above a session's floor in `_quorate_outcomes`. Both change in
//! the same transaction as the data, so a retry finds either its outcome or no trace of the first attempt. A copy of
//! the sessions, but not of outcomes, is in memory; what a batch changes in it is undone unless the batch commits.
//!
//! # Invariants
//!
//! - What is admitted depends on the entries before alone: never on where batches ended, on a restart, or on when rows
//!   of expired sessions are cleared away. A session that was idle too long is refused whether its row is still there
//!   or not.
//! - The work per entry is bounded: at most [`EXPIRED_PER_ENTRY`] sessions end, each with [`SESSION_WINDOW`] outcomes.

use std::collections::{BTreeMap, BTreeSet};

use quorate_model::codec::{decode_outcome, encode_outcome};
use quorate_model::limits::{KEPT_OUTCOME_BYTES_MAX, SESSION_WINDOW};
use quorate_model::{Failure, FailureKind, Origin, Outcome, StoreFault};
use rusqlite::{Connection, params};

use crate::apply::Db;
use crate::classify;

/// Nanoseconds, by stamps, after which an idle session ends: a day.
pub const SESSION_IDLE_NANOS: u64 = 24 * 60 * 60 * 1_000_000_000;

/// Sessions of a store. Opening one more ends the one that was idle longest.
pub const SESSIONS_MAX: usize = 65_536;

/// Sessions that are cleared away per entry.
pub const EXPIRED_PER_ENTRY: usize = 2;

/// The tables.
pub(crate) const TABLES: [&str; 2] = [
    "CREATE TABLE _quorate_sessions (
    session INTEGER PRIMARY KEY, used INTEGER NOT NULL, floor INTEGER NOT NULL, highest INTEGER NOT NULL
) STRICT",
    "CREATE TABLE _quorate_outcomes (
    session INTEGER NOT NULL, sequence INTEGER NOT NULL, outcome BLOB, PRIMARY KEY (session, sequence)
) STRICT, WITHOUT ROWID",
];

const ALL: &str = "SELECT session, used, floor, highest FROM _quorate_sessions";
const PUT: &str = "REPLACE INTO _quorate_sessions (session, used, floor, highest) VALUES (?1, ?2, ?3, ?4)";
const REMOVE: &str = "DELETE FROM _quorate_sessions WHERE session = ?1";
const END_ALL: [&str; 2] = ["DELETE FROM _quorate_sessions", "DELETE FROM _quorate_outcomes"];
const ANY_OUTCOME: &str = "SELECT session, sequence, outcome FROM _quorate_outcomes LIMIT 0";
const OUTCOME: &str = "SELECT outcome FROM _quorate_outcomes WHERE session = ?1 AND sequence = ?2";
const KEEP: &str = "INSERT INTO _quorate_outcomes (session, sequence, outcome) VALUES (?1, ?2, ?3)";
const FORGET: &str = "DELETE FROM _quorate_outcomes WHERE session = ?1 AND sequence <= ?2";

/// Fails where the tables are not there, or not as this version keeps them.
pub(crate) fn check_tables(conn: &Connection) -> rusqlite::Result<()> {
    [ALL, ANY_OUTCOME].iter().try_for_each(|sql| conn.prepare(sql).map(drop))
}

/// Ends all sessions.
pub(crate) fn end_all(conn: &Connection) -> rusqlite::Result<()> {
    END_ALL.iter().try_for_each(|sql| conn.execute(sql, []).map(drop))
}

/// The largest sequence: what SQLite's integers hold.
const SEQUENCE_MAX: u64 = i64::MAX as u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Session {
    /// The stamp of its latest request.
    used: u64,
    /// Outcomes up to here were given up.
    floor: u64,
    /// No higher sequence was ever admitted.
    highest: u64,
}

/// What a session says to a request.
#[derive(Debug, PartialEq)]
pub(crate) enum Admission {
    /// It is new: do it.
    Fresh,
    /// It was done before, with this outcome; or it can't be done any more.
    Answered(Outcome),
}

/// The sessions, as of the last entry.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    all: BTreeMap<u64, Session>,
    /// By last use, the longest idle first.
    by_use: BTreeSet<(u64, u64)>,
    /// What the present batch changed, as it was before.
    before: BTreeMap<u64, Option<Session>>,
    /// Outcomes to be dropped when the present entry ends: of a session, up to a sequence.
    given_up: Vec<(u64, u64)>,
}

impl Sessions {
    /// Reads them from the database.
    pub(crate) fn load(conn: &Connection) -> rusqlite::Result<Self> {
        let mut sessions = Self::default();
        let mut statement = conn.prepare(ALL)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let number = |column| row.get::<_, i64>(column).map(i64::cast_unsigned);
            let session = Session { used: number(1)?, floor: number(2)?, highest: number(3)? };
            sessions.set(number(0)?, Some(session));
        }
        sessions.before.clear();
        Ok(sessions)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.all.len() as u64
    }

    /// Begins an entry.
    pub(crate) fn begin(&mut self, now: u64) {
        self.given_up.clear();
        for _ in 0..EXPIRED_PER_ENTRY {
            match self.by_use.first() {
                Some((used, id)) if expired(*used, now) => self.end(*id),
                _ => break,
            }
        }
    }

    /// Whether a request is to be done.
    pub(crate) fn admit(&mut self, db: &mut Db, origin: Origin, now: u64) -> Result<Admission, StoreFault> {
        let id = origin.session.0;
        let Some(session) = self.all.get(&id).copied().filter(|session| !expired(session.used, now)) else {
            return Ok(answered(FailureKind::SessionExpired, "the session is not known, or was idle for too long"));
        };
        let floor = session.floor.max(origin.floor.min(SEQUENCE_MAX));
        if floor > session.floor && session.highest > session.floor {
            self.given_up.push((id, floor));
        }
        let mut session = Session { used: now, floor, ..session };
        let admission = if origin.sequence <= floor {
            answered(FailureKind::OutcomeForgotten, "the outcome was given up by the client")
        } else if origin.sequence - floor > SESSION_WINDOW || origin.sequence > SEQUENCE_MAX {
            let text =
                format!("a session may have {SESSION_WINDOW} requests above its floor, {floor}; raise the floor");
            answered(FailureKind::WindowExceeded, text)
        } else if origin.sequence > session.highest {
            session.highest = origin.sequence;
            Admission::Fresh
        } else {
            kept(db, id, origin.sequence)?
        };
        self.set(id, Some(session));
        Ok(admission)
    }

    /// Opens a session with the index of its entry.
    pub(crate) fn open(&mut self, id: u64, now: u64) {
        if self.all.len() >= SESSIONS_MAX
            && let Some((_, oldest)) = self.by_use.first().copied()
        {
            self.end(oldest);
        }
        self.set(id, Some(Session { used: now, floor: 0, highest: 0 }));
    }

    /// Ends a session and gives up its outcomes; an unknown one is ended already.
    pub(crate) fn end(&mut self, id: u64) {
        if self.all.contains_key(&id) {
            self.set(id, None);
            self.given_up.push((id, SEQUENCE_MAX));
        }
    }

    /// Ends an entry: writes what changed of the outcomes, and keeps the one of a fresh request.
    pub(crate) fn finish(&mut self, db: &mut Db, fresh: Option<(Origin, &Outcome)>) -> rusqlite::Result<()> {
        for (id, floor) in self.given_up.drain(..) {
            db.execute(FORGET, params![id.cast_signed(), floor.cast_signed()])?;
        }
        match fresh {
            Some((origin, outcome)) if self.all.contains_key(&origin.session.0) => {
                let bytes = Some(encode_outcome(outcome)).filter(|bytes| bytes.len() <= KEPT_OUTCOME_BYTES_MAX);
                let key = (origin.session.0.cast_signed(), origin.sequence.cast_signed());
                db.execute(KEEP, params![key.0, key.1, bytes]).map(|_| ())
            }
            _ => Ok(()),
        }
    }

    /// Writes the sessions that the batch changed; the caller commits.
    pub(crate) fn write(&self, db: &mut Db) -> rusqlite::Result<()> {
        for id in self.before.keys() {
            match self.all.get(id) {
                None => db.execute(REMOVE, [id.cast_signed()])?,
                Some(session) => {
                    let Session { used, floor, highest } = *session;
                    let values = [*id, used, floor, highest].map(u64::cast_signed);
                    db.execute(PUT, values)?
                }
            };
        }
        Ok(())
    }

    /// The batch is committed.
    pub(crate) fn adopt(&mut self) {
        self.before.clear();
    }

    /// The batch is rolled back.
    pub(crate) fn undo(&mut self) {
        for (id, session) in std::mem::take(&mut self.before) {
            self.set(id, session);
        }
        self.before.clear();
        self.given_up.clear();
    }

    /// The one place that changes the sessions in memory.
    fn set(&mut self, id: u64, session: Option<Session>) {
        let old = match session {
            Some(session) => self.all.insert(id, session),
            None => self.all.remove(&id),
        };
        if let Some(old) = old {
            self.by_use.remove(&(old.used, id));
        }
        if let Some(session) = session {
            self.by_use.insert((session.used, id));
        }
        self.before.entry(id).or_insert(old);
    }
}

fn expired(used: u64, now: u64) -> bool {
    now.saturating_sub(used) > SESSION_IDLE_NANOS
}

fn answered(kind: FailureKind, text: impl Into<String>) -> Admission {
    Admission::Answered(Err(Failure::new(kind, text)))
}

/// What is kept of a request that may have been done.
fn kept(db: &mut Db, id: u64, sequence: u64) -> Result<Admission, StoreFault> {
    let key = params![id.cast_signed(), sequence.cast_signed()];
    let found = db.first_row(OUTCOME, key, |row| row.get::<_, Option<Vec<u8>>>(0));
    match found.map_err(|error| classify::own(&error))? {
        None => Ok(Admission::Fresh),
        Some(None) => Ok(answered(FailureKind::OutcomeTooBig, "it was done, but its outcome was too large to be kept")),
        Some(Some(bytes)) => match decode_outcome(&bytes) {
            Ok(outcome) => Ok(Admission::Answered(outcome)),
            Err(error) => Err(StoreFault::Unsupported(format!("outcome {sequence} of session {id}: {error}"))),
        },
    }
}
