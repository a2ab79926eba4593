//! Reads a database out of an archive, as it was after any entry.
//!
//! A [`Plan`] says what is to be read: the files that make the database at a boundary, and the segments with the
//! entries after it. [`Plan::write_pages`] gives the database at the boundary; the caller applies the entries to it,
//! because only it knows what they mean.
//!
//! Invariants:
//! - The database at a boundary has the checksums that the archive names, or there is an error.
//! - A plan that reaches its target has no gap in its entries.

use std::sync::Arc;
use std::time::Duration;

use quorate_env::{Env, JoinHandle};

use crate::archiver::{Note, read_manifest};
use crate::error::ArchiveError;
use crate::keys::{Keys, parse_file, parse_segment};
use crate::ltx::{HEADER_BYTES, Header, Level, PageSize};
use crate::manifest::{File, Generation, Manifest};
use crate::objects::{Listed, Object, Objects, ObjectsError};

mod segments;
mod state;
mod write;

pub use segments::Segments;
pub use state::has_state;
pub use write::{Progress, TellProgress};

/// Which state of the database is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The last that is archived.
    Latest,
    /// That after this entry.
    Entry(u64),
    /// The last at or before this time, in milliseconds since 1970.
    Time(i64),
}

/// What has to be read for a state of the database.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The cluster.
    pub cluster: u128,
    /// The epoch of its history.
    pub epoch: u64,
    /// The generation of files.
    pub generation: u32,
    /// The target.
    pub target: Target,
    /// The files, in the order in which they are applied, with their keys.
    pub files: Vec<(String, File)>,
    /// The segments with the entries after the last file, in their order. The first may begin with earlier entries.
    pub segments: Vec<SegmentObject>,
    /// How long a read of them bears that the store does not answer; none if nobody sets it.
    pub outage_max: Duration,
}

/// A segment in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentObject {
    /// Its key.
    pub key: String,
    /// Its first entry.
    pub first: u64,
    /// Its last entry.
    pub last: u64,
    /// The length of the object in bytes.
    pub length: u64,
}

/// Returns the clusters that have an archive here.
pub async fn clusters(objects: &dyn Objects) -> Result<Vec<u128>, ArchiveError> {
    let folders = objects.list_folders("").await?;
    Ok(folders.iter().filter_map(|folder| crate::keys::parse_cluster(folder)).collect())
}

/// Returns the only cluster that has an archive here, or `None` if there is no archive.
///
/// # Errors
///
/// Returns [`ArchiveError::Several`] if there are several: none of them is chosen silently.
pub async fn find_cluster(objects: &dyn Objects) -> Result<Option<u128>, ArchiveError> {
    match clusters(objects).await?.as_slice() {
        [] => Ok(None),
        [cluster] => Ok(Some(*cluster)),
        several => {
            let names: Vec<_> = several.iter().map(|cluster| format!("{cluster:032x}")).collect();
            Err(ArchiveError::Several(names.join(", ")))
        }
    }
}

/// Returns the cluster that was named, or else the only one that has an archive here.
///
/// # Errors
///
/// Returns [`ArchiveError::Several`] or [`ArchiveError::Missing`] if there is no such choice.
pub async fn only_cluster(objects: &dyn Objects, named: Option<u128>) -> Result<u128, ArchiveError> {
    let missing = || ArchiveError::Missing("there is no archive at this place".to_owned());
    match named {
        Some(cluster) => Ok(cluster),
        None => find_cluster(objects).await?.ok_or_else(missing),
    }
}

/// Reads the manifest of a cluster's archive; `None` if the cluster has no archive.
pub async fn manifest(objects: &dyn Objects, cluster: u128) -> Result<Option<Manifest>, ArchiveError> {
    let keys = Keys::new(cluster, objects.litestream_folders());
    Ok(read_manifest(objects, &keys).await?.map(|(manifest, _)| manifest))
}

impl Plan {
    /// Finds out what has to be read. Four requests are enough, if the manifest is not much older than the newest file.
    pub async fn make(
        env: &Env,
        objects: &Arc<dyn Objects>,
        cluster: u128,
        target: Target,
    ) -> Result<Self, ArchiveError> {
        let keys = Keys::new(cluster, objects.litestream_folders());
        let missing = || ArchiveError::Missing(format!("there is no archive of the cluster {cluster:032x}"));
        let (manifest, _) = read_manifest(&**objects, &keys).await?.ok_or_else(missing)?;
        let is_wanted = |generation: &&Generation| generation.begin().is_some_and(|file| is_before(file, target));
        let generation = manifest.generations.iter().rev().find(is_wanted);
        let generation = generation.ok_or_else(|| ArchiveError::Missing(too_early(&manifest.generations, target)))?;
        let segments = {
            let (objects, prefix) = (Arc::clone(objects), keys.segments(generation.epoch));
            env.spawn(async move { objects.list(&prefix).await })
        };
        let files = list_files(env, objects, &keys, generation).await?;
        let chain = Generation::chain(&files, |file| is_before(file, target));
        let chain = chain.ok_or_else(|| ArchiveError::Missing(too_early(&manifest.generations, target)))?;
        let files = chain.into_iter().filter_map(|file| {
            let (level, name) = file.name()?;
            Some((keys.file(generation.number, level, name), file.clone()))
        });
        let (epoch, number) = (generation.epoch, generation.number);
        let mut plan = Self {
            cluster,
            epoch,
            generation: number,
            target,
            files: files.collect(),
            segments: Vec::new(),
            outage_max: Duration::ZERO,
        };
        plan.segments = plan.choose_segments(segments.await.map_err(|_| ArchiveError::Closed)??);
        plan.check()?;
        Ok(plan)
    }

