//! Recovery: reads the files of a log directory and restores what the log has promised.
//!
//! The segments are read oldest first. Frames are accepted as long as each follows the one before. A frame is proven
//! when a later frame, or the header of a later segment, records that it was durable. The bytes after the last accepted
//! frame decide how the log ends: if a frame there records a higher sequence as durable, acknowledged records are
//! damaged and the log is refused; otherwise the tail is torn and is cut off.
//!
//! Frames that were found but not proven may exist only in the page cache. They are copied into a new segment and
//! synced before the log opens; the copies then supersede the originals. A second crash during this changes nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use quorate_env::disk::{Disk, File, OpenMode};

use crate::error::OpenError;
use crate::header::{HEADER_FIXED, NoHeader, Preamble, SegmentHeader};
use crate::segment::{Name, Segment, Spare};

pub(crate) mod reopen;
pub(crate) mod replay;
mod scan;

use replay::Replay;
use scan::Window;

/// A file with a segment's name.
#[derive(Debug)]
struct Candidate {
    ordinal: u32,
    path: PathBuf,
    len: u64,
    file: Arc<dyn File>,
}

/// The result of reading a log directory.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) replay: Replay,
    /// The segments in use, oldest first.
    pub(crate) segments: Vec<SegmentFound>,
    /// The segment and offset at which a torn tail begins, if there is one.
    pub(crate) cut: Option<(PathBuf, u64)>,
    pub(crate) spares: Vec<Spare>,
    /// The lowest number that the next spare may have.
    pub(crate) next_spare: u64,
    /// Files that were never used, or are no longer needed.
    pub(crate) useless: Vec<PathBuf>,
    pub(crate) bytes_read: u64,
}

/// A segment in use, and how far its frames were read.
#[derive(Debug)]
pub(crate) struct SegmentFound {
    pub(crate) path: PathBuf,
    pub(crate) len: u64,
    pub(crate) header: SegmentHeader,
    pub(crate) frames: u64,
    /// The end of the last frame that was read.
    pub(crate) end: u64,
}

/// Reads a log directory in order to open the log.
pub(crate) fn read_dir(disk: &dyn Disk, dir: &Path, segment_bytes: u64) -> Result<Findings, OpenError> {
    let (mut findings, result) = survey(disk, dir, OpenMode::ReadWrite)?;
    result?;
    let (spares, other) = findings.spares.into_iter().partition(|spare| spare.len == segment_bytes);
    findings.spares = spares;
    findings.useless.extend(other.into_iter().map(|spare| spare.path));
    Ok(findings)
}

/// Reads a log directory. If the log is refused, or reading fails part of the way, the findings cover everything before
/// that point.
pub(crate) fn survey(
    disk: &dyn Disk,
    dir: &Path,
    mode: OpenMode,
) -> Result<(Findings, Result<(), OpenError>), OpenError> {
    let (mut findings, mut candidates) = (Findings::default(), Vec::new());
    for item in disk.list(dir).map_err(OpenError::io("list", dir))? {
        let path = dir.join(&item.name);
        match Name::parse(&item.name) {
            Name::Segment(ordinal) => {
                let file = disk.open(&path, mode).map_err(OpenError::io("open", &path))?;
                candidates.push(Candidate { ordinal, path, len: item.len, file });
            }
            Name::Spare(number) => {
                findings.next_spare = findings.next_spare.max(number.saturating_add(1));
                findings.spares.push(Spare { path, len: item.len });
            }
            Name::Fill => findings.useless.push(path),
            Name::Other => {}
        }
    }
    let result = read_candidates(dir, candidates, &mut findings);
    Ok((findings, result))
}

/// Whether the newest segment has gained a frame since it was read. An error counts as no.
pub(crate) fn has_grown(findings: &Findings) -> bool {
    let Some((found, (_, live))) = findings.segments.last().zip(findings.replay.segments.last_key_value()) else {
        return false;
    };
    let next = findings.replay.sequence().saturating_add(1);
    let mut window = Window::new(Arc::clone(&live.segment.file), live.segment.len);
    let frame = window.next_frame(found.end, found.header.epoch, next);
    live.segment.epoch == found.header.epoch && frame.is_ok_and(|frame| frame.is_some())
}

