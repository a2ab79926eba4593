//! Restores what Litestream 0.3 has stored: snapshots of the main file, and the `-wal` piece by piece.
//!
//! A generation is an unbroken history. In it the `-wal` was begun anew from time to time; each such `-wal` has an
//! index, and a snapshot has the index of the `-wal` that continues it. All objects are frames of LZ4.
//!
//! Invariants:
//! - Only frames of the `-wal` that are committed, and whose checksums follow from all frames before, are applied.
//! - Each piece follows right after the one before, or there is an error that names the object.
//! - Memory is bounded by 12 bytes for each page in one `-wal`, whatever the length of the objects.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Read};
use std::sync::Arc;

use lz4_flex::frame::FrameDecoder;
use quorate_archive::objects::Listed;
use quorate_archive::restore::Target;
use quorate_archive::{ArchiveError, Objects};
use quorate_env::Env;
use quorate_env::disk::{File, OpenMode};

use crate::error::ReplicateError;
use crate::restore::Part;
use crate::spool::{Fetched, Spool, beside};
use crate::wal::{self, Header, Position};

/// What the keys of all objects begin with.
const PREFIX: &str = "generations/";
/// The digits of an index or an offset.
const DIGITS: usize = 8;
/// The bytes that are decompressed at once.
const DECODE_BYTES: usize = 1 << 20;

/// A generation, as far as the target admits its objects.
#[derive(Default)]
struct Generation {
    /// By their index.
    snapshots: BTreeMap<u32, Listed>,
    /// By their index and their offset.
    pieces: BTreeMap<(u32, u64), Listed>,
    /// When its newest object was stored.
    newest: Option<i64>,
}

/// What has been restored: the index of the last `-wal`, and the time of the last object.
pub struct Last {
    pub index: u32,
    pub time: i64,
}

/// Restores the state of a target to a file. Returns `None` if nothing of Litestream 0.3 is stored here.
pub async fn restore(
    env: &Env,
    objects: &Arc<dyn Objects>,
    target: Target,
    part: &Part,
) -> Result<Option<Last>, ReplicateError> {
    let listed = objects.list(PREFIX).await.map_err(ArchiveError::from)?;
    if listed.is_empty() {
        return Ok(None);
    }
    let generation = choose(listed, target)?;
    let missing = || ArchiveError::Missing("Litestream 0.3 has stored no snapshot as old as that".to_owned());
    let (first, snapshot) = generation.snapshots.last_key_value().ok_or_else(missing)?;
    let mut spool = Spool::create(env, beside(part.path(), "-fetched"))?;
    // SQLite must not take it for the -wal of the file.
    let unpacked = Spool::create(env, beside(part.path(), "-pieces"))?;
    let database = env.disk().open(part.path(), OpenMode::Create).map_err(failed)?;
    database.set_len(0).map_err(failed)?;
    unpack(env, objects, &mut spool, &snapshot.key, (Arc::clone(&database), 0)).await?;
    let mut last = Last { index: *first, time: snapshot.time.unwrap_or(0) };
    let mut wal = Wal::begin(unpacked.file(), *first);
    for ((index, offset), piece) in generation.pieces.range((*first, 0)..) {
        if *index != wal.index {
            wal = wal.apply(env, &database).await?;
        }
        if (*index, *offset) != (wal.index, wal.length) {
            return Err(gap(&piece.key, wal.index, wal.length).into());
        }
        let end = unpack(env, objects, &mut spool, &piece.key, (unpacked.file(), *offset)).await?;
        wal = wal.read_on(env, &piece.key, end).await?;
        last = Last { index: *index, time: piece.time.unwrap_or(last.time) };
    }
    wal.apply(env, &database).await?;
    Ok(Some(last))
}

fn gap(key: &str, index: u32, offset: u64) -> ArchiveError {
    ArchiveError::Missing(format!(
        "the object '{index:08x}_{offset:08x}.wal.lz4' is missing before '{key}'; --at with an earlier time restores \
         what was stored before it"
    ))
}

