//! Writes the archive of a cluster.
//!
//! An archiver takes the archive over by a token, puts entries into segments and boundaries into files, and keeps the
//! archive tidy. Each of these steps may fail and be repeated.
//!
//! Invariants:
//! - An archiver whose token is not the highest gets [`ArchiveError::Fenced`] when it changes the manifest, or when a
//!   slot of a file is taken.
//! - A file whose creation was not answered is created again, with the same bytes, before anything else is.
//! - A file is stored before the manifest lists it, and is deleted after the manifest no longer lists it.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};

use quorate_env::mutant::Mutant;
use quorate_env::{Env, lock};

use crate::error::ArchiveError;
use crate::keys::{Keys, parse_segment};
use crate::ltx::{FileName, Header, Level, PageSize, Txids};
use crate::manifest::{File, Generation, Manifest};
use crate::objects::{Objects, Version};
use crate::source::{Changed, PageSource};
use crate::sums::Sums;

mod build;
mod chain;
mod entries;
mod merge;
mod note;
mod prune;
mod recent;
mod tidy;

use build::{Build, Built, Piece};
use chain::{Chain, Pending};
pub use entries::EntryArchiver;
pub(crate) use note::Note;
pub use prune::{Pruned, prune};
use recent::Recent;
pub use tidy::Tidying;

/// How often the manifest is tried to be replaced while others replace it too.
const TAKE_ATTEMPTS_MAX: usize = 8;

/// Who writes an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster.
    pub cluster: u128,
    /// Its epoch.
    pub epoch: u64,
    /// This node.
    pub node: u64,
    /// The token, which is higher than that of any archiver before.
    pub token: u64,
}

/// The sizes of what is sent to the store. Only a simulation, in which databases are small, changes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The largest file that is created by one request, in bytes. If more has changed, a new generation begins.
    pub file: usize,
    /// How many bytes of a longer file are built at once.
    pub piece: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { file: 128 << 20, piece: 8 << 20 }
    }
}

/// Where an archive ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The last entry that is in the last boundary.
    pub boundary: u64,
    /// The last entry up to which there is no gap; it may be before that boundary.
    pub entry: u64,
}

/// How a boundary was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// A file with these many bytes continues the chain.
    File(u64),
    /// A new generation began, with a snapshot of these many bytes.
    Generation(u64),
    /// It is the boundary that was put last.
    Unchanged,
}

/// The archiver of a cluster.
pub struct Archiver {
    env: Env,
    objects: Arc<dyn Objects>,
    keys: Keys,
    identity: Identity,
    manifest: Manifest,
    version: Version,
    /// The chain of the current generation, once it is known.
    chain: Option<Chain>,
    /// The file whose creation was not answered yet.
    pending: Option<Pending>,
    /// Whether the next boundary may differ in any page, whatever it says.
    is_any_page: bool,
    recent: Arc<Mutex<Recent>>,
    tidying: Tidying,
    sizes: Sizes,
}

impl Archiver {
    /// Takes the archive over, or begins it.
    ///
    /// # Errors
    ///
    /// Returns [`ArchiveError::Fenced`] if an archiver with a higher token has done so, and [`ArchiveError::Unfit`] if
    /// the store can't keep archivers apart.
    pub async fn take(env: &Env, objects: Arc<dyn Objects>, identity: Identity) -> Result<Self, ArchiveError> {
        Self::take_with(env, objects, identity, |_| identity.token).await
    }

    /// Takes the archive over with the token after the highest, or begins it. The token of `identity` does not count.
    /// It is for databases for which no cluster decides who archives.
    pub async fn take_next(env: &Env, objects: Arc<dyn Objects>, identity: Identity) -> Result<Self, ArchiveError> {
        Self::take_with(env, objects, identity, |highest| highest.saturating_add(1)).await
    }

    async fn take_with(
        env: &Env,
        objects: Arc<dyn Objects>,
        mut identity: Identity,
        token: impl Fn(u64) -> u64,
    ) -> Result<Self, ArchiveError> {
        let keys = Keys::new(identity.cluster, objects.litestream_folders());
        for _ in 0..TAKE_ATTEMPTS_MAX {
            let found = read_manifest(&*objects, &keys).await?;
            let manifest = found.as_ref().map(|(manifest, _)| manifest.clone());
            let mut manifest = manifest.unwrap_or_else(|| Manifest::new(identity.cluster)).next();
            identity.token = token(manifest.token);
            if manifest.token > identity.token {
                return Err(ArchiveError::Fenced { node: manifest.node, token: manifest.token });
            }
            (manifest.token, manifest.node) = (identity.token, identity.node);
            let key = keys.manifest();
            let taken = match &found {
                Some((_, version)) => objects.replace(&key, manifest.encode(), version).await?,
                None => objects.create(&key, manifest.encode(), None).await?,
            };
            if let Some(version) = taken {
                let (manifest, version) = probe(&*objects, &key, manifest, version).await?;
                return Ok(Self::new(env, objects, identity, (manifest, version)));
            }
        }
        Err(ArchiveError::Changed)
    }

