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
}
