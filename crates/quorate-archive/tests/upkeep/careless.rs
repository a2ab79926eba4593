//! A store that is unfit for an archive.

use std::ops::Range;

use bytes::Bytes;
use quorate_archive::Objects;
use quorate_archive::objects::{Answer, Folders, Listed, Memory, Object, Upload, Version};

/// A store that creates and replaces whatever the condition.
#[derive(Debug)]
pub struct Careless(pub Memory);

impl Objects for Careless {
    fn create<'a>(&'a self, key: &'a str, bytes: Bytes, time: Option<i64>) -> Answer<'a, Option<Version>> {
        Box::pin(async move {
            self.0.delete(key).await?;
            self.0.create(key, bytes, time).await
        })
    }

    fn replace<'a>(&'a self, key: &'a str, bytes: Bytes, _: &'a Version) -> Answer<'a, Option<Version>> {
        self.create(key, bytes, None)
    }

    fn upload<'a>(&'a self, key: &'a str, time: Option<i64>) -> Answer<'a, Box<dyn Upload>> {
        self.0.upload(key, time)
    }

    fn read<'a>(&'a self, key: &'a str, range: Option<Range<u64>>) -> Answer<'a, Option<Object>> {
        self.0.read(key, range)
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Answer<'a, Vec<Listed>> {
        self.0.list(prefix)
    }

    fn list_folders<'a>(&'a self, prefix: &'a str) -> Answer<'a, Vec<String>> {
        self.0.list_folders(prefix)
    }

    fn delete<'a>(&'a self, key: &'a str) -> Answer<'a, ()> {
        self.0.delete(key)
    }

    fn litestream_folders(&self) -> Folders {
        self.0.litestream_folders()
    }
}
