//! LTX v3 files, which hold pages of a SQLite database.
//!
//! Stock Litestream 0.5 restores a database from such files, so a backup can be read without Quorate.
//! `docs/archive-format.md` describes them byte by byte.
//!
//! - [`Writer`] and [`Reader`] go through a file from front to back: a [`Header`], the pages, an index, a trailer.
//! - [`Pages`] reads single pages of a file by its [`Index`].
//! - [`merge`] makes one file of several that follow each other, and [`Merge`] gives its pages without writing it.
//! - [`FileName`] and [`Level`] are the names under which Litestream looks for files.
//! - [`Checksum::of_page`] and [`DatabaseChecksum`] identify the content of a page and of a database. The files do not
//!   have them, because stock Litestream rejects files that do.
//!
//! ```
//! use std::num::NonZeroU32;
//!
//! use quorate_archive::ltx::{Header, PageSize, Pages, Reader, Txids, Writer, merge};
//!
//! // The first file of an archive holds the whole database. This one has two pages.
//! let (page_size, commit) = (PageSize::new(512)?, NonZeroU32::MIN.saturating_add(1));
//! let (txids, note) = (Txids::new(1, 17)?, [0; 20]);
//! let header = Header { page_size, commit, txids, timestamp: 1_764_200_000_000, node: 1, note };
//! let mut writer = Writer::new(Vec::new(), header.clone())?;
//! writer.write_page(1, &[1; 512])?;
//! writer.write_page(2, &[2; 512])?;
//! let (snapshot, _summary) = writer.finish()?;
//!
//! // The next one holds the page that has changed since.
//! let mut writer = Writer::new(Vec::new(), Header { txids: Txids::new(18, 57)?, ..header })?;
//! writer.write_page(2, &[3; 512])?;
//! let (change, _summary) = writer.finish()?;
//!
//! // Merged, they are the database after transaction 57.
//! let inputs = vec![Reader::new(snapshot.as_slice())?, Reader::new(change.as_slice())?];
//! let (merged, summary) = merge(inputs, Vec::new())?;
//! assert_eq!((summary.pages, summary.length), (2, merged.len() as u64));
//! assert_eq!(Pages::open(merged)?.read(2)?, Some(vec![3; 512]));
//! # Ok::<(), quorate_archive::ltx::Error>(())
//! ```
//!
//! # Invariants
//!
//! - Every file that is written is one that stock Litestream restores, as far as one file can be.
//! - No bytes make a reader panic, or give pages other than those that were written: a damaged file is an error at the
//!   latest where it ends. The exception is [`Pages`], which can't verify a single page.
//! - Memory does not grow with a file, except by about 10 bytes for each page in it.
//! - Nothing here opens a file, a socket or a database, or reads a clock.

mod checksum;
mod error;
mod feed;
mod frame;
mod header;
mod index;
mod merge;
mod name;
mod order;
mod pages;
mod reader;
mod stream;
mod writer;

pub use checksum::{Checksum, DatabaseChecksum};
pub use error::{Error, Fault, Result};
pub(crate) use feed::Feed;
pub(crate) use header::HEADER_BYTES;
pub use header::{Header, NOTE_BYTES, PageSize, Txids};
pub use index::{Entry, Index};
pub use merge::{Merge, merge};
pub use name::{FileName, Level};
pub use pages::{Pages, ReadAt};
pub use reader::Reader;
pub(crate) use reader::Stand;
pub use writer::{Summary, Writer};
