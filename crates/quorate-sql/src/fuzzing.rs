//! A door for fuzzing: bytes of images and of the store's own files and rows, decoded and encoded again.
//!
//! Invariant: nothing here decides anything; it calls what a store calls.

use crate::{generation, image, session};

/// `None` where the bytes are refused.
pub type Reencode = fn(&[u8]) -> Option<Vec<u8>>;

/// A piece of an image.
pub const IMAGE_PIECE: Reencode = image::reencode;

/// The small outcomes that a session keeps in its row.
pub const OUTCOMES: Reencode = session::reencode;

/// The file that names the generation in force.
pub const CURRENT: Reencode = generation::reencode;
