//! Sends an image.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use quorate_env::Instant;
use quorate_env::mutant::Mutant;
use quorate_model::{Applied, ImageSource, StoreFault};
use rusqlite::ffi;

use super::hashes::Hashes;
use super::piece::{End, Piece, Runs};
use super::{IMAGE_BYTES_MAX, PIECE_BLOCKS_MAX, SENDERS_MAX};
use crate::checkpoint::{self, FULL_WAIT, Pass};
use crate::connection::{self, Attached};
use crate::store::shared::{Shared, Slot, Stop};
use crate::vfs::marks::{BLOCK, Blocks, Marks};

/// The most blocks that may be left for the hold.
const REST_BLOCKS: u64 = 1024;

/// The most rounds before the hold is tried, however much is left.
const ROUNDS_MAX: usize = 12;

/// How long a complete checkpoint is tried. Read transactions of readers end much earlier. The receiver waits longer
/// for a piece, so that the error of the sender reaches it.
const HOLD_TRIED_FOR: Duration = Duration::from_secs(20);

/// Sends the database file while it changes, until a hold keeps it unchanged.
pub(crate) struct Sender {
    shared: Arc<Shared>,
    conn: Attached,
    marks: Arc<Marks>,
    hashes: Hashes,
    begun_at: Applied,
    stage: Stage,
    rounds: usize,
    hold_tried_since: Option<Instant>,
    /// The hold, and the applied position when it began.
    held: Option<(Pass, Applied)>,
    _slot: Slot,
}

/// The next step.
enum Stage {
    Start,
    /// Send these blocks from this number on.
    Blocks(Blocks, u64),
    /// Begin another round, or the hold.
    Round,
    Done,
}

impl Sender {
    pub(crate) fn begin(shared: &Arc<Shared>) -> Result<Self, StoreFault> {
        let slot = shared.senders.try_take(SENDERS_MAX);
        let slot = slot.ok_or_else(|| lost(format!("{SENDERS_MAX} other images are being sent")))?;
        // Read before the generation, so that an image installed in between is detected at the hold.
        let begun_at = shared.applied();
        let generation = shared.generations.current();
        let marks = generation.marks();
        let conn = connection::open_checkpointer(&generation).map_err(|error| StoreFault::Io(error.to_string()))?;
        Ok(Self {
            shared: Arc::clone(shared),
            conn,
            marks,
            hashes: Hashes::default(),
            begun_at,
            stage: Stage::Start,
            rounds: 0,
            hold_tried_since: None,
            held: None,
            _slot: slot,
        })
    }

    /// Collects the blocks that were written since they were last sent, and those that were never sent.
    fn gather(&mut self) -> Result<Stage, StoreFault> {
        let written = self.marks.take();
        if let Some(cut) = written.cut {
            self.hashes.forget_from(cut);
        }
        let mut blocks = written.blocks;
        let len = self.len()?;
        if len > IMAGE_BYTES_MAX {
            return Err(lost(format!("the database has more than {IMAGE_BYTES_MAX} bytes")));
        }
        self.hashes.add_missing(len, &mut blocks);
        Ok(Stage::Blocks(blocks, 0))
    }

    /// Checkpoints the file, then begins another round or the hold. Returns `Round` if it has to wait.
    fn round(&mut self) -> Result<Stage, StoreFault> {
        let Some(pass) = self.shared.gate.try_enter() else { return Ok(Stage::Round) };
        checkpoint::bound_wal(&self.shared, &pass, &self.conn)?;
        if self.marks.count() > REST_BLOCKS && self.rounds < ROUNDS_MAX {
            self.rounds = self.rounds.saturating_add(1);
            drop(pass);
            return self.gather();
        }
        self.shared.readers.end_old();
        let generation = self.conn.generation();
        let result = checkpoint::under_writer_lock(&self.shared, generation, ffi::SQLITE_CHECKPOINT_FULL, FULL_WAIT)?;
        let (done, applied) = result.ok_or_else(|| lost("the database was replaced"))?;
        if done.is_complete() || Mutant::ImageOfPartialCheckpoint.is_on() {
            self.held = Some((pass, applied));
            return self.gather();
        }
        self.shared.image_waits.store(true, Ordering::Release);
        let since = *self.hold_tried_since.get_or_insert_with(Instant::now);
        if since.elapsed() > HOLD_TRIED_FOR {
            return Err(lost("readers kept the checkpoint from completing"));
        }
        Ok(Stage::Round)
    }

