//! Replay: advances the state frame by frame and builds the index.
//!
//! Invariant: `logged` and `groups` reflect the frames proven to be durable; the others wait in `pending`.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quorate_model::{GroupId, LogId};

use crate::error::OpenError;
use crate::frame::Frame;
use crate::group::Group;
use crate::header::SegmentHeader;
use crate::index::Place;
use crate::record::{Kind, Record, Records};
use crate::segment::Segment;
use crate::shared::Live;
use crate::state::LogState;

/// A frame that is not yet proven to be durable.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) ordinal: u32,
    pub(crate) offset: u64,
    pub(crate) frame: Frame,
}

/// The state of a replay.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    pub(crate) logged: LogState,
    pub(crate) groups: BTreeMap<GroupId, Group>,
    pub(crate) segments: BTreeMap<u32, Live>,
    pub(crate) pending: VecDeque<Pending>,
    /// The sequence of the last frame found.
    sequence: u64,
    /// The sequence of the last frame proven and applied.
    proven: u64,
    /// For each group whose entries up to an index were in segments that no longer exist: that index. By the end, the
    /// group's floor must be at least that.
    missing: BTreeMap<GroupId, u64>,
}

impl Replay {
    /// The sequence of the last frame found.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    pub(crate) fn newest_ordinal(&self) -> u32 {
        self.segments.last_key_value().map_or(0, |(ordinal, _)| *ordinal)
    }

    pub(crate) fn begin_segment(&mut self, segment: Segment, header: &SegmentHeader) -> Result<(), OpenError> {
        let path = segment.path.clone();
        let Some(before) = header.first_sequence.checked_sub(1) else {
            return Err(OpenError::corrupt(&path, 0, "its header has the invalid first sequence 0"));
        };
        match self.segments.last_key_value().map(|(_, live)| live.segment.path.clone()) {
            None => self.start(&header.state, before).map_err(|what| OpenError::corrupt(&path, 0, what))?,
            Some(previous) => {
                self.apply_proven(before)?;
                self.pending.clear();
                if self.proven != before {
                    return Err(OpenError::corrupt(
                        &previous,
                        0,
                        format!("not all of its durable frames, up to {before}, can be read"),
                    ));
                }
                if !self.logged.agrees_with(&header.state) {
                    return Err(OpenError::corrupt(
                        &path,
                        0,
                        "the state in its header differs from that of the segments before it",
                    ));
                }
                self.sequence = before;
            }
        }
        self.logged.boot = header.state.boot.clone();
        self.logged.closed = false;
        let ordinal = segment.epoch.ordinal;
        self.segments.insert(ordinal, Live::new(Arc::new(segment)));
        Ok(())
    }

    /// Starts with the oldest segment, whose header repeats the state before it.
    fn start(&mut self, state: &LogState, sequence: u64) -> Result<(), String> {
        // A log can't end before its own floor.
        state.groups.values().try_for_each(|group| group.check_cut(group.last))?;
        (self.sequence, self.proven) = (sequence, sequence);
        self.logged = state.clone();
        for (id, state) in &state.groups {
            self.groups.insert(*id, Group::starting_with(state.clone()));
            let (last, floor) = (state.last.map(|id| id.index), state.floor.map(|id| id.index));
            if let Some(last) = last.filter(|last| floor.is_none_or(|floor| floor < *last)) {
                self.missing.insert(*id, last);
            }
        }
        Ok(())
    }

    /// Adds the next frame of the current segment.
    pub(crate) fn frame(&mut self, offset: u64, frame: Frame) -> Result<(), OpenError> {
        self.apply_proven(frame.header.durable)?;
        self.sequence = frame.header.sequence;
        self.pending.push_back(Pending { ordinal: self.newest_ordinal(), offset, frame });
        Ok(())
    }

    /// Checks that the segment holds all frames that its header records as durable. Its frames end at `offset`.
    pub(crate) fn end_segment(&self, header: &SegmentHeader, offset: u64) -> Result<(), OpenError> {
        if self.sequence < header.durable {
            let path = self.path(header.epoch.ordinal);
            return Err(OpenError::corrupt(
                &path,
                offset,
                format!("frames up to {} were durable, but not all can be read", header.durable),
            ));
        }
        Ok(())
    }

    /// Applies the pending frames up to sequence `durable`, which are now proven.
    fn apply_proven(&mut self, durable: u64) -> Result<(), OpenError> {
        while let Some(first) = self.pending.front().filter(|first| first.frame.header.sequence <= durable) {
            self.proven = first.frame.header.sequence;
            if let Some(Pending { ordinal, offset, frame }) = self.pending.pop_front() {
                self.apply(ordinal, offset, &frame)?;
            }
        }
        Ok(())
    }

    /// Applies a frame that is, or will be, stored at this location.
    pub(crate) fn apply(&mut self, ordinal: u32, offset: u64, frame: &Frame) -> Result<(), OpenError> {
        let path = self.path(ordinal);
        let corrupt = |what: &str| OpenError::corrupt(&path, offset, what);
        let body = frame.body().ok_or_else(|| corrupt("a frame can't be unpacked"))?;
        let at = u32::try_from(offset).map_err(|_| corrupt("a frame begins beyond 4 GiB"))?;
        let mut count = 0_u32;
        for record in Records::new(&body) {
            let (record, place) =
                record.map_err(|_| OpenError::Version { path: path.clone(), version: crate::header::NEXT_VERSION })?;
            count = count.saturating_add(1);
            self.record(ordinal, at, place, &record).map_err(|what| corrupt(&what))?;
        }
        if count == frame.header.count {
            Ok(())
        } else {
            Err(corrupt("a frame holds a different number of records than its header says"))
        }
    }

    fn record(&mut self, ordinal: u32, frame: u32, at: u32, record: &Record<'_>) -> Result<(), String> {
        let group = self.groups.entry(record.group);
        match record.kind {
            Kind::Entry => {
                let group = group.or_default();
                let index = record.id.index;
                if let Some(expected) = self.logged.group(record.group).next_index().filter(|next| *next != index) {
                    return Err(format!(
                        "entry {index} of group {} follows where entry {expected} should",
                        record.group.0
                    ));
                }
                let len = u32::try_from(record.bytes.len()).unwrap_or(u32::MAX);
                group.append_written(record.id, Place { ordinal, frame, at, len });
                if let Some(live) = self.segments.get_mut(&ordinal) {
                    live.note_entry(record.group, index, record.bytes.len());
                }
            }
            Kind::Truncate => {
                let kept = (!record.flag).then_some(record.id);
                self.logged.group(record.group).check_cut(kept)?;
                group.or_default().truncate(kept);
                self.lower_missing(record.group, kept);
            }
            Kind::Purge => drop(group.or_default().purge(record.id)),
            Kind::Last => return Err("a frame holds a record that only headers may hold".to_owned()),
            Kind::Vote | Kind::Committed | Kind::Identity | Kind::Boot | Kind::Closed => {}
        }
        self.logged.apply(record);
        Ok(())
    }

    /// Lowers the `missing` index of a group: entries removed by a truncation are no longer required.
    fn lower_missing(&mut self, group: GroupId, kept: Option<LogId>) {
        match (self.missing.get_mut(&group), kept) {
            (Some(missing), Some(kept)) => *missing = kept.index.min(*missing),
            (Some(_), None) => drop(self.missing.remove(&group)),
            (None, _) => {}
        }
    }

    /// Applies the pending frames in place, as if they were proven, and finishes. On failure the groups hold everything
    /// up to the failure.
    pub(crate) fn finish_in_place(&mut self, dir: &Path) -> Result<(), OpenError> {
        let mut pending = std::mem::take(&mut self.pending).into_iter();
        let applied = pending.try_for_each(|Pending { ordinal, offset, frame }| self.apply(ordinal, offset, &frame));
        self.adopt_states();
        applied.and(self.check_missing(dir))
    }

    /// Checks that every missing entry is purged, and completes the groups.
    pub(crate) fn finish(&mut self, dir: &Path) -> Result<(), OpenError> {
        self.check_missing(dir)?;
        self.adopt_states();
        Ok(())
    }

    fn check_missing(&self, dir: &Path) -> Result<(), OpenError> {
        for (group, missing) in &self.missing {
            let floor = self.logged.groups.get(group).and_then(|state| state.floor);
            if floor.is_none_or(|floor| floor.index < *missing) {
                let what =
                    format!("entries of group {} up to {missing} are missing, but it is purged to {floor:?}", group.0);
                return Err(OpenError::corrupt(dir, 0, what));
            }
        }
        Ok(())
    }

    fn adopt_states(&mut self) {
        for (id, state) in &self.logged.groups {
            let group = self.groups.entry(*id).or_default();
            group.state = state.clone();
            // A frame may record a committed id beyond its last entry; those entries come with the next frame.
            group.state.committed = state.committed.min_by_index(state.last);
            while !group.trim() {}
        }
    }

    fn path(&self, ordinal: u32) -> PathBuf {
        self.segments.get(&ordinal).map(|live| live.segment.path.clone()).unwrap_or_default()
    }
}

/// The lower of two ids by index.
trait MinByIndex {
    fn min_by_index(self, bound: Self) -> Self;
}

impl MinByIndex for Option<LogId> {
    fn min_by_index(self, bound: Self) -> Self {
        let (id, bound) = (self?, bound?);
        Some(if id.index <= bound.index { id } else { bound })
    }
}
