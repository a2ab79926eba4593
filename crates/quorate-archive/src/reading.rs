//! Reads LTX files out of a store, piece by piece, with the next pieces on their way.
//!
//! Invariant: memory is bounded by [`AHEAD`] pieces of each file that is being read, its index, and a page.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use quorate_env::{Env, JoinHandle};

use crate::error::ArchiveError;
use crate::ltx::{Feed, Reader};
use crate::objects::{Object, Objects, ObjectsError};

/// The bytes of a piece.
const PIECE_BYTES: u64 = 4 << 20;

/// How many pieces of a file are asked for before they are needed.
const AHEAD: usize = 4;

/// A file that is being read.
pub(crate) struct Reading {
    env: Env,
    objects: Arc<dyn Objects>,
    key: String,
    feed: Feed,
    /// The offset of the next piece that is to be asked for, once the length is known.
    next: u64,
    /// How many bytes have arrived.
    arrived: u64,
    length: Option<u64>,
    coming: VecDeque<Coming>,
}

/// A piece that was asked for.
struct Coming {
    range: Range<u64>,
    task: JoinHandle<Result<Option<Object>, ObjectsError>>,
}

impl Reading {
    /// Opens a file and reads its header. `length` is that of the object, where it is known.
    pub async fn open(
        env: &Env,
        objects: &Arc<dyn Objects>,
        key: &str,
        length: Option<u64>,
    ) -> Result<(Self, Reader<Feed>), ArchiveError> {
        let feed = Feed::default();
        let mut reading = Self {
            env: env.clone(),
            objects: Arc::clone(objects),
            key: key.to_owned(),
            feed: feed.clone(),
            next: 0,
            arrived: 0,
            length,
            coming: VecDeque::new(),
        };
        while !feed.has_header() {
            reading.arrive().await?;
        }
        let reader = Reader::new(feed).map_err(ArchiveError::ltx(key))?;
        Ok((reading, reader))
    }

    /// Returns what has arrived.
    pub fn feed(&self) -> &Feed {
        &self.feed
    }

    /// Returns how many bytes of the file have arrived.
    pub fn arrived(&self) -> u64 {
        self.arrived
    }

    /// Waits until the next page, or the end of the file, can be read.
    pub async fn has_page(&mut self) -> Result<(), ArchiveError> {
        while !self.feed.has_page() {
            self.arrive().await?;
        }
        Ok(())
    }

    /// Waits for the next piece.
    async fn arrive(&mut self) -> Result<(), ArchiveError> {
        self.ask();
        let Some(Coming { range, task }) = self.coming.pop_front() else {
            self.feed.end();
            return Ok(());
        };
        let object = task.await.map_err(|_| ArchiveError::Closed)??;
        let missing = || ArchiveError::Missing(format!("the object '{}' is gone", self.key));
        let object = object.ok_or_else(missing)?;
        let length = *self.length.get_or_insert(object.length);
        let expected = length.min(range.end).saturating_sub(range.start);
        if object.length != length || object.bytes.len() as u64 != expected {
            return Err(ArchiveError::damaged(&self.key, "its length is not the expected one"));
        }
        self.feed.push(&object.bytes);
        self.arrived = self.arrived.saturating_add(expected);
        if range.end >= length {
            self.feed.end();
        }
        Ok(())
    }

    /// Asks for more pieces: for one, while the length is not known.
    fn ask(&mut self) {
        let ahead = if self.length.is_some() { AHEAD } else { 1 };
        while self.coming.len() < ahead && self.length.is_none_or(|length| self.next < length) {
            let range = self.next..self.next.saturating_add(PIECE_BYTES);
            self.next = range.end;
            let (objects, key, asked) = (Arc::clone(&self.objects), self.key.clone(), range.clone());
            let task = self.env.spawn(async move { objects.read(&key, Some(asked)).await });
            self.coming.push_back(Coming { range, task });
        }
    }
}

/// Reads a whole object.
pub(crate) async fn whole(objects: &dyn Objects, key: &str) -> Result<Bytes, ArchiveError> {
    let object = objects.read(key, None).await?;
    object.map(|object| object.bytes).ok_or_else(|| ArchiveError::Missing(format!("the object '{key}' is gone")))
}
