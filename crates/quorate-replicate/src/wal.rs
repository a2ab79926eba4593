//! Reads a `-wal` file as SQLite writes it: <https://www.sqlite.org/fileformat2.html#walformat>.
//!
//! Invariants:
//! - A frame counts only if its salts are those of the header, and its checksum follows from all frames before it.
//! - No bytes make this panic. What does not fit is an error that says which frame.

use std::io;
use std::ops::Range;

use quorate_env::disk::File;

/// The bytes of the header of a `-wal`.
const HEADER_BYTES: usize = 32;

/// The bytes before the page in each frame.
const FRAME_HEADER_BYTES: usize = 24;

/// The first four bytes, without the bit that says in which byte order checksums are computed.
const MAGIC: u32 = 0x377f_0682;

/// The bytes that are read at once; at least one frame is.
const READ_BYTES: usize = 1 << 20;

/// The header of a `-wal`. It differs from that of any other: each time SQLite begins anew, it draws other salts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header([u8; HEADER_BYTES]);

/// A checksum that covers the header and all frames so far.
type Sum = (u32, u32);

/// What has been read of a `-wal`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    header: Header,
    frames: u32,
    sum: Sum,
}

/// A frame: a page after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The number of the frame, from 1 on.
    pub number: u32,
    /// The number of the page.
    pub page: u32,
    /// The size of the database in pages, if a commit ends here; else 0.
    pub commit: u32,
}

impl Header {
    /// Reads the header of a file; `None` if the file is too short to have one.
    pub fn read(file: &dyn File) -> io::Result<Option<Self>> {
        let mut bytes = [0; HEADER_BYTES];
        Ok((file.read_at(&mut bytes, 0)? == HEADER_BYTES).then_some(Self(bytes)))
    }

    fn word(&self, at: usize) -> u32 {
        word(&self.0, at, u32::from_be_bytes)
    }

    /// Returns the size of a page.
    pub fn page_size(&self) -> u32 {
        self.word(8)
    }

    /// Returns how checksums are computed here, and that of the header; an error if the header is not valid.
    fn check(&self) -> io::Result<(WordOf, Sum)> {
        let word_of: WordOf = match self.word(0) {
            MAGIC => u32::from_le_bytes,
            magic if magic == MAGIC | 1 => u32::from_be_bytes,
            _ => return Err(damaged("its header is not that of a -wal")),
        };
        let sum = add((0, 0), self.0.get(..FRAME_HEADER_BYTES).unwrap_or_default(), word_of);
        let is_size = self.page_size().is_power_of_two() && (512..=65_536).contains(&self.page_size());
        if sum != (self.word(24), self.word(28)) || !is_size {
            return Err(damaged("its header is damaged"));
        }
        Ok((word_of, sum))
    }
}

impl Position {
    /// Returns the position before the first frame.
    pub fn start(header: Header) -> io::Result<Self> {
        Ok(Self { header, frames: 0, sum: header.check()?.1 })
    }

    /// Returns the header of the `-wal`.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns how many frames have been read.
    pub fn frames(&self) -> u32 {
        self.frames
    }

    /// Reads on up to the frame with this number, and hands each frame over. After an error, the position is where it
    /// was.
    pub fn read_on(&mut self, file: &dyn File, last: u32, mut each: impl FnMut(Frame)) -> io::Result<()> {
        let (word_of, _) = self.header.check()?;
        let page_size = self.header.page_size();
        let length = frame_length(page_size);
        let at_once = u32::try_from((READ_BYTES / length).max(1)).unwrap_or(1);
        let mut buffer = Vec::new();
        let Self { mut frames, mut sum, .. } = *self;
        while frames < last {
            let count = at_once.min(last.saturating_sub(frames));
            buffer.resize(length.saturating_mul(count as usize), 0);
            file.read_exact_at(&mut buffer, frame_offset(frames.saturating_add(1), page_size))?;
            for bytes in buffer.chunks_exact(length) {
                frames = frames.saturating_add(1);
                sum = self
                    .add_frame(sum, bytes, word_of)
                    .ok_or_else(|| damaged(format!("frame {frames} does not follow from the one before it")))?;
                let field = |at| word(bytes, at, u32::from_be_bytes);
                each(Frame { number: frames, page: field(0), commit: field(4) });
            }
        }
        (self.frames, self.sum) = (frames, sum);
        Ok(())
    }

    /// Returns the checksum after a frame; `None` if it is not the one in the frame.
    fn add_frame(&self, sum: Sum, bytes: &[u8], word_of: WordOf) -> Option<Sum> {
        let field = |at| word(bytes, at, u32::from_be_bytes);
        let has_salts = (field(8), field(12)) == (self.header.word(16), self.header.word(20));
        let sum = add(sum, bytes.get(..8)?, word_of);
        let sum = add(sum, bytes.get(FRAME_HEADER_BYTES..)?, word_of);
        (has_salts && sum == (field(16), field(20)) && field(0) > 0).then_some(sum)
    }
}

/// Returns how many frames a `-wal` of this length has; `None` if it ends within a frame or the header.
pub fn frames(length: u64, page_size: u32) -> Option<u32> {
    let frames = length.checked_sub(HEADER_BYTES as u64)?;
    let frame = frame_length(page_size) as u64;
    (frames % frame == 0).then(|| u32::try_from(frames / frame).ok()).flatten()
}

/// Reads the page of a frame.
pub fn read_page(file: &dyn File, frame: u32, page: &mut [u8]) -> io::Result<()> {
    let page_size = u32::try_from(page.len()).map_err(io::Error::other)?;
    file.read_exact_at(page, page_range(frame, page_size).start)
}

/// Returns where the page of a frame is.
fn page_range(frame: u32, page_size: u32) -> Range<u64> {
    let start = frame_offset(frame, page_size).saturating_add(FRAME_HEADER_BYTES as u64);
    start..start.saturating_add(page_size.into())
}

fn frame_offset(frame: u32, page_size: u32) -> u64 {
    let before = u64::from(frame.saturating_sub(1)).saturating_mul(frame_length(page_size) as u64);
    before.saturating_add(HEADER_BYTES as u64)
}

fn frame_length(page_size: u32) -> usize {
    (page_size as usize).saturating_add(FRAME_HEADER_BYTES)
}

/// Makes a number of four bytes.
type WordOf = fn([u8; 4]) -> u32;

fn word(bytes: &[u8], at: usize, word_of: WordOf) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).copied().map_or(0, word_of)
}

/// Adds bytes to a checksum, eight at a time.
fn add((mut low, mut high): Sum, bytes: &[u8], word_of: WordOf) -> Sum {
    for pair in bytes.chunks_exact(8) {
        low = low.wrapping_add(word(pair, 0, word_of)).wrapping_add(high);
        high = high.wrapping_add(word(pair, 4, word_of)).wrapping_add(low);
    }
    (low, high)
}

fn damaged(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the -wal: {}", what.into()))
}
