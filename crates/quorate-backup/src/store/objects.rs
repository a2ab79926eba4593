//! A store as an archive uses it.
//!
//! Invariants: as [`Objects`] demands. A directory has no conditional replacement of its own, so a lock on the folder
//! of the object makes one: it holds for all processes that share the directory.

use std::ops::Range;
use std::path::Path as FilePath;

use bytes::{Bytes, BytesMut};
use chrono::{DateTime, SecondsFormat};
use futures_util::TryStreamExt as _;
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, GetOptions, GetRange, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutResult,
    UpdateVersion,
};
use quorate_archive::Objects;
use quorate_archive::objects::{Answer, Folders, Listed, Object, ObjectsError, Upload, Version};
use quorate_env::disk::DirLock;
use quorate_env::{Cause, Env};

use super::location::Kind;
use super::{OBJECTS_MAX, PART_BYTES, SHORT_BYTES_MAX, Store};
use crate::error::Error;

/// Where Litestream looks for the time of a file.
const TIME: &str = "litestream-timestamp";

impl Objects for Store {
    fn create<'a>(&'a self, key: &'a str, bytes: Bytes, time: Option<i64>) -> Answer<'a, Option<Version>> {
        let options = PutOptions { mode: PutMode::Create, attributes: self.attributes(time), ..PutOptions::default() };
        Box::pin(self.put_if(key, bytes, options, "create"))
    }

    fn replace<'a>(&'a self, key: &'a str, bytes: Bytes, version: &'a Version) -> Answer<'a, Option<Version>> {
        Box::pin(async move {
            if self.location.kind != Kind::Dir {
                let options = PutOptions { mode: PutMode::Update(from_text(version)), ..PutOptions::default() };
                return self.put_if(key, bytes, options, "replace").await;
            }
            // If the caller is dropped, the file system may still carry the request out, and the lock must last until
            // then. So it is held by a task of its own.
            let (store, key, version) = (self.clone(), key.to_owned(), version.clone());
            let env = Env::current().unwrap_or_else(Env::real);
            let replaced = env.spawn(async move { store.replace_locked(&key, bytes, &version).await });
            replaced.await.unwrap_or_else(|_| Err(failed(Error::Closed)))
        })
    }

    fn upload<'a>(&'a self, key: &'a str, time: Option<i64>) -> Answer<'a, Box<dyn Upload>> {
        let pieces = Pieces {
            store: self.clone(),
            key: key.to_owned(),
            attributes: self.attributes(time),
            buffer: BytesMut::new(),
            begun: None,
        };
        Box::pin(async move { Ok(Box::new(pieces) as Box<dyn Upload>) })
    }

    fn read<'a>(&'a self, key: &'a str, range: Option<Range<u64>>) -> Answer<'a, Option<Object>> {
        Box::pin(async move {
            let path = self.path(key);
            let is_short = range.as_ref().is_some_and(|range| is_short(range.end.saturating_sub(range.start)));
            // Stores refuse an empty range.
            let is_empty = range.as_ref().is_some_and(Range::is_empty);
            let range = range.filter(|range| !range.is_empty()).map(GetRange::Bounded);
            let options = GetOptions { range, head: is_empty, ..GetOptions::default() };
            let get = async {
                let got = match self.with_time_for(is_short).get_opts(&path, options).await {
                    Err(object_store::Error::NotFound { .. }) => return Ok(None),
                    got => got?,
                };
                let (e_tag, version) = (got.meta.e_tag.clone(), got.meta.version.clone());
                let (length, version) = (got.meta.size, to_text(e_tag, version));
                let bytes = if is_empty { Bytes::new() } else { got.bytes().await? };
                Ok(Some(Object { bytes, length, version }))
            };
            self.bounded(|| format!("read '{key}'"), get).await.map_err(failed)
        })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Answer<'a, Vec<Listed>> {
        Box::pin(async move {
            let path = self.path(prefix);
            let list = async {
                let found = self.inner.list(Some(&path)).try_collect::<Vec<_>>();
                Ok(found.await?.into_iter().take(OBJECTS_MAX.saturating_add(1)).collect::<Vec<_>>())
            };
            let found = self.bounded(|| format!("list '{prefix}'"), list).await.map_err(failed)?;
            if found.len() > OBJECTS_MAX {
                return Err(failed(Error::TooMany { location: self.location.to_string(), max: OBJECTS_MAX }));
            }
            let listed = |object: object_store::ObjectMeta| {
                let key = self.key(&object.location)?;
                Some(Listed { key, length: object.size, time: Some(object.last_modified.timestamp_millis()) })
            };
            let mut listed: Vec<_> = found.into_iter().filter_map(listed).collect();
            listed.sort_by(|a, b| a.key.cmp(&b.key));
            Ok(listed)
        })
    }

    fn list_folders<'a>(&'a self, prefix: &'a str) -> Answer<'a, Vec<String>> {
        Box::pin(async move {
            let path = self.path(prefix);
            let path = Some(&path).filter(|path| !path.as_ref().is_empty());
            let list = self.inner.list_with_delimiter(path);
            let found = self.bounded(|| format!("list the folders of '{prefix}'"), list).await.map_err(failed)?;
            Ok(found.common_prefixes.iter().filter_map(|folder| folder.filename().map(str::to_owned)).collect())
        })
    }

    fn delete<'a>(&'a self, key: &'a str) -> Answer<'a, ()> {
        Box::pin(async move { Self::delete(self, key).await.map_err(failed) })
    }

    fn litestream_folders(&self) -> Folders {
        match self.location.kind {
            Kind::S3 => Folders::Flat,
            Kind::Google | Kind::Azure | Kind::Dir => Folders::Nested,
        }
    }
}

