//! The errors of this crate: what failed ([`Error`]), and what is wrong with a file ([`Fault`]).
//!
//! Reading and writing check the same rules. A broken rule is a [`Fault`]: an [`Error::Damaged`] says where in a file
//! it was found, an [`Error::Refused`] that a caller asked for it.

use std::io;

use thiserror::Error;

use crate::ltx::checksum::Checksum;
use crate::ltx::header::{PageSize, Txids};

/// The result of reading, writing or merging.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why a file can't be read, written or merged.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The source or the sink failed.
    #[error("cannot {action} the LTX file at byte {offset}: {source}")]
    Io {
        /// The operation that failed: `read` or `write`.
        action: &'static str,
        /// The offset in the file.
        offset: u64,
        /// The error of the source or the sink.
        source: io::Error,
    },
    /// The bytes are not a whole LTX file that this crate reads.
    #[error("the LTX file is damaged at byte {offset}: {source}; read another copy of it")]
    Damaged {
        /// The offset in the file up to which the reader had read when it found the fault.
        offset: u64,
        /// What is wrong.
        source: Fault,
    },
    /// The caller asked for a file that breaks a rule of the format.
    #[error("the LTX format forbids this file: {0}")]
    Refused(#[from] Fault),
    /// An earlier call on the same value failed, so that the file is incomplete.
    #[error("an earlier error left the LTX file incomplete: begin again with a new one")]
    Abandoned,
    /// There is nothing to merge.
    #[error("a merge needs at least one LTX file")]
    NoInputs,
    /// The inputs of a merge are not in order, or transactions between them are missing.
    #[error("the transactions {next} do not continue the transactions {previous}: merge the files between them too")]
    Gap {
        /// The transactions of an input.
        previous: Txids,
        /// The transactions of the input that came after it.
        next: Txids,
    },
    /// The inputs of a merge belong to databases with different page sizes.
    #[error("LTX files with pages of {first} and of {other} bytes can't be merged")]
    PageSizes {
        /// The page size of the first input.
        first: PageSize,
        /// Another page size.
        other: PageSize,
    },
    /// An input of a merge can't be read.
    #[error("the file of the transactions {txids} can't be merged: {source}")]
    Input {
        /// The transactions of the input.
        txids: Txids,
        /// The reason.
        source: Box<Error>,
    },
    /// The text is not the name of a file or of a level.
    #[error("`{0}` is not the name of an LTX file or of a level")]
    Name(String),
}

impl Error {
    /// Whether the same work on the same file, begun again, may succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Io { .. } => true,
            Self::Input { source, .. } => source.is_retryable(),
            _ => false,
        }
    }

    pub(crate) fn damaged(offset: u64, source: Fault) -> Self {
        Self::Damaged { offset, source }
    }

    /// For `map_err`: an error of a read at `offset`. The end of the source is damage of the file.
    pub(crate) fn read(offset: u64) -> impl FnOnce(io::Error) -> Self {
        move |source| match source.kind() {
            io::ErrorKind::UnexpectedEof => Self::damaged(offset, Fault::Truncated),
            _ => Self::Io { action: "read", offset, source },
        }
    }

    /// For `map_err`: an error of a write at `offset`.
    pub(crate) fn write(offset: u64) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action: "write", offset, source }
    }
}

/// A rule of the format that a file breaks.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Fault {
    /// The file ends too early.
    #[error("the file ends too early")]
    Truncated,
    /// Bytes follow the trailer.
    #[error("bytes follow the end of the file")]
    Trailing,
    /// The first four bytes are not `LTX1`.
    #[error("it does not begin with `LTX1`")]
    Magic,
    /// The flags of the header are not exactly "no checksums". Files of LiteFS, which have checksums of the database
    /// in the header and in the trailer, are among these.
    #[error("the flags of the header are {0:#x}, but only files without database checksums (0x2) are supported")]
    Flags(u32),
    /// A page size that SQLite does not know.
    #[error("{0} is not a page size: it must be a power of two from 512 to 65536")]
    PageSize(u32),
    /// The database has no pages.
    #[error("the database has no pages")]
    NoPages,
    /// A range of transactions that is empty or begins at zero.
    #[error("{min} to {max} is not a range of transactions: they count from 1")]
    Txids {
        /// The first transaction.
        min: u64,
        /// The last transaction.
        max: u64,
    },
    /// The fields about the `-wal` contradict each other.
    #[error("the fields about the WAL contradict each other")]
    WalSource,
    /// The header or the trailer has a checksum of the database, but the flags say that the file has none.
    #[error("the file has a checksum of the database ({0:016x}), but its flags say that it has none")]
    DatabaseChecksum(u64),
    /// The pages are not in ascending order, or a page has number 0.
    #[error("page {number} can't follow page {previous}: page numbers ascend from 1")]
    Order {
        /// The page before, or 0.
        previous: u32,
        /// The page.
        number: u32,
    },
    /// The lock page, which never belongs to a file.
    #[error("page {0} is the lock page, which has no content")]
    LockPage(u32),
    /// A page beyond the end of the database.
    #[error("page {number} is beyond the end of a database with {commit} pages")]
    BeyondCommit {
        /// The page.
        number: u32,
        /// The number of pages of the database.
        commit: u32,
    },
    /// A snapshot without one of the pages of the database.
    #[error("page {0} is missing in a snapshot, which has all pages of the database")]
    Missing(u32),
    /// A page with a length other than the page size.
    #[error("page {number} has {length} bytes, not {expected}")]
    PageLength {
        /// The page.
        number: u32,
        /// Its length.
        length: usize,
        /// The page size.
        expected: usize,
    },
    /// Flags of a page that this crate does not know.
    #[error("page {number} has unknown flags {flags:#x}")]
    PageFlags {
        /// The page.
        number: u32,
        /// Its flags.
        flags: u16,
    },
    /// A compressed page that is longer than LZ4 makes it.
    #[error("page {number} has {length} compressed bytes, which is more than LZ4 ever needs")]
    BlockLength {
        /// The page.
        number: u32,
        /// Its length when compressed.
        length: u32,
    },
    /// A compressed page that can't be decompressed.
    #[error("page {number} can't be decompressed: {source}")]
    Block {
        /// The page.
        number: u32,
        /// The reason.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// An LZ4 frame, of a legacy page, that is not as Litestream wrote them.
    #[error("page {0} is not a supported LZ4 frame")]
    LegacyFrame(u32),
    /// The index is not exactly the list of the pages.
    #[error("the index does not agree with the pages")]
    Index,
    /// The checksum of the file is wrong.
    #[error("the checksum of the file is {computed}, not {stored:016x}")]
    FileChecksum {
        /// The checksum in the trailer.
        stored: u64,
        /// The checksum of the bytes.
        computed: Checksum,
    },
}
