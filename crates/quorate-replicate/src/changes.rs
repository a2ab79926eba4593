//! What changes a copy: the pages of one LTX file, or all that differ from a database that was restored.
//!
//! Invariant: a file is verified as a whole before one of its pages is used.

use std::io::BufReader;
use std::sync::Arc;

use quorate_archive::ArchiveError;
use quorate_archive::ltx::{Pages, Reader, Txids};
use quorate_env::disk::File;

use crate::copy::Change;
use crate::error::ReplicateError;
use crate::spool::Fetched;

/// The pages of an LTX file.
pub struct Captured {
    key: String,
    pages: Pages<Fetched>,
    numbers: Vec<u32>,
}

impl Captured {
    /// Verifies a file, which has to continue a transaction.
    pub fn open(key: &str, fetched: Fetched, txid: u64) -> Result<Self, ReplicateError> {
        let failed = |source| ArchiveError::Ltx { key: key.to_owned(), source };
        Reader::new(BufReader::new(fetched.clone())).and_then(Reader::finish).map_err(failed)?;
        let pages = Pages::open(fetched).map_err(failed)?;
        let txids = pages.header().txids;
        if txids.min() > txid.saturating_add(1) || txids.max() <= txid {
            let what = format!("it holds the transactions {txids}, which do not continue {txid}");
            return Err(ArchiveError::Damaged { key: key.to_owned(), what }.into());
        }
        let numbers = pages.index().entries().iter().map(|entry| entry.number).collect();
        Ok(Self { key: key.to_owned(), pages, numbers })
    }

    /// Returns the transactions.
    pub fn txids(&self) -> Txids {
        self.pages.header().txids
    }
}

impl Change for Captured {
    fn page_size(&self) -> u32 {
        self.pages.header().page_size.get()
    }

    fn pages(&self) -> u32 {
        self.pages.header().commit.get()
    }

    fn numbers(&self) -> &[u32] {
        &self.numbers
    }

    fn read(&self, number: u32) -> Result<Vec<u8>, ReplicateError> {
        let damaged = |what: &str| ArchiveError::Damaged { key: self.key.clone(), what: what.to_owned() };
        let page = self.pages.read(number).map_err(|source| ArchiveError::Ltx { key: self.key.clone(), source })?;
        Ok(page.ok_or_else(|| damaged("a page is missing"))?)
    }
}

/// The pages in which a restored database differs from a copy.
pub struct Difference {
    restored: Arc<dyn File>,
    page_size: u32,
    pages: u32,
    numbers: Vec<u32>,
}

impl Difference {
    /// Compares two databases with pages of this size.
    pub fn between(copy: &dyn File, restored: Arc<dyn File>, page_size: u32) -> std::io::Result<Self> {
        let pages = u32::try_from(restored.len()? / u64::from(page_size)).map_err(std::io::Error::other)?;
        let (mut old, mut new) = (vec![0; page_size as usize], vec![0; page_size as usize]);
        let mut numbers = Vec::new();
        for number in 1..=pages {
            let at = u64::from(number.saturating_sub(1)).saturating_mul(page_size.into());
            restored.read_exact_at(&mut new, at)?;
            let length = copy.read_at(&mut old, at)?;
            if length < old.len() || old != new {
                numbers.push(number);
            }
        }
        Ok(Self { restored, page_size, pages, numbers })
    }
}

impl Change for Difference {
    fn page_size(&self) -> u32 {
        self.page_size
    }

    fn pages(&self) -> u32 {
        self.pages
    }

    fn numbers(&self) -> &[u32] {
        &self.numbers
    }

    fn read(&self, number: u32) -> Result<Vec<u8>, ReplicateError> {
        let mut page = vec![0; self.page_size as usize];
        let at = u64::from(number.saturating_sub(1)).saturating_mul(self.page_size.into());
        self.restored.read_exact_at(&mut page, at).map_err(ReplicateError::io("read the restored database"))?;
        Ok(page)
    }
}
