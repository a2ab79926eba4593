//! Exactly-once requests by a key that the client chose: each key with its outcome.
//!
//! The requests are records, which change in the transaction of their entries; only their number, their size and the
//! ends of their order are kept in memory. A request that is sent again in time is answered from its record.
//!
//! # Invariants
//!
//! - Whether a request runs depends only on the entries before it: not on where batches ended, on a restart, or on when
//!   records are removed. A request whose time is over is not known, whether or not its record still exists.
//! - The numbers of the records have no gaps, and each begins at the byte where the one before it ended. So the ends
//!   say
//!   how many there are and what they take, and a start reads nothing else. Records are removed from the oldest on.
//! - Nothing is forgotten before its time: where there is no room, a new key is refused.

use bytes::Bytes;
use quorate_env::mutant::Mutant;
use quorate_model::codec::{canonical_outcome_len, decode_outcome, encode_outcome};
use quorate_model::limits::{REQUEST_BYTES, REQUEST_KEYS_BYTES_MAX, REQUEST_KEYS_MAX, REQUEST_OUTCOME_BYTES_MAX};
use quorate_model::{Failure, FailureKind, Outcome, Reply, RequestKey, StoreFault};

use crate::session::{Admission, answered};
use crate::{Records, RequestPlace, RequestRecord};

/// Nanoseconds between stamps after which a key is forgotten: a day after its request was applied.
pub const KEY_TIME: u64 = 24 * 60 * 60 * 1_000_000_000;

/// The most records that a refused request removes.
const SWEPT_WHEN_FULL: usize = 4;

/// The remembered requests as of the last entry. See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// The oldest record and the latest one.
    ends: Option<(RequestPlace, RequestPlace)>,
}

impl Requests {
    /// Reads the ends from the records.
    pub(crate) fn load(records: &mut impl Records) -> Result<Self, StoreFault> {
        let (oldest, latest) = (records.oldest_request()?, records.latest_request()?);
        Ok(Self { ends: oldest.zip(latest) })
    }

    /// The number of remembered requests.
    pub fn count(&self) -> u64 {
        self.ends.map_or(0, |(oldest, latest)| latest.number.saturating_sub(oldest.number).saturating_add(1))
    }

    /// What they take, as the limit counts it.
    pub fn bytes(&self) -> u64 {
        self.ends.map_or(0, |(oldest, latest)| latest.high.saturating_sub(oldest.low))
    }

    /// Returns the time at which the oldest one is to be removed.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.ends.map(|(oldest, _)| oldest.used.saturating_add(KEY_TIME).saturating_add(1))
    }

    /// Decides whether a request with a key is to be run.
    pub(crate) fn admit(
        &mut self,
        records: &mut impl Records,
        key: &RequestKey,
        now: u64,
    ) -> Result<Admission, StoreFault> {
        let known = records.request(key.key())?;
        if let Some(known) = known.filter(|known| !expired(known.place.used, now)) {
            return again(&known, key);
        }
        let largest = size(key, REQUEST_OUTCOME_BYTES_MAX);
        if self.count() < REQUEST_KEYS_MAX && self.bytes().saturating_add(largest) <= REQUEST_KEYS_BYTES_MAX {
            return Ok(Admission::Fresh);
        }
        self.sweep(records, now, SWEPT_WHEN_FULL)?;
        let text = format!(
            "{} keys of requests are remembered, each for a day, and there is no room for another; use keys for fewer \
             requests",
            self.count()
        );
        Ok(answered(FailureKind::KeysFull, text))
    }

    /// Remembers the outcome of a new request, which the entry at `index` has run.
    pub(crate) fn remember(
        &mut self,
        records: &mut impl Records,
        key: &RequestKey,
        (index, now): (u64, u64),
        outcome: &Outcome,
    ) -> Result<(), StoreFault> {
        if Mutant::KeyForgotten.is_on() {
            return Ok(());
        }
        let (number, low) = self.ends.map_or((1, 0), |(_, latest)| (latest.number.saturating_add(1), latest.high));
        let high = low.saturating_add(size(key, canonical_outcome_len(outcome)));
        let place = RequestPlace { number, low, high, used: now };
        records.write_request(&RequestRecord {
            place,
            entry: index,
            // A copy, because the key is a slice of the whole entry.
            key: Bytes::copy_from_slice(key.key()),
            hash: *key.hash(),
            outcome: encode_outcome(outcome),
        })?;
        self.ends = Some((self.ends.map_or(place, |(oldest, _)| oldest), place));
        Ok(())
    }

    /// Removes at most `max` records whose time is over.
    pub(crate) fn sweep(&mut self, records: &mut impl Records, now: u64, max: usize) -> Result<(), StoreFault> {
        for _ in 0..max {
            let Some((oldest, latest)) = self.ends.filter(|(oldest, _)| expired(oldest.used, now)) else { break };
            records.remove_request(oldest.number)?;
            self.ends = records.oldest_request()?.map(|oldest| (oldest, latest));
        }
        Ok(())
    }
}

/// Fails if the outcome of a request is too large to be remembered. Its canonical bytes decide, because the texts in it
/// may differ between nodes.
pub(crate) fn check_outcome(outcome: &Outcome) -> Result<(), Failure> {
    let len = canonical_outcome_len(outcome);
    if len <= REQUEST_OUTCOME_BYTES_MAX {
        return Ok(());
    }
    let text = format!(
        "the result has {len} bytes, encoded: a request with a key may have {REQUEST_OUTCOME_BYTES_MAX}, because its \
         result is remembered; return fewer rows, or write without a key"
    );
    Err(Failure::new(FailureKind::TooBig, text))
}

/// What a request takes, as the limit counts it.
fn size(key: &RequestKey, outcome: usize) -> u64 {
    REQUEST_BYTES.saturating_add(key.key().len() as u64).saturating_add(outcome as u64)
}

fn expired(used: u64, now: u64) -> bool {
    now.saturating_sub(used) > KEY_TIME
}

/// The answer to a request whose key is known.
fn again(known: &RequestRecord, key: &RequestKey) -> Result<Admission, StoreFault> {
    if known.hash != *key.hash() {
        let text = "the key was used for another request; use a new key for each request";
        return Ok(answered(FailureKind::KeyReused, text));
    }
    let unsupported = |error| StoreFault::Unsupported(format!("the outcome of entry {}: {error}", known.entry));
    let outcome = decode_outcome(&known.outcome).map_err(unsupported)?;
    Ok(Admission::Answered(outcome.map(|reply| Reply { first: Some(known.entry), ..reply })))
}

#[cfg(test)]
mod tests;
