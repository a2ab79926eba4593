//! Quorate's archive: a database in object storage, page by page and entry by entry.
//!
//! An archive holds two kinds of objects. **Pages** are [LTX files](ltx), of which stock Litestream restores the
//! database as it was at a boundary. **Entries** ([`entries`]) were applied after it, in order, so that a
//! restore reaches any of them. `docs/archive-format.md` describes both byte by byte, and
//! `docs/decisions/0029-archive.md` says why it is so.
//!
//! - [`Archiver`] writes the archive of a cluster. [`PageSource`] is what it needs of the database.
//! - [`Plan`](restore::Plan) finds out what is to be read for a point in time or a position, and reads it.
//! - [`Objects`] is the store. [`Memory`](objects::Memory) is one for tests, and [`Counting`] counts requests.
//!
//! # Invariants
//!
//! - Of two archivers at once, one gets an error before it damages anything: files of pages are created only if absent,
//!   in slots that both would use, and the manifest is replaced only by who read its latest version.
//! - An entry counts as archived once an object with it is stored; it does not depend on any other archiver.
//! - Knows neither SQLite nor Raft: entries are bytes with consecutive numbers.
//! - Memory does not grow with the database, except by 8 bytes for each page.

#![forbid(unsafe_code)]

mod archiver;
mod counting;
pub mod entries;
mod error;
mod keys;
pub mod ltx;
mod manifest;
pub mod objects;
mod reading;
mod replica;
pub mod restore;
mod source;
mod sums;

pub use archiver::{Archiver, End, EntryArchiver, Identity, Pruned, Put, Sizes, Tidying, prune};
pub use counting::{Counting, Requests};
pub use error::ArchiveError;
pub use manifest::{File, Generation, Manifest};
pub use objects::Objects;
pub use replica::Replica;
pub use source::{Changed, PageSource};
