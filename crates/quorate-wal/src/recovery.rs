//! Recovery: from the files of a directory to what the log has promised.
//!
//! The segments are read oldest first. Frames are taken as long as each follows the one before; a frame counts as
//! proven when a later frame, or the header of a later segment, says that it was durable. Where the frames end, what
//! comes behind decides: if anything there says that more was durable, acknowledged records are damaged and the log is
//! refused; if not, the tail was torn and is cut.
//!
//! What was found but not proven may only have been read from the page cache. It is copied into a new segment and
//! synced before the log opens, and superseded where it was: so a second crash in the middle changes nothing.

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

/// A file with the name of a segment.
#[derive(Debug)]
struct Candidate {
    ordinal: u32,
    path: PathBuf,
    len: u64,
    file: Arc<dyn File>,
}

/// What a directory holds, read and judged.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) replay: Replay,
    /// The segments in use, oldest first.
    pub(crate) segments: Vec<SegmentFound>,
    /// Where a torn tail begins, if there is one.
    pub(crate) cut: Option<(PathBuf, u64)>,
    pub(crate) spares: Vec<Spare>,
    /// What a number for the next spare must not be below.
    pub(crate) next_spare: u64,
    /// Files that were never used or are of no use any more.
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
    /// Behind the last frame that was read.
    pub(crate) end: u64,
}

/// Reads a log directory to open the log.
pub(crate) fn read_dir(disk: &dyn Disk, dir: &Path, segment_bytes: u64) -> Result<Findings, OpenError> {
    let (mut findings, judgement) = survey(disk, dir, OpenMode::ReadWrite)?;
    judgement?;
    let (spares, other) = findings.spares.into_iter().partition(|spare| spare.len == segment_bytes);
    findings.spares = spares;
    findings.useless.extend(other.into_iter().map(|spare| spare.path));
    Ok(findings)
}

/// Reads a log directory. Where the log is refused, or reading ends for another reason, the findings are those from
/// before.
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
    let judgement = judge(dir, candidates, &mut findings);
    Ok((findings, judgement))
}

/// Whether the newest segment has one more frame by now. An error is none.
pub(crate) fn has_grown(findings: &Findings) -> bool {
    let Some((found, (_, live))) = findings.segments.last().zip(findings.replay.segments.last_key_value()) else {
        return false;
    };
    let next = findings.replay.sequence().saturating_add(1);
    let mut window = Window::new(Arc::clone(&live.segment.file), live.segment.len);
    let frame = window.next_frame(found.end, found.header.epoch, next);
    live.segment.epoch == found.header.epoch && frame.is_ok_and(|frame| frame.is_some())
}

fn judge(dir: &Path, candidates: Vec<Candidate>, findings: &mut Findings) -> Result<(), OpenError> {
    let (used, unused) = sort_out(candidates)?;
    if used.is_empty() && (findings.next_spare > 0 || unused.iter().any(|candidate| candidate.ordinal > 1)) {
        return Err(OpenError::corrupt(dir, 0, "no segment has a header, yet there were segments"));
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

/// Tells the segments in use from those without a valid header, in order.
fn sort_out(candidates: Vec<Candidate>) -> Result<(Vec<Used>, Vec<Candidate>), OpenError> {
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

/// The header of a file, if it has a valid one, and where the frames begin.
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

/// Makes sure that the files without a header hold nothing that counts.
///
/// A header is synced before the first frame is written, but for the copies of recovery. So any other frame proves that
/// there was a header, and one that says more was durable than was found proves damage anyway.
fn check_unused(unused: &[Candidate], replay: &Replay) -> Result<(), OpenError> {
    for Candidate { ordinal, path, len, file } in unused {
        if *ordinal < replay.newest_ordinal() {
            continue;
        }
        let mut window = Window::new(Arc::clone(file), *len);
        let tail = window.tail(0, *ordinal, None).map_err(OpenError::io("read", path))?;
        if tail.has_originals || tail.max_durable > replay.sequence() {
            return Err(OpenError::corrupt(path, 0, "its header is gone, but not its frames"));
        }
    }
    Ok(())
}

fn damaged(path: &Path, offset: u64, sequence: u64) -> OpenError {
    let next = sequence.saturating_add(1);
    OpenError::corrupt(path, offset, format!("frame {next} was known to be durable and can't be read"))
}
