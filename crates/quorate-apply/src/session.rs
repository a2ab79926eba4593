//! Exactly-once retries: the requests of each session and their outcomes.
//!
//! Each session is a [record](SessionRecord) that includes its small outcomes above the floor ([`recent`]). Every other
//! outcome is a record of its own. Both change in the same transaction as the data, so a retry finds either its outcome
//! or no trace of the first attempt. The sessions are cached in memory, without the outcomes that have a record of
//! their own. If a batch is rolled back, its changes to the cache are undone.
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

use crate::{Records, SessionRecord};

mod recent;

use recent::Recent;

/// Nanoseconds between stamps after which an idle session ends: a day.
pub const SESSION_IDLE_NANOS: u64 = 24 * 60 * 60 * 1_000_000_000;

/// The most sessions of a store. Opening one more ends the one that was idle longest.
pub const SESSIONS_MAX: usize = 65_536;

/// The most expired sessions that one entry removes.
pub const EXPIRED_PER_ENTRY: usize = 2;

/// The most small outcomes that all sessions together keep in their records, and in memory.
const SMALL_MAX: usize = 1 << 20;

/// The largest sequence: engines keep it as a signed number.
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
    /// An upper bound of the sequences whose outcomes have records of their own; 0 if no such sequence is above the
    /// floor.
    highest_of_records: u64,
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
pub struct Sessions {
    all: BTreeMap<u64, Session>,
    /// By last use, the longest idle first.
    by_use: BTreeSet<(u64, u64)>,
    /// The number of small outcomes of all sessions.
    small: usize,
    /// The sessions that the present batch has changed, with their state before it.
    before: BTreeMap<u64, Option<Session>>,
    /// Outcomes whose records are to be removed when the present batch ends: a session and the last such sequence.
    given_up: BTreeMap<u64, u64>,
    /// Outcomes of the present batch that get a record of their own, by session and sequence; `None` for one that is
    /// too large to keep. They are written when the batch ends, because some of them may be discarded again by then.
    fresh: BTreeMap<(u64, u64), Option<Vec<u8>>>,
    /// An empty buffer for the next outcome.
    encoded: Vec<u8>,
}

impl Sessions {
    /// Loads the sessions from the records.
    pub(crate) fn load(records: &mut impl Records) -> Result<Self, StoreFault> {
        let mut sessions = Self::default();
        for (record, highest_of_records) in records.sessions()? {
            if Mutant::SessionsForgotten.is_on() {
                break;
            }
            let SessionRecord { id, used, floor, highest, recent } = record;
            let damaged = || StoreFault::Damaged(format!("the outcomes of session {id} can't be decoded"));
            let recent = Recent::decode(&recent).ok_or_else(damaged)?;
            sessions.replace(id, Some(Session { used, floor, highest, recent, highest_of_records }));
        }
        Ok(sessions)
    }

    /// The number of sessions.
    pub fn count(&self) -> u64 {
        self.all.len() as u64
    }

    /// The number of small outcomes that the records of sessions include.
    pub fn small(&self) -> usize {
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
    pub(crate) fn admit(
        &mut self,
        records: &mut impl Records,
        origin: Origin,
        now: u64,
    ) -> Result<Admission, StoreFault> {
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
            None if sequence <= session.highest_of_records => self.look_up(records, id, sequence),
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
        if session.highest_of_records > 0 {
            session.highest_of_records =
                if session.highest_of_records > floor { session.highest_of_records } else { 0 };
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
        if self.replace(id, None).is_some_and(|session| session.highest_of_records > 0) {
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
            session.highest_of_records = session.highest_of_records.max(sequence);
            self.fresh.insert((id, sequence), Some(bytes).filter(|bytes| is_kept(outcome, bytes.len())));
        }
    }

    fn give_up(&mut self, id: u64, upto: u64) {
        let known = self.given_up.entry(id).or_default();
        *known = upto.max(*known);
    }

    /// Looks for the outcome of a request that may have been run among those with a record of their own.
    fn look_up(&self, records: &mut impl Records, id: u64, sequence: u64) -> Result<Admission, StoreFault> {
        let found = match self.fresh.get(&(id, sequence)) {
            Some(bytes) => Some(bytes.clone()),
            None => records.outcome(id, sequence)?,
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
    pub(crate) fn write(&self, records: &mut impl Records) -> Result<(), StoreFault> {
        for (id, upto) in &self.given_up {
            records.remove_outcomes(*id, *upto)?;
        }
        for ((id, sequence), bytes) in &self.fresh {
            if self.given_up.get(id).is_none_or(|upto| sequence > upto) {
                records.write_outcome(*id, *sequence, bytes.as_deref())?;
            }
        }
        for id in self.before.keys() {
            match self.all.get(id) {
                None => records.remove_session(*id)?,
                Some(session) => records.write_session(&session.record(*id))?,
            }
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
    fn record(&self, id: u64) -> SessionRecord {
        let Self { used, floor, highest, .. } = *self;
        SessionRecord { id, used, floor, highest, recent: self.recent.encode() }
    }
}

/// Decodes the small outcomes of a session and encodes them again; `None` if they can't be decoded.
pub fn reencode(bytes: &[u8]) -> Option<Vec<u8>> {
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

/// The answer to a request that does not run: a failure.
pub(crate) fn answered(kind: FailureKind, text: impl Into<String>) -> Admission {
    Admission::Answered(Err(Failure::new(kind, text)))
}

/// The answer to a request whose outcome was kept as these bytes.
fn again(id: u64, sequence: u64, bytes: &[u8]) -> Result<Admission, StoreFault> {
    let unsupported = |error| StoreFault::Unsupported(format!("outcome {sequence} of session {id}: {error}"));
    decode_outcome(&Bytes::copy_from_slice(bytes)).map(Admission::Answered).map_err(unsupported)
}
