//! The header of a file: which transactions it holds, and of what database.
//!
//! Invariant: the types hold only what the format allows. A [`PageSize`] is one of SQLite's, and [`Txids`] are a range
//! that begins at 1 or later.

use std::fmt;
use std::num::NonZeroU32;

use crate::ltx::error::Fault;

/// The length of a header in bytes.
pub(crate) const HEADER_BYTES: usize = 100;
/// The offset of the node's id.
const NODE_OFFSET: usize = 72;
/// The length of a note in bytes.
pub const NOTE_BYTES: usize = 20;
const MAGIC: [u8; 4] = *b"LTX1";
/// The file has no checksums of the database. Stock Litestream restores only such files.
const NO_CHECKSUM: u32 = 1 << 1;
/// SQLite locks bytes from here on, so the page at this offset has no content.
const LOCK_OFFSET: u32 = 0x4000_0000;

/// The header of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The size of the database's pages.
    pub page_size: PageSize,
    /// The number of pages of the database after the last transaction.
    pub commit: NonZeroU32,
    /// The transactions that the file holds.
    pub txids: Txids,
    /// When the last transaction was captured, in milliseconds since 1970.
    pub timestamp: i64,
    /// Which node wrote the file, or 0.
    pub node: u64,
    /// What the writer notes in the bytes that the format reserves. Litestream writes zeros, and ignores others.
    pub note: [u8; NOTE_BYTES],
}

impl Header {
    /// Whether the file holds the whole database. This is so if it begins with the first transaction.
    pub fn is_snapshot(&self) -> bool {
        self.txids.min() == 1
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend(MAGIC);
        bytes.extend(NO_CHECKSUM.to_be_bytes());
        bytes.extend(self.page_size.get().to_be_bytes());
        bytes.extend(self.commit.get().to_be_bytes());
        bytes.extend(self.txids.min.to_be_bytes());
        bytes.extend(self.txids.max.to_be_bytes());
        bytes.extend(self.timestamp.to_be_bytes());
        // No checksum of the database, and no part of a `-wal`.
        bytes.resize(NODE_OFFSET, 0);
        bytes.extend(self.node.to_be_bytes());
        bytes.extend(self.note);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, Fault> {
        let mut fields = Fields(bytes);
        if fields.take() != MAGIC {
            return Err(Fault::Magic);
        }
        let flags = fields.u32();
        if flags != NO_CHECKSUM {
            return Err(Fault::Flags(flags));
        }
        let page_size = PageSize::new(fields.u32())?;
        let commit = NonZeroU32::new(fields.u32()).ok_or(Fault::NoPages)?;
        let txids = Txids::new(fields.u64(), fields.u64())?;
        let timestamp = i64::from_be_bytes(fields.take());
        let checksum = fields.u64();
        if checksum != 0 {
            return Err(Fault::DatabaseChecksum(checksum));
        }
        check_wal_source(fields.u64(), fields.u64(), fields.u64())?;
        Ok(Self { page_size, commit, txids, timestamp, node: fields.u64(), note: fields.take() })
    }
}

/// A page size that SQLite allows: a power of two from 512 to 65,536 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageSize(u32);

impl PageSize {
    /// Pages have at least this size.
    const MIN: u32 = 512;
    /// Pages have at most this size.
    pub(crate) const MAX: u32 = 65_536;

    /// Checks a page size.
    pub fn new(bytes: u32) -> Result<Self, Fault> {
        let is_valid = bytes.is_power_of_two() && (Self::MIN..=Self::MAX).contains(&bytes);
        if is_valid { Ok(Self(bytes)) } else { Err(Fault::PageSize(bytes)) }
    }

    /// Returns the size in bytes.
    pub fn get(self) -> u32 {
        self.0
    }

    /// Returns the number of the lock page: the page at 1 GiB, which SQLite never uses because its locks lie there.
    pub fn lock_page(self) -> u32 {
        LOCK_OFFSET / self.0 + 1
    }

    /// Returns the size as a length.
    pub(crate) fn len(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A range of transactions, both ends included. Transactions count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Txids {
    min: u64,
    max: u64,
}

impl Txids {
    /// Checks a range.
    pub fn new(min: u64, max: u64) -> Result<Self, Fault> {
        if 0 < min && min <= max { Ok(Self { min, max }) } else { Err(Fault::Txids { min, max }) }
    }

    /// Returns the first transaction.
    pub fn min(self) -> u64 {
        self.min
    }

    /// Returns the last transaction.
    pub fn max(self) -> u64 {
        self.max
    }

    /// Whether a file of this range can be applied after one of the range `previous`: it begins at the next transaction
    /// or earlier, and ends later.
    pub fn continues(self, previous: Self) -> bool {
        self.min <= previous.max.saturating_add(1) && self.max > previous.max
    }
}

impl fmt::Display for Txids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.min, self.max)
    }
}

/// Checks the fields that say of which part of a `-wal` a file was made. Nothing here needs them, so they are not kept.
fn check_wal_source(offset: u64, size: u64, salts: u64) -> Result<(), Fault> {
    let is_signed = offset.max(size) <= i64::MAX.unsigned_abs();
    let is_none = offset == 0 && size == 0 && salts == 0;
    if is_none || (offset != 0 && is_signed) { Ok(()) } else { Err(Fault::WalSource) }
}

/// The fields of a header that are not read yet.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    /// Reads the next bytes. After the end, which the fields of a header never reach, they are zero.
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let Some((field, rest)) = self.0.split_first_chunk() else { return [0; N] };
        self.0 = rest;
        *field
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.take())
    }
}
