//! A batch: the items that the writer puts into one frame.

use crate::error::WalError;
use crate::index::Place;
use crate::queue::{Item, Need, Task};
use crate::record::Kind;
use crate::state::LogState;

/// The items of one frame.
#[derive(Debug)]
pub(crate) struct Batch {
    items: Vec<Item>,
    /// The offset of each item's bytes in the frame's unpacked body; empty until the frame is built.
    offsets: Vec<u32>,
}

impl Batch {
    pub(crate) fn new(items: Vec<Item>) -> Self {
        Self { items, offsets: Vec::new() }
    }

    pub(crate) fn items(&self) -> &[Item] {
        &self.items
    }

    /// Whether the frame must be synced before its completions run. A frame of lazy records only is synced too;
    /// otherwise a frame with a waiting completion could be written while it is still unsynced.
    pub(crate) fn needs_sync(&self) -> bool {
        self.items.iter().map(|item| item.need).max() != Some(Need::Write)
    }

    /// Whether the batch holds entries of a group whose entries are synced before they are acknowledged.
    pub(crate) fn has_synced_entries(&self) -> bool {
        let is_entry = |item: &Item| matches!(item.task, Task::Record { kind: Kind::Entry, .. });
        self.items.iter().any(|item| item.need == Need::Sync && is_entry(item))
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.items.iter().any(|item| matches!(item.task, Task::Cut))
    }

    pub(crate) fn closes(&self) -> bool {
        self.items.iter().any(|item| matches!(item.task, Task::Record { kind: Kind::Closed, .. }))
    }

    pub(crate) fn cost(&self) -> usize {
        self.items.iter().map(Item::cost).sum()
    }

    pub(crate) fn set_offsets(&mut self, offsets: Vec<u32>) {
        self.offsets = offsets;
    }

    /// Applies the records of this frame to `state`.
    pub(crate) fn apply_to(&self, state: &mut LogState) {
        self.items.iter().filter_map(Item::as_record).for_each(|record| state.apply(&record));
    }

    /// The items with their places, for a frame that was written at offset `frame` of segment `ordinal`.
    pub(crate) fn placed(&self, ordinal: u32, frame: u32) -> impl Iterator<Item = (&Item, Place)> {
        self.items.iter().zip(&self.offsets).map(move |(item, at)| {
            let len = item.as_record().map_or(0, |record| u32::try_from(record.bytes.len()).unwrap_or(u32::MAX));
            (item, Place { ordinal, frame, at: *at, len })
        })
    }

    /// Runs all completions, in order.
    pub(crate) fn complete(self, result: &Result<(), WalError>) {
        self.items.into_iter().filter_map(|item| item.done).for_each(|done| done(result.clone()));
    }
}
