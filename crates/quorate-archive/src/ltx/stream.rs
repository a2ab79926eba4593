//! A file as a stream of bytes, read or written from front to back.
//!
//! Invariants:
//! - The offset is that of the next byte, so an error names the place in the file.
//! - After a write has failed, nothing more is written.

use std::io::{Read, Write};

use crate::ltx::checksum::Running;
use crate::ltx::error::{Error, Fault, Result};

/// A source of bytes, with the offset that the reader has reached and the checksum of the bytes before it.
pub(crate) struct Source<R> {
    inner: R,
    pub offset: u64,
    pub crc: Running,
}

impl<R: Read> Source<R> {
    pub fn new(inner: R) -> Self {
        Self::starting_at(0, inner)
    }

    /// Reads a part of a file, which begins at this offset.
    pub fn starting_at(offset: u64, inner: R) -> Self {
        Self { inner, offset, crc: Running::new() }
    }

    /// Goes on at an offset, with the checksum of the bytes before it.
    pub fn resume(offset: u64, crc: Running, inner: R) -> Self {
        Self { inner, offset, crc }
    }

    /// Reads bytes that are hashed in another form, or not at all.
    pub fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        self.inner.read_exact(bytes).map_err(Error::read(self.offset))?;
        self.offset = self.offset.saturating_add(bytes.len() as u64);
        Ok(())
    }

    /// Reads bytes that are hashed as they are.
    pub fn fill_hashed(&mut self, bytes: &mut [u8]) -> Result<()> {
        self.fill(bytes)?;
        self.crc.update(bytes);
        Ok(())
    }

    /// Reads an array of bytes that are hashed as they are.
    pub fn take_hashed<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill_hashed(&mut bytes)?;
        Ok(bytes)
    }

    /// Checks that nothing follows.
    pub fn end(&mut self) -> Result<()> {
        match self.fill(&mut [0]) {
            Err(Error::Damaged { source: Fault::Truncated, .. }) => Ok(()),
            Ok(()) => Err(self.damaged(Fault::Trailing)),
            Err(error) => Err(error),
        }
    }

    /// Returns an error: the bytes before the current offset break a rule.
    pub fn damaged(&self, fault: Fault) -> Error {
        Error::damaged(self.offset, fault)
    }
}

/// A sink for bytes, with the offset that the writer has reached and the checksum of the bytes before it.
pub(crate) struct Sink<W> {
    inner: W,
    pub offset: u64,
    pub crc: Running,
    is_broken: bool,
}

impl<W: Write> Sink<W> {
    pub fn new(inner: W) -> Self {
        Self { inner, offset: 0, crc: Running::new(), is_broken: false }
    }

    /// Writes bytes that are hashed in another form, or not at all.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if self.is_broken {
            return Err(Error::Abandoned);
        }
        // Some of the bytes may be in the sink after an error.
        self.is_broken = true;
        self.inner.write_all(bytes).map_err(Error::write(self.offset))?;
        self.is_broken = false;
        self.offset = self.offset.saturating_add(bytes.len() as u64);
        Ok(())
    }

    /// Writes bytes that are hashed as they are.
    pub fn write_hashed(&mut self, bytes: &[u8]) -> Result<()> {
        self.crc.update(bytes);
        self.write(bytes)
    }

    /// Flushes the sink and returns it.
    pub fn finish(mut self) -> Result<W> {
        self.inner.flush().map_err(Error::write(self.offset))?;
        Ok(self.inner)
    }
}
