//! The keeper: makes spare segments ahead, takes back those that are purged, and lets go of what an idle log does not
//! need. All of it beside the writer, in small steps.
//!
//! Invariant: segments go oldest first, one at a time, and the directory is synced after each: so what a crash leaves
//! is a contiguous log.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use quorate_env::disk::{File, OpenMode};
use quorate_env::worker::{Signal, Step, Worker};

use crate::error::WalError;
use crate::options::{FILL_BYTES, MAX_SPARES};
use crate::segment::{FILL_NAME, Segment, Spare, spare_path};
use crate::shared::Shared;

/// When the keeper tries again to make a spare on a full disk.
const FULL_DISK_DELAY: Duration = Duration::from_secs(1);

/// The active part of a log that takes care of its files. Run it as a worker with [`SegmentKeeper::signal`].
#[derive(Debug)]
pub struct SegmentKeeper {
    shared: Arc<Shared>,
    fill: Option<Fill>,
    next_spare: u64,
}

/// A spare in the making.
#[derive(Debug)]
struct Fill {
    path: PathBuf,
    file: Arc<dyn File>,
    len: u64,
    target: u64,
}

enum Job {
    Retire(Arc<Segment>, bool),
    Remove(Spare),
    Fill,
    Sleep,
}

impl SegmentKeeper {
    pub(crate) fn new(shared: Arc<Shared>, next_spare: u64) -> Self {
        Self { shared, fill: None, next_spare }
    }

    /// The bell that the log rings when there is something to do.
    pub fn signal(&self) -> &Signal {
        &self.shared.keeper_bell
    }

    fn advance(&mut self) -> Result<Step, WalError> {
        match self.next_job()? {
            Job::Retire(segment, wanted) => self.retire(segment, wanted)?,
            Job::Remove(spare) => self.remove(spare.path)?,
            Job::Fill => return self.fill(),
            Job::Sleep => return Ok(Step::Wait),
        }
        Ok(Step::Again)
    }

    fn next_job(&self) -> Result<Job, WalError> {
        let mut state = self.shared.lock_working()?;
        if let Some(segment) = state.take_dead_segment() {
            return Ok(Job::Retire(segment, state.spares.len() < MAX_SPARES && !state.sheds_spares));
        }
        if state.sheds_spares
            && let Some(spare) = state.spares.pop()
        {
            return Ok(Job::Remove(spare));
        }
        let fills = state.wants_spare && state.spares.is_empty() && !state.sheds_spares && !state.closing;
        Ok(if fills { Job::Fill } else { Job::Sleep })
    }

    /// Makes a dead segment a spare, if one is wanted and nobody reads it any more.
    fn retire(&mut self, segment: Arc<Segment>, wanted: bool) -> Result<(), WalError> {
        let path = segment.path.clone();
        match Arc::try_unwrap(segment) {
            Ok(segment) if wanted && segment.len == self.shared.options.segment_bytes => {
                self.adopt(path, segment.len)?;
                self.shared.lock().counters.segments_recycled += 1;
                Ok(())
            }
            _ => self.remove(path),
        }
    }

    fn remove(&self, path: PathBuf) -> Result<(), WalError> {
        self.shared.disk.remove_file(&path).map_err(WalError::io("remove", &path))?;
        self.sync_dir()
    }

    /// Makes a file of the log's directory a spare.
    fn adopt(&mut self, path: PathBuf, len: u64) -> Result<(), WalError> {
        let spare = spare_path(&self.shared.dir, self.next_spare);
        self.next_spare += 1;
        self.shared.disk.rename(&path, &spare).map_err(WalError::io("rename", &path))?;
        self.sync_dir()?;
        self.shared.lock().spares.push(Spare { path: spare, len });
        Ok(())
    }

    fn sync_dir(&self) -> Result<(), WalError> {
        self.shared.disk.sync_dir(&self.shared.dir).map_err(WalError::io("sync", &self.shared.dir))
    }

    /// Does the next slice of a spare. A full disk is no disaster: the writer does without it as long as it can.
    fn fill(&mut self) -> Result<Step, WalError> {
        match self.fill_slice() {
            Ok(()) => Ok(Step::Again),
            Err(error) if error.is_full_disk() => {
                self.fill = None;
                // What remains of it is removed by the next try or the next opening.
                let _ = self.shared.disk.remove_file(&self.shared.dir.join(FILL_NAME));
                Ok(Step::WaitFor(FULL_DISK_DELAY))
            }
            Err(error) => Err(error),
        }
    }

    fn fill_slice(&mut self) -> Result<(), WalError> {
        let mut fill = match self.fill.take() {
            Some(fill) => fill,
            None => self.begin_fill()?,
        };
        let missing = fill.target.saturating_sub(fill.len);
        if missing == 0 {
            return self.adopt(fill.path, fill.len);
        }
        let zeros = vec![0; FILL_BYTES.min(usize::try_from(missing).unwrap_or(usize::MAX))];
        fill.file.write_at(&zeros, fill.len).map_err(WalError::io("write", &fill.path))?;
        fill.file.sync_data().map_err(WalError::io("sync", &fill.path))?;
        fill.len += zeros.len() as u64;
        self.fill = Some(fill);
        Ok(())
    }

    fn begin_fill(&self) -> Result<Fill, WalError> {
        let path = self.shared.dir.join(FILL_NAME);
        let file = self.shared.disk.open(&path, OpenMode::Create).map_err(WalError::io("create", &path))?;
        file.set_len(0).map_err(WalError::io("cut", &path))?;
        let active = self.shared.lock().segments.last_key_value().map_or(0, |(_, live)| live.segment.len);
        Ok(Fill { path, file, len: 0, target: self.shared.options.next_segment_bytes(active) })
    }
}

impl Worker for SegmentKeeper {
    fn run_once(&mut self) -> Step {
        self.advance().unwrap_or_else(|error| {
            // If the log has stopped already, this changes nothing.
            self.shared.stop(error);
            Step::Done
        })
    }
}
