//! A replica of Litestream: LTX files in the folders of their levels.
//!
//! Stock Litestream writes one at a place of its own, and each generation of an archive is one. Unlike an archive, a
//! replica has no manifest: what it holds is found by a list.
//!
//! Invariant: a plan reaches the last file that the target admits, or there is an error.

use std::sync::Arc;
use std::time::Duration;

use quorate_env::Env;

use crate::error::ArchiveError;
use crate::keys::{Keys, parse_file};
use crate::ltx::{FileName, HEADER_BYTES, Header, Level, Txids};
use crate::manifest::{File, Generation};
use crate::objects::{Folders, Listed, Objects};
use crate::restore::{Plan, Target, is_before};

/// How many headers are asked for at once.
const HEADERS_AT_ONCE: usize = 32;

/// Where the files of a replica are.
#[derive(Clone, Debug)]
pub struct Replica {
    prefix: String,
    folders: Folders,
}

impl Replica {
    /// Returns the replica that stock Litestream writes to this place.
    pub fn here(objects: &dyn Objects) -> Self {
        Self { prefix: String::new(), folders: objects.litestream_folders() }
    }

    /// Returns the replica that a generation of an archive is.
    pub fn of_generation(objects: &dyn Objects, cluster: u128, generation: u32) -> Self {
        Keys::new(cluster, objects.litestream_folders()).replica(generation)
    }

    pub(crate) fn new(prefix: String, folders: Folders) -> Self {
        Self { prefix, folders }
    }

    /// Returns what the keys of all files of a level begin with.
    pub(crate) fn level(&self, level: Level) -> String {
        match self.folders {
            Folders::Flat => format!("{}{level}/", self.prefix),
            Folders::Nested => format!("{}{}/", self.prefix, level.folder()),
        }
    }

    /// Returns the key of the file with these transactions as it was captured, before any merge.
    pub fn captured(&self, txids: Txids) -> String {
        format!("{}{}", self.level(Level::CAPTURED), FileName(txids))
    }

    /// Lists the files of all levels, with their keys. Their times and pages are not known from a list.
    pub async fn files(&self, objects: &dyn Objects) -> Result<Vec<(String, File)>, ArchiveError> {
        let listed = match self.folders {
            Folders::Nested => objects.list(&format!("{}ltx/", self.prefix)).await?,
            Folders::Flat if !self.prefix.is_empty() => objects.list(&self.prefix).await?,
            // Anything else may be at the place itself.
            Folders::Flat => {
                let mut listed = Vec::new();
                for folder in objects.list_folders("").await? {
                    if folder.parse::<Level>().is_ok() {
                        listed.extend(objects.list(&format!("{folder}/")).await?);
                    }
                }
                listed
            }
        };
        Ok(listed.into_iter().filter_map(|listed| self.describe(listed)).collect())
    }

    fn describe(&self, listed: Listed) -> Option<(String, File)> {
        let Listed { key, length, .. } = listed;
        let txids = parse_file(&key)?.0;
        let mut levels = (0..=Level::SNAPSHOTS.number()).filter_map(Level::new);
        let level = levels.find(|level| key.starts_with(&self.level(*level)))?.number();
        let (min, max) = (txids.min(), txids.max());
        Some((key, File { level, min, max, index: max, time: 0, pages: 0, checksum: None, length }))
    }

    /// Finds out what has to be read for a state, if there are files. The transactions take the place of entries.
    pub async fn plan(
        &self,
        env: &Env,
        objects: &Arc<dyn Objects>,
        target: Target,
    ) -> Result<Option<Plan>, ArchiveError> {
        let mut files = self.files(&**objects).await?;
        if files.is_empty() {
            return Ok(None);
        }
        if matches!(target, Target::Time(_)) {
            files = with_headers(env, objects, files).await?;
        }
        files.retain(|(_, file)| is_before(file, target));
        let chain = self.chain(files.iter().map(|(_, file)| file.clone()).collect())?;
        // The last one says of which time the state is.
        let (mut files, last) = split_last(chain);
        files.extend(with_headers(env, objects, last).await?);
        let (segments, outage_max) = (Vec::new(), Duration::ZERO);
        let plan = Plan { cluster: 0, epoch: 0, generation: 0, target, files, segments, outage_max };
        plan.check()?;
        Ok(Some(plan))
    }

