//! The outcome of a proposal.

use crate::{Failure, Results};

/// The result of applying one entry. It is the same on every node, except for the texts of failures
/// and the names of columns.
pub type Outcome = Result<Reply, Failure>;

/// The results of the commands of an entry, in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    /// One for each command.
    pub results: Results,
    /// For a proposal with a key: the index of the entry that had the effect. It is an earlier entry than the one that
    /// is answered if the request was sent again.
    pub first: Option<u64>,
}

impl Reply {
    /// The reply of an entry whose commands had these results.
    pub fn of(results: impl Into<Results>) -> Self {
        Self { results: results.into(), first: None }
    }
}