    /// Returns an archiver that holds this manifest.
    fn new(env: &Env, objects: Arc<dyn Objects>, identity: Identity, (manifest, version): (Manifest, Version)) -> Self {
        Self {
            env: env.clone(),
            keys: Keys::new(identity.cluster, objects.litestream_folders()),
            objects,
            identity,
            manifest,
            version,
            chain: None,
            pending: None,
            is_any_page: true,
            recent: Arc::default(),
            tidying: Tidying::default(),
            sizes: Sizes::default(),
        }
    }

    /// Sets how the archive is kept tidy.
    pub fn set_tidying(&mut self, tidying: Tidying) {
        self.tidying = tidying;
    }

    /// Sets the sizes of what is sent.
    pub fn set_sizes(&mut self, sizes: Sizes) {
        self.sizes = sizes;
    }

    /// Returns the manifest as it was last read or written.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns where the archive ends, or `None` if it has no boundary that can be continued.
    pub async fn end(&mut self) -> Result<Option<End>, ArchiveError> {
        self.settle().await?;
        if self.chain.is_none() {
            self.chain = self.load_chain().await?;
        }
        let Some(boundary) = self.chain.as_ref().map(|chain| chain.index) else { return Ok(None) };
        let segments = self.segments().await?;
        let entry = match segments.iter().map(|(_, last)| *last).max() {
            // The entries of the boundary were still on their way.
            Some(last) if last < boundary => last,
            _ => next_after(&segments, boundary.saturating_add(1)).saturating_sub(1),
        };
        Ok(Some(End { boundary, entry }))
    }

    /// Returns the number of the last archived entry up to which there is no gap from `from` on; `None` if `from`
    /// itself is not archived.
    pub async fn archived(&self, from: u64) -> Result<Option<u64>, ArchiveError> {
        let next = next_after(&self.segments().await?, from);
        Ok((next > from).then(|| next.saturating_sub(1)))
    }

    /// Returns the first and the last entry of each segment, sorted.
    async fn segments(&self) -> Result<Vec<(u64, u64)>, ArchiveError> {
        let listed = self.objects.list(&self.keys.segments(self.identity.epoch)).await?;
        let mut segments: Vec<_> = listed.iter().filter_map(|object| parse_segment(&object.key)).collect();
        segments.sort_unstable();
        Ok(segments)
    }

    /// Returns a number for the next boundary where there are no entries whose numbers it could have: one more than the
    /// highest so far.
    pub async fn next_index(&mut self) -> Result<u64, ArchiveError> {
        self.settle().await?;
        if self.chain.is_none() {
            self.chain = self.load_chain().await?;
        }
        let listed = self.manifest.generations.iter().flat_map(|generation| &generation.files).map(|file| file.index);
        let highest = listed.chain(self.chain.iter().map(|chain| chain.index)).max();
        Ok(highest.map_or(1, |highest| highest.saturating_add(1)))
    }

    /// Returns what stores the entries. It works while boundaries are put and the archive is tidied up.
    pub fn entries(&self) -> EntryArchiver {
        let (objects, keys, recent) = (Arc::clone(&self.objects), self.keys.clone(), Arc::clone(&self.recent));
        EntryArchiver { env: self.env.clone(), objects, keys, identity: self.identity, recent }
    }

    /// Stores a boundary: the pages in which it differs from the last one, or, where the chain can't be continued, a
    /// new generation.
    ///
    /// # Errors
    ///
    /// After [`ArchiveError::Changed`] another boundary can be taken at once. After [`ArchiveError::Behind`], it must
    /// be a later one.
    pub async fn put_pages(&mut self, source: Box<dyn PageSource>) -> Result<Put, ArchiveError> {
        self.settle().await?;
        if lock(&self.recent).is_full() {
            self.merge_recent().await?;
        }
        if self.chain.is_none() {
            self.chain = self.load_chain().await?;
        }
        let page_size =
            PageSize::new(source.page_size()).map_err(|fault| ArchiveError::Source(std::io::Error::other(fault)))?;
        let Some(chain) = self.chain.take().filter(|chain| chain.sums.page_size() == page_size) else {
            return self.begin_generation(source, page_size).await;
        };
        if source.index() < chain.index {
            let (archived, index) = (chain.index, source.index());
            self.chain = Some(chain);
            return Err(ArchiveError::Behind { archived, index });
        }
        if source.index() == chain.index && !self.is_any_page {
            self.chain = Some(chain);
            source.kept();
            return Ok(Put::Unchanged);
        }
        self.continue_chain(chain, source, page_size).await
    }

