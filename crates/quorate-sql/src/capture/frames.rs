//! The frames of the `-wal` that a boundary reads: those that the main file does not hold yet.
//!
//! The numbers of the frames come from SQLite, so all of them belong to commits. The boundary's read transaction keeps
//! them from being overwritten. That is checked again at each read: a frame of a restarted `-wal` has other salts.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use quorate_env::disk::{File, OpenMode};
use quorate_model::StoreFault;

use super::lost;
use crate::generation::Generation;
use crate::vfs::pages::{FRAME_HEADER_BYTES, WAL_HEADER_BYTES};

/// The place of the salts in the header of a `-wal`.
const SALTS_AT: u64 = 16;

/// The latest frame of each page.
#[derive(Debug)]
pub(super) struct Frames(Option<Index>);

#[derive(Debug)]
struct Index {
    wal: Arc<dyn File>,
    salts: [u8; 8],
    frame_bytes: u64,
    /// The number of the frame, from 0, by the number of the page.
    latest: BTreeMap<u32, u32>,
}

impl Frames {
    /// Reads which pages these frames hold; they are numbered from 0.
    pub(super) fn index(generation: &Generation, page_size: u32, frames: Range<u32>) -> Result<Self, StoreFault> {
        if frames.is_empty() {
            return Ok(Self(None));
        }
        let wal = generation.open_wal(OpenMode::Read).map_err(io_fault)?;
        let mut salts = [0; 8];
        wal.read_exact_at(&mut salts, SALTS_AT).map_err(io_fault)?;
        let frame_bytes = FRAME_HEADER_BYTES.saturating_add(page_size.into());
        let mut index = Index { wal, salts, frame_bytes, latest: BTreeMap::new() };
        for frame in frames {
            let page = index.page_in(frame)?;
            index.latest.insert(page, frame);
        }
        Ok(Self(Some(index)))
    }

    /// Reads a page, and returns whether it is in any of the frames.
    pub(super) fn read(&self, number: u32, page: &mut [u8]) -> Result<bool, StoreFault> {
        let Some(index) = &self.0 else { return Ok(false) };
        let Some(frame) = index.latest.get(&number) else { return Ok(false) };
        let at = index.offset(*frame).saturating_add(FRAME_HEADER_BYTES);
        index.wal.read_exact_at(page, at).map_err(io_fault)?;
        // The header is read after the page, because SQLite writes it before the page.
        if index.page_in(*frame)? == number { Ok(true) } else { Err(overwritten()) }
    }
}

impl Index {
    /// Returns the number of the page that a frame holds.
    fn page_in(&self, frame: u32) -> Result<u32, StoreFault> {
        let mut header = [0; 16];
        self.wal.read_exact_at(&mut header, self.offset(frame)).map_err(io_fault)?;
        let (page, rest) = header.split_first_chunk().ok_or_else(overwritten)?;
        if rest.last_chunk() == Some(&self.salts) { Ok(u32::from_be_bytes(*page)) } else { Err(overwritten()) }
    }

    fn offset(&self, frame: u32) -> u64 {
        WAL_HEADER_BYTES.saturating_add(u64::from(frame).saturating_mul(self.frame_bytes))
    }
}

fn overwritten() -> StoreFault {
    lost("the -wal was overwritten while it was read")
}

fn io_fault(error: std::io::Error) -> StoreFault {
    match error.kind() {
        // It was emptied.
        std::io::ErrorKind::UnexpectedEof => overwritten(),
        _ => StoreFault::Io(error.to_string()),
    }
}
