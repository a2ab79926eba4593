//! The chain of files of the current generation, as the archiver continues it.

use bytes::Bytes;

use super::{Archiver, Note};
use crate::error::ArchiveError;
use crate::keys::parse_file;
use crate::ltx::{Checksum, FileName, Level, Reader};
use crate::manifest::File;
use crate::sums::Sums;

/// The state of a chain after its last file.
#[derive(Debug)]
pub(crate) struct Chain {
    pub generation: u32,
    /// The last transaction.
    pub last: u64,
    /// The last entry in it.
    pub index: u64,
    /// The checksums of all pages.
    pub sums: Sums,
    /// The files that the manifest does not list yet.
    pub unlisted: Vec<File>,
}

/// A chain without its checksums, which are with those who build the next file.
pub(crate) struct Rest {
    generation: u32,
    last: u64,
    index: u64,
    unlisted: Vec<File>,
}

/// A file whose creation was not answered yet.
pub(crate) struct Pending {
    pub key: String,
    pub bytes: Bytes,
    pub file: File,
    /// The chain before the file, with the checksums after it.
    pub chain: Chain,
}

impl Chain {
    /// The chain of a generation up to the transaction `last`, with the entry `index`.
    pub fn of(generation: u32, sums: Sums, last: u64, index: u64) -> Self {
        Self { generation, last, index, sums, unlisted: Vec::new() }
    }

    pub fn into_parts(self) -> (Sums, Rest) {
        let Self { generation, last, index, sums, unlisted } = self;
        (sums, Rest { generation, last, index, unlisted })
    }

    pub fn from_parts(sums: Sums, rest: Rest) -> Self {
        let Rest { generation, last, index, unlisted } = rest;
        Self { generation, last, index, sums, unlisted }
    }

    /// Adds a file, after which the checksums are those of the chain.
    pub fn followed_by(mut self, file: File) -> Self {
        (self.last, self.index) = (file.max, file.index);
        self.unlisted.push(file);
        self
    }
}

impl Archiver {
    /// Reads the chain of the current generation. Returns `None` if it can't be continued.
    pub(super) async fn load_chain(&self) -> Result<Option<Chain>, ArchiveError> {
        let current = self.manifest.current().filter(|generation| generation.epoch == self.identity.epoch);
        let Some(generation) = current else { return Ok(None) };
        let key = self.keys.sums(generation.number, generation.sums);
        let Some(object) = self.objects.read(&key, None).await? else { return Ok(None) };
        let decoded = self.blocking(move || Sums::decode(&object.bytes)).await?;
        let sums = match decoded {
            Ok(sums) => sums,
            Err(what) => {
                tracing::warn!(key, what, "the archive begins a new generation: a table of checksums is damaged");
                return Ok(None);
            }
        };
        let mut chain = Chain::of(generation.number, sums, generation.sums, generation.sums_index);
        let level = self.keys.level(generation.number, Level::CAPTURED);
        let listed = self.objects.list(&level).await?;
        let mut names: Vec<_> = listed.iter().filter_map(|object| parse_file(&object.key)).collect();
        names.retain(|name| name.0.max() > chain.last);
        names.sort_by_key(|name| name.0.max());
        let listed = &generation.files;
        for name in names {
            let is_listed = listed.iter().any(|file| file.level == 0 && file.max == name.0.max());
            chain = match self.load_file(chain, name, is_listed).await? {
                Some(chain) => chain,
                None => return Ok(None),
            };
        }
        // The manifest never lists a file after those of level 0 that are needed here.
        let newest = listed.iter().map(|file| file.max).max();
        Ok(Some(chain).filter(|chain| Some(chain.last) >= newest))
    }

    /// Applies a file to the checksums of the chain. Returns `None` if it does not continue the chain.
    async fn load_file(&self, chain: Chain, name: FileName, is_listed: bool) -> Result<Option<Chain>, ArchiveError> {
        let key = self.keys.file(chain.generation, Level::CAPTURED, name);
        let Some(object) = self.objects.read(&key, None).await? else { return Ok(None) };
        self.blocking(move || {
            let loaded = follow(chain, &object.bytes, is_listed);
            if let Err(what) = &loaded {
                tracing::warn!(key, what, "the archive begins a new generation: its chain is broken");
            }
            loaded.ok()
        })
        .await
    }
}

/// Adds a file to a chain; the error says why it can't be.
fn follow(mut chain: Chain, bytes: &[u8], is_listed: bool) -> Result<Chain, String> {
    let mut reader = Reader::new(bytes).map_err(|error| error.to_string())?;
    let header = reader.header().clone();
    let note = Note::decode(&header.note).ok_or("another program wrote the file")?;
    if header.txids.min() != chain.last.saturating_add(1) {
        return Err(format!("file {} does not follow {}", header.txids, chain.last));
    }
    if note.before != chain.sums.database() || header.page_size != chain.sums.page_size() {
        return Err(format!("file {} was made of another database", header.txids));
    }
    chain.sums.resize(header.commit.get());
    while let Some((number, page)) = reader.next_page().map_err(|error| error.to_string())? {
        chain.sums.set(number, Checksum::of_page(number, page));
    }
    let file = super::file(Level::CAPTURED, &header, note.index, &chain.sums, bytes.len() as u64);
    if is_listed {
        (chain.last, chain.index) = (file.max, file.index);
        return Ok(chain);
    }
    Ok(chain.followed_by(file))
}
