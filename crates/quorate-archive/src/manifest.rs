//! The manifest of an archive: who writes it, and which files it has.
//!
//! Invariants:
//! - Each one that is written has a higher revision, so that no two have the same bytes: S3 tells versions apart by the
//!   bytes.
//! - It is replaced only by the archiver with the highest token, and only if nobody else has replaced it meanwhile.
//!   States that are given up by hand are taken out under that token, and nothing else is changed.
//! - What it lists is in the store. The files that were created after it was written are found by a list.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::error::ArchiveError;
use crate::ltx::{FileName, Level, Txids};

/// The format of manifests that this version writes, the highest that it reads.
const FORMAT: u32 = 1;

/// The manifest of one cluster's archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The format.
    pub format: u32,
    /// How often it was written.
    pub revision: u64,
    /// The cluster, as 32 hexadecimal digits.
    pub cluster: String,
    /// The token of the archiver, which rises with each that takes over.
    pub token: u64,
    /// The node of the archiver.
    pub node: u64,
    /// How many generations were begun. The number of the next one is one more.
    pub generations_begun: u32,
    /// The generations that are complete, from the oldest to the newest, which is continued.
    pub generations: Vec<Generation>,
}

/// A chain of files: a whole database, and what changed in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Generation {
    /// Its number.
    pub number: u32,
    /// The epoch of the cluster, whose history it follows.
    pub epoch: u64,
    /// The size of the database's pages.
    pub page_size: u32,
    /// The files that were listed when the manifest was written.
    pub files: Vec<File>,
    /// The latest transaction for which the checksums of all pages are stored.
    pub sums: u64,
    /// The last entry that is in the database after that transaction.
    pub sums_index: u64,
}

/// An LTX file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// The level.
    pub level: u8,
    /// The first transaction in it.
    pub min: u64,
    /// The last transaction in it.
    pub max: u64,
    /// The last entry that is in the database after it.
    pub index: u64,
    /// When the boundary was taken, in milliseconds since 1970.
    pub time: i64,
    /// The number of pages of the database after it.
    pub pages: u32,
    /// The checksum of the database after it, as 16 hexadecimal digits; `None` if only the file itself was seen.
    pub checksum: Option<String>,
    /// The length of the object in bytes.
    pub length: u64,
}

impl Manifest {
    pub(crate) fn new(cluster: u128) -> Self {
        let cluster = format!("{cluster:032x}");
        Self { format: FORMAT, revision: 0, cluster, token: 0, node: 0, generations_begun: 0, generations: Vec::new() }
    }

    /// Returns the manifest as it is written next.
    pub(crate) fn next(self) -> Self {
        Self { revision: self.revision.saturating_add(1), ..self }
    }

    /// Returns the generation that is continued.
    pub fn current(&self) -> Option<&Generation> {
        self.generations.last()
    }

    pub(crate) fn encode(&self) -> Bytes {
        // Nothing in it can fail to be written as JSON: it has numbers, texts and lists.
        serde_json::to_vec_pretty(self).unwrap_or_default().into()
    }

    pub(crate) fn decode(key: &str, bytes: &[u8]) -> Result<Self, ArchiveError> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let damaged = |error: serde_json::Error| ArchiveError::damaged(key, error.to_string());
        let Format { format } = serde_json::from_slice(bytes).map_err(damaged)?;
        if format > FORMAT {
            return Err(ArchiveError::Newer { key: key.to_owned(), format });
        }
        serde_json::from_slice(bytes).map_err(damaged)
    }
}

impl Generation {
    /// Returns its earliest snapshot, before which it has no state.
    pub fn begin(&self) -> Option<&File> {
        self.files.iter().filter(|file| file.min == 1).min_by_key(|file| file.max)
    }

    /// Returns the files that make the database up to a file which `is_wanted` accepts, from a snapshot on: as late as
    /// possible, and as few as possible. Returns `None` if there is no such snapshot.
    pub(crate) fn chain(files: &[File], is_wanted: impl Fn(&File) -> bool) -> Option<Vec<&File>> {
        let longest = |next: u64| {
            let fits = files.iter().filter(|file| file.min <= next && file.max >= next && is_wanted(file));
            fits.max_by_key(|file| (file.max, file.level))
        };
        let is_snapshot = |file: &&File| file.min == 1 && is_wanted(file);
        let mut chain = vec![files.iter().filter(is_snapshot).max_by_key(|file| (file.max, file.level))?];
        while let Some(file) = chain.last().and_then(|last| longest(last.max.saturating_add(1))) {
            chain.push(file);
        }
        Some(chain)
    }
}

impl File {
    /// Returns its name and its level, or `None` if there can't be such a file.
    pub(crate) fn name(&self) -> Option<(Level, FileName)> {
        Some((Level::new(self.level)?, FileName(Txids::new(self.min, self.max).ok()?)))
    }
}
