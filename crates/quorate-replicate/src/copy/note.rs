//! The file beside a copy that says which state the copy holds.
//!
//! Each state of a copy has a number of its own, drawn at random, in the header of the database, where SQLite has its
//! counter of changes. The note names the states by these numbers: before a transaction is committed, it names the
//! state before and the one after. So the position changes at the same moment as the pages.
//!
//! Invariant: a note is replaced as a whole, and a text that is not exactly what is written is none.

use std::io;
use std::path::Path;

use quorate_env::disk::{Disk, read_file, replace_file};

use crate::origin::Origin;

/// The first line of a note.
const FORMAT: &str = "quorate-follow 1";
/// The most bytes of a note.
const NOTE_BYTES_MAX: u64 = 1024;
/// How an origin that is not an archive is named.
const LITESTREAM: &str = "litestream";

/// A position in an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The generation; 0 for a replica of stock Litestream, which has none.
    pub generation: u32,
    /// The last transaction.
    pub txid: u64,
}

/// A state of a copy: the number in its header, and the position.
pub type State = (u32, Position);

/// A note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// What is followed.
    pub origin: Origin,
    /// The states that the copy may have.
    pub states: Vec<State>,
}

impl Note {
    /// Returns the position of the state with this number.
    pub fn position(&self, counter: u32) -> Option<Position> {
        self.states.iter().find(|state| state.0 == counter).map(|state| state.1)
    }

    /// Writes the note, durably.
    pub fn write(&self, disk: &dyn Disk, path: &Path) -> io::Result<()> {
        replace_file(disk, path, self.to_text().as_bytes())
    }

    /// Reads a note; `None` if there is none, or something else has its name.
    pub fn read(disk: &dyn Disk, path: &Path) -> io::Result<Option<Self>> {
        if !disk.exists(path)? {
            return Ok(None);
        }
        match read_file(disk, path, NOTE_BYTES_MAX) {
            Ok(bytes) => Ok(std::str::from_utf8(&bytes).ok().and_then(Self::parse)),
            // It is too long.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn to_text(&self) -> String {
        let origin = match self.origin {
            Origin::Archive(cluster) => format!("{cluster:032x}"),
            Origin::Litestream => LITESTREAM.to_owned(),
        };
        let mut text = format!("{FORMAT}\n{origin}\n");
        for (counter, Position { generation, txid }) in &self.states {
            text.push_str(&format!("{counter:08x} {generation:08x} {txid:016x}\n"));
        }
        text
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.strip_suffix('\n')?.split('\n');
        (lines.next()? == FORMAT).then_some(())?;
        let origin = match lines.next()? {
            LITESTREAM => Origin::Litestream,
            cluster => Origin::Archive(u128::from_str_radix(cluster, 16).ok()?),
        };
        let state = |line: &str| {
            let mut fields = line.split(' ');
            let mut number = || u64::from_str_radix(fields.next()?, 16).ok();
            let (counter, generation, txid) = (number()?, number()?, number()?);
            let position = Position { generation: generation.try_into().ok()?, txid };
            Some((counter.try_into().ok()?, position))
        };
        let note = Self { origin, states: lines.map(state).collect::<Option<_>>()? };
        // Each note has exactly one text.
        (note.to_text() == text).then_some(note)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written_and_not_if_it_is_cut_off() {
        for origin in [Origin::Archive(0xc0_ffee), Origin::Litestream] {
            let states =
                vec![(7, Position { generation: 1, txid: 2 }), (u32::MAX, Position { generation: 3, txid: 4 })];
            let note = Note { origin, states };
            let text = note.to_text();
            assert_eq!(Note::parse(&text), Some(note.clone()));
            assert_eq!(note.position(7), Some(Position { generation: 1, txid: 2 }));
            assert_eq!(note.position(8), None);
            let whole_lines = |cut: &str| cut.ends_with('\n') && cut.matches('\n').count() >= 2;
            for end in 0..text.len() {
                let cut = text.get(..end).unwrap();
                assert!(whole_lines(cut) || Note::parse(cut).is_none(), "{cut}");
            }
        }
    }
}