/// Returns the generation that was written last, among the objects that the target admits.
fn choose(listed: Vec<Listed>, target: Target) -> Result<Generation, ArchiveError> {
    let is_wanted = |listed: &Listed| match target {
        Target::Latest => true,
        Target::Time(time) => listed.time.is_some_and(|stored| stored <= time),
        Target::Entry(_) => false,
    };
    if let Target::Entry(_) = target {
        return Err(ArchiveError::Missing("what Litestream 0.3 has stored has no numbers: name a time".to_owned()));
    }
    let mut generations = BTreeMap::<String, Generation>::new();
    for listed in listed.into_iter().filter(is_wanted) {
        let Some((name, item)) = parse(&listed.key) else { continue };
        let generation = generations.entry(name.to_owned()).or_default();
        generation.newest = generation.newest.max(listed.time);
        match item {
            Item::Snapshot(index) => drop(generation.snapshots.insert(index, listed)),
            Item::Piece(index, offset) => drop(generation.pieces.insert((index, offset), listed)),
        }
    }
    let restorable = generations.into_values().filter(|generation| !generation.snapshots.is_empty());
    Ok(restorable.max_by_key(|generation| generation.newest).unwrap_or_default())
}

/// What an object is.
#[derive(Debug, PartialEq, Eq)]
enum Item {
    Snapshot(u32),
    Piece(u32, u64),
}

/// Returns the generation of an object, and what it is.
fn parse(key: &str) -> Option<(&str, Item)> {
    let (generation, rest) = key.strip_prefix(PREFIX)?.split_once('/')?;
    let number = |text: &str| (text.len() == DIGITS).then(|| u32::from_str_radix(text, 16).ok()).flatten();
    if let Some(name) = rest.strip_prefix("snapshots/") {
        return Some((generation, Item::Snapshot(number(name.strip_suffix(".snapshot.lz4")?)?)));
    }
    let (index, offset) = rest.strip_prefix("wal/")?.strip_suffix(".wal.lz4")?.split_once('_')?;
    Some((generation, Item::Piece(number(index)?, number(offset)?.into())))
}

/// Fetches an object and decompresses it into a file, from an offset on. Returns where it ends.
async fn unpack(
    env: &Env,
    objects: &Arc<dyn Objects>,
    spool: &mut Spool,
    key: &str,
    (file, offset): (Arc<dyn File>, u64),
) -> Result<u64, ReplicateError> {
    let gone = || ArchiveError::Missing(format!("the object '{key}' is gone"));
    let fetched = spool.fetch(&**objects, key).await?.ok_or_else(gone)?;
    let key = key.to_owned();
    let unpacked = env.blocking(move || decode(&key, fetched, &*file, offset)).await;
    unpacked.ok_or(ReplicateError::Closed)?
}

fn decode(key: &str, fetched: Fetched, file: &dyn File, offset: u64) -> Result<u64, ReplicateError> {
    let damaged = |error: io::Error| ArchiveError::Damaged { key: key.to_owned(), what: error.to_string() };
    let mut decoder = FrameDecoder::new(BufReader::new(Uncut(fetched)));
    let mut buffer = vec![0; DECODE_BYTES];
    let mut at = offset;
    loop {
        let length = decoder.read(&mut buffer).map_err(damaged)?;
        if length == 0 {
            break;
        }
        file.write_at(buffer.get(..length).unwrap_or_default(), at).map_err(failed)?;
        at = at.saturating_add(length as u64);
    }
    let rest = decoder.into_inner();
    if !rest.buffer().is_empty() || !rest.get_ref().0.is_read() {
        return Err(damaged(io::Error::other("something follows its end")).into());
    }
    Ok(at)
}

/// An object that is never read beyond its end, unless it was cut off: the decoder would take that for the end of the
/// frame.
struct Uncut(Fetched);

