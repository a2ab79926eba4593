//! Inspection: reads a log without opening it, for people who want to know what it holds.
//!
//! Inspection runs the code that opens logs up to the point where opening would begin to write. What it reports about a
//! torn or damaged log is therefore what an opening would decide.
//!
//! Invariants:
//! - Nothing is written, created, locked or removed.
//! - A log in use may be inspected. If it changed during the reading, [`Inspection::moved`] is set. Damage is reported
//!   only if the log did not change, or after `ATTEMPTS_MAX` attempts.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use quorate_env::disk::{Disk, OpenMode};
use quorate_model::{GroupId, LogId};

use crate::error::{OpenError, ReadError};
use crate::group::Group;
use crate::index::Place;
use crate::read::{damaged, read_frame, slice};
use crate::recovery::replay::Replay;
use crate::recovery::{self, Findings, survey};
use crate::segment::{Name, Segment};

/// The maximum number of attempts to read a log that keeps changing.
const ATTEMPTS_MAX: usize = 4;

/// The contents of a log.
#[derive(Debug)]
pub struct Inspection {
    /// The segments in use, oldest first; the last one is the active one.
    pub segments: Vec<SegmentInfo>,
    /// The number of spare files, which wait to become segments, and their total size in bytes.
    pub spares: (usize, u64),
    /// Files that were never used, or are no longer needed.
    pub useless: Vec<PathBuf>,
    /// The node's identity.
    pub identity: Option<Bytes>,
    /// The boot id of the machine under which the log was written; empty if it could not be read.
    pub boot: Bytes,
    /// The groups.
    pub groups: BTreeMap<GroupId, GroupInfo>,
    /// How the log ends.
    pub end: End,
    /// The number of frames that nothing later declares durable. An opening copies them.
    pub unproven_frames: usize,
    /// Whether the log was written to, or its set of files changed, while it was read.
    pub moved: bool,
    replay: Replay,
}

/// A segment.
#[derive(Clone, Debug)]
pub struct SegmentInfo {
    /// Its number in the log.
    pub ordinal: u32,
    /// Together with `ordinal`, distinguishes its frames from those of an earlier use of the file.
    pub nonce: u32,
    /// The file.
    pub path: PathBuf,
    /// The file's length.
    pub len: u64,
    /// The offset at which its last frame ends.
    pub used: u64,
    /// The sequence of its first frame. Frames in earlier segments with this or a higher sequence are ignored.
    pub first_sequence: u64,
    /// The highest sequence that its header declares durable.
    pub durable: u64,
    /// The number of its frames.
    pub frames: u64,
    /// Whether a later segment exists, so that this one is no longer written.
    pub is_sealed: bool,
    /// The first and the last index that each group has in it, not counting truncated or purged entries.
    pub entries: BTreeMap<GroupId, (u64, u64)>,
}

/// The contents of a log for one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupInfo {
    /// The last purged id.
    pub purged: Option<LogId>,
    /// The first entry, if there is one.
    pub first: Option<LogId>,
    /// The last id, purged or not.
    pub last: Option<LogId>,
    /// The last recorded committed id; may be out of date.
    pub committed: Option<LogId>,
    /// The last vote.
    pub vote: Option<Bytes>,
}

/// The way a log ends.
#[derive(Debug)]
#[non_exhaustive]
pub enum End {
    /// There is no log: the directory holds no segment in use.
    Empty,
    /// The log was closed cleanly.
    Closed,
    /// The log ends with whole frames but was not closed: the node is running, or its process ended without a clean
    /// close.
    Open,
    /// The log ends with an incomplete frame that nothing declares durable, so it was not acknowledged. An opening cuts
    /// it off.
    Torn {
        /// The segment.
        path: PathBuf,
        /// The offset at which the whole frames end.
        offset: u64,
    },
    /// The log is refused: acknowledged records are damaged or missing, a later version wrote it, or it can't be read.
    /// The inspection covers what comes before that point.
    Refused(OpenError),
}

/// An entry and its location.
#[derive(Clone, Debug)]
pub struct InspectedEntry {
    /// Its id.
    pub id: LogId,
    /// Its bytes.
    pub bytes: Bytes,
    /// The segment.
    pub ordinal: u32,
    /// The offset of its frame in the segment.
    pub offset: u64,
}

impl Inspection {
    /// Reads the log in `dir`.
    ///
    /// # Errors
    ///
    /// [`OpenError::Io`] if the directory does not exist or can't be read. Every other problem is reported in the
    /// result.
    pub fn read(disk: &dyn Disk, dir: &Path) -> Result<Self, OpenError> {
        let mut attempt = 1;
        loop {
            let read = Self::read_once(disk, dir);
            attempt += 1;
            match read {
                // A file was removed or renamed between the listing and its opening.
                Err(OpenError::Io { source, .. })
                    if source.kind() == io::ErrorKind::NotFound
                        && attempt <= ATTEMPTS_MAX
                        && disk.exists(dir).unwrap_or(false) => {}
                Ok(Self { end: End::Refused(_), moved: true, .. }) if attempt <= ATTEMPTS_MAX => {}
                read => return read,
            }
        }
    }

