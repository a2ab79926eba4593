//! Rows gathered into chunks, each of which is written as one atomic entry.
//!
//! Invariant: where chunks end depends on the rows and on the size asked for, and on nothing else, so that an import
//! that goes on after an interruption makes the same chunks again.

use std::mem;
use std::ops::ControlFlow;

use quorate::{PackedRows, RowPacker};
use tokio::sync::mpsc;

use super::line::{BadLine, Read};
use super::source::Rows;
use crate::error::{Error, Result};

/// Chunks that wait to be written.
const WAITING_MAX: usize = 2;

/// Rows of a chunk, however small they are.
const ROWS_MAX: usize = 65_536;

/// Bad lines of a chunk.
const BAD_MAX: usize = 1_000;

/// Rows that are written together.
#[derive(Debug)]
pub struct Chunk {
    /// Its number, from 0, among those that have rows.
    pub number: u64,
    /// The rows; none where there are only bad lines to tell.
    pub rows: PackedRows,
    /// The line of each row.
    pub lines: Vec<u64>,
    /// Lines between them that are no rows.
    pub bad: Vec<BadLine>,
    /// How much of the source was read when it ended.
    pub taken: u64,
}

/// Gathers rows.
pub struct Chunker {
    width: usize,
    bytes: usize,
    number: u64,
    rows: RowPacker,
    lines: Vec<u64>,
    bad: Vec<BadLine>,
    chunks: mpsc::Sender<Result<Chunk>>,
}

/// Reads rows on a thread of their own, as fast as the chunks are taken.
pub fn start(rows: Rows, width: usize, bytes: usize) -> Result<mpsc::Receiver<Result<Chunk>>> {
    let (chunks, receiver) = mpsc::channel(WAITING_MAX);
    let mut chunker = Chunker {
        width,
        bytes,
        number: 0,
        rows: RowPacker::with_capacity(width, room(bytes)),
        lines: Vec::new(),
        bad: Vec::new(),
        chunks,
    };
    let read = move || {
        if let Err(error) = rows.read(&mut chunker) {
            // Who waits for chunks may have given up.
            let _ = chunker.chunks.blocking_send(Err(error));
        }
    };
    let thread = std::thread::Builder::new().name("import".to_owned()).spawn(read);
    thread.map(|_| receiver).map_err(|error| Error::new(format!("cannot start a thread: {error}")))
}

impl Chunker {
    /// The row at work.
    pub fn row(&mut self) -> &mut RowPacker {
        &mut self.rows
    }

    /// Takes what was read, at which point so much of the source was. Breaks at the end, or where nobody wants more.
    pub fn take(&mut self, read: Read, taken: u64) -> ControlFlow<()> {
        match read {
            Read::Row(line) => match self.rows.end_row() {
                Ok(()) => self.lines.push(line),
                // Sources see to it that this never happens; a row is not lost in silence if one does not.
                Err(failure) => self.bad.push(super::line::bad_line(line, failure.to_string(), b"")),
            },
            Read::Bad(bad) => {
                self.rows.drop_row();
                self.bad.push(bad);
            }
            Read::End => {
                let _ = self.send(taken);
                return ControlFlow::Break(());
            }
        }
        if self.rows.byte_len() < self.bytes && self.rows.len() < ROWS_MAX && self.bad.len() < BAD_MAX {
            return ControlFlow::Continue(());
        }
        self.send(taken)
    }

    fn send(&mut self, taken: u64) -> ControlFlow<()> {
        let rows = mem::replace(&mut self.rows, RowPacker::with_capacity(self.width, room(self.bytes))).finish();
        if rows.is_empty() && self.bad.is_empty() {
            return ControlFlow::Continue(());
        }
        let number = self.number;
        self.number = number.saturating_add(u64::from(!rows.is_empty()));
        let (lines, bad) = (mem::take(&mut self.lines), mem::take(&mut self.bad));
        match self.chunks.blocking_send(Ok(Chunk { number, rows, lines, bad, taken })) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }
}

/// What a chunk takes mostly: its bytes, and those of the row that made it whole.
fn room(bytes: usize) -> usize {
    bytes.saturating_add(bytes / 8)
}
