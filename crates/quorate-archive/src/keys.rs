//! The keys of the objects of an archive.
//!
//! Invariant: each key has exactly one text, so one that was parsed is written again with the same bytes.

use crate::ltx::{FileName, Level};
use crate::objects::Folders;
use crate::replica::Replica;

/// The characters of a number in a key.
const DIGITS: usize = 16;
/// The end of the key of a segment of entries.
const SEGMENT_SUFFIX: &str = ".entries";

/// The keys of one cluster's archive.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    cluster: u128,
    folders: Folders,
}

impl Keys {
    pub fn new(cluster: u128, folders: Folders) -> Self {
        Self { cluster, folders }
    }

    pub fn manifest(&self) -> String {
        format!("{:032x}/archive.json", self.cluster)
    }

    /// What the keys of all segments of an epoch begin with.
    pub fn segments(&self, epoch: u64) -> String {
        format!("{:032x}/entries/{epoch:016x}/", self.cluster)
    }

    /// A segment with the entries from `first` to `last`.
    pub fn segment(&self, epoch: u64, first: u64, last: u64) -> String {
        format!("{}{first:016x}-{last:016x}{SEGMENT_SUFFIX}", self.segments(epoch))
    }

    /// What the keys of all objects of a generation begin with: a replica of Litestream.
    pub fn generation(&self, generation: u32) -> String {
        format!("{:032x}/{generation:08x}/", self.cluster)
    }

    /// The replica of Litestream that a generation is.
    pub fn replica(&self, generation: u32) -> Replica {
        Replica::new(self.generation(generation), self.folders)
    }

    /// What the keys of all files of a level begin with.
    pub fn level(&self, generation: u32, level: Level) -> String {
        self.replica(generation).level(level)
    }

    pub fn file(&self, generation: u32, level: Level, name: FileName) -> String {
        format!("{}{name}", self.level(generation, level))
    }

    /// The checksums of all pages after a transaction.
    pub fn sums(&self, generation: u32, txid: u64) -> String {
        format!("{}sums/{txid:016x}", self.generation(generation))
    }
}

/// Returns the first and the last entry of a segment by its key.
pub(crate) fn parse_segment(key: &str) -> Option<(u64, u64)> {
    let name = key.rsplit('/').next()?.strip_suffix(SEGMENT_SUFFIX)?;
    let (first, last) = name.split_once('-')?;
    let (first, last) = (number(first)?, number(last)?);
    (first <= last).then_some((first, last))
}

/// Returns the name of an LTX file by its key.
pub(crate) fn parse_file(key: &str) -> Option<FileName> {
    key.rsplit('/').next()?.parse().ok()
}

/// Returns the cluster to which a folder belongs.
pub(crate) fn parse_cluster(folder: &str) -> Option<u128> {
    let is_canonical = folder.len() == 2 * DIGITS && is_hex(folder);
    is_canonical.then(|| u128::from_str_radix(folder, 16).ok()).flatten()
}

fn number(text: &str) -> Option<u64> {
    (text.len() == DIGITS && is_hex(text)).then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}
