//! What a store tells of itself, so that nodes can prove that they agree, and how it is set aside where they do not.

use quorate_model::StoreFault;

use super::{SqlStore, Verification};

impl SqlStore {
    /// Where the store stands, and the running hash of outcomes there; `None` before the first entry, which has the
    /// index 0. Blocks until the running batch is applied.
    pub fn outcome_hash(&self) -> Option<(u64, u64)> {
        self.shared().turn.visit(|core| {
            let applier = core.as_mut()?.applier();
            Some((applier.applied().log_id?.index, applier.outcome_hash()))
        })
    }

    /// The running hash behind the entry of this index, if the store still knows it: see
    /// [`Applier::outcome_hash_at`](crate::apply::Applier::outcome_hash_at). Blocks until the running batch is applied.
    pub fn outcome_hash_at(&self, index: u64) -> Option<u64> {
        self.shared().turn.visit(|core| core.as_mut()?.applier().outcome_hash_at(index))
    }

    /// The latest verification, and the entry that asked for it.
    pub fn latest_verification(&self) -> Option<(u64, Verification)> {
        self.shared().verifications.latest()
    }

    /// Sets the store aside: its data are not those of the others. It applies nothing and gives no image away until
    /// one is installed; if the process ends before, the next one does not open these data.
    pub fn set_aside(&self, why: &str) {
        self.shared().report(&StoreFault::Diverged(why.to_owned()));
    }
}
