//! The keeper: prepares spare segments in advance, recycles purged ones, and removes those that an idle log does not
//! need. It works concurrently with the writer, in small steps.
//!
//! Invariant: segments are removed one at a time, oldest first, and the directory is synced after each. A crash
//! therefore leaves a contiguous log.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use quorate_env::disk::{File, OpenMode};
use quorate_env::worker::{Signal, Step, Worker};

use crate::error::WalError;
use crate::options::{FILL_BYTES, MAX_SPARES};
use crate::segment::{FILL_NAME, Segment, Spare, spare_path};
use crate::shared::Shared;

/// The delay before the keeper retries making a spare on a full disk.
const FULL_DISK_DELAY: Duration = Duration::from_secs(1);

/// The worker that manages the files of a log. Run it with [`SegmentKeeper::signal`].
#[derive(Debug)]
pub struct SegmentKeeper {
    shared: Arc<Shared>,
    fill: Option<Fill>,
    next_spare: u64,
}

/// A spare that is being filled with zeros.
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

    /// The signal that wakes the keeper when there is work.
    pub fn signal(&self) -> &Signal {
        &self.shared.keeper_signal
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
            return Ok(Job::Retire(segment, state.spares.len() < MAX_SPARES && !state.releases_spares));
        }
        if state.releases_spares
            && let Some(spare) = state.spares.pop()
        {
            return Ok(Job::Remove(spare));
        }
        let fills = state.wants_spare && state.spares.is_empty() && !state.releases_spares && !state.closing;
        Ok(if fills { Job::Fill } else { Job::Sleep })
    }

    /// Turns a dead segment into a spare if one is wanted and no reader holds it; removes its file otherwise.
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

    /// Turns a file of the log's directory into a spare.
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

    /// Fills the next slice of a spare. A full disk is not an error here: the writer works without spares as long as it
    /// can.
    fn fill(&mut self) -> Result<Step, WalError> {
        match self.fill_slice() {
            Ok(()) => Ok(Step::Again),
            Err(error) if error.is_full_disk() => {
                self.fill = None;
                // If this fails, the next attempt or the next opening removes the file.
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
            // If the log has already stopped, its first error is kept.
            self.shared.stop(error);
            Step::Done
        })
    }
}
