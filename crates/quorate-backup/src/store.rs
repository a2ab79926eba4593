//! Object stores: a place named by a URL, and the operations on the objects there.
//!
//! # Invariants
//!
//! - An object appears under its name when it is complete, and never changes.
//! - No operation waits for longer than [`OPERATION_MAX`], with all retries.
//! - Objects pass in parts: an upload holds one part in memory, a download one chunk.

use std::fmt;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt as _, PutMode, PutMultipartOptions, PutOptions};
use quorate_env::{Cause, timeout};

use crate::error::Error;

mod answer;
mod build;
mod credentials;
mod location;
mod objects;
mod sealed;
mod upload;

pub use location::Location;
pub use sealed::Sealed;
pub use upload::Upload;

/// The usual size of a part of an upload. Stores want parts of at least 5 MiB.
pub const PART_BYTES: u64 = 16 << 20;
/// The maximum number of parts of an upload. Stores allow 10 000.
pub const PARTS_MAX: u64 = 9_500;
/// The largest object that is uploaded in parts of [`PART_BYTES`]; a larger one has larger parts.
pub const OBJECT_BYTES_USUAL: u64 = PART_BYTES * PARTS_MAX;
/// How much of an object one request downloads.
const CHUNK_BYTES: u64 = 8 << 20;
/// The maximum number of objects at one location.
pub const OBJECTS_MAX: usize = 100_000;
/// How long one request may take.
const REQUEST_MAX: Duration = Duration::from_secs(120);
/// How long one request of an archive with a short body may take, and the number of its retries. One that fails is soon
/// told of, and the archiver tries again.
const SHORT_REQUEST_MAX: Duration = Duration::from_secs(20);
const SHORT_RETRIES_MAX: usize = 2;
/// The longest body that counts as short.
const SHORT_BYTES_MAX: u64 = 8 << 20;
/// How long a connection may take to be made.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// The number of retries of a request that failed in a way that may pass.
const RETRIES_MAX: usize = 6;
/// No retry begins later than this after the first attempt.
const RETRY_MAX: Duration = Duration::from_secs(60);
/// How long an operation may take, which is one request with its retries, or the listing of a location.
pub const OPERATION_MAX: Duration = Duration::from_secs(300);

/// A place in an object store. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    inner: Arc<dyn ObjectStore>,
    /// The same, for requests with short bodies.
    short: Arc<dyn ObjectStore>,
    prefix: Path,
    location: Arc<Location>,
    /// The number of the directory in its file system, if the location is one.
    inode: Option<u64>,
}

/// An object at a location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its name below the location.
    pub name: String,
    /// Its size in bytes.
    pub bytes: u64,
}

impl Store {
    /// Opens a store; no request is sent yet. Credentials come from the file `credentials`, if one is given, or else
    /// from the environment or the role of the machine, as `docs/backups.md` describes. The directory of a location
    /// that is one must exist.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Open`] if the configuration is incomplete, and [`Error::Disk`] if a file can't be read.
    pub fn open(location: &Location, credentials: Option<&FilePath>) -> Result<Self, Error> {
        Self::open_with(location, &credentials.map(credentials::read).transpose()?.unwrap_or_default())
    }

    /// Opens a store with these credentials: names, in small letters, and values as in a file of credentials.
    ///
    /// # Errors
    ///
    /// See [`Store::open`].
    pub fn open_with(location: &Location, credentials: &[(String, String)]) -> Result<Self, Error> {
        let (inner, prefix) = build::build(location, credentials, (REQUEST_MAX, RETRIES_MAX))?;
        let (short, _) = build::build(location, credentials, (SHORT_REQUEST_MAX, SHORT_RETRIES_MAX))?;
        let inode = build::inode(location).map_err(Error::disk(&location.dir))?;
        Ok(Self { inner, short, prefix, location: Arc::new(location.clone()), inode })
    }

    /// Returns a place below this one; `name` is of letters, digits, and `.`, `_`, `-`, `=` and `/`. Messages name the
    /// location of this one.
    #[must_use]
    pub fn below(&self, name: &str) -> Self {
        Self { prefix: self.path(name), ..self.clone() }
    }

    /// Returns the location.
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// Creates an object, or replaces it.
    ///
    /// # Errors
    ///
    /// Like all operations, returns [`Error::Request`] if the store refuses or can't be reached.
    pub async fn put(&self, name: &str, bytes: Bytes) -> Result<(), Error> {
        self.bounded(|| format!("write '{name}'"), self.inner.put(&self.path(name), bytes.into())).await.map(drop)
    }

    /// Creates an object, and returns `true`; if the name exists, returns `false` and changes nothing.
    ///
    /// # Errors
    ///
    /// Also fails if the store can't do this.
    pub async fn put_new(&self, name: &str, bytes: Bytes) -> Result<bool, Error> {
        let (path, options) = (self.path(name), PutOptions::from(PutMode::Create));
        let put = async {
            match self.inner.put_opts(&path, bytes.into(), options).await {
                Ok(_) => Ok(true),
                Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => Ok(false),
                Err(error) => Err(error),
            }
        };
        self.bounded(|| format!("create '{name}'"), put).await
    }

    /// Begins an object that is uploaded in parts.
    ///
    /// # Errors
    ///
    /// See [`Store::put`].
    pub async fn upload(&self, name: &str) -> Result<Upload, Error> {
        self.upload_with(name, PutMultipartOptions::default()).await
    }

