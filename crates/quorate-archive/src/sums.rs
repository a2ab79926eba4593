//! The checksums of all pages of a database: an archiver compares a boundary with the archive by them.
//!
//! Invariant: the checksum of the database is always that of the pages in the table.

use bytes::{Buf, BufMut, Bytes};

use crate::ltx::{Checksum, DatabaseChecksum, PageSize};

const MAGIC: [u8; 8] = *b"QRTSUMS1";

/// The magic (8), the page size (4), the number of pages (4).
const HEADER_BYTES: usize = 16;

/// The checksums of the pages of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sums {
    page_size: PageSize,
    /// By the number of the page, from 1 on; 0 for a page that is not known, such as the lock page.
    pages: Vec<u64>,
    database: DatabaseChecksum,
}

impl Sums {
    /// Returns the table of a database without pages.
    pub fn new(page_size: PageSize) -> Self {
        Self { page_size, pages: Vec::new(), database: DatabaseChecksum::new(page_size) }
    }

    pub fn page_size(&self) -> PageSize {
        self.page_size
    }

    /// Returns the number of pages.
    pub fn pages(&self) -> u32 {
        u32::try_from(self.pages.len()).unwrap_or(u32::MAX)
    }

    /// Returns the checksum of the database.
    pub fn database(&self) -> Checksum {
        self.database.value()
    }

    /// Whether this is the checksum of the page.
    pub fn is(&self, number: u32, checksum: Checksum) -> bool {
        self.get(number) == checksum.to_u64()
    }

    /// Sets the checksum of a page, which must not be beyond the end.
    pub fn set(&mut self, number: u32, checksum: Checksum) {
        if let Some(old) = Checksum::from_u64(self.get(number)) {
            self.database.remove(number, old);
        }
        if let Some(page) = at(number).and_then(|at| self.pages.get_mut(at)) {
            *page = checksum.to_u64();
            self.database.add(number, checksum);
        }
    }

    /// Cuts the table, or extends it by pages that are not known yet.
    pub fn resize(&mut self, pages: u32) {
        for number in pages.saturating_add(1)..=self.pages() {
            if let Some(old) = Checksum::from_u64(self.get(number)) {
                self.database.remove(number, old);
            }
        }
        self.pages.resize(pages as usize, 0);
    }

    fn get(&self, number: u32) -> u64 {
        at(number).and_then(|at| self.pages.get(at)).copied().unwrap_or(0)
    }

    /// Encodes the table; see docs/archive-format.md.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(self.pages.len().saturating_mul(8).saturating_add(HEADER_BYTES + 8));
        out.put_slice(&MAGIC);
        out.put_u32(self.page_size.get());
        out.put_u32(self.pages());
        self.pages.iter().for_each(|page| out.put_u64(*page));
        let sum = xxhash_rust::xxh3::xxh3_64(&out);
        out.put_u64(sum);
        out.into()
    }

    /// Decodes a table; the error says what is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let (body, mut sum) = bytes.split_at_checked(bytes.len().saturating_sub(8)).ok_or("it is too short")?;
        if sum.try_get_u64() != Ok(xxhash_rust::xxh3::xxh3_64(body)) {
            return Err("its checksum is wrong".to_owned());
        }
        let mut rest = body.strip_prefix(&MAGIC).ok_or("it is no table of checksums")?;
        let page_size = rest.try_get_u32().map_err(|error| error.to_string())?;
        let page_size = PageSize::new(page_size).map_err(|error| error.to_string())?;
        let pages = rest.try_get_u32().map_err(|error| error.to_string())?;
        if rest.len() as u64 != u64::from(pages) * 8 {
            return Err("its length is wrong".to_owned());
        }
        let mut sums = Self::new(page_size);
        sums.resize(pages);
        for number in 1..=pages {
            if let Some(checksum) = rest.try_get_u64().ok().and_then(Checksum::from_u64) {
                sums.set(number, checksum);
            }
        }
        Ok(sums)
    }
}

/// Returns the place of a page in the table.
fn at(number: u32) -> Option<usize> {
    number.checked_sub(1).map(|at| at as usize)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::collections::BTreeMap;

    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_table_is_that_of_its_pages(
            changes in prop::collection::vec((1_u32..60, any::<u64>(), prop::option::of(1_u32..60)), 1..60),
        ) {
            let page_size = PageSize::new(4096).unwrap();
            let (mut sums, mut model) = (Sums::new(page_size), BTreeMap::new());
            for (number, checksum, cut) in changes {
                let checksum = Checksum::from_u64(checksum | 1 << 63).unwrap();
                sums.resize(sums.pages().max(number));
                sums.set(number, checksum);
                model.insert(number, checksum);
                if let Some(cut) = cut {
                    sums.resize(cut);
                    model.retain(|number, _| *number <= cut);
                }
            }
            let mut database = DatabaseChecksum::new(page_size);
            model.iter().for_each(|(number, checksum)| database.add(*number, *checksum));
            prop_assert_eq!(sums.database(), database.value());
            let is_right = |number| model.get(&number).map_or(0, |checksum| checksum.to_u64()) == sums.get(number);
            prop_assert!((1..=sums.pages()).all(is_right));
            prop_assert_eq!(Sums::decode(&sums.encode()).unwrap(), sums);
        }

        #[test]
        fn no_bytes_make_decoding_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let mut bytes = [&MAGIC[..], &bytes].concat();
            let sum = xxhash_rust::xxh3::xxh3_64(&bytes);
            bytes.extend(sum.to_be_bytes());
            let _ = Sums::decode(&bytes);
        }
    }
}
