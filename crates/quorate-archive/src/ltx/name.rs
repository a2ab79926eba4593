//! Names: of files, and of the levels that they are sorted into.
//!
//! Invariant: each name has exactly one text, so a name that was parsed is written again with the same bytes.

use std::fmt;
use std::str::FromStr;

use crate::ltx::error::{Error, Result};
use crate::ltx::header::Txids;

/// The characters of a transaction in a file's name.
const TXID_DIGITS: usize = 16;

/// The name of a file: `0000000000000001-000000000000002a.ltx` holds the transactions 1 to 42.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileName(pub Txids);

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{:016x}.ltx", self.0.min(), self.0.max())
    }
}

impl FromStr for FileName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parse = || {
            let (min, max) = text.strip_suffix(".ltx")?.split_once('-')?;
            Txids::new(hexadecimal(min, TXID_DIGITS)?, hexadecimal(max, TXID_DIGITS)?).ok()
        };
        parse().map(Self).ok_or_else(|| Error::Name(text.to_owned()))
    }
}

/// A level of an archive: 0 has the files as they were captured, 1 to 8 have merged ones, and 9 has snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(u8);

impl Level {
    /// The files as they were captured.
    pub const CAPTURED: Self = Self(0);
    /// The snapshots.
    pub const SNAPSHOTS: Self = Self(9);
    /// The characters of a level in the keys of an object store.
    const DIGITS: usize = 4;

    /// Returns a level, or `None` if `number` is above 9.
    pub fn new(number: u8) -> Option<Self> {
        (number <= Self::SNAPSHOTS.0).then_some(Self(number))
    }

    /// Returns the number of the level.
    pub fn number(self) -> u8 {
        self.0
    }

    /// Returns where Litestream expects the files of this level on a file system, relative to the archive: `ltx/9`.
    pub fn folder(self) -> String {
        format!("ltx/{}", self.0)
    }
}

/// The prefix of the files' keys in an object store, relative to the archive: `0009`.
impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}", self.0)
    }
}

impl FromStr for Level {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let number = hexadecimal(text, Self::DIGITS).and_then(|number| u8::try_from(number).ok());
        number.and_then(Self::new).ok_or_else(|| Error::Name(text.to_owned()))
    }
}

/// Parses a number that is written with exactly so many digits, in lower case.
fn hexadecimal(text: &str, digits: usize) -> Option<u64> {
    let is_canonical = text.len() == digits && text.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
    is_canonical.then(|| u64::from_str_radix(text, 16).ok()).flatten()
}
