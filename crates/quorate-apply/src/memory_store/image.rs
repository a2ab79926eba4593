//! Images of a [`MemoryStore`](super::MemoryStore): the bytes of its file, in pieces.
//!
//! Invariants: an image is the state at one entry. A receiver holds at most [`STATE_BYTES_MAX`] bytes, and believes
//! none of them before it has decoded all.

use std::sync::Arc;

use bytes::Bytes;
use quorate_model::{Applied, ImageSink, ImageSource, LogId, StoreFault, WholeImage};

use super::{MemoryStore, PIECE_BYTES_MAX};
use crate::Applier;
use crate::memory::{Memory, STATE_BYTES_MAX};

/// An image that is being sent.
pub(super) struct Source {
    begun_at: Applied,
    left: Bytes,
    piece_bytes: usize,
}

impl Source {
    pub(super) fn new(begun_at: Applied, bytes: Bytes, piece_bytes: usize) -> Self {
        Self { begun_at, left: bytes, piece_bytes: piece_bytes.clamp(1, PIECE_BYTES_MAX) }
    }
}

impl ImageSource for Source {
    fn begun_at(&self) -> Applied {
        self.begun_at.clone()
    }

    fn next(&mut self) -> Result<Option<Bytes>, StoreFault> {
        let piece = self.left.split_to(self.left.len().min(self.piece_bytes));
        Ok(Some(piece).filter(|piece| !piece.is_empty()))
    }
}

/// An image that is being received.
pub(super) struct Sink {
    store: Arc<MemoryStore>,
    received: Vec<u8>,
}

impl Sink {
    pub(super) fn new(store: Arc<MemoryStore>) -> Self {
        Self { store, received: Vec::new() }
    }
}

impl ImageSink for Sink {
    fn write(&mut self, piece: Bytes) -> Result<(), StoreFault> {
        let bytes = self.received.len().saturating_add(piece.len());
        if bytes as u64 > STATE_BYTES_MAX {
            return Err(lost(format!("it has more than {STATE_BYTES_MAX} bytes, the most of a state")));
        }
        self.received.extend_from_slice(&piece);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Box<dyn WholeImage>, StoreFault> {
        let Self { store, received } = *self;
        let next = super::decode(&received, store.identity, store.level).map_err(|fault| match fault {
            fault @ StoreFault::Unsupported(_) => fault,
            // The received image is damaged, not this store.
            StoreFault::Damaged(what) | StoreFault::Io(what) => lost(what),
            fault => lost(fault.to_string()),
        })?;
        Ok(Box::new(Whole { store, bytes: received, next }))
    }
}

/// A verified image.
struct Whole {
    store: Arc<MemoryStore>,
    bytes: Vec<u8>,
    next: Applier<Memory>,
}

impl WholeImage for Whole {
    fn end(&self) -> Option<LogId> {
        self.next.applied().log_id
    }

    fn install(self: Box<Self>) -> Result<Applied, StoreFault> {
        let Self { store, bytes, next } = *self;
        store.install(&bytes, next)
    }
}

pub(super) fn lost(why: impl Into<String>) -> StoreFault {
    StoreFault::ImageLost(why.into())
}
