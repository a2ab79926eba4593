//! An entry of the log as bytes in the archive (docs/archive-format.md).
//!
//! Invariant: a record is never decoded into an entry other than the one it was made of.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use quorate_consensus::LoggedEntry;
use quorate_model::{LogId, NodeId};

/// The flags (1), the term (8) and the node (8) of the entry's id. Its index is the number of the entry in the segment.
const HEADER_BYTES: usize = 17;

/// The cluster decided not to run the entry.
const REJECTED: u8 = 1;

/// Encodes an entry.
pub(crate) fn encode(entry: &LoggedEntry) -> Bytes {
    let LoggedEntry { log_id, bytes, is_rejected } = entry;
    let mut record = BytesMut::with_capacity(HEADER_BYTES.saturating_add(bytes.len()));
    record.put_u8(if *is_rejected { REJECTED } else { 0 });
    record.put_u64(log_id.term);
    record.put_u64(log_id.node.0);
    record.put_slice(bytes);
    record.freeze()
}

/// Decodes the entry of this index; `None` if it is not one.
pub(crate) fn decode(index: u64, mut record: Bytes) -> Option<LoggedEntry> {
    let flags = record.try_get_u8().ok().filter(|flags| *flags <= REJECTED)?;
    let (term, node) = (record.try_get_u64().ok()?, NodeId(record.try_get_u64().ok()?));
    Some(LoggedEntry { log_id: LogId { term, node, index }, bytes: record, is_rejected: flags == REJECTED })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_decoded_record_is_the_encoded_entry(
            ids in any::<(u64, u64, u64)>(), bytes in prop::collection::vec(any::<u8>(), 0..50), is_rejected: bool,
        ) {
            let log_id = LogId { term: ids.0, node: NodeId(ids.1), index: ids.2 };
            let entry = LoggedEntry { log_id, bytes: bytes.into(), is_rejected };
            prop_assert_eq!(decode(ids.2, encode(&entry)), Some(entry));
        }

        #[test]
        fn no_bytes_make_decoding_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = decode(1, bytes.into());
        }
    }
}
