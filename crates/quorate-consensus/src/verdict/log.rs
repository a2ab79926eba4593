//! Rejections in the log.

use std::collections::BTreeMap;

use quorate_model::codec::entry::rejected_index;
use quorate_model::{Entry, GroupId, LogId, Payload};

use crate::home::Home;

/// How many bytes of the log are read at once.
const SCAN_BYTES: usize = 8 << 20;

/// Returns the rejections in the log after the last applied entry. Errors are ignored here; they recur when the entries
/// are applied.
pub(super) fn logged(home: &Home, applied: u64) -> BTreeMap<u64, u64> {
    let mut found = BTreeMap::new();
    let end = home.wal.last_log_id(GroupId::MAIN).map_or(0, |id| id.index.saturating_add(1));
    let mut next = home.wal.purged(GroupId::MAIN).map_or(0, |id| id.index.saturating_add(1)).max(applied);
    while next < end {
        let page = home.wal.entries(GroupId::MAIN, next..end, SCAN_BYTES).unwrap_or_default();
        let Some((last, _)) = page.last() else { break };
        next = last.index.saturating_add(1);
        found.extend(rejections(&page));
    }
    found
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