impl Store {
    /// Puts an object if the condition in `options` holds, and returns its version; otherwise `None`.
    async fn put_if(
        &self,
        key: &str,
        bytes: Bytes,
        options: PutOptions,
        verb: &str,
    ) -> Result<Option<Version>, ObjectsError> {
        let path = self.path(key);
        let is_update = matches!(options.mode, PutMode::Update(_));
        let is_short = is_short(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        let put = async {
            match self.with_time_for(is_short).put_opts(&path, bytes.into(), options).await {
                Ok(PutResult { e_tag, version, .. }) => Ok(Some(to_text(e_tag, version))),
                Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => Ok(None),
                Err(object_store::Error::NotFound { .. }) if is_update => Ok(None),
                Err(error) => Err(error),
            }
        };
        self.bounded(|| format!("{verb} '{key}'"), put).await.map_err(failed)
    }

    /// Replaces an object of a directory, under the lock of its folder, if it has this version.
    async fn replace_locked(
        &self,
        key: &str,
        bytes: Bytes,
        version: &Version,
    ) -> Result<Option<Version>, ObjectsError> {
        let _lock = self.lock_folder(key)?;
        let found = self.read(key, Some(0..0)).await?;
        if found.is_none_or(|found| found.version != *version) {
            return Ok(None);
        }
        self.put_if(key, bytes, PutOptions::default(), "replace").await
    }

    /// Returns the store with the time-out for short bodies, or for all.
    fn with_time_for(&self, is_short: bool) -> &dyn ObjectStore {
        if is_short { &*self.short } else { &*self.inner }
    }

    /// Locks the folder of an object in a directory, against all other processes.
    fn lock_folder(&self, key: &str) -> Result<Box<dyn DirLock>, ObjectsError> {
        let folder = key.rsplit_once('/').map_or("", |(folder, _)| folder);
        let path = self.location.dir.join(FilePath::new(self.path(folder).as_ref()));
        let env = Env::current().unwrap_or_else(Env::real);
        env.disk().lock_dir(&path).map_err(|error| ObjectsError {
            what: format!("lock the folder of '{key}'"),
            is_retryable: true,
            source: Cause::from(error),
        })
    }

    /// Returns what Litestream wants to find beside a file. Directories keep nothing beside a file.
    fn attributes(&self, time: Option<i64>) -> Attributes {
        let time = time.filter(|_| self.location.kind != Kind::Dir).and_then(DateTime::from_timestamp_millis);
        let mut attributes = Attributes::new();
        if let Some(time) = time {
            let text = time.to_rfc3339_opts(SecondsFormat::Millis, true);
            attributes.insert(Attribute::Metadata(TIME.into()), text.into());
        }
        attributes
    }

    /// Returns the key of an object below the location.
    fn key(&self, path: &Path) -> Option<String> {
        let parts: Vec<_> = path.prefix_match(&self.prefix)?.map(|part| part.as_ref().to_owned()).collect();
        Some(parts.join("/"))
    }
}

/// An object that is written in pieces of any size: in one request if it is short.
struct Pieces {
    store: Store,
    key: String,
    attributes: Attributes,
    buffer: BytesMut,
    begun: Option<super::Upload>,
}

impl Pieces {
    async fn flush(&mut self, least: usize) -> Result<(), Error> {
        while self.buffer.len() > least {
            if self.begun.is_none() {
                let options = PutMultipartOptions { attributes: self.attributes.clone(), ..Default::default() };
                self.begun = Some(self.store.upload_with(&self.key, options).await?);
            }
            let part = self.buffer.split_to(self.buffer.len().min(usize::try_from(PART_BYTES).unwrap_or(usize::MAX)));
            if let Some(begun) = &mut self.begun {
                begun.part(part.freeze()).await?;
            }
        }
        Ok(())
    }

    async fn end(mut self) -> Result<(), ObjectsError> {
        if self.begun.is_none() {
            let options = PutOptions { attributes: self.attributes.clone(), ..PutOptions::default() };
            let bytes = self.buffer.split().freeze();
            return self.store.put_if(&self.key, bytes, options, "write").await.map(drop);
        }
        self.flush(0).await.map_err(failed)?;
        match self.begun {
            Some(begun) => begun.finish().await.map_err(failed),
            None => Ok(()),
        }
    }
}

impl Upload for Pieces {
    fn write(&mut self, bytes: Bytes) -> Answer<'_, ()> {
        Box::pin(async move {
            self.buffer.extend_from_slice(&bytes);
            self.flush(usize::try_from(PART_BYTES).unwrap_or(usize::MAX)).await.map_err(failed)
        })
    }

    fn finish<'a>(self: Box<Self>) -> Answer<'a, ()> {
        Box::pin(self.end())
    }
}

fn is_short(bytes: u64) -> bool {
    bytes <= SHORT_BYTES_MAX
}

fn failed(error: Error) -> ObjectsError {
    match error {
        Error::Request { location, what, is_retryable, source } => {
            ObjectsError { what: format!("{what} at {location}"), is_retryable, source }
        }
        error => {
            let (what, is_retryable) = ("use the store".to_owned(), error.is_retryable());
            ObjectsError { what, is_retryable, source: Cause::from(error) }
        }
    }
}

/// Stores name versions by an e-tag, by a version, or by both.
fn to_text(e_tag: Option<String>, version: Option<String>) -> Version {
    Version(format!("{}\n{}", e_tag.unwrap_or_default(), version.unwrap_or_default()))
}

fn from_text(Version(text): &Version) -> UpdateVersion {
    let (e_tag, version) = text.split_once('\n').unwrap_or((text, ""));
    let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    UpdateVersion { e_tag: some(e_tag), version: some(version) }
}
