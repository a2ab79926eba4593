//! Images: the database file of one node, sent to another while work goes on.
//!
//! The file is sent from start to end, then the blocks that checkpoints wrote meanwhile, round by round, as in a live
//! migration of a virtual machine. Finally a complete checkpoint brings the file to one position, and no checkpoint
//! runs until the small rest is sent (the hold), while writes continue into the `-wal`. docs/image-format.md describes
//! the pieces byte by byte.
//!
//! Invariants:
//! - Only the file after a complete checkpoint is installed. A file after a partial checkpoint is not a state of the
//!   database, but may pass every check of SQLite.
//! - A hold ends with the process, and when the `-wal` grows too long.
//! - An image under construction never touches the current generation.

mod hashes;
mod intake;
mod piece;
mod receiver;
mod sender;

#[cfg(test)]
mod tests;

/// Decodes a piece and encodes it again; `None` if it can't be decoded.
pub(crate) fn reencode(bytes: &[u8]) -> Option<Vec<u8>> {
    piece::Piece::decode(bytes).ok()?.encode().ok().map(Into::into)
}

pub(crate) use intake::{Intake, quick_check, verify};
pub(crate) use receiver::Receiver;
pub(crate) use sender::Sender;

/// The largest database file that is sent or received.
pub const IMAGE_BYTES_MAX: u64 = 1 << 40;

/// The most images that a store sends at the same time.
pub const SENDERS_MAX: usize = 2;

/// The most blocks of one piece: 1 MiB before compression.
pub const PIECE_BLOCKS_MAX: u64 = 256;
