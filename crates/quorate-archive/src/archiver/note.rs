//! What the archiver notes in the header of an LTX file, in the bytes that the format reserves.

use crate::ltx::{Checksum, NOTE_BYTES};

const TAG: [u8; 4] = *b"QRT1";

/// The note of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    /// The last entry that is in the database after the file.
    pub index: u64,
    /// The checksum of the database to which the file is applied.
    pub before: Checksum,
}

impl Note {
    pub fn encode(self) -> [u8; NOTE_BYTES] {
        let mut bytes = [0; NOTE_BYTES];
        let fields = TAG.into_iter().chain(self.index.to_be_bytes()).chain(self.before.to_u64().to_be_bytes());
        bytes.iter_mut().zip(fields).for_each(|(byte, field)| *byte = field);
        bytes
    }

    /// Returns the note, or `None` if another program wrote the file.
    pub fn decode(bytes: &[u8; NOTE_BYTES]) -> Option<Self> {
        let (index, before) = bytes.strip_prefix(&TAG)?.split_first_chunk()?;
        let before = Checksum::from_u64(u64::from_be_bytes(*before.first_chunk()?))?;
        Some(Self { index: u64::from_be_bytes(*index), before })
    }
}
