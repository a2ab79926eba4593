//! Reading of entries: the newest from memory, older ones from their frames.

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use quorate_env::lock;
use quorate_model::{GroupId, LogId};

use crate::error::ReadError;
use crate::frame::{FRAME_HEADER, Frame, FrameHeader};
use crate::index::Place;
use crate::segment::Segment;
use crate::shared::Shared;

/// An entry that must be read from the disk.
#[derive(Debug)]
struct Cold {
    id: LogId,
    place: Place,
    segment: Arc<Segment>,
}

/// The body of the last frame read: a reader that catches up often continues in the same frame.
#[derive(Debug, Default)]
pub(crate) struct FrameCache(Mutex<Option<(u32, u32, Bytes)>>);

impl FrameCache {
    fn get(&self, ordinal: u32, frame: u32) -> Option<Bytes> {
        let cached = lock(&self.0);
        cached.as_ref().filter(|(o, f, _)| (*o, *f) == (ordinal, frame)).map(|(_, _, body)| body.clone())
    }

    fn put(&self, ordinal: u32, frame: u32, body: Bytes) {
        *lock(&self.0) = Some((ordinal, frame, body));
    }
}

/// The existing entries of `range` that fit in `max_bytes`, but at least the first.
pub(crate) fn entries(
    shared: &Shared,
    group: GroupId,
    range: Range<u64>,
    max_bytes: usize,
) -> Result<Vec<(LogId, Bytes)>, ReadError> {
    let cold = match warm_or_cold(shared, group, range, max_bytes)? {
        Found::Warm(entries) => return Ok(entries),
        Found::Cold(entries) => entries,
    };
    let mut frame: Option<(Place, Bytes)> = None;
    let mut entries = Vec::with_capacity(cold.len());
    for Cold { id, place, segment } in cold {
        let same = |at: &Place| (at.ordinal, at.frame) == (place.ordinal, place.frame);
        let body = match frame.take().filter(|(at, _)| same(at)) {
            Some((_, body)) => body,
            None => read_frame_cached(shared, &segment, place.frame)?,
        };
        let bytes = slice(&body, place).ok_or_else(|| damaged(&segment.path, place.frame))?;
        entries.push((id, bytes));
        frame = Some((place, body));
    }
    Ok(entries)
}

enum Found {
    Warm(Vec<(LogId, Bytes)>),
    Cold(Vec<Cold>),
}

fn warm_or_cold(shared: &Shared, group: GroupId, range: Range<u64>, max_bytes: usize) -> Result<Found, ReadError> {
    let state = shared.lock_working()?;
    let Some(known) = state.groups.get(&group) else { return Ok(Found::Warm(Vec::new())) };
    if let Some(floor) = known.state.floor
        && range.start <= floor.index
    {
        return Err(ReadError::Purged { group, floor });
    }
    let start = range.start.max(known.first());
    let mut room = Room { left: max_bytes, any: false };
    if start >= known.tail_start() {
        let ids = (start..range.end).map_while(|index| known.id_at(index));
        let entries = ids.zip(known.tail_from(start)).take_while(|(_, bytes)| room.admits(bytes.len()));
        return Ok(Found::Warm(entries.map(|(id, bytes)| (id, bytes.clone())).collect()));
    }
    let mut cold = Vec::new();
    for index in start..range.end.min(known.tail_start()) {
        let (Some(id), Some(place)) = (known.id_at(index), known.index.place(index)) else { break };
        let Some(live) = state.segments.get(&place.ordinal) else {
            return Err(damaged(&shared.dir, place.frame));
        };
        if !room.admits(usize::try_from(place.len).unwrap_or(usize::MAX)) {
            break;
        }
        cold.push(Cold { id, place, segment: Arc::clone(&live.segment) });
    }
    Ok(Found::Cold(cold))
}

/// The space left in a result. The first entry always fits.
struct Room {
    left: usize,
    any: bool,
}

impl Room {
    fn admits(&mut self, bytes: usize) -> bool {
        let fits = bytes <= self.left || !self.any;
        self.left = self.left.saturating_sub(bytes);
        self.any = true;
        fits
    }
}

/// Reads a frame and returns its verified, unpacked body.
pub(crate) fn read_frame(segment: &Segment, frame: u32) -> Result<Bytes, ReadError> {
    let read = |bytes: &mut [u8]| match segment.file.read_at(bytes, frame.into()) {
        Ok(len) if len == bytes.len() => Ok(()),
        Ok(_) => Err(damaged(&segment.path, frame)),
        Err(source) => Err(ReadError::Io { path: segment.path.clone(), source }),
    };
    let mut head = [0; FRAME_HEADER];
    read(&mut head)?;
    let header = FrameHeader::decode(&head)
        .filter(|header| header.epoch == segment.epoch && u64::from(frame) + header.len() as u64 <= segment.len)
        .ok_or_else(|| damaged(&segment.path, frame))?;
    let mut bytes = vec![0; header.len()];
    read(&mut bytes)?;
    Frame::verify(&bytes.into())
        .filter(|frame| frame.header == header)
        .and_then(|frame| frame.body())
        .ok_or_else(|| damaged(&segment.path, frame))
}

/// Like [`read_frame`], but keeps the body for the next read.
fn read_frame_cached(shared: &Shared, segment: &Segment, frame: u32) -> Result<Bytes, ReadError> {
    let ordinal = segment.epoch.ordinal;
    if let Some(body) = shared.cache.get(ordinal, frame) {
        return Ok(body);
    }
    let body = read_frame(segment, frame)?;
    shared.cache.put(ordinal, frame, body.clone());
    Ok(body)
}

pub(crate) fn slice(body: &Bytes, place: Place) -> Option<Bytes> {
    let at = usize::try_from(place.at).ok()?;
    let end = at.checked_add(usize::try_from(place.len).ok()?)?;
    (end <= body.len()).then(|| body.slice(at..end))
}

pub(crate) fn damaged(path: &Path, frame: u32) -> ReadError {
    ReadError::Damaged { path: path.to_path_buf(), offset: frame.into() }
}
