//! Reopening: begins the first segment of a new run, with copies of the frames that are not proven durable.
//!
//! The copies are written and synced before the header. The segment is therefore valid only once it is complete; until
//! then the originals count.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use quorate_env::disk::Disk;

use super::SegmentFound;
use super::replay::{Pending, Replay};
use crate::error::{OpenError, WalError};
use crate::frame::{Frame, FrameHeader, SegmentEpoch};
use crate::header::SegmentHeader;
use crate::open::Restart;
use crate::options::{PAGE, WalOptions};
use crate::record::{Kind, Records};
use crate::segment::{Segment, draw_epoch, segment_path};
use crate::shared::Live;
use crate::writer::{Start, check_header, make_file};

/// Begins the first segment of a new run in `dir`. `boot` is the current boot id, empty if it can't be read.
pub(crate) fn reopen(
    disk: &dyn Disk,
    dir: &Path,
    options: &WalOptions,
    boot: &Bytes,
    replay: &mut Replay,
    useless: Vec<PathBuf>,
) -> Result<(Start, Restart), OpenError> {
    let mut pending = std::mem::take(&mut replay.pending);
    let end = replay.sequence();
    let closing = pending.back().and_then(|last| closing_flag(&last.frame));
    let was_closed = closing.map_or(replay.logged.closed, |machine_was_restarted| !machine_was_restarted);
    let first_sequence = pending.front().map_or(end.saturating_add(1), |first| first.frame.header.sequence);
    if closing.is_some() {
        pending.pop_back();
    }
    let restart = classify_restart(replay, &pending, was_closed, boot);

    let ordinal = replay.newest_ordinal().checked_add(1).ok_or(WalError::Exhausted)?;
    let epoch = draw_epoch(options.seed, ordinal);
    let durable = first_sequence.saturating_add(pending.len() as u64).saturating_sub(1);
    if restart != Restart::Rebooted {
        replay.logged.boot = boot.clone();
    }
    let state = replay.logged.clone();
    let header = SegmentHeader { epoch, first_sequence, durable, state }.encode();
    check_header(header.len())?;
    let header_len = header.len() as u64;
    let needed = pending.iter().fold(header_len, |sum, copy| sum + span(&copy.frame.header));

    remove_all(disk, dir, useless)?;
    let path = segment_path(dir, ordinal);
    let len = options.quick_segment_bytes(needed);
    let file = make_file(disk, &path, len)?;
    disk.sync_dir(dir).map_err(OpenError::io("sync", dir))?;
    let active = Arc::new(Segment { epoch, path: path.clone(), file: Arc::clone(&file), len });
    replay.segments.insert(ordinal, Live::new(Arc::clone(&active)));

    let mut offset = header_len;
    for Pending { frame, .. } in pending {
        file.write_at(&copy(&frame, epoch), offset).map_err(OpenError::io("write", &path))?;
        replay.apply(ordinal, offset, &frame)?;
        offset += span(&frame.header);
    }
    replay.finish(dir)?;
    file.sync_data().map_err(OpenError::io("sync", &path))?;
    file.write_at(&header, 0).map_err(OpenError::io("write", &path))?;
    file.sync_data().map_err(OpenError::io("sync", &path))?;
    Ok((Start { logged: replay.logged.clone(), active, offset, sequence: durable }, restart))
}

/// Cuts off the unused part of segments from previous runs. Otherwise a run that ends early in a segment would leave it
/// at full length until it is purged, and a process that crashes repeatedly would fill the disk.
///
/// Call this only after the first segment of the new run is durable: from then on nothing after the last frame found
/// counts.
pub(crate) fn cut_unused(replay: &mut Replay, found: &[SegmentFound]) -> Result<(), OpenError> {
    for SegmentFound { path, len, header, end, .. } in found {
        let used = end.next_multiple_of(PAGE);
        // A segment that is more than half full is left whole, so that it can be recycled as a spare.
        if used > len / 2 {
            continue;
        }
        let Some(live) = replay.segments.get_mut(&header.epoch.ordinal) else { continue };
        let file = Arc::clone(&live.segment.file);
        file.set_len(used).map_err(OpenError::io("cut", path))?;
        live.segment = Arc::new(Segment { epoch: header.epoch, path: path.clone(), file, len: used });
    }
    Ok(())
}

/// Determines how the previous run ended.
fn classify_restart(replay: &Replay, pending: &VecDeque<Pending>, was_closed: bool, boot: &Bytes) -> Restart {
    let written_under = pending.iter().rev().find_map(|copy| boot_record(&copy.frame));
    let same_boot = !boot.is_empty() && written_under.as_ref().unwrap_or(&replay.logged.boot) == boot;
    match (replay.segments.is_empty(), was_closed, same_boot) {
        (true, ..) => Restart::Fresh,
        (false, true, _) => Restart::Clean,
        (false, false, true) => Restart::ProcessOnly,
        (false, false, false) => Restart::Rebooted,
    }
}

/// The bytes of a frame copied into another segment.
fn copy(frame: &Frame, epoch: SegmentEpoch) -> Vec<u8> {
    let header = FrameHeader { copied: true, epoch, ..frame.header };
    let mut bytes = header.encode(&frame.stored).to_vec();
    bytes.extend_from_slice(&frame.stored);
    bytes.resize(usize::try_from(span(&header)).unwrap_or(bytes.len()), 0);
    bytes
}

fn span(header: &FrameHeader) -> u64 {
    (header.len() as u64).next_multiple_of(PAGE)
}

/// The flag of the closing record, if the frame holds that record alone.
fn closing_flag(frame: &Frame) -> Option<bool> {
    let body = frame.body()?;
    let mut records = Records::new(&body);
    let (record, _) = records.next()?.ok()?;
    // If the frame holds other records too, they must be applied like any others.
    let is_alone = frame.header.count == 1 && records.next().is_none();
    (record.kind == Kind::Closed && is_alone).then_some(record.flag)
}

/// The last boot id recorded in a frame.
fn boot_record(frame: &Frame) -> Option<Bytes> {
    let body = frame.body()?;
    let boots = Records::new(&body).filter_map(Result::ok).filter(|(record, _)| record.kind == Kind::Boot);
    boots.last().map(|(record, _)| Bytes::copy_from_slice(record.bytes))
}

fn remove_all(disk: &dyn Disk, dir: &Path, paths: Vec<PathBuf>) -> Result<(), OpenError> {
    if paths.is_empty() {
        return Ok(());
    }
    for path in paths {
        disk.remove_file(&path).map_err(OpenError::io("remove", &path))?;
    }
    disk.sync_dir(dir).map_err(OpenError::io("sync", dir))
}