    /// Creates the file whose creation was not answered yet, if there is one.
    ///
    /// # Errors
    ///
    /// Returns [`ArchiveError::Fenced`] or [`ArchiveError::Changed`] if another archiver has used its slot.
    pub async fn settle(&mut self) -> Result<(), ArchiveError> {
        let Some(pending) = &self.pending else { return Ok(()) };
        let is_ours = match self.objects.create(&pending.key, pending.bytes.clone(), Some(pending.file.time)).await? {
            Some(_) => true,
            None if Mutant::SlotTakenIsOurs.is_on() => true,
            None => {
                let found = self.objects.read(&pending.key, None).await?;
                found.is_some_and(|found| found.bytes == pending.bytes)
            }
        };
        let pending = self.pending.take();
        if let (true, Some(Pending { file, chain, .. })) = (is_ours, pending) {
            self.chain = Some(chain.followed_by(file));
            self.is_any_page = false;
            return Ok(());
        }
        self.is_any_page = true;
        self.check_token().await?;
        Err(ArchiveError::Changed)
    }

    /// Builds a file of what has changed and creates it.
    async fn continue_chain(
        &mut self,
        chain: Chain,
        source: Box<dyn PageSource>,
        page_size: PageSize,
    ) -> Result<Put, ArchiveError> {
        let txid = chain.last.saturating_add(1);
        let note = Note { index: source.index(), before: chain.sums.database() };
        let header = self.header(&*source, page_size, txid, note)?;
        let key = self.keys.file(chain.generation, Level::CAPTURED, FileName(header.txids));
        let changed = if self.is_any_page { Changed::All } else { source.changed() };
        // If the work fails from here on, the chain is loaded again.
        self.is_any_page = true;
        let (sums, chain) = chain.into_parts();
        let build = Box::new(Build::begin(key.clone(), source, sums, header.clone(), changed)?);
        let file_bytes = self.sizes.file;
        match self.blocking(move || build.next(file_bytes)).await?? {
            Piece::Some(build, _) => self.begin_generation(build.into_source(), page_size).await,
            Piece::Last(Built { source, sums, summary }, bytes) => {
                let file = file(Level::CAPTURED, &header, note.index, &sums, summary.length);
                let chain = Chain::from_parts(sums, chain);
                source.kept();
                self.pending = Some(Pending { key, bytes, file, chain });
                self.settle().await?;
                Ok(Put::File(summary.length))
            }
        }
    }

    /// Begins a generation with a snapshot of the database.
    async fn begin_generation(
        &mut self,
        source: Box<dyn PageSource>,
        page_size: PageSize,
    ) -> Result<Put, ArchiveError> {
        self.is_any_page = true;
        let number = self.manifest.generations_begun.saturating_add(1);
        self.replace_manifest(Manifest { generations_begun: number, ..self.manifest.clone() }).await?;
        let sums = Sums::new(page_size);
        let note = Note { index: source.index(), before: sums.database() };
        let header = self.header(&*source, page_size, 1, note)?;
        let key = self.keys.file(number, Level::SNAPSHOTS, FileName(header.txids));
        let mut build = Box::new(Build::begin(key.clone(), source, sums, header.clone(), Changed::All)?);
        let mut upload = self.objects.upload(&key, Some(header.timestamp)).await?;
        let piece_bytes = self.sizes.piece;
        let Built { source, sums, summary } = loop {
            match self.blocking(move || build.next(piece_bytes)).await?? {
                Piece::Some(rest, bytes) => {
                    upload.write(bytes).await?;
                    build = rest;
                }
                Piece::Last(built, bytes) => {
                    upload.write(bytes).await?;
                    break built;
                }
            }
        };
        source.kept();
        upload.finish().await?;
        self.put_sums(number, 1, &sums).await?;
        let file = file(Level::SNAPSHOTS, &header, note.index, &sums, summary.length);
        let (chain, sums_index) = (Chain::of(number, sums, file.max, file.index), file.index);
        let mut manifest = self.manifest.clone();
        let (epoch, page_size) = (self.identity.epoch, page_size.get());
        manifest.generations.push(Generation { number, epoch, page_size, files: vec![file], sums: 1, sums_index });
        self.replace_manifest(manifest).await?;
        self.chain = Some(chain);
        self.is_any_page = false;
        Ok(Put::Generation(summary.length))
    }

