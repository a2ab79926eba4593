//! Holds the frames that a connection appends to a `-wal`, to write many of them at once.
//!
//! SQLite writes each frame in two calls, its header and then its page. A call costs more than its bytes, and a batch
//! of entries writes dozens of frames.
//!
//! Invariants: no frame of a committed transaction is held once SQLite's call for its last frame returns, so other
//! connections, which read only such frames, find them in the file. The connection itself may read frames of its open
//! transaction, so the held ones are written before it reads. What is still held when a transaction gives up its lock
//! was rolled back, and is forgotten: another connection may write frames in the same places. A header that does not
//! continue the `-wal` replaces an older one; it is never held, because no page follows it.

use super::pages::FRAME_HEADER_BYTES;

/// From how many bytes on the held frames are written. With the longest page and its header they stay below the 128 KiB
/// that SQLite's VFS for Unix passes to the system at once.
const HELD_MAX: usize = 32 << 10;

/// The frames that a connection has appended to a `-wal` and that are not yet in the file.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    /// The offset at which the last write ended.
    end: u64,
    /// The offset of the held bytes in the file.
    start: u64,
    held: Vec<u8>,
    /// Whether the page of the last header is still to come.
    awaits_page: bool,
    /// Whether the last header is that of the last frame of a transaction.
    is_commit: bool,
}

impl Frames {
    /// Takes a write over if it appends a header or the page of a held one. Otherwise the caller writes it, after the
    /// held ones.
    pub(crate) fn takes(&mut self, at: u64, bytes: &[u8]) -> bool {
        let is_header = bytes.len() as u64 == FRAME_HEADER_BYTES;
        let takes = at == self.end && (is_header || self.awaits_page);
        if takes {
            if self.held.is_empty() {
                self.start = at;
            }
            self.held.extend_from_slice(bytes);
        }
        if takes && is_header {
            // The size of the database after the transaction, or 0.
            self.is_commit = bytes.get(4..8).is_some_and(|size| size != [0; 4]);
        }
        self.awaits_page = takes && is_header;
        self.end = at.saturating_add(bytes.len() as u64);
        takes
    }

    /// Returns whether the held frames must be written now.
    pub(crate) fn are_due(&self) -> bool {
        !self.awaits_page && (self.is_commit || self.held.len() >= HELD_MAX)
    }

    /// Forgets the held frames: their transaction was rolled back.
    pub(crate) fn forget(&mut self) {
        self.held.clear();
        self.awaits_page = false;
    }

    /// Passes the held bytes to `write`, with their offset, unless there are none. They are gone even if that fails:
    /// SQLite then rolls the transaction back.
    pub(crate) fn written<T>(&mut self, write: impl FnOnce(u64, &[u8]) -> T) -> Option<T> {
        let written = (!self.held.is_empty()).then(|| write(self.start, &self.held));
        self.held.clear();
        written
    }
}
