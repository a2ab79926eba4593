//! Rejections in the log.

use std::collections::BTreeMap;

use quorate_model::codec::entry::rejected_index;
use quorate_model::{Entry, LogId, Payload};
use quorate_wal::ReadError;

use crate::group_log::GroupLog;

/// How many bytes of the log are read at once.
const SCAN_BYTES: usize = 8 << 20;

/// Returns the rejections in the log after the last applied entry. Errors are ignored here; they recur when the entries
/// are applied.
pub(super) fn logged(log: &GroupLog, applied: u64) -> BTreeMap<u64, u64> {
    let mut found = BTreeMap::new();
    let first = log.purged().map_or(0, |id| id.index.saturating_add(1)).max(applied);
    let _ = scan(log, first, log.end(), &mut found);
    found
}

/// Adds the rejections in the log from `first` to before `end`: the index of each, and the index of the entry that it
/// rejects.
pub(crate) fn scan(log: &GroupLog, first: u64, end: u64, found: &mut impl Extend<(u64, u64)>) -> Result<(), ReadError> {
    let mut next = first;
    while next < end {
        let page = log.entries(next, end, SCAN_BYTES)?;
        let Some((last, _)) = page.last() else { break };
        next = last.index.saturating_add(1);
        found.extend(rejections(&page));
    }
    Ok(())
}

/// Returns the rejections among entries: the index of each, and the index of the entry that it rejects.
pub(crate) fn rejections(entries: &[(LogId, bytes::Bytes)]) -> impl Iterator<Item = (u64, u64)> {
    let rejection = |(id, bytes): &(LogId, bytes::Bytes)| Some((id.index, rejected_index(bytes)?));
    entries.iter().filter_map(rejection)
}

/// Returns an entry as a rejected one.
pub(crate) fn reject(entry: Entry) -> Entry {
    match entry.payload {
        Payload::Proposal(stamp, bytes) => Entry { payload: Payload::Rejected(stamp, bytes), ..entry },
        _ => entry,
    }
}
