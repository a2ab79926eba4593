//! Pages as Litestream wrote them before 2026: an LZ4 frame with one block, and without a length before it.
//!
//! Invariant: a frame of any other shape is refused. The checksums inside of a frame are not read, because the checksum
//! of the file covers the page.

use std::io::Read;

use super::FrameHeader;
use crate::ltx::error::{Fault, Result};
use crate::ltx::stream::Source;

const MAGIC: u32 = 0x184D_2204;
/// The version of LZ4 frames, in the two highest bits of the flags.
const VERSION_MASK: u8 = 0b1100_0000;
const VERSION: u8 = 0b0100_0000;
const HAS_BLOCK_CHECKSUM: u8 = 1 << 4;
const HAS_CONTENT_SIZE: u8 = 1 << 3;
const HAS_CONTENT_CHECKSUM: u8 = 1 << 2;
const HAS_DICTIONARY: u8 = 1;
/// The block is stored as it is.
const IS_STORED: u32 = 1 << 31;

/// Reads the frame that follows the header of a page.
pub fn read_page<R: Read>(
    header: FrameHeader,
    source: &mut Source<R>,
    page: &mut [u8],
    block: &mut Vec<u8>,
) -> Result<()> {
    let unsupported = Fault::LegacyFrame(header.number);
    let (magic, [flags, _sizes]) = (take_u32(source)?, take(source)?);
    if magic != MAGIC || flags & VERSION_MASK != VERSION || flags & HAS_DICTIONARY != 0 {
        return Err(source.damaged(unsupported));
    }
    if flags & HAS_CONTENT_SIZE != 0 {
        take::<R, 8>(source)?;
    }
    let [_header_checksum] = take(source)?;

    let length = take_u32(source)?;
    if length & IS_STORED == 0 {
        header.read_block(source, length, page, block)?;
    } else if (length & !IS_STORED) as usize == page.len() {
        source.fill(page)?;
    } else {
        return Err(source.damaged(unsupported));
    }
    if flags & HAS_BLOCK_CHECKSUM != 0 {
        take::<R, 4>(source)?;
    }
    // A page has at most 64 KiB, which is also the smallest block size, so no second block follows.
    if take_u32(source)? != 0 {
        return Err(source.damaged(unsupported));
    }
    if flags & HAS_CONTENT_CHECKSUM != 0 {
        take::<R, 4>(source)?;
    }
    Ok(())
}

fn take<R: Read, const N: usize>(source: &mut Source<R>) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    source.fill(&mut bytes)?;
    Ok(bytes)
}

/// LZ4 frames are little-endian.
fn take_u32<R: Read>(source: &mut Source<R>) -> Result<u32> {
    Ok(u32::from_le_bytes(take(source)?))
}
