//! An image on its way in: written into a new generation, verified there, then put in force.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use quorate_env::disk::{File, OpenMode};
use quorate_model::{Applied, ImageSink, StoreFault};
use rusqlite::Connection;

use super::hashes::Hashes;
use super::piece::{End, Piece, Runs};
use super::sender::lost;
use crate::applied_row::AppliedRow;
use crate::connection;
use crate::error::OpenError;
use crate::generation::Staged;
use crate::store::core::Core;
use crate::store::shared::{Shared, Slot};
use crate::vfs::UNSYNCED_MAX;
use crate::vfs::marks::BLOCK;

/// Takes the pieces of an image.
pub(crate) struct Receiver {
    shared: Arc<Shared>,
    // Before the generation under construction, whose drop removes the file.
    file: Arc<dyn File>,
    staged: Staged,
    hashes: Hashes,
    /// Bytes written since the last sync.
    unsynced: u64,
    begun: bool,
    end: Option<End>,
    _slot: Slot,
}

impl Receiver {
    pub(crate) fn begin(shared: &Arc<Shared>) -> Result<Self, StoreFault> {
        let slot = shared.receivers.try_take(1).ok_or_else(|| lost("another is being received"))?;
        let staged = shared.generations.stage().map_err(fault_of)?;
        let file = shared.env.disk().open(&staged.path(), OpenMode::ReadWrite).map_err(io_fault)?;
        let hashes = Hashes::default();
        Ok(Self { shared: Arc::clone(shared), file, staged, hashes, unsynced: 0, begun: false, end: None, _slot: slot })
    }

    fn take(&mut self, piece: Piece) -> Result<(), StoreFault> {
        match piece {
            _ if self.end.is_some() => Err(lost("a piece came after the last")),
            Piece::Start(identity) => {
                let expected = self.shared.options.identity;
                if identity != expected {
                    return Err(lost(OpenError::Identity { expected, found: identity }.to_string()));
                }
                self.begun = true;
                Ok(())
            }
            _ if !self.begun => Err(lost("the first piece is missing")),
            Piece::Blocks(runs) => self.write_blocks(&runs),
            Piece::End(end) => {
                if self.hashes.digest(end.len) != Some(end.digest) {
                    return Err(lost("its digest does not match"));
                }
                self.file.set_len(end.len).map_err(io_fault)?;
                self.end = Some(end);
                Ok(())
            }
        }
    }

    fn write_blocks(&mut self, runs: &Runs) -> Result<(), StoreFault> {
        let mut rest = runs.bytes.as_slice();
        for (first, count) in &runs.runs {
            let len = usize::try_from(u64::from(*count).saturating_mul(BLOCK)).unwrap_or(usize::MAX);
            let (bytes, more) = rest.split_at_checked(len).ok_or_else(|| lost("blocks are missing"))?;
            rest = more;
            self.file.write_at(bytes, first.saturating_mul(BLOCK)).map_err(io_fault)?;
            for (number, block) in (*first..).zip(bytes.chunks(usize::try_from(BLOCK).unwrap_or(usize::MAX))) {
                self.hashes.set(number, block);
            }
        }
        self.unsynced = self.unsynced.saturating_add(runs.bytes.len() as u64);
        if self.unsynced >= UNSYNCED_MAX {
            self.file.sync_data().map_err(io_fault)?;
            self.unsynced = 0;
        }
        Ok(())
    }
}

impl ImageSink for Receiver {
    fn write(&mut self, piece: Bytes) -> Result<(), StoreFault> {
        if piece.is_empty() {
            return Ok(());
        }
        self.take(Piece::decode(&piece).map_err(lost)?)
    }

    fn install(self: Box<Self>) -> Result<Applied, StoreFault> {
        let Self { shared, file, staged, end, _slot, .. } = *self;
        let end = end.ok_or_else(|| lost("its last piece never came"))?;
        file.sync_data().map_err(io_fault)?;
        // Closed before SQLite opens the file: a later close would drop SQLite's locks.
        drop(file);
        verify(&shared, &staged, &end)?;
        install(&shared, staged)
    }
}

/// Checks that the file is a sound database that stands where the image says.
fn verify(shared: &Shared, staged: &Staged, end: &End) -> Result<(), StoreFault> {
    let generation = shared.generations.current();
    let conn = connection::open_immutable(generation.vfs(), &staged.path()).map_err(fault_of)?;
    let row = AppliedRow::read(&conn)?.ok_or_else(|| lost("it is no database of a store"))?;
    if row.identity != shared.options.identity || row.applied.log_id != end.log_id {
        return Err(lost(format!("it says that it ends at {:?}, not at {:?}", row.applied.log_id, end.log_id)));
    }
    let verdict = quick_check(&conn).map_err(|error| lost(error.to_string()))?;
    if verdict == "ok" { Ok(()) } else { Err(lost(format!("it is damaged: {verdict}"))) }
}

fn quick_check(conn: &Connection) -> rusqlite::Result<String> {
    conn.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
}

/// Switches to the new generation between two batches of the writer.
fn install(shared: &Shared, staged: Staged) -> Result<Applied, StoreFault> {
    shared.turn.visit(|core| {
        if core.is_none() {
            return Err(StoreFault::Closed);
        }
        let next = shared.generations.publish(staged).and_then(|generation| Core::open(generation, &shared.options));
        let next = next.map_err(|error| {
            // Which generation is in force is not known: what were applied to the old one now could be lost.
            let fault = StoreFault::Io(format!("while an image was installed: {error}"));
            shared.report(&fault);
            fault
        })?;
        let applied = next.applied().clone();
        *core = Some(next);
        shared.installed(&applied);
        Ok(applied)
    })
}

fn fault_of(error: OpenError) -> StoreFault {
    match error {
        OpenError::Fault(fault) => fault,
        OpenError::Disk { source, .. } => io_fault(source),
        other => StoreFault::Io(other.to_string()),
    }
}

fn io_fault(error: io::Error) -> StoreFault {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreFault::Full(error.to_string()),
        _ => StoreFault::Io(error.to_string()),
    }
}
