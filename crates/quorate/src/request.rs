//! Requests with a key: the proposal of a write that is recognised when it is sent again.
//!
//! Invariant: the hash depends only on what the caller asks for. Two attempts of one request have the same hash on
//! every node and in every version (`docs/model-format.md`).

use bytes::Bytes;
use quorate_model::{Failure, FailureKind, Proposal, RequestKey, codec};
use sha2::{Digest as _, Sha256};

/// Gives a proposal a key.
pub(crate) fn with_key(proposal: Proposal, key: &Bytes) -> Result<Proposal, Failure> {
    let Proposal { budget, .. } = proposal;
    let asked = Proposal { budget: 0, ..proposal };
    let hash = Sha256::digest(codec::encode_proposal(&asked)?).into();
    Ok(Proposal { budget, ..asked }.with_key(RequestKey::new(key.clone(), hash)?))
}

/// Fails if the handle of a transaction has a key.
pub(crate) fn without_key(key: Option<&Bytes>) -> Result<(), Failure> {
    let text = "a key belongs to one write, and a transaction that reads can't have one; send its statements together \
                (batch), or use a handle without a key";
    key.map_or(Ok(()), |_| Err(Failure::new(FailureKind::Refused, text)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use quorate_model::{Command, Mode, SqlCommand, Statement};

    use super::*;

    fn insert(sql: &'static str, params: &[i64]) -> Command {
        let params = params.iter().map(|number| (*number).into()).collect();
        SqlCommand::Statement(Statement { sql: sql.into(), params, names: Vec::new() }).into()
    }

    fn hash(proposal: Proposal) -> [u8; RequestKey::HASH_BYTES] {
        *with_key(proposal, &Bytes::from_static(b"k")).unwrap().key.unwrap().hash()
    }

    #[test]
    fn the_hash_is_that_of_what_is_asked_for() {
        const INSERT: &str = "INSERT INTO t VALUES (?)";
        let proposal = |commands| Proposal::new(None, commands);
        let first = hash(proposal(vec![insert(INSERT, &[1])]));
        assert_eq!(first, hash(Proposal { budget: 7, ..proposal(vec![insert(INSERT, &[1])]) }));
        let others = [
            proposal(vec![insert(INSERT, &[2])]),
            proposal(vec![insert("INSERT INTO t VALUES ( ?)", &[1])]),
            proposal(vec![insert(INSERT, &[1]), insert(INSERT, &[1])]),
            Proposal { mode: Mode::Pipeline, ..proposal(vec![insert(INSERT, &[1])]) },
        ];
        for other in others {
            assert_ne!(first, hash(other));
        }
        let digits: String = first.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digits, PINNED, "requests that were sent to an earlier version are no longer recognised");
    }

    /// The SHA-256 of `08 01 22 22 12 20 0a 1e 0a 18`, the text of the statement, and `12 02 08 02`, in hexadecimal.
    const PINNED: &str = "68d961de3fd3d5fdba05431edb9061b3658e77d4afca7ca34b85b8cdfbd5848e";
}
