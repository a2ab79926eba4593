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
#[derive(Debug)]
pub(crate) struct Findings {
    pub(crate) replay: Replay,
    /// Where a torn tail begins, if there is one.
    pub(crate) cut: Option<(PathBuf, u64)>,
    pub(crate) spares: Vec<Spare>,
    /// What a number for the next spare must not be below.
    pub(crate) next_spare: u64,
    /// Files that were never used or are of no use any more.
    pub(crate) useless: Vec<PathBuf>,
    pub(crate) bytes_read: u64,
}

/// Reads a log directory.
pub(crate) fn read_dir(disk: &dyn Disk, dir: &Path, segment_bytes: u64) -> Result<Findings, OpenError> {
    let mut candidates = Vec::new();
    let (mut spares, mut useless, mut next_spare) = (Vec::new(), Vec::new(), 0);
    for item in disk.list(dir).map_err(OpenError::io("list", dir))? {
        let path = dir.join(&item.name);
        match Name::parse(&item.name) {
            Name::Segment(ordinal) => {
                let file = disk.open(&path, OpenMode::ReadWrite).map_err(OpenError::io("open", &path))?;
                candidates.push(Candidate { ordinal, path, len: item.len, file });
            }
            Name::Spare(number) => {
                next_spare = next_spare.max(number.saturating_add(1));
                match item.len == segment_bytes {
                    true => spares.push(Spare { path, len: item.len }),
                    false => useless.push(path),
                }
            }
            Name::Fill => useless.push(path),
            Name::Other => {}
        }
    }
    let had_spares = next_spare > 0;
    let (used, unused) = sort_out(candidates)?;
    if used.is_empty() && (had_spares || unused.iter().any(|candidate| candidate.ordinal > 1)) {
        return Err(OpenError::corrupt(dir, 0, "no segment has a header, yet there were segments"));
    }
    let mut findings = read_segments(used)?;
    check_unused(&unused, &findings.replay)?;
    useless.extend(unused.into_iter().map(|candidate| candidate.path));
    (findings.spares, findings.next_spare, findings.useless) = (spares, next_spare, useless);
    Ok(findings)
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
fn read_segments(used: Vec<Used>) -> Result<Findings, OpenError> {
    let mut replay = Replay::default();
    let (mut cut, mut bytes_read) = (None, 0);
    let last = used.len().saturating_sub(1);
    for (number, (candidate, header, start)) in used.into_iter().enumerate() {
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
        }
        bytes_read += offset;
        replay.end_segment(&header, offset)?;
        if number == last {
            let tail = window.tail(offset, epoch.ordinal, Some(epoch.nonce)).map_err(OpenError::io("read", &path))?;
            if tail.max_durable > replay.sequence() {
                return Err(damaged(&path, offset, replay.sequence()));
            }
            cut = tail.has_remains.then_some((path, offset));
        }
    }
    let (spares, useless) = (Vec::new(), Vec::new());
    Ok(Findings { replay, cut, spares, next_spare: 0, useless, bytes_read })
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
