//! Merges files in the store, piece by piece.
//!
//! Invariant: memory is bounded by what [`Reading`] holds of each input, and a piece of the merged file.

use std::time::Duration;

use bytes::Bytes;

use super::build::Sink;
use super::{Archiver, Note};
use crate::error::ArchiveError;
use crate::ltx::{Feed, FileName, Header, Level, Merge, Txids, Writer};
use crate::manifest::File;
use crate::reading::Reading;

/// A merge that goes on as long as its inputs have arrived. Its methods block.
struct Merging {
    key: String,
    merge: Merge<Feed>,
    writer: Writer<Sink>,
    sink: Sink,
    feeds: Vec<Feed>,
}

/// Where a merge has stopped.
enum Merged {
    /// It needs more of this input.
    Wants(Box<Merging>, usize),
    /// It has a piece of the merged file.
    Piece(Box<Merging>, Bytes),
    /// It is at its end: the last piece, and the length of the file.
    Whole(Bytes, u64),
}

impl Archiver {
    /// Merges files that follow each other into one of this level.
    pub(super) async fn merge(&self, generation: u32, inputs: &[File], level: u8) -> Result<File, ArchiveError> {
        let manifest = self.keys.manifest();
        let invalid = || ArchiveError::damaged(&manifest, "it lists files that can't be");
        let (mut readings, mut readers) = (Vec::new(), Vec::new());
        for input in inputs {
            let (level, name) = input.name().ok_or_else(invalid)?;
            let key = self.keys.file(generation, level, name);
            let (reading, reader) =
                Reading::open(&self.env, &self.objects, Duration::ZERO, (&key, Some(input.length))).await?;
            readings.push(reading);
            readers.push(reader);
        }
        let (Some(first), Some(last)) = (inputs.first(), inputs.last()) else { return Err(invalid()) };
        let note = readers.first().and_then(|reader| Note::decode(&reader.header().note)).ok_or_else(invalid)?;
        let name = FileName(Txids::new(first.min, last.max).map_err(|_| invalid())?);
        let level = Level::new(level).ok_or_else(invalid)?;
        let key = self.keys.file(generation, level, name);
        let merge = Merge::new(readers).map_err(ArchiveError::ltx(&key))?;
        let note = Note { index: last.index, before: note.before };
        let header = Header { note: note.encode(), ..merge.header().clone() };
        let length = self.write_merge(&key, merge, readings, header).await?;
        Ok(File { level: level.number(), min: first.min, length, ..last.clone() })
    }

    /// Writes a merge as an object, and returns its length.
    async fn write_merge(
        &self,
        key: &str,
        merge: Merge<Feed>,
        mut readings: Vec<Reading>,
        header: Header,
    ) -> Result<u64, ArchiveError> {
        let mut upload = self.objects.upload(key, Some(header.timestamp)).await?;
        let sink = Sink::default();
        let writer = Writer::new(sink.clone(), header).map_err(ArchiveError::ltx(key))?;
        let feeds = readings.iter().map(|reading| reading.feed().clone()).collect();
        let mut work = Box::new(Merging { key: key.to_owned(), merge, writer, sink, feeds });
        let piece_bytes = self.sizes.piece;
        loop {
            match self.blocking(move || work.go_on(piece_bytes)).await?? {
                Merged::Wants(rest, input) => {
                    work = rest;
                    if let Some(reading) = readings.get_mut(input) {
                        reading.has_page().await?;
                    }
                }
                Merged::Piece(rest, bytes) => {
                    work = rest;
                    upload.write(bytes).await?;
                }
                Merged::Whole(bytes, length) => {
                    upload.write(bytes).await?;
                    upload.finish().await?;
                    return Ok(length);
                }
            }
        }
    }
}

impl Merging {
    fn go_on(mut self: Box<Self>, piece_bytes: usize) -> Result<Merged, ArchiveError> {
        while self.sink.length() < piece_bytes {
            if let Some(input) = self.merge.wanting() {
                if !self.feeds.get(input).is_some_and(Feed::has_page) {
                    return Ok(Merged::Wants(self, input));
                }
                self.merge.advance(input).map_err(ArchiveError::ltx(&self.key))?;
                continue;
            }
            let Some((number, page)) = self.merge.take_page().map_err(ArchiveError::ltx(&self.key))? else {
                return self.finish();
            };
            self.writer.write_page(number, page).map_err(ArchiveError::ltx(&self.key))?;
        }
        let bytes = self.sink.take();
        Ok(Merged::Piece(self, bytes))
    }

    fn finish(self: Box<Self>) -> Result<Merged, ArchiveError> {
        let Self { key, writer, sink, .. } = *self;
        let (_, summary) = writer.finish().map_err(ArchiveError::ltx(&key))?;
        Ok(Merged::Whole(sink.take(), summary.length))
    }
}
