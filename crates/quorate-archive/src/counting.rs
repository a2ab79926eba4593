//! A store that counts what is asked of it, because requests cost money.
//!
//! Invariant: every request is passed on as it is, and counted before, so that those that fail count too.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use quorate_env::metrics::Counter;

use crate::objects::{Answer, Folders, Listed, Object, Objects, Upload, Version};

/// Counts the requests to a store by their kind. Requests that the client of the store repeats by itself count once.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    /// To create an object.
    pub create: Counter,
    /// To replace the manifest.
    pub replace: Counter,
    /// To begin, continue and finish large objects.
    pub upload: Counter,
    /// To read.
    pub read: Counter,
    /// To list.
    pub list: Counter,
    /// To delete an object.
    pub delete: Counter,
    /// The bytes that were sent.
    pub sent_bytes: Counter,
}

impl Requests {
    /// Returns how many requests of each kind there were, with the names of the kinds.
    pub fn by_verb(&self) -> [(&'static str, u64); 6] {
        let Self { create, replace, upload, read, list, delete, .. } = self;
        [
            ("create", create.get()),
            ("replace", replace.get()),
            ("upload", upload.get()),
            ("read", read.get()),
            ("list", list.get()),
            ("delete", delete.get()),
        ]
    }

    fn sends(&self, verb: &Counter, bytes: &Bytes) {
        verb.inc();
        self.sent_bytes.add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    }
}

/// A store, with the counts of what is asked of it.
#[derive(Debug)]
pub struct Counting {
    objects: Arc<dyn Objects>,
    requests: Arc<Requests>,
}

impl Counting {
    /// Counts what is asked of a store.
    pub fn new(objects: Arc<dyn Objects>, requests: Arc<Requests>) -> Self {
        Self { objects, requests }
    }
}

impl Objects for Counting {
    fn create<'a>(&'a self, key: &'a str, bytes: Bytes, time: Option<i64>) -> Answer<'a, Option<Version>> {
        self.requests.sends(&self.requests.create, &bytes);
        self.objects.create(key, bytes, time)
    }

    fn replace<'a>(&'a self, key: &'a str, bytes: Bytes, version: &'a Version) -> Answer<'a, Option<Version>> {
        self.requests.sends(&self.requests.replace, &bytes);
        self.objects.replace(key, bytes, version)
    }

    fn upload<'a>(&'a self, key: &'a str, time: Option<i64>) -> Answer<'a, Box<dyn Upload>> {
        self.requests.upload.inc();
        Box::pin(async move {
            let upload = self.objects.upload(key, time).await?;
            Ok(Box::new(Counted { upload, requests: Arc::clone(&self.requests) }) as Box<dyn Upload>)
        })
    }

    fn read<'a>(&'a self, key: &'a str, range: Option<Range<u64>>) -> Answer<'a, Option<Object>> {
        self.requests.read.inc();
        self.objects.read(key, range)
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Answer<'a, Vec<Listed>> {
        self.requests.list.inc();
        self.objects.list(prefix)
    }

    fn list_folders<'a>(&'a self, prefix: &'a str) -> Answer<'a, Vec<String>> {
        self.requests.list.inc();
        self.objects.list_folders(prefix)
    }

    fn delete<'a>(&'a self, key: &'a str) -> Answer<'a, ()> {
        self.requests.delete.inc();
        self.objects.delete(key)
    }

    fn litestream_folders(&self) -> Folders {
        self.objects.litestream_folders()
    }
}

/// An upload, each piece of which is a request.
struct Counted {
    upload: Box<dyn Upload>,
    requests: Arc<Requests>,
}

impl Upload for Counted {
    fn write(&mut self, bytes: Bytes) -> Answer<'_, ()> {
        self.requests.sends(&self.requests.upload, &bytes);
        self.upload.write(bytes)
    }

    fn finish<'a>(self: Box<Self>) -> Answer<'a, ()> {
        self.requests.upload.inc();
        self.upload.finish()
    }
}
