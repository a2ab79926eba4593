//! Entry points for fuzzing: each decodes bytes of an image or of the store's own files and rows, and encodes the
//! result again.
//!
//! Invariant: this module has no logic of its own; it calls the functions that a store calls.

use crate::{generation, image};

/// Decodes bytes and encodes the result again; returns `None` if the decoder refuses the bytes.
pub type Reencode = fn(&[u8]) -> Option<Vec<u8>>;

/// A piece of an image.
pub const IMAGE_PIECE: Reencode = image::reencode;

/// The small outcomes that a session keeps in its row.
pub const OUTCOMES: Reencode = quorate_apply::session::reencode;

/// The file that names the current generation.
pub const CURRENT: Reencode = generation::reencode;
