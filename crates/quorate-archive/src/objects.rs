//! Object storage, as an archive needs it.
//!
//! Invariants that each store has to keep:
//! - An object appears under its key when all of its bytes are there.
//! - Of several requests that create the same key, or replace the same version, exactly one succeeds. That is what
//!   keeps two archivers apart, so a store without such requests is unfit.
//! - What was stored is read by every later request, and listed.

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;

use bytes::Bytes;
use quorate_env::Cause;

mod memory;

pub use memory::{Memory, Trouble, Verb};

/// The answer of a store, which may take its time. A request that fails may have been carried out nevertheless.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, ObjectsError>> + Send + 'a>>;

/// The version of an object. A write of other bytes gives it another one; a write of the same bytes may not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version(pub String);

/// An object, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// The bytes that were asked for.
    pub bytes: Bytes,
    /// The length of the whole object.
    pub length: u64,
    /// The version that was read.
    pub version: Version,
}

/// An object in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its key.
    pub key: String,
    /// Its length in bytes.
    pub length: u64,
    /// When it was stored, in milliseconds since 1970, by the clock of the store; `None` if the store does not tell.
    pub time: Option<i64>,
}

/// Where stock Litestream looks for the levels of a replica in this kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Folders {
    /// `0009/`, as in S3.
    Flat,
    /// `ltx/9/`, as in a directory.
    Nested,
}

/// A place in an object store. Keys are relative to it, and have `/` between their parts.
///
/// Implementations bound the time of each request, with all of its retries.
pub trait Objects: fmt::Debug + Send + Sync {
    /// Creates an object and returns its version, or `None` if the key exists. `time` is that of an LTX file, in
    /// milliseconds since 1970, for stores in which stock Litestream looks for it beside the object.
    fn create<'a>(&'a self, key: &'a str, bytes: Bytes, time: Option<i64>) -> Answer<'a, Option<Version>>;

    /// Replaces an object of this version and returns the new one, or `None` if it has another version or is gone.
    fn replace<'a>(&'a self, key: &'a str, bytes: Bytes, version: &'a Version) -> Answer<'a, Option<Version>>;

    /// Begins an object that is longer than one request should be. It replaces one that exists, so its key must be one
    /// that nobody else uses.
    fn upload<'a>(&'a self, key: &'a str, time: Option<i64>) -> Answer<'a, Box<dyn Upload>>;

    /// Reads an object, or a range of its bytes; fewer bytes if the object ends before the range. Returns `None` if
    /// there is no such object.
    fn read<'a>(&'a self, key: &'a str, range: Option<Range<u64>>) -> Answer<'a, Option<Object>>;

    /// Lists the objects whose keys begin with `prefix`, which ends with `/`, at any depth, sorted by key.
    fn list<'a>(&'a self, prefix: &'a str) -> Answer<'a, Vec<Listed>>;

    /// Lists what follows `prefix`, which is empty or ends with `/`, in the keys up to the next `/`.
    fn list_folders<'a>(&'a self, prefix: &'a str) -> Answer<'a, Vec<String>>;

    /// Deletes an object. A missing one is no error.
    fn delete<'a>(&'a self, key: &'a str) -> Answer<'a, ()>;

    /// Returns where stock Litestream would look for files here.
    fn litestream_folders(&self) -> Folders;
}

/// An object that is written in pieces. One that is dropped before its end does not appear.
pub trait Upload: Send {
    /// Appends bytes.
    fn write(&mut self, bytes: Bytes) -> Answer<'_, ()>;

    /// Lets the object appear.
    fn finish<'a>(self: Box<Self>) -> Answer<'a, ()>;
}

/// A request that failed. It may have been carried out.
#[derive(Clone, Debug, thiserror::Error)]
#[error("can't {what}: {source}")]
pub struct ObjectsError {
    /// The request, such as "create 'name'".
    pub what: String,
    /// Whether the same request may succeed later without intervention.
    pub is_retryable: bool,
    /// The reason.
    pub source: Cause,
}
