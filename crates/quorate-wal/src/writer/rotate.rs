//! Rotation: begins new segments.

use std::path::Path;
use std::sync::Arc;

use quorate_env::Instant;
use quorate_env::disk::{Disk, File, OpenMode};

use super::WalWriter;
use crate::error::WalError;
use crate::header::{MAX_HEADER_BYTES, SegmentHeader};
use crate::options::FILL_BYTES;
use crate::segment::{Segment, draw_epoch, segment_path};
use crate::shared::{Live, Shared};

impl WalWriter {
    /// Ends the active segment and begins one that has space for a frame of `span` bytes. Returns `false` if the disk
    /// was full; nothing has changed then, except that one segment number is skipped.
    pub(super) fn begin_segment(&mut self, span: u64) -> Result<bool, WalError> {
        self.sync()?;
        let ordinal = self.next_ordinal;
        self.next_ordinal = ordinal.checked_add(1).ok_or(WalError::Exhausted)?;
        let epoch = draw_epoch(self.shared.options.seed, ordinal);
        let first_sequence = self.sequence.saturating_add(1);
        let state = self.logged.clone();
        let header = SegmentHeader { epoch, first_sequence, durable: self.durable, state }.encode();
        check_header(header.len())?;

        let offset = header.len() as u64;
        let path = segment_path(&self.shared.dir, ordinal);
        let (file, len) = match self.take_file(&path, offset.saturating_add(span)) {
            Err(error) if error.is_full_disk() => {
                // The file was never used. If removing it fails, the next opening removes it.
                let _ = self.shared.disk.remove_file(&path);
                return Ok(false);
            }
            taken => taken?,
        };
        file.write_at(&header, 0).map_err(WalError::io("write", &path))?;
        let begun = Instant::now();
        file.sync_data().map_err(WalError::io("sync", &path))?;
        self.shared.metrics.synced(begun);

        let segment = Arc::new(Segment { epoch, path, file, len });
        let mut state = self.shared.lock();
        state.segments.insert(ordinal, Live::new(Arc::clone(&segment)));
        state.wants_spare = false;
        state.counters.syncs += 1;
        state.counters.segments_begun += 1;
        state.counters.bytes_written += offset;
        drop(state);
        (self.active, self.offset, self.is_used) = (segment, offset, false);
        self.shared.keeper_signal.wake();
        Ok(true)
    }

    /// Renames a spare or, if none fits, makes a small file. Returns the file and its length.
    fn take_file(&self, path: &Path, needed: u64) -> Result<(Arc<dyn File>, u64), WalError> {
        let Shared { disk, dir, options, .. } = &*self.shared;
        let spare = {
            let mut state = self.shared.lock();
            let fits = state.spares.iter().position(|spare| spare.len >= needed && !state.releases_spares);
            fits.map(|place| state.spares.swap_remove(place))
        };
        let taken = match spare {
            Some(spare) => {
                disk.rename(&spare.path, path).map_err(WalError::io("rename", &spare.path))?;
                (disk.open(path, OpenMode::ReadWrite).map_err(WalError::io("open", path))?, spare.len)
            }
            None => {
                let len = options.quick_segment_bytes(needed);
                (make_file(&**disk, path, len)?, len)
            }
        };
        disk.sync_dir(dir).map_err(WalError::io("sync", dir))?;
        Ok(taken)
    }
}

/// Makes a file of `len` zeros and syncs it, but not its directory entry.
pub(crate) fn make_file(disk: &dyn Disk, path: &Path, len: u64) -> Result<Arc<dyn File>, WalError> {
    let file = disk.open(path, OpenMode::CreateNew).map_err(WalError::io("create", path))?;
    let zeros = vec![0; FILL_BYTES.min(usize::try_from(len).unwrap_or(usize::MAX))];
    let mut offset = 0;
    while offset < len {
        let count = zeros.len().min(usize::try_from(len - offset).unwrap_or(usize::MAX));
        let slice = zeros.get(..count).unwrap_or_default();
        file.write_at(slice, offset).map_err(WalError::io("write", path))?;
        offset += count as u64;
    }
    file.sync_data().map_err(WalError::io("sync", path))?;
    Ok(file)
}

/// Rejects a header that is too long for recovery to read.
pub(crate) fn check_header(bytes: usize) -> Result<(), WalError> {
    let limit = MAX_HEADER_BYTES;
    if bytes > limit { Err(WalError::TooLarge { bytes, limit }) } else { Ok(()) }
}
