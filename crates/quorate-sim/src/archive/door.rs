//! A node's way to the store of objects.
//!
//! Invariants:
//! - A request runs on the host of the store. It goes on if the node dies, is paused or no longer waits.
//! - A node whose data were changed from outside, or whose disk has a bad page, changes nothing in the store: it would
//!   archive what no check could tell from right data, as with images. It gives up what it has not stored yet.

use std::future::Future;
use std::ops::Range;

use bytes::Bytes;
use quorate::archive::Objects;
use quorate::archive::objects::{Answer, Folders, Listed, Memory, Object, ObjectsError, Upload, Version};
use quorate_env::Env;

use crate::history::History;

/// What a node has of the store.
#[derive(Clone)]
pub(super) struct Door {
    name: String,
    host: Env,
    store: Memory,
    history: History,
}

impl Door {
    pub fn new(name: &str, host: Env, store: Memory, history: History) -> Self {
        Self { name: name.to_owned(), host, store, history }
    }

    /// Runs a request on the host of the store.
    fn ask<'a, T, F>(&self, request: impl FnOnce(Memory) -> F) -> Answer<'a, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ObjectsError>> + Send + 'static,
    {
        let running = self.host.spawn(request(self.store.clone()));
        Box::pin(async move { running.await.unwrap_or_else(|_| Err(failed(true, "its host has ended"))) })
    }

    /// Runs a request that changes something.
    fn change<'a, T, F>(&self, request: impl FnOnce(Memory) -> F) -> Answer<'a, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ObjectsError>> + Send + 'static,
    {
        if self.history.is_tampered(&self.name) {
            return Box::pin(async { Err(failed(false, "the data of this node were changed from outside")) });
        }
        self.ask(request)
    }
}

fn failed(is_retryable: bool, why: &str) -> ObjectsError {
    ObjectsError { what: "ask the store".to_owned(), is_retryable, source: why.to_owned().into() }
}

impl std::fmt::Debug for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Door").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Objects for Door {
    fn create<'a>(&'a self, key: &'a str, bytes: Bytes, time: Option<i64>) -> Answer<'a, Option<Version>> {
        let key = key.to_owned();
        self.change(|store| async move { store.create(&key, bytes, time).await })
    }

    fn replace<'a>(&'a self, key: &'a str, bytes: Bytes, version: &'a Version) -> Answer<'a, Option<Version>> {
        let (key, version) = (key.to_owned(), version.clone());
        self.change(|store| async move { store.replace(&key, bytes, &version).await })
    }

    fn upload<'a>(&'a self, key: &'a str, time: Option<i64>) -> Answer<'a, Box<dyn Upload>> {
        let (key, door) = (key.to_owned(), self.clone());
        self.change(|store| async move {
            let upload = Some(store.upload(&key, time).await?);
            Ok(Box::new(Uploading { door, upload }) as Box<dyn Upload>)
        })
    }

    fn read<'a>(&'a self, key: &'a str, range: Option<Range<u64>>) -> Answer<'a, Option<Object>> {
        let key = key.to_owned();
        self.ask(|store| async move { store.read(&key, range).await })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Answer<'a, Vec<Listed>> {
        let prefix = prefix.to_owned();
        self.ask(|store| async move { store.list(&prefix).await })
    }

    fn list_folders<'a>(&'a self, prefix: &'a str) -> Answer<'a, Vec<String>> {
        let prefix = prefix.to_owned();
        self.ask(|store| async move { store.list_folders(&prefix).await })
    }

    fn delete<'a>(&'a self, key: &'a str) -> Answer<'a, ()> {
        let key = key.to_owned();
        self.change(|store| async move { store.delete(&key).await })
    }

    fn litestream_folders(&self) -> Folders {
        self.store.litestream_folders()
    }
}

/// An object that a node writes in pieces.
struct Uploading {
    door: Door,
    /// The upload at the store, while no request is under way.
    upload: Option<Box<dyn Upload>>,
}

impl Upload for Uploading {
    fn write(&mut self, bytes: Bytes) -> Answer<'_, ()> {
        let Some(mut upload) = self.upload.take() else { return lost() };
        let written = self.door.change(|_| async move { upload.write(bytes).await.map(|()| upload) });
        Box::pin(async move {
            self.upload = Some(written.await?);
            Ok(())
        })
    }

    fn finish<'a>(self: Box<Self>) -> Answer<'a, ()> {
        let Some(upload) = self.upload else { return lost() };
        self.door.change(|_| upload.finish())
    }
}

/// The answer to an upload of which a piece was not answered.
fn lost<'a>() -> Answer<'a, ()> {
    Box::pin(async { Err(failed(true, "a piece of the object was not answered")) })
}
