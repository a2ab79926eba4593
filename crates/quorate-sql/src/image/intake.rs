//! Writes the pieces of an image into a file, for a store that installs it and for a backup.
//!
//! Invariant: [`Intake::finish`] succeeds only if the file, read again in full, has the digest that its sender
//! computed.

use std::io;
use std::path::Path;
use std::sync::Arc;

use quorate_apply::{AppliedRow, check_level};
use quorate_env::disk::File;
use quorate_env::mutant::Mutant;
use quorate_model::{LogId, StoreFault, StoreIdentity};
use rusqlite::{Connection, ffi};

use super::hashes::Hashes;
use super::piece::{End, Piece, Runs};
use super::sender::lost;
use crate::classify;
use crate::connection;
use crate::error::OpenError;
use crate::extensions;
use crate::ffi::control;
use crate::options::StoreOptions;
use crate::records::applied_row;
use crate::vfs::UNSYNCED_MAX;
use crate::vfs::marks::BLOCK;

/// The most blocks that may be missing before a received one, 1 GiB: each takes 8 bytes of memory. A sender sends the
/// file from its start, and omits only what was cut off its end meanwhile.
const GAP_BLOCKS_MAX: u64 = 1 << 18;

/// Bytes that are read at a time when the file is read again; whole blocks.
const CHUNK_BYTES: usize = 1 << 20;

/// Receives the pieces of an image.
pub(crate) struct Intake {
    file: Arc<dyn File>,
    hashes: Hashes,
    /// Bytes of the file so far.
    bytes: u64,
    /// Bytes written since the last sync.
    unsynced: u64,
    identity: Option<StoreIdentity>,
    end: Option<End>,
}

impl Intake {
    /// Begins with an empty file.
    pub(crate) fn new(file: Arc<dyn File>) -> Self {
        Self { file, hashes: Hashes::default(), bytes: 0, unsynced: 0, identity: None, end: None }
    }

    /// Takes the next piece. An empty piece means that the sender has to wait.
    pub(crate) fn write(&mut self, piece: &[u8]) -> Result<(), StoreFault> {
        if piece.is_empty() {
            return Ok(());
        }
        match Piece::decode(piece).map_err(lost)? {
            _ if self.end.is_some() => Err(lost("a piece came after the last")),
            Piece::Start(identity) => {
                self.identity = Some(identity);
                Ok(())
            }
            _ if self.identity.is_none() => Err(lost("the first piece is missing")),
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

    /// The identity of the data, after the first piece.
    pub(crate) fn identity(&self) -> Option<StoreIdentity> {
        self.identity
    }

    /// Bytes of the file so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Makes the file durable after the last piece, and closes it. Returns what the file must contain.
    pub(crate) fn finish(self) -> Result<(StoreIdentity, Option<LogId>), StoreFault> {
        let (Some(identity), Some(end)) = (self.identity, self.end) else {
            return Err(lost("its last piece is missing"));
        };
        self.file.sync_data().map_err(io_fault)?;
        if !Mutant::ImageNotReadAgain.is_on() && self.digest_of_file(end.len)? != Some(end.digest) {
            return Err(lost("the disk returned other bytes than were written; replace it if this happens again"));
        }
        // The file is closed here, before SQLite opens it: closing it later would drop SQLite's locks.
        Ok((identity, end.log_id))
    }

    fn digest_of_file(&self, len: u64) -> Result<Option<u128>, StoreFault> {
        let (mut hashes, mut chunk, mut at) = (Hashes::default(), vec![0; CHUNK_BYTES], 0_u64);
        while at < len {
            let count = self.file.read_at(&mut chunk, at).map_err(io_fault)?;
            let read = chunk.get(..count).unwrap_or_default();
            if read.is_empty() {
                return Ok(None);
            }
            for (number, block) in (at / BLOCK..).zip(read.chunks(usize::try_from(BLOCK).unwrap_or(usize::MAX))) {
                hashes.set(number, block);
            }
            at = at.saturating_add(count as u64);
        }
        Ok(hashes.digest(len))
    }

    fn write_blocks(&mut self, runs: &Runs) -> Result<(), StoreFault> {
        let mut rest = runs.bytes.as_slice();
        for (first, count) in &runs.runs {
            let len = usize::try_from(u64::from(*count).saturating_mul(BLOCK)).unwrap_or(usize::MAX);
            let (bytes, more) = rest.split_at_checked(len).ok_or_else(|| lost("blocks are missing"))?;
            rest = more;
            if *first > self.bytes.div_ceil(BLOCK).saturating_add(GAP_BLOCKS_MAX) {
                return Err(lost(format!("too many blocks in front of block {first} are missing")));
            }
            let at = first.saturating_mul(BLOCK);
            self.file.write_at(bytes, at).map_err(io_fault)?;
            self.bytes = self.bytes.max(at.saturating_add(bytes.len() as u64));
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

/// Checks that the file is an intact database at the position of the image. If a node with these options is to use it,
/// also checks that the node understands its format level and has the extensions that it needs.
pub(crate) fn verify(
    vfs: &str,
    path: &Path,
    identity: StoreIdentity,
    log_id: Option<LogId>,
    node: Option<&StoreOptions>,
) -> Result<AppliedRow, StoreFault> {
    let conn = connection::open_immutable(vfs, path).map_err(fault_of)?;
    if let Some(StoreOptions { extensions, .. }) = node {
        extensions.know(&extensions.enabled(&conn)?)?;
        extensions.register_all(&conn).map_err(|error| classify::own(&error))?;
    }
    let row = applied_row::read(&conn)?.ok_or_else(|| lost("it is not the database of a store"))?;
    let is_there = row.applied.log_id == log_id || Mutant::ImageOfPartialCheckpoint.is_on();
    if row.identity != identity || !is_there {
        return Err(lost(format!("it says that it ends at {:?}, not at {log_id:?}", row.applied.log_id)));
    }
    if let Some(options) = node {
        check_level(row.applied.level, options.level)?;
    }
    let verdict = quick_check(&conn).map_err(|error| lost(error.to_string()))?;
    if verdict == "ok" { Ok(row) } else { Err(lost(format!("it is damaged: {verdict}"))) }
}

/// SQLite's verdict on the structure of a database: `ok`, or the first error. Virtual tables can't be used on this
/// connection afterwards.
///
/// The contents that statements have stored do not matter: an FTS5 index that differs from its content table, violated
/// constraints, or generated columns that can't be computed. SQLite checks the structure before it comes to those. If
/// the schema uses functions or collations of another program, SQLite gives no verdict, and the digest of the pages has
/// to suffice.
pub(crate) fn quick_check(conn: &Connection) -> rusqlite::Result<String> {
    control::drop_modules(conn);
    conn.pragma_update(None, "ignore_check_constraints", true)?;
    match conn.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)) {
        Err(error) if extensions::is_missing(&error) || is_of_a_statement(&error) => Ok("ok".to_owned()),
        verdict => verdict,
    }
}

/// Whether an error comes from an expression in the schema, and not from the file.
fn is_of_a_statement(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|error| error.extended_code & 0xff);
    matches!(code, Some(ffi::SQLITE_ERROR | ffi::SQLITE_TOOBIG | ffi::SQLITE_MISMATCH))
}

pub(super) fn fault_of(error: OpenError) -> StoreFault {
    match error {
        OpenError::Fault(fault) => fault,
        OpenError::Disk { source, .. } => io_fault(source),
        other => StoreFault::Io(other.to_string()),
    }
}

pub(super) fn io_fault(error: io::Error) -> StoreFault {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreFault::Full(error.to_string()),
        _ => StoreFault::Io(error.to_string()),
    }
}
