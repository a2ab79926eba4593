//! Chunks: groups of rows that are each written as one atomic entry.
//!
//! Invariant: where a chunk ends depends only on the rows and on the configured size. An import that continues after an
//! interruption therefore makes the same chunks again.

use std::mem;
use std::ops::ControlFlow;

use quorate::sql::{PackedRows, RowPacker};
use tokio::sync::mpsc;

use crate::error::{Context as _, Result};
use crate::line::{BadLine, Read};

/// Finished chunks that may wait to be written.
const WAITING_MAX: usize = 2;

/// The most rows of a chunk, however small they are.
const ROWS_MAX: usize = 65_536;

/// The most bad lines of a chunk.
const BAD_MAX: usize = 1_000;

/// Rows that are written together.
#[derive(Debug)]
pub struct Chunk {
    /// Its number among the chunks with rows, from 0.
    pub number: u64,
    /// The rows; none if the chunk has only bad lines.
    pub rows: PackedRows,
    /// The line of each row.
    pub lines: Vec<u64>,
    /// The bad lines between them.
    pub bad: Vec<BadLine>,
    /// How much of the source was read up to its end.
    pub taken: u64,
}

/// Gathers rows into chunks.
pub struct Chunker {
    width: usize,
    bytes: usize,
    number: u64,
    rows: RowPacker,
    lines: Vec<u64>,
    bad: Vec<BadLine>,
    chunks: mpsc::Sender<Result<Chunk>>,
}

/// Starts a thread on which `read` adds all rows to a chunker, as fast as the chunks are taken.
pub fn start(
    width: usize,
    bytes: usize,
    read: impl FnOnce(&mut Chunker) -> Result<()> + Send + 'static,
) -> Result<mpsc::Receiver<Result<Chunk>>> {
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
        if let Err(error) = read(&mut chunker) {
            // The send fails if the import has stopped.
            let _ = chunker.chunks.blocking_send(Err(error));
        }
    };
    let thread = std::thread::Builder::new().name("import".to_owned()).spawn(read);
    thread.map(|_| receiver).context(|| "cannot start a thread")
}

impl Chunker {
    /// The row that is being read.
    pub fn row(&mut self) -> &mut RowPacker {
        &mut self.rows
    }

    /// Adds what was read to the chunk; `taken` is how much of the source is read. Breaks at the end of the source, or
    /// when the import has stopped.
    pub fn take(&mut self, read: Read, taken: u64) -> ControlFlow<()> {
        match read {
            Read::Row(line) => match self.rows.end_row() {
                Ok(()) => self.lines.push(line),
                // A source that packs rows of the right width never gets here; if one did not, the row is reported.
                Err(failure) => self.bad.push(crate::line::bad_line(line, failure.to_string(), b"")),
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

/// The capacity that suffices for most chunks: their bytes and the row that completes them.
fn room(bytes: usize) -> usize {
    bytes.saturating_add(bytes / 8)
}