    /// Reads the next blocks; `None` after the last.
    fn read(&mut self, blocks: &Blocks, from: &mut u64) -> Result<Option<Runs>, StoreFault> {
        let mut out = Runs::default();
        let mut room = self.shared.options.piece_blocks.clamp(1, PIECE_BLOCKS_MAX);
        while room > 0 {
            let Some((first, count)) = blocks.next_run(*from, room) else { break };
            *from = first.saturating_add(count);
            room = room.saturating_sub(count);
            let found = self.read_run(first, count, &mut out.bytes)?;
            if found > 0 {
                out.runs.push((first, found));
            }
        }
        Ok((!out.runs.is_empty()).then_some(out))
    }

    /// Appends blocks to `out`, and returns how many were read: the file may have become shorter.
    fn read_run(&mut self, first: u64, count: u64, out: &mut Vec<u8>) -> Result<u32, StoreFault> {
        let start = out.len();
        let len = usize::try_from(count.saturating_mul(BLOCK)).map_err(|error| StoreFault::Io(error.to_string()))?;
        out.resize(start.saturating_add(len), 0);
        let room = out.get_mut(start..).unwrap_or_default();
        let read = self.conn.generation().read_main(room, first.saturating_mul(BLOCK));
        let blocks = read.map_err(|error| StoreFault::Io(error.to_string()))? as u64 / BLOCK;
        let whole = usize::try_from(blocks.saturating_mul(BLOCK)).unwrap_or(len);
        out.truncate(start.saturating_add(whole));
        let content = out.get(start..).unwrap_or_default();
        for (number, block) in (first..).zip(content.chunks(usize::try_from(BLOCK).unwrap_or(usize::MAX))) {
            self.hashes.set(number, block);
        }
        Ok(u32::try_from(blocks).unwrap_or(u32::MAX))
    }

    /// Returns the last piece, and ends the hold.
    fn end(&mut self) -> Result<Option<Piece>, StoreFault> {
        let Some((pass, applied)) = self.held.take() else { return Ok(None) };
        let len = self.len()?;
        let digest = self.hashes.digest(len).ok_or_else(|| lost("blocks were not sent"))?;
        drop(pass);
        Ok(Some(Piece::End(End { len, digest, log_id: applied.log_id })))
    }

    fn len(&self) -> Result<u64, StoreFault> {
        self.conn.generation().main_bytes().map_err(|error| StoreFault::Io(error.to_string()))
    }

    fn check(&self) -> Result<(), StoreFault> {
        if self.shared.stop() != Stop::Running {
            return Err(StoreFault::Closed);
        }
        let max = self.shared.options.hold_bytes_max;
        if self.held.is_some() && self.conn.generation().wal_bytes() > max {
            return Err(lost(format!("the -wal grew beyond {max} bytes before the rest was sent")));
        }
        Ok(())
    }

    fn step(&mut self) -> Result<Option<Bytes>, StoreFault> {
        loop {
            match std::mem::replace(&mut self.stage, Stage::Done) {
                Stage::Start => {
                    self.stage = self.gather()?;
                    return encode(&Piece::Start(self.shared.options.identity));
                }
                Stage::Blocks(blocks, mut from) => {
                    if let Some(runs) = self.read(&blocks, &mut from)? {
                        self.stage = Stage::Blocks(blocks, from);
                        return encode(&Piece::Blocks(runs));
                    }
                    if self.held.is_none() {
                        self.stage = Stage::Round;
                    } else if let Some(end) = self.end()? {
                        return encode(&end);
                    }
                }
                Stage::Round => {
                    self.stage = self.round()?;
                    if let Stage::Round = self.stage {
                        return Ok(Some(Bytes::new()));
                    }
                }
                Stage::Done => return Ok(None),
            }
        }
    }
}

impl ImageSource for Sender {
    fn begun_at(&self) -> Applied {
        self.begun_at.clone()
    }

    fn next(&mut self) -> Result<Option<Bytes>, StoreFault> {
        self.check()?;
        self.shared.check_agreed()?;
        let result = self.step();
        if result.is_err() {
            self.stage = Stage::Done;
            self.held = None;
        }
        result
    }
}

fn encode(piece: &Piece) -> Result<Option<Bytes>, StoreFault> {
    piece.encode().map(Some).map_err(StoreFault::Io)
}

pub(super) fn lost(why: impl Into<String>) -> StoreFault {
    StoreFault::ImageLost(why.into())
}
