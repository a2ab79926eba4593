//! Reads LTX files out of a store, piece by piece, with the next pieces on their way.
//!
//! Invariants:
//! - Memory is bounded by [`AHEAD`] pieces of each file that is being read, its index, and a page.
//! - A reader bears an outage of the store within its bound, and continues where it was.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quorate_env::{Env, Instant, JoinHandle, sleep};

use crate::error::ArchiveError;
use crate::ltx::{Fault, Feed, Reader, Stand};
use crate::objects::{Object, Objects, ObjectsError};

/// The bytes of a piece.
const PIECE_BYTES: u64 = 4 << 20;

/// How many pieces of a file are asked for before they are needed.
const AHEAD: usize = 4;

/// The pauses between the attempts of a patient reader: the first, and the longest.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_LONGEST: Duration = Duration::from_secs(30);

/// Reads an object or a range of it; returns `None` if there is no such object. A request that fails is tried again, if
/// that may help, until the store has not answered for `outage_max`.
async fn read(
    objects: &dyn Objects,
    key: &str,
    range: Option<Range<u64>>,
    outage_max: Duration,
) -> Result<Option<Object>, ObjectsError> {
    let (begun, mut pause) = (Instant::now(), PAUSE_FIRST);
    loop {
        match objects.read(key, range.clone()).await {
            Err(error) if error.is_retryable && begun.elapsed() < outage_max => {
                tracing::warn!(event = "restore_waits", %error, "the store does not answer; the restore waits");
                sleep(pause).await;
                pause = PAUSE_LONGEST.min(pause.saturating_mul(2));
            }
            done => return done,
        }
    }
}

/// A file that is being read.
pub(crate) struct Reading {
    env: Env,
    objects: Arc<dyn Objects>,
    outage_max: Duration,
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
        outage_max: Duration,
        (key, length): (&str, Option<u64>),
    ) -> Result<(Self, Reader<Feed>), ArchiveError> {
        let feed = Feed::default();
        let mut reading = Self {
            env: env.clone(),
            objects: Arc::clone(objects),
            outage_max,
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

    /// Opens a file again, and goes on where a reader was.
    pub fn resume(
        env: &Env,
        objects: &Arc<dyn Objects>,
        outage_max: Duration,
        (key, length): (&str, u64),
        stand: &Stand,
    ) -> Result<(Self, Reader<Feed>), ArchiveError> {
        let feed = Feed::default();
        let damaged = |fault: Fault| ArchiveError::damaged(key, fault.to_string());
        let (reader, offset) = Reader::resume(feed.clone(), stand).map_err(damaged)?;
        let reading = Self {
            env: env.clone(),
            objects: Arc::clone(objects),
            outage_max,
            key: key.to_owned(),
            feed,
            next: offset,
            arrived: offset,
            length: Some(length),
            coming: VecDeque::new(),
        };
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
            let outage_max = self.outage_max;
            let task = self.env.spawn(async move { read(&*objects, &key, Some(asked), outage_max).await });
            self.coming.push_back(Coming { range, task });
        }
    }
}

/// Reads a whole object.
pub(crate) async fn whole(objects: &dyn Objects, key: &str, outage_max: Duration) -> Result<Bytes, ArchiveError> {
    let object = read(objects, key, None, outage_max).await?;
    object.map(|object| object.bytes).ok_or_else(|| ArchiveError::Missing(format!("the object '{key}' is gone")))
}