fn read_candidates(dir: &Path, candidates: Vec<Candidate>, findings: &mut Findings) -> Result<(), OpenError> {
    let (used, unused) = split_by_header(candidates)?;
    if used.is_empty() && (findings.next_spare > 0 || unused.iter().any(|candidate| candidate.ordinal > 1)) {
        return Err(OpenError::corrupt(
            dir,
            0,
            "no segment has a valid header, but other files show that there were segments",
        ));
    }
    findings.segments.extend(used.iter().map(|(candidate, header, start)| SegmentFound {
        path: candidate.path.clone(),
        len: candidate.len,
        header: header.clone(),
        frames: 0,
        end: *start,
    }));
    read_segments(used, findings)?;
    check_unused(&unused, &findings.replay)?;
    findings.useless.extend(unused.into_iter().map(|candidate| candidate.path));
    Ok(())
}

/// A segment in use, its header, and where its frames begin.
type Used = (Candidate, SegmentHeader, u64);

/// Separates the segments in use, sorted by ordinal, from the files without a valid header.
fn split_by_header(candidates: Vec<Candidate>) -> Result<(Vec<Used>, Vec<Candidate>), OpenError> {
    let (mut used, mut unused) = (Vec::new(), Vec::new());
    for candidate in candidates {
        match read_header(&candidate)? {
            Some((header, offset)) => used.push((candidate, header, offset)),
            None => unused.push(candidate),
        }
    }
    used.sort_by_key(|(candidate, ..)| candidate.ordinal);
    Ok((used, unused))
}

/// The header of a file and the offset of its first frame, or `None` if the file has no valid header.
fn read_header(candidate: &Candidate) -> Result<Option<(SegmentHeader, u64)>, OpenError> {
    let Candidate { path, file, len, ordinal } = candidate;
    let mut window = Window::new(Arc::clone(file), *len);
    let mut get = |len| window.get(0, len).map_err(OpenError::io("read", path));
    let Some(preamble) = get(HEADER_FIXED)?.and_then(|bytes| Preamble::decode(&bytes)) else { return Ok(None) };
    let (header_len, offset) = preamble.lengths();
    let Some(bytes) = get(header_len)? else { return Ok(None) };
    match SegmentHeader::decode(&bytes, *ordinal) {
        Ok(header) => Ok(Some((header, offset))),
        Err(NoHeader::Invalid) => Ok(None),
        Err(NoHeader::Version(version)) => Err(OpenError::Version { path: path.clone(), version }),
    }
}

/// Replays the segments in use.
fn read_segments(used: Vec<Used>, findings: &mut Findings) -> Result<(), OpenError> {
    let Findings { replay, segments, cut, bytes_read, .. } = findings;
    let last = used.len().saturating_sub(1);
    for (number, ((candidate, header, start), found)) in used.into_iter().zip(segments).enumerate() {
        let Candidate { path, file, len, .. } = candidate;
        let epoch = header.epoch;
        replay.begin_segment(Segment { epoch, path: path.clone(), file: Arc::clone(&file), len }, &header)?;
        let mut window = Window::new(file, len);
        let mut offset = start;
        while let Some((at, frame)) = window
            .next_frame(offset, epoch, replay.sequence().saturating_add(1))
            .map_err(OpenError::io("read", &path))?
        {
            offset = at.saturating_add(frame.header.len() as u64);
            replay.frame(at, frame)?;
            (found.frames, found.end) = (found.frames.saturating_add(1), offset);
        }
        *bytes_read += offset;
        replay.end_segment(&header, offset)?;
        if number == last {
            let tail = window.tail(offset, epoch.ordinal, Some(epoch.nonce)).map_err(OpenError::io("read", &path))?;
            if tail.max_durable > replay.sequence() {
                return Err(damaged(&path, offset, replay.sequence()));
            }
            *cut = tail.has_remains.then_some((path, offset));
        }
    }
    Ok(())
}

/// Checks that the files without a valid header hold no acknowledged frames.
///
/// A header is synced before the first frame is written, except for the copies that recovery makes. Any other frame
/// therefore proves that the file had a header. A frame that records a higher sequence as durable than was found proves
/// damage in any case.
fn check_unused(unused: &[Candidate], replay: &Replay) -> Result<(), OpenError> {
    for Candidate { ordinal, path, len, file } in unused {
        if *ordinal < replay.newest_ordinal() {
            continue;
        }
        let mut window = Window::new(Arc::clone(file), *len);
        let tail = window.tail(0, *ordinal, None).map_err(OpenError::io("read", path))?;
        if tail.has_originals || tail.max_durable > replay.sequence() {
            return Err(OpenError::corrupt(path, 0, "its header is damaged or missing, but it holds frames"));
        }
    }
    Ok(())
}

fn damaged(path: &Path, offset: u64, sequence: u64) -> OpenError {
    let next = sequence.saturating_add(1);
    OpenError::corrupt(path, offset, format!("frame {next} is known to be durable but can't be read"))
}