    /// Returns the last entry that is in the database at the boundary.
    pub fn boundary(&self) -> u64 {
        self.files.last().map_or(0, |(_, file)| file.index)
    }

    /// Returns the last entry that the plan reaches, if all entries of its segments are applied.
    pub fn last(&self) -> u64 {
        self.segments.last().map_or(self.boundary(), |segment| segment.last)
    }

    /// Returns how many bytes have to be read.
    pub fn bytes(&self) -> u64 {
        let files = self.files.iter().map(|(_, file)| file.length);
        files.chain(self.segments.iter().map(|segment| segment.length)).fold(0, u64::saturating_add)
    }

    /// Returns the size of the database at the boundary, in bytes.
    pub fn database_bytes(&self, page_size: PageSize) -> u64 {
        self.files.last().map_or(0, |(_, file)| u64::from(file.pages).saturating_mul(u64::from(page_size.get())))
    }

    /// Reads the segments of the plan, one after the other.
    pub fn read_segments(&self, env: &Env, objects: &Arc<dyn Objects>) -> Segments<'_> {
        Segments::of(self, env, objects)
    }

    /// Returns the segments with the entries after the boundary, up to the first gap or the target.
    fn choose_segments(&self, listed: Vec<Listed>) -> Vec<SegmentObject> {
        let mut found: Vec<_> = listed
            .into_iter()
            .filter_map(|Listed { key, length, .. }| {
                let (first, last) = parse_segment(&key)?;
                Some(SegmentObject { key, first, last, length })
            })
            .collect();
        found.sort_by_key(|segment| (segment.first, segment.last));
        let is_needed = |next: u64| !matches!(self.target, Target::Entry(entry) if entry < next);
        let mut chosen: Vec<SegmentObject> = Vec::new();
        let mut next = self.boundary().saturating_add(1);
        let mut found = found.into_iter().peekable();
        while is_needed(next) {
            let mut longest: Option<SegmentObject> = None;
            while let Some(segment) = found.next_if(|segment| segment.first <= next) {
                if segment.last >= next && longest.as_ref().is_none_or(|longest| segment.last > longest.last) {
                    longest = Some(segment);
                }
            }
            let Some(segment) = longest else { break };
            next = segment.last.saturating_add(1);
            chosen.push(segment);
        }
        chosen
    }

    /// Fails if the plan does not reach its target.
    pub(crate) fn check(&self) -> Result<(), ArchiveError> {
        match self.target {
            Target::Entry(entry) if entry > self.last() => Err(ArchiveError::Missing(format!(
                "entry {entry} can't be reached: the archive has the entries up to {}, and after a gap may have others",
                self.last()
            ))),
            _ => Ok(()),
        }
    }
}

/// Whether a file is a state at or before the target.
pub(crate) fn is_before(file: &File, target: Target) -> bool {
    match target {
        Target::Latest => true,
        Target::Entry(entry) => file.index <= entry,
        Target::Time(time) => file.time <= time,
    }
}

fn too_early(generations: &[Generation], target: Target) -> String {
    let first = generations.iter().find_map(Generation::begin);
    match (target, first) {
        (_, None) => "the archive has no whole database yet".to_owned(),
        (Target::Entry(entry), Some(first)) => {
            format!("entry {entry} is too early: the archive begins with entry {}", first.index)
        }
        (_, Some(first)) => {
            format!("the time is too early: the archive begins {} ms after 1970-01-01 UTC", first.time)
        }
    }
}

/// Lists the files of a generation, with those that are newer than the manifest.
async fn list_files(
    env: &Env,
    objects: &Arc<dyn Objects>,
    keys: &Keys,
    generation: &Generation,
) -> Result<Vec<File>, ArchiveError> {
    let mut files = generation.files.clone();
    let newest = files.iter().map(|file| file.max).max().unwrap_or(0);
    let listed = objects.list(&keys.level(generation.number, Level::CAPTURED)).await?;
    let mut headers = Vec::new();
    for Listed { key, length, .. } in listed {
        if parse_file(&key).is_some_and(|name| name.0.max() > newest) {
            let objects = Arc::clone(objects);
            let asked = key.clone();
            let range = Some(0..HEADER_BYTES as u64);
            headers.push((key, length, env.spawn(async move { objects.read(&asked, range).await })));
        }
    }
    for (key, length, header) in headers {
        files.extend(describe(&key, length, header).await?);
    }
    Ok(files)
}

/// Describes a file by its header; `None` if it is gone.
async fn describe(
    key: &str,
    length: u64,
    header: JoinHandle<Result<Option<Object>, ObjectsError>>,
) -> Result<Option<File>, ArchiveError> {
    let Some(object) = header.await.map_err(|_| ArchiveError::Closed)?? else { return Ok(None) };
    let bytes = object.bytes.first_chunk().ok_or_else(|| ArchiveError::damaged(key, "it has no header"))?;
    let header = Header::decode(bytes).map_err(|fault| ArchiveError::damaged(key, fault.to_string()))?;
    let foreign = || ArchiveError::damaged(key, "another program wrote it");
    let note = Note::decode(&header.note).ok_or_else(foreign)?;
    let (min, max) = (header.txids.min(), header.txids.max());
    let (index, time, pages) = (note.index, header.timestamp, header.commit.get());
    Ok(Some(File { level: Level::CAPTURED.number(), min, max, index, time, pages, checksum: None, length }))
}