    fn header(
        &self,
        source: &dyn PageSource,
        page_size: PageSize,
        txid: u64,
        note: Note,
    ) -> Result<Header, ArchiveError> {
        let invalid = || ArchiveError::Source(std::io::Error::other("the database has no pages"));
        Ok(Header {
            page_size,
            commit: NonZeroU32::new(source.pages()).ok_or_else(invalid)?,
            txids: Txids::new(txid, txid).map_err(|_| invalid())?,
            timestamp: source.time(),
            node: self.identity.node,
            note: note.encode(),
        })
    }

    /// Stores the checksums of all pages.
    async fn put_sums(&self, generation: u32, txid: u64, sums: &Sums) -> Result<(), ArchiveError> {
        let key = self.keys.sums(generation, txid);
        let mut upload = self.objects.upload(&key, None).await?;
        upload.write(sums.encode()).await?;
        Ok(upload.finish().await?)
    }

    /// Replaces the manifest.
    async fn replace_manifest(&mut self, manifest: Manifest) -> Result<(), ArchiveError> {
        let (key, manifest) = (self.keys.manifest(), manifest.next());
        let found = match Mutant::ManifestWithoutSwap.is_on() {
            true => read_manifest(&*self.objects, &self.keys).await?.map(|(_, version)| version),
            false => None,
        };
        match self.objects.replace(&key, manifest.encode(), found.as_ref().unwrap_or(&self.version)).await? {
            Some(version) => (self.manifest, self.version) = (manifest, version),
            None => {
                // It may have been replaced by an earlier request of this archiver that was not answered.
                self.check_token().await?;
                return Err(ArchiveError::Changed);
            }
        }
        Ok(())
    }

    /// Reads the manifest, and fails if another archiver has taken over.
    async fn check_token(&mut self) -> Result<(), ArchiveError> {
        let found = read_manifest(&*self.objects, &self.keys).await?;
        let gone = || ArchiveError::Missing(format!("the manifest '{}' is gone", self.keys.manifest()));
        let (manifest, version) = found.ok_or_else(gone)?;
        let Identity { token, node, .. } = self.identity;
        if (manifest.token, manifest.node) != (token, node) {
            return Err(ArchiveError::Fenced { node: manifest.node, token: manifest.token });
        }
        (self.manifest, self.version) = (manifest, version);
        Ok(())
    }

    async fn blocking<T: Send + 'static>(&self, f: impl FnOnce() -> T + Send + 'static) -> Result<T, ArchiveError> {
        self.env.blocking(f).await.ok_or(ArchiveError::Closed)
    }
}

/// Finds out whether a store heeds conditions: it must refuse to create the manifest once more, and to replace a former
/// version of it. Returns the manifest as it is afterwards.
async fn probe(
    objects: &dyn Objects,
    key: &str,
    manifest: Manifest,
    version: Version,
) -> Result<(Manifest, Version), ArchiveError> {
    let is_created = objects.create(key, manifest.encode(), None).await?.is_some();
    let manifest = manifest.next();
    let next = objects.replace(key, manifest.encode(), &version).await?.ok_or(ArchiveError::Changed)?;
    let is_replaced = objects.replace(key, manifest.encode(), &version).await?.is_some();
    if is_created || is_replaced { Err(ArchiveError::Unfit) } else { Ok((manifest, next)) }
}

/// Returns the first entry from `from` on that no segment has.
fn next_after(segments: &[(u64, u64)], from: u64) -> u64 {
    segments.iter().fold(from, |next, (first, last)| match *first <= next && next <= *last {
        true => last.saturating_add(1),
        false => next,
    })
}

/// Reads the manifest of a cluster's archive.
pub(crate) async fn read_manifest(
    objects: &dyn Objects,
    keys: &Keys,
) -> Result<Option<(Manifest, Version)>, ArchiveError> {
    let key = keys.manifest();
    let Some(object) = objects.read(&key, None).await? else { return Ok(None) };
    Ok(Some((Manifest::decode(&key, &object.bytes)?, object.version)))
}

/// Describes a file after which the database has these checksums.
fn file(level: Level, header: &Header, index: u64, sums: &Sums, length: u64) -> File {
    File {
        level: level.number(),
        min: header.txids.min(),
        max: header.txids.max(),
        index,
        time: header.timestamp,
        pages: sums.pages(),
        checksum: Some(sums.database().to_string()),
        length,
    }
}
