//! What is known about the file of a [`MemoryStore`](super::MemoryStore), and when the next checkpoint is due.
//!
//! Invariant: the durable position never goes back.

use quorate_model::Applied;

use super::index_of;

/// The state of the file. See the module.
#[derive(Debug)]
pub(super) struct Saved {
    /// What the file is known to hold after a loss of power.
    durable: Applied,
    /// The last applied entry when the file was read or a checkpoint was last tried.
    tried: u64,
    /// The last applied entry when the durable position was last asked for.
    asked_at: Option<u64>,
    /// How many times it was asked for again since then.
    asks: u32,
}

impl Saved {
    /// The file holds `durable`. The next checkpoint is due some entries after `tried`.
    pub(super) fn new(durable: Applied, tried: u64) -> Self {
        Self { durable, tried, asked_at: None, asks: 0 }
    }

    pub(super) fn durable(&self) -> &Applied {
        &self.durable
    }

    /// Whether a checkpoint is due because of the number of entries.
    pub(super) fn is_due(&self, applied: u64, entries: u64) -> bool {
        applied.saturating_sub(self.tried) >= entries
    }

    /// Notes that the durable position is asked for. Returns whether the store rests, so that a checkpoint should be
    /// tried.
    pub(super) fn note_ask(&mut self, applied: Option<u64>, asks: u32) -> bool {
        if self.asked_at != applied {
            (self.asked_at, self.asks) = (applied, 0);
            return false;
        }
        self.asks = self.asks.saturating_add(1);
        let rests = self.asks >= asks;
        if rests {
            self.asks = 0;
        }
        rests
    }

    /// Notes that a checkpoint is tried, and returns whether there is something to write.
    pub(super) fn begin(&mut self, applied: &Applied) -> bool {
        self.tried = applied.index();
        index_of(&self.durable) != index_of(applied)
    }

    /// Notes that a checkpoint is durable.
    pub(super) fn end(&mut self, applied: Applied) {
        if index_of(&self.durable) < index_of(&applied) {
            self.durable = applied;
        }
    }
}
