//! The frame of a page: its number, and its content compressed by LZ4.
//!
//! Invariant: a decoded page has exactly the page size, and no more than [`FRAME_BYTES_MAX`] bytes are read for it.

use std::io::{Read, Write};

use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into};

use crate::ltx::error::{Fault, Result};
use crate::ltx::header::PageSize;
use crate::ltx::stream::{Sink, Source};

mod legacy;

/// The number of a page (4) and its flags (2).
pub(crate) const FRAME_HEADER_BYTES: usize = 6;
/// Ends the pages: the header of a frame, all zero.
pub(crate) const END_OF_PAGES: [u8; FRAME_HEADER_BYTES] = [0; FRAME_HEADER_BYTES];
/// The length of the compressed page follows the header, and the page is an LZ4 block.
const FLAG_BLOCK: u16 = 1;
/// The page is an LZ4 frame, as Litestream wrote it before 2026.
const FLAG_LEGACY: u16 = 0;
/// The longest block that LZ4 makes of a page.
pub(crate) const BLOCK_BYTES_MAX: u32 = block_bytes_max(PageSize::MAX);
/// The longest frame, of either kind.
pub(crate) const FRAME_BYTES_MAX: u32 = BLOCK_BYTES_MAX + 64;

/// LZ4's own bound on how much longer a block may be than its content.
const fn block_bytes_max(length: u32) -> u32 {
    length + length / 255 + 16
}

/// Encodes pages, with buffers that are used again.
pub(crate) struct Encoder {
    table: CompressTable,
    frame: Vec<u8>,
}

impl Encoder {
    pub fn new() -> Self {
        Self { table: CompressTable::default(), frame: Vec::new() }
    }

    /// Writes the frame of a page and returns its length. The page is hashed as it is, before compression.
    pub fn write<W: Write>(&mut self, sink: &mut Sink<W>, number: u32, page: &[u8]) -> Result<u32> {
        let start = FRAME_HEADER_BYTES + size_of::<u32>();
        self.frame.resize(start + lz4_flex::block::get_maximum_output_size(page.len()), 0);
        let (header, block) = self.frame.split_at_mut(start);
        let length = compress_into_with_table(page, block, &mut self.table)
            .map_err(|source| Fault::Block { number, source: source.into() })?;
        let fields = number.to_be_bytes().into_iter().chain(FLAG_BLOCK.to_be_bytes());
        // A page has at most 64 KiB, so the length fits.
        let fields = fields.chain((length as u32).to_be_bytes());
        header.iter_mut().zip(fields).for_each(|(byte, field)| *byte = field);
        sink.crc.update(header);
        sink.crc.update(page);
        let frame = self.frame.get(..start + length).unwrap_or_default();
        sink.write(frame)?;
        Ok(frame.len() as u32)
    }
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub number: u32,
    flags: u16,
}

impl FrameHeader {
    /// Reads a header, or `None` at the end of the pages.
    pub fn read<R: Read>(source: &mut Source<R>) -> Result<Option<Self>> {
        let bytes = source.take_hashed()?;
        let [a, b, c, d, e, f] = bytes;
        let header = Self { number: u32::from_be_bytes([a, b, c, d]), flags: u16::from_be_bytes([e, f]) };
        Ok((bytes != END_OF_PAGES).then_some(header))
    }

    /// Reads the page that follows this header into `page`, which has the length of a page. `block` is a buffer that is
    /// used again.
    pub fn read_page<R: Read>(self, source: &mut Source<R>, page: &mut [u8], block: &mut Vec<u8>) -> Result<()> {
        match self.flags {
            FLAG_BLOCK => {
                let length = u32::from_be_bytes(source.take_hashed()?);
                self.read_block(source, length, page, block)?;
            }
            FLAG_LEGACY => legacy::read_page(self, source, page, block)?,
            flags => return Err(source.damaged(Fault::PageFlags { number: self.number, flags })),
        }
        source.crc.update(page);
        Ok(())
    }

    /// Reads an LZ4 block and decompresses it.
    fn read_block<R: Read>(
        self,
        source: &mut Source<R>,
        length: u32,
        page: &mut [u8],
        block: &mut Vec<u8>,
    ) -> Result<()> {
        let number = self.number;
        if length > BLOCK_BYTES_MAX {
            return Err(source.damaged(Fault::BlockLength { number, length }));
        }
        block.resize(length as usize, 0);
        source.fill(block)?;
        match decompress_into(block, page) {
            Ok(length) if length == page.len() => Ok(()),
            Ok(length) => Err(source.damaged(Fault::PageLength { number, length, expected: page.len() })),
            Err(error) => Err(source.damaged(Fault::Block { number, source: error.into() })),
        }
    }
}
