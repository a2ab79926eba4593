//! The indexes of entries that the cluster decided not to run.
//!
//! A node that asks how an entry was applied must be able to tell a rejected entry from one that ran. The indexes are
//! therefore kept among the [`Records`], in the transaction that applies the entry, and are part of images.
//!
//! Invariants: only the latest [`REJECTIONS_MAX`] indexes are kept; the copy in memory equals the committed records.

use quorate_model::{REJECTIONS_MAX, StoreFault};

use crate::Records;

/// The rejected indexes, as committed. See the module's documentation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rejected(Vec<u64>);

impl Rejected {
    /// Reads the indexes.
    pub(crate) fn load(records: &mut impl Records) -> Result<Self, StoreFault> {
        records.rejections().map(Self)
    }

    /// Returns the indexes in ascending order.
    pub(crate) fn indexes(&self) -> &[u64] {
        &self.0
    }

    /// Adds written indexes to the copy in memory, once they are committed.
    pub(crate) fn adopt(&mut self, written: &[u64]) {
        self.0.extend_from_slice(written);
        let surplus = self.0.len().saturating_sub(REJECTIONS_MAX);
        self.0.drain(..surplus);
    }
}