impl Read for Uncut {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self.0.read(out)? {
            0 if !out.is_empty() => Err(io::Error::new(io::ErrorKind::InvalidData, "it is cut off")),
            read => Ok(read),
        }
    }
}

/// One `-wal`, as far as its pieces were fetched.
struct Wal {
    file: Arc<dyn File>,
    index: u32,
    length: u64,
    position: Option<Position>,
    /// The frame with the last content of each page, as of the last commit, and the pages of the database then.
    committed: BTreeMap<u32, u32>,
    pages: u32,
    /// The pages after the last commit, with their frames.
    pending: Vec<(u32, u32)>,
}

impl Wal {
    fn begin(file: Arc<dyn File>, index: u32) -> Self {
        let (committed, pending) = (BTreeMap::new(), Vec::new());
        Self { file, index, length: 0, position: None, committed, pages: 0, pending }
    }

    /// Verifies a piece that was appended, and ends at `end`.
    async fn read_on(mut self, env: &Env, key: &str, end: u64) -> Result<Self, ReplicateError> {
        let key = key.to_owned();
        let work = move || {
            let damaged = |error: io::Error| ArchiveError::Damaged { key, what: error.to_string() };
            self.verify(end).map_err(damaged)?;
            Ok(self)
        };
        env.blocking(work).await.ok_or(ReplicateError::Closed)?
    }

    fn verify(&mut self, end: u64) -> io::Result<()> {
        let cut = || io::Error::new(io::ErrorKind::InvalidData, "it ends in the middle of a frame of the -wal");
        let mut position = match self.position.take() {
            Some(position) => position,
            None => Position::start(Header::read(&*self.file)?.ok_or_else(cut)?)?,
        };
        let last = wal::frames(end, position.header().page_size()).ok_or_else(cut)?;
        let Self { committed, pages, pending, .. } = self;
        position.read_on(&*self.file, last, |frame| {
            pending.push((frame.page, frame.number));
            if frame.commit > 0 {
                committed.extend(pending.drain(..));
                *pages = frame.commit;
            }
        })?;
        (self.position, self.length) = (Some(position), end);
        Ok(())
    }

    /// Copies the committed pages into the database, as a checkpoint does. Returns the next `-wal`, which is empty.
    async fn apply(self, env: &Env, database: &Arc<dyn File>) -> Result<Self, ReplicateError> {
        let database = Arc::clone(database);
        let work = move || {
            self.copy_pages(&*database).map_err(failed)?;
            Ok(Self::begin(self.file, self.index.saturating_add(1)))
        };
        env.blocking(work).await.ok_or(ReplicateError::Closed)?
    }

    fn copy_pages(&self, database: &dyn File) -> io::Result<()> {
        let Some(position) = self.position.as_ref().filter(|_| self.pages > 0) else { return Ok(()) };
        let page_size = position.header().page_size();
        let mut page = vec![0; page_size as usize];
        for (number, frame) in self.committed.range(..=self.pages) {
            wal::read_page(&*self.file, *frame, &mut page)?;
            let at = u64::from(number.saturating_sub(1)).saturating_mul(page_size.into());
            database.write_at(&page, at)?;
        }
        database.set_len(u64::from(self.pages).saturating_mul(page_size.into()))
    }
}

fn failed(source: io::Error) -> ReplicateError {
    ReplicateError::io("write the restored database")(source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_known_by_their_keys() {
        let parsed = parse("generations/bd01c370146e0c22/wal/00000001_000f0688.wal.lz4");
        assert_eq!(parsed, Some(("bd01c370146e0c22", Item::Piece(1, 0xf_0688))));
        let parsed = parse("generations/bd01c370146e0c22/snapshots/0000000a.snapshot.lz4");
        assert_eq!(parsed, Some(("bd01c370146e0c22", Item::Snapshot(10))));
        for other in ["generations/a/wal/1_2.wal.lz4", "generations/a/wal/00000001.wal.lz4", "ltx/0/a", "generations/a"]
        {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
