//! What the store reports so that nodes can check that they agree, and how it is set aside if they do not.

use quorate_model::StoreFault;

use super::{SqlStore, Verification};

impl SqlStore {
    /// Returns the applied index and the running hash of outcomes there, or `None` before the first entry, which has
    /// the index 0. Blocks until the running batch is applied.
    pub fn outcome_hash(&self) -> Option<(u64, u64)> {
        self.shared().writer_lock.visit(|core| {
            let applier = core.as_mut()?.applier();
            Some((applier.applied().log_id?.index, applier.outcome_hash()))
        })
    }

    /// Returns the running hash after the entry at `index` if the store still has it, see
    /// [`Applier::outcome_hash_at`](quorate_apply::Applier::outcome_hash_at). Blocks until the running batch is
    /// applied.
    pub fn outcome_hash_at(&self, index: u64) -> Option<u64> {
        self.shared().writer_lock.visit(|core| core.as_mut()?.applier().outcome_hash_at(index))
    }

    /// The latest verification, and the index of the entry that requested it.
    pub fn latest_verification(&self) -> Option<(u64, Verification)> {
        self.shared().verifications.latest()
    }

    /// Sets the store aside because its data differ from those of the other nodes. It applies nothing and sends no
    /// image until one is installed. If the process ends before that, the next one does not open these data.
    pub fn set_aside(&self, why: &str) {
        self.shared().report(&StoreFault::Diverged(why.to_owned()));
    }
}