    fn read_once(disk: &dyn Disk, dir: &Path) -> Result<Self, OpenError> {
        let before = segment_names(disk, dir)?;
        let (findings, result) = survey(disk, dir, OpenMode::Read)?;
        let moved = recovery::has_grown(&findings) || before != segment_names(disk, dir)?;
        let Findings { mut replay, segments, cut, spares, useless, .. } = findings;
        let unproven_frames = replay.pending.len();
        let result = result.and(replay.finish_in_place(dir));
        let end = match (result, cut) {
            (Err(error), _) => End::Refused(error),
            _ if segments.is_empty() => End::Empty,
            (Ok(()), Some((path, offset))) => End::Torn { path, offset },
            (Ok(()), None) if replay.logged.closed => End::Closed,
            (Ok(()), None) => End::Open,
        };
        let newest = segments.last().map(|segment| segment.header.epoch.ordinal);
        let segments = segments.into_iter().map(|found| SegmentInfo {
            ordinal: found.header.epoch.ordinal,
            nonce: found.header.epoch.nonce,
            path: found.path,
            len: found.len,
            used: found.end,
            first_sequence: found.header.first_sequence,
            durable: found.header.durable,
            frames: found.frames,
            is_sealed: Some(found.header.epoch.ordinal) != newest,
            entries: BTreeMap::new(),
        });
        let mut inspection = Self {
            segments: segments.collect(),
            spares: (spares.len(), spares.iter().map(|spare| spare.len).sum()),
            useless,
            identity: replay.logged.identity.clone(),
            boot: replay.logged.boot.clone(),
            groups: replay.groups.iter().map(|(id, group)| (*id, GroupInfo::of(group))).collect(),
            end,
            unproven_frames,
            moved,
            replay,
        };
        inspection.locate_entries();
        Ok(inspection)
    }

    /// The existing entries of a group with indexes in `range`.
    pub fn entries(
        &self,
        group: GroupId,
        range: Range<u64>,
    ) -> impl Iterator<Item = Result<InspectedEntry, ReadError>> {
        let mut last: Option<(Place, Bytes)> = None;
        self.places(group, range).map(move |(id, place)| {
            let segment = self.segment(place.ordinal).ok_or_else(|| damaged(Path::new(""), place.frame))?;
            let same = |at: &Place| (at.ordinal, at.frame) == (place.ordinal, place.frame);
            let body = match last.take().filter(|(at, _)| same(at)) {
                Some((_, body)) => body,
                None => read_frame(segment, place.frame)?,
            };
            let bytes = slice(&body, place).ok_or_else(|| damaged(&segment.path, place.frame))?;
            last = Some((place, body));
            Ok(InspectedEntry { id, bytes, ordinal: place.ordinal, offset: place.frame.into() })
        })
    }

    fn segment(&self, ordinal: u32) -> Option<&Arc<Segment>> {
        self.replay.segments.get(&ordinal).map(|live| &live.segment)
    }

    fn places(&self, group: GroupId, range: Range<u64>) -> impl Iterator<Item = (LogId, Place)> {
        let group = self.replay.groups.get(&group);
        // Start at the index's base: in a damaged log the gap between the floor and the first entry can be too large to
        // iterate over.
        let first = group.map_or(u64::MAX, |group| group.first().max(group.index.base())).max(range.start);
        let next = group.map_or(0, |group| group.index.next()).min(range.end);
        let place = move |index| Some((group?.id_at(index)?, group?.index.place(index)?));
        (first..next).filter_map(place)
    }

    /// Fills in which entries each segment holds.
    fn locate_entries(&mut self) {
        let mut located: BTreeMap<u32, BTreeMap<GroupId, (u64, u64)>> = BTreeMap::new();
        for group in self.groups.keys() {
            for (id, place) in self.places(*group, 0..u64::MAX) {
                let range = located.entry(place.ordinal).or_default().entry(*group).or_insert((id.index, id.index));
                range.1 = id.index;
            }
        }
        for segment in &mut self.segments {
            segment.entries = located.remove(&segment.ordinal).unwrap_or_default();
        }
    }
}

/// The names of the segment files. Ordinals only increase, so a name is never reused for another segment.
fn segment_names(disk: &dyn Disk, dir: &Path) -> Result<Vec<String>, OpenError> {
    let items = disk.list(dir).map_err(OpenError::io("list", dir))?;
    let names = items.into_iter().map(|item| item.name);
    Ok(names.filter(|name| matches!(Name::parse(name), Name::Segment(_))).collect())
}

impl GroupInfo {
    fn of(group: &Group) -> Self {
        let state = &group.state;
        Self {
            purged: state.floor,
            first: group.id_at(group.first()),
            last: state.last,
            committed: state.committed,
            vote: state.vote.clone(),
        }
    }
}
