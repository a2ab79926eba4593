//! A store that counts what is asked of it, because requests cost money.
//!
//! Invariant: every request is passed on as it is, and counted before, so that those that fail count too.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use quorate_archive::Objects;
use quorate_archive::objects::{Answer, Folders, Listed, Object, Upload, Version};
use quorate_env::metrics::Counter;

use super::ArchiveState;
use crate::archive::metrics::ArchiveMetrics;

/// The store of an archiver, with the counts in its state.
#[derive(Debug)]
pub(super) struct Counting {
    objects: Arc<dyn Objects>,
    state: Arc<ArchiveState>,
}

impl Counting {
    pub(super) fn new(objects: Arc<dyn Objects>, state: Arc<ArchiveState>) -> Self {
        Self { objects, state }
    }

    fn sends(&self, verb: fn(&ArchiveMetrics) -> &Counter, bytes: &Bytes) {
        sends(&self.state, verb, bytes);
    }

    fn asks(&self, verb: fn(&ArchiveMetrics) -> &Counter) {
        verb(&self.state.metrics).inc();
    }
}

fn sends(state: &ArchiveState, verb: fn(&ArchiveMetrics) -> &Counter, bytes: &Bytes) {
    verb(&state.metrics).inc();
    state.metrics.sent_bytes.add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
}

impl Objects for Counting {
    fn create<'a>(&'a self, key: &'a str, bytes: Bytes, time: Option<i64>) -> Answer<'a, Option<Version>> {
        self.sends(|metrics| &metrics.create, &bytes);
        self.objects.create(key, bytes, time)
    }

    fn replace<'a>(&'a self, key: &'a str, bytes: Bytes, version: &'a Version) -> Answer<'a, Option<Version>> {
        self.sends(|metrics| &metrics.replace, &bytes);
        self.objects.replace(key, bytes, version)
    }

    fn upload<'a>(&'a self, key: &'a str, time: Option<i64>) -> Answer<'a, Box<dyn Upload>> {
        self.asks(|metrics| &metrics.upload);
        Box::pin(async move {
            let upload = self.objects.upload(key, time).await?;
            Ok(Box::new(Counted { upload, state: Arc::clone(&self.state) }) as Box<dyn Upload>)
        })
    }

    fn read<'a>(&'a self, key: &'a str, range: Option<Range<u64>>) -> Answer<'a, Option<Object>> {
        self.asks(|metrics| &metrics.read);
        self.objects.read(key, range)
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Answer<'a, Vec<Listed>> {
        self.asks(|metrics| &metrics.list);
        self.objects.list(prefix)
    }

    fn list_folders<'a>(&'a self, prefix: &'a str) -> Answer<'a, Vec<String>> {
        self.asks(|metrics| &metrics.list);
        self.objects.list_folders(prefix)
    }

    fn delete<'a>(&'a self, key: &'a str) -> Answer<'a, ()> {
        self.asks(|metrics| &metrics.delete);
        self.objects.delete(key)
    }

    fn litestream_folders(&self) -> Folders {
        self.objects.litestream_folders()
    }
}

/// An upload, each piece of which is a request.
struct Counted {
    upload: Box<dyn Upload>,
    state: Arc<ArchiveState>,
}

impl Upload for Counted {
    fn write(&mut self, bytes: Bytes) -> Answer<'_, ()> {
        sends(&self.state, |metrics| &metrics.upload, &bytes);
        self.upload.write(bytes)
    }

    fn finish<'a>(self: Box<Self>) -> Answer<'a, ()> {
        self.state.metrics.upload.inc();
        self.upload.finish()
    }
}
