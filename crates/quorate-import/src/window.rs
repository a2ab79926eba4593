//! A window that moves over a file: the bytes that were read and not yet taken are contiguous.
//!
//! Invariant: it holds at most [`RECORD_BYTES_MAX`] and two blocks.

use std::io::{self, Read};

use quorate::limits::VALUE_BYTES_MAX;

/// The most bytes of a record, with its delimiters and quotes.
pub const RECORD_BYTES_MAX: usize = VALUE_BYTES_MAX;

/// Bytes that are read at a time.
const BLOCK: usize = 256 << 10;

/// A window over a file.
pub struct Window {
    input: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    /// Where the bytes begin that are not yet taken.
    start: usize,
    /// Bytes of the file before the buffer's first.
    before: u64,
    ended: bool,
    block: usize,
}

impl Window {
    /// A window at the beginning of an input.
    pub fn new(input: impl Read + Send + 'static) -> Self {
        Self { input: Box::new(input), buffer: Vec::new(), start: 0, before: 0, ended: false, block: BLOCK }
    }

    /// Reads this many bytes at a time.
    pub fn with_block(self, block: usize) -> Self {
        Self { block, ..self }
    }

    /// The bytes that were read and not yet taken.
    #[inline]
    pub fn rest(&self) -> &[u8] {
        self.buffer.get(self.start..).unwrap_or_default()
    }

    /// Whether the rest reaches to the end of the file.
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// Whether the rest is at least as long as a record may be.
    pub fn is_full(&self) -> bool {
        self.rest().len() >= RECORD_BYTES_MAX
    }

    /// Bytes of the file that were taken.
    pub fn taken(&self) -> u64 {
        self.before.saturating_add(self.start as u64)
    }

    /// Takes bytes from the beginning of the rest.
    #[inline]
    pub fn take(&mut self, bytes: usize) {
        self.start = self.start.saturating_add(bytes).min(self.buffer.len());
    }

    /// Reads another block.
    pub fn grow(&mut self) -> io::Result<()> {
        self.buffer.drain(..self.start);
        self.before = self.before.saturating_add(self.start as u64);
        self.start = 0;
        let read = self.input.by_ref().take(self.block as u64).read_to_end(&mut self.buffer)?;
        self.ended = read < self.block;
        Ok(())
    }

    /// Takes everything up to and including the next line break, or to the end.
    pub fn take_line(&mut self) -> io::Result<()> {
        loop {
            if let Some(at) = self.rest().iter().position(|byte| *byte == b'\n') {
                self.take(at.saturating_add(1));
                return Ok(());
            }
            self.take(self.rest().len());
            if self.ended {
                return Ok(());
            }
            self.grow()?;
        }
    }
}
