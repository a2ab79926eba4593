//! Images: the database file of one node, sent to another while work goes on.
//!
//! The file is sent from start to end, then what checkpoints wrote meanwhile, round by round, as when a running machine
//! is moved. At last a complete checkpoint makes the file the database at one position; no checkpoint runs until the
//! small rest is sent (the hold), while writes go on into the `-wal`. docs/image-format.md describes the pieces byte by
//! byte.
//!
//! Invariants:
//! - What is installed is the file after a complete checkpoint and nothing else: a partial one is no state at all, and
//!   may pass every check of SQLite.
//! - Holds die with the process, and when the `-wal` grows too long.
//! - An image in the making never touches the generation in force.

mod hashes;
mod intake;
mod piece;
mod receiver;
mod sender;

#[cfg(test)]
mod tests;

/// A piece as it would be sent again; `None` if the bytes are none.
pub(crate) fn reencode(bytes: &[u8]) -> Option<Vec<u8>> {
    piece::Piece::decode(bytes).ok()?.encode().ok().map(Into::into)
}

pub(crate) use intake::{Intake, quick_check, verify};
pub(crate) use receiver::Receiver;
pub(crate) use sender::Sender;

/// The largest database file that is sent or taken.
pub const IMAGE_BYTES_MAX: u64 = 1 << 40;

/// Images that a store sends at the same time.
pub const SENDERS_MAX: usize = 2;

/// Blocks of one piece: 1 MiB before compression.
pub const PIECE_BLOCKS_MAX: u64 = 256;
