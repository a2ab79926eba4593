//! Captures: the pages that commits have changed, read while the store goes on working.
//!
//! A [`Capture`] takes a [`Boundary`] between two commits now and then. A boundary says which pages have changed since
//! the one before it, and reads them as they were at that moment. Whoever stores them, boundary after boundary, has a
//! copy of the database file.
//!
//! Three things make it so. While a capture exists, the VFS layer marks the page of each frame that is written to the
//! `-wal` ([`PageMarks`]), which is all that it costs the writer. A boundary takes the marks and opens a read
//! transaction under the writer lock, so both are of one state. While a read transaction is open, SQLite neither copies
//! later pages into the main file nor overwrites a frame that the transaction may need; so the frames that were not
//! copied yet ([`Frames`]), and for all other pages the main file, hold exactly that state.
//!
//! # Invariants
//!
//! - A page that a commit has changed is in the next boundary after the commit, and in all later ones until one of them
//!   is [kept](Boundary::kept).
//! - The first boundary of a capture holds all pages, and so does the first one after an image was installed.
//! - A boundary holds checkpoints back only until it is dropped, and its reads fail when the `-wal` has grown too long.
//!   It never keeps the store from closing, or from installing an image.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorate_env::mutant::Mutant;
use quorate_env::{Instant, lock};
use quorate_model::{Applied, StoreFault};
use rusqlite::ffi;

use crate::classify;
use crate::connection::{self, Attached};
use crate::error::OpenError;
use crate::generation::Generation;
use crate::records::applied_row;
use crate::store::core::Core;
use crate::store::shared::{Shared, Slot, Stop};
use crate::vfs::pages::{Changes, PageMarks};

mod boundary;
mod frames;

pub use boundary::{Boundary, Changed};
use frames::Frames;

/// How much longer than [`hold_bytes_max`](crate::StoreOptions::hold_bytes_max) the `-wal` may become while the pages
/// of a boundary with all pages are read, as a factor.
pub const WHOLE_HOLD_FACTOR: u64 = 4;

/// The cache of the connection that holds the read transaction. It reads one row.
const CACHE_BYTES: u32 = 64 << 10;

/// Opens a read transaction and fixes what it sees. This pragma reads a number of the database's header, and nothing
/// of the schema, which may be large.
const FIX: &str = "BEGIN; PRAGMA schema_version";

/// Captures the changes of a store, from boundary to boundary.
pub struct Capture {
    shared: Arc<Shared>,
    progress: Arc<Mutex<Progress>>,
    _slot: Slot,
}

/// What has changed since the last boundary that was kept.
#[derive(Debug, Default)]
struct Progress {
    /// The marks, and the number of the generation that they are of; `None` before the first boundary.
    marks: Option<(u64, Arc<PageMarks>)>,
    /// The changes up to the last boundary, as far as no kept boundary holds them.
    pending: Changes,
    /// The size of the database in the last kept boundary, in pages; `None` if there is none of this generation.
    kept: Option<u32>,
}

/// The state that a boundary has, as fixed under the writer lock.
struct Fixed {
    applied: Applied,
    /// Frames in the `-wal`, and how many of them the main file holds.
    frames: u32,
    copied: u32,
    changes: Changes,
}

impl Capture {
    pub(crate) fn begin(shared: &Arc<Shared>) -> Result<Self, StoreFault> {
        let slot = shared.captures.try_take(1).ok_or_else(|| lost("the store has another capture"))?;
        Ok(Self { shared: Arc::clone(shared), progress: Arc::default(), _slot: slot })
    }

