//! The model's messages in the log and on the wire. A replica must not skip unknown bytes, so each message has exactly
//! one encoding.

use bytes::Bytes;
use quorate_model::{Command, Payload, SqlCommand, codec};

/// Checks that a proposal which can be decoded encodes to the same bytes, and that its bulk rows are complete.
pub fn proposal(data: &[u8]) {
    let Ok(proposal) = codec::decode_proposal(&Bytes::copy_from_slice(data)) else { return };
    assert_eq!(codec::encode_proposal(&proposal).ok().as_deref(), Some(data), "another encoding");
    let _ = proposal.check_limits();
    for command in &proposal.commands {
        if let Command::Sql(SqlCommand::Bulk(bulk)) = command {
            let rows = &bulk.rows;
            let values = rows.len().saturating_mul(rows.width());
            assert_eq!((rows.values().count(), rows.raw_values().count()), (values, values), "a row is lost");
            assert_eq!(&rows.without(&[]), rows, "packed in another way");
        }
    }
}

/// Checks the same of a payload of the log.
pub fn entry(data: &[u8]) {
    let Ok(payload) = codec::entry::decode(Bytes::copy_from_slice(data)) else { return };
    assert_eq!(&codec::entry::encode(&payload)[..], data, "another encoding");
    if let Payload::Proposal(_, bytes) = payload {
        proposal(&bytes);
    }
}

/// Checks the same of an outcome.
pub fn outcome(data: &[u8]) {
    if let Ok(outcome) = codec::decode_outcome(&Bytes::copy_from_slice(data)) {
        assert_eq!(codec::encode_outcome(&outcome), data, "another encoding");
    }
}

/// Checks the same of a row of values.
pub fn row(data: &[u8]) {
    if let Ok(values) = codec::decode_row(&Bytes::copy_from_slice(data)) {
        assert_eq!(codec::encode_row(&values), data, "another encoding");
    }
}

/// Checks the same of a user, as engines keep it.
pub fn user(data: &[u8]) {
    if let Ok(user) = codec::decode_user(&Bytes::copy_from_slice(data)) {
        assert_eq!(codec::encode_user(&user), data, "another encoding");
    }
}