    /// Returns the files that make the database, with their keys.
    fn chain(&self, files: Vec<File>) -> Result<Vec<(String, File)>, ArchiveError> {
        let missing = || ArchiveError::Missing("the replica has no whole database as old as that".to_owned());
        let chain = Generation::chain(&files, |_| true).ok_or_else(missing)?;
        let reached = chain.last().map_or(0, |file| file.max);
        let newest = files.iter().map(|file| file.max).max().unwrap_or(0);
        if reached < newest {
            return Err(ArchiveError::Missing(format!(
                "there is a gap: no file continues transaction {reached:016x}, although there are files up to \
                 {newest:016x}; a time before can be restored"
            )));
        }
        Ok(chain.into_iter().filter_map(|file| self.with_key(file)).collect())
    }

    fn with_key(&self, file: &File) -> Option<(String, File)> {
        let (level, name) = file.name()?;
        Some((format!("{}{name}", self.level(level)), file.clone()))
    }

    /// Returns the files that continue a transaction, each the one before: as far as they reach, as few as possible.
    ///
    /// # Errors
    ///
    /// Returns `Ok(None)` if the replica ends before the transaction, or has a gap after it.
    pub async fn continuing(
        &self,
        objects: &dyn Objects,
        txid: u64,
    ) -> Result<Option<Vec<(String, File)>>, ArchiveError> {
        let files = self.files(objects).await?;
        let mut reached = txid;
        let mut chain = Vec::new();
        let longest = |reached: u64| {
            let fits = files.iter().filter(|(_, file)| file.min <= reached.saturating_add(1) && file.max > reached);
            fits.max_by_key(|(_, file)| (file.max, file.level))
        };
        while let Some(found) = longest(reached) {
            reached = found.1.max;
            chain.push(found.clone());
        }
        let newest = files.iter().map(|(_, file)| file.max).max();
        match newest {
            None => Err(ArchiveError::Missing("there are no files of a database at this place".to_owned())),
            Some(newest) => Ok((newest == reached).then_some(chain)),
        }
    }
}

fn split_last<T>(mut items: Vec<T>) -> (Vec<T>, Vec<T>) {
    let last = items.pop().into_iter().collect();
    (items, last)
}

/// Reads the time and the number of pages from the headers of files. Files that are gone are left out.
async fn with_headers(
    env: &Env,
    objects: &Arc<dyn Objects>,
    files: Vec<(String, File)>,
) -> Result<Vec<(String, File)>, ArchiveError> {
    let mut described = Vec::with_capacity(files.len());
    for files in files.chunks(HEADERS_AT_ONCE) {
        let ask = |(key, _): &(String, File)| {
            let (objects, key) = (Arc::clone(objects), key.clone());
            env.spawn(async move { objects.read(&key, Some(0..HEADER_BYTES as u64)).await })
        };
        let asked: Vec<_> = files.iter().map(ask).collect();
        for ((key, file), asked) in files.iter().zip(asked) {
            let Some(object) = asked.await.map_err(|_| ArchiveError::Closed)?? else { continue };
            let bytes = object.bytes.first_chunk().ok_or_else(|| ArchiveError::damaged(key, "it has no header"))?;
            let header = Header::decode(bytes).map_err(|fault| ArchiveError::damaged(key, fault.to_string()))?;
            let (time, pages, length) = (header.timestamp, header.commit.get(), object.length);
            described.push((key.clone(), File { time, pages, length, ..file.clone() }));
        }
    }
    Ok(described)
}