    async fn upload_with(&self, name: &str, options: PutMultipartOptions) -> Result<Upload, Error> {
        let path = self.path(name);
        let begun = self.bounded(|| format!("begin '{name}'"), self.inner.put_multipart_opts(&path, options)).await?;
        Ok(Upload::new(self.clone(), name, begun))
    }

    /// Begins to download an object.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Missing`] if there is no such object.
    pub async fn download(&self, name: &str) -> Result<Download, Error> {
        let path = self.path(name);
        let find = async {
            match self.inner.head(&path).await {
                Err(object_store::Error::NotFound { .. }) => Ok(None),
                found => found.map(Some),
            }
        };
        let missing = || Error::Missing { location: self.location.to_string(), name: name.to_owned() };
        let found = self.bounded(|| format!("find '{name}'"), find).await?.ok_or_else(missing)?;
        Ok(Download { store: self.clone(), name: name.to_owned(), tag: found.e_tag, at: 0, bytes: found.size })
    }

    /// Returns the objects at the location, sorted by name; not those deeper below it.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooMany`] if there are more than [`OBJECTS_MAX`].
    pub async fn list(&self) -> Result<Vec<Object>, Error> {
        let prefix = Some(&self.prefix).filter(|prefix| !prefix.as_ref().is_empty());
        let found = self.bounded(|| "list the objects".to_owned(), self.inner.list_with_delimiter(prefix)).await?;
        if found.objects.len() > OBJECTS_MAX {
            return Err(Error::TooMany { location: self.location.to_string(), max: OBJECTS_MAX });
        }
        let object = |found: object_store::ObjectMeta| {
            found.location.filename().map(|name| Object { name: name.to_owned(), bytes: found.size })
        };
        let mut objects: Vec<Object> = found.objects.into_iter().filter_map(object).collect();
        objects.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(objects)
    }

    /// Deletes an object. A missing one is no error.
    ///
    /// # Errors
    ///
    /// See [`Store::put`].
    pub async fn delete(&self, name: &str) -> Result<(), Error> {
        let path = self.path(name);
        let delete = async {
            match self.inner.delete(&path).await {
                Err(object_store::Error::NotFound { .. }) => Ok(()),
                deleted => deleted,
            }
        };
        self.bounded(|| format!("delete '{name}'"), delete).await
    }

    /// Returns where an object is; `/` separates the parts of its name.
    fn path(&self, name: &str) -> Path {
        let parts = name.split('/').filter(|part| !part.is_empty());
        parts.fold(self.prefix.clone(), |path, part| path.join(part))
    }

    /// Checks that a directory is still the one that was opened: where its disk is not mounted any more, objects would
    /// land on another disk. The number of the disk does not count, because it may change with a mount.
    fn check_dir(&self) -> Result<(), Cause> {
        if self.inode.is_none() {
            return Ok(());
        }
        match build::inode(&self.location) {
            Ok(found) if found == self.inode => Ok(()),
            Ok(_) => Err("the directory was replaced by another one; see whether its disk is mounted".into()),
            Err(error) => Err(Cause::context("the directory is gone", error)),
        }
    }

    /// Runs an operation within [`OPERATION_MAX`].
    async fn bounded<T>(
        &self,
        what: impl FnOnce() -> String,
        operation: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, Error> {
        let location = self.location.to_string();
        if let Err(source) = self.check_dir() {
            return Err(Error::Request { location, what: what(), is_retryable: true, source });
        }
        match timeout(OPERATION_MAX, operation).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) => Err(Error::Request {
                location,
                what: what(),
                is_retryable: answer::is_retryable(&error),
                source: Cause::context(answer::text(&error), error),
            }),
            Err(_) => {
                let source = format!("no answer within {} s", OPERATION_MAX.as_secs()).into();
                Err(Error::Request { location, what: what(), is_retryable: true, source })
            }
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What `object_store` prints is not ours to vouch for: it holds the credentials.
        f.debug_tuple("Store").field(&self.location).finish()
    }
}

/// An object that is being downloaded.
#[derive(Debug)]
pub struct Download {
    store: Store,
    name: String,
    /// The version of the object: all chunks are of the same one.
    tag: Option<String>,
    at: u64,
    bytes: u64,
}

impl Download {
    /// Returns the size of the object in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the next piece; `None` at the end.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Missing`] if the object was deleted meanwhile. It may also have been replaced.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        if self.at >= self.bytes {
            return Ok(None);
        }
        let end = self.at.saturating_add(CHUNK_BYTES).min(self.bytes);
        let (path, range) = (self.store.path(&self.name), GetRange::Bounded(self.at..end));
        let options = GetOptions { range: Some(range), if_match: self.tag.clone(), ..GetOptions::default() };
        let get = async {
            match self.store.inner.get_opts(&path, options).await {
                Err(object_store::Error::NotFound { .. }) => Ok(None),
                got => got?.bytes().await.map(Some),
            }
        };
        let piece = self.store.bounded(|| format!("read '{}'", self.name), get).await?;
        let missing = || Error::Missing { location: self.store.location.to_string(), name: self.name.clone() };
        let piece = piece.ok_or_else(missing)?;
        if piece.len() as u64 != end - self.at {
            let source = format!("{} bytes came in place of {}", piece.len(), end - self.at).into();
            let (location, what) = (self.store.location.to_string(), format!("read '{}'", self.name));
            return Err(Error::Request { location, what, is_retryable: true, source });
        }
        self.at = end;
        Ok(Some(piece))
    }
}
