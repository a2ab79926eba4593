//! Files in memory: how tests write and read them as maps of pages.

#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use quorate_archive::ltx::{Header, PageSize, Reader, Result, Summary, Txids, Writer};

/// The pages of a file or of a database, by number.
pub type Pages = BTreeMap<u32, Vec<u8>>;

/// Returns the header of a file with the transactions `min` to `max`.
pub fn header(page_size: u32, commit: u32, min: u64, max: u64) -> Header {
    let (page_size, commit) = (PageSize::new(page_size).unwrap(), NonZeroU32::new(commit).unwrap());
    Header {
        page_size,
        commit,
        txids: Txids::new(min, max).unwrap(),
        timestamp: 1_764_200_000_000,
        node: 7,
        note: [0; 20],
    }
}

/// Writes a file.
pub fn write(header: &Header, pages: &Pages) -> (Vec<u8>, Summary) {
    let mut writer = Writer::new(Vec::new(), header.clone()).unwrap();
    pages.iter().for_each(|(number, page)| writer.write_page(*number, page).unwrap());
    writer.finish().unwrap()
}

/// Reads a whole file.
pub fn read(bytes: &[u8]) -> Result<(Header, Pages, Summary)> {
    let mut reader = Reader::new(bytes)?;
    let mut pages = Pages::new();
    while let Some((number, page)) = reader.next_page()? {
        pages.insert(number, page.to_vec());
    }
    Ok((reader.header().clone(), pages, reader.finish()?))
}

/// Returns a page whose bytes look random, the same for the same seed, so that LZ4 can't make it shorter.
pub fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.flatten().take(length).collect()
}