    /// Takes a boundary after the last commit. Blocks: waits for the batch that is being applied, and keeps the writer
    /// for some ten microseconds.
    ///
    /// Fails with [`StoreFault::ImageLost`], which is retryable, while another boundary exists, or if an image is
    /// installed at this moment. Fails if the store has a fault or is closed. Nothing is lost by a failure.
    pub fn boundary(&mut self) -> Result<Boundary, StoreFault> {
        let slot = self.shared.boundaries.try_take(1).ok_or_else(|| lost("another boundary is still being read"))?;
        let generation = self.shared.generations.current();
        check(&self.shared, &generation)?;
        self.shared.image_waits.store(false, Ordering::Release);
        let conn = connection::open_bare_reader(&generation, CACHE_BYTES).map_err(fault_of)?;
        let page_size = number_of(&conn, "PRAGMA page_size")?;
        let mut progress = lock(&self.progress);
        let marks = progress.marks_of(&generation, page_size);
        let fixed = self.shared.writer_lock.visit(|core| fix(core.as_mut(), &conn, &marks))?;
        progress.pending.add(&fixed.changes);

        let row = applied_row::read(&conn)?.filter(|row| row.applied.log_id == fixed.applied.log_id);
        let row = row.ok_or_else(|| lost("the read transaction does not see the last commit"))?;
        let pages = number_of(&conn, "PRAGMA page_count")?;
        let changed = Changed::since(progress.kept, &progress.pending, page_size, pages);
        let frames = Frames::index(&generation, page_size, fixed.copied..fixed.frames)?;
        if Mutant::CheckpointBeforeCapture.is_on() {
            conn.execute_batch("ROLLBACK").map_err(|error| classify::own(&error))?;
        }
        Ok(Boundary {
            conn,
            begun: Instant::now(),
            frames,
            row,
            page_size,
            pages,
            changed,
            shared: Arc::clone(&self.shared),
            progress: Arc::clone(&self.progress),
            _slot: slot,
        })
    }
}

impl std::fmt::Debug for Capture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Capture").field("kept", &lock(&self.progress).kept).finish_non_exhaustive()
    }
}

impl Progress {
    /// Returns the marks of a generation. Begins anew if there are none.
    fn marks_of(&mut self, generation: &Generation, page_size: u32) -> Arc<PageMarks> {
        if let Some((_, marks)) = self.marks.as_ref().filter(|(number, _)| *number == generation.number()) {
            return Arc::clone(marks);
        }
        let marks = generation.page_marks(page_size);
        *self = Self { marks: Some((generation.number(), Arc::clone(&marks))), ..Self::default() };
        marks
    }

    /// Records that a boundary with everything that is pending is stored. No later one was taken.
    fn keep(&mut self, pages: u32) {
        self.pending = Changes::default();
        self.kept = Some(pages);
        if let Some((_, marks)) = self.marks.as_ref().filter(|_| Mutant::BoundaryBeforeCommit.is_on()) {
            drop(marks.take());
        }
    }
}

/// Fixes the state of a boundary. Must be called under the writer lock.
///
/// The order matters. The numbers of frames are read after the read transaction was opened: if the main file holds all
/// frames by then, none is needed; if not, the transaction keeps the `-wal` from being restarted. The marks are taken
/// when no transaction of the writer is open, or the pages that it has already written would be missing later.
fn fix(core: Option<&mut Core>, conn: &Attached, marks: &PageMarks) -> Result<Fixed, StoreFault> {
    let core = core.ok_or(StoreFault::Closed)?;
    if core.generation().number() != conn.generation().number() {
        return Err(replaced());
    }
    conn.execute_batch(FIX).map_err(|error| classify::own(&error))?;
    // This mode copies nothing and takes no lock. Like any checkpoint it first ends the work ahead of commits.
    let wal = core.checkpoint(ffi::SQLITE_CHECKPOINT_NOOP, Duration::ZERO)?;
    wal.verdict()?;
    let (Ok(frames), Ok(copied)) = (u32::try_from(wal.frames), u32::try_from(wal.copied)) else {
        return Err(lost(format!("the length of the -wal is unknown (code {})", wal.code)));
    };
    Ok(Fixed { applied: core.applied().clone(), frames, copied, changes: marks.take() })
}

/// Fails unless the store works and still has this generation.
fn check(shared: &Shared, generation: &Generation) -> Result<(), StoreFault> {
    if shared.stop() != Stop::Running {
        return Err(StoreFault::Closed);
    }
    if shared.generations.number() != generation.number() {
        return Err(replaced());
    }
    shared.check_agreed()?;
    shared.final_fault().map_or(Ok(()), Err)
}

fn number_of(conn: &Attached, pragma: &str) -> Result<u32, StoreFault> {
    conn.query_row(pragma, [], |row| row.get(0)).map_err(|error| classify::own(&error))
}

fn fault_of(error: OpenError) -> StoreFault {
    match error {
        OpenError::Fault(fault) => fault,
        other => StoreFault::Io(other.to_string()),
    }
}

fn replaced() -> StoreFault {
    lost("the database was replaced")
}

fn lost(why: impl Into<String>) -> StoreFault {
    StoreFault::ImageLost(why.into())
}
