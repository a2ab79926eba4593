//! The fuzzer's bytes, read as choices and contents.
//!
//! Invariant: numbers read after the end of the input are zero and contents are empty, so every input is valid.

/// The rest of an input that has not been read.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn u8(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or_default()
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.u8(), self.u8()])
    }

    pub fn u64(&mut self) -> u64 {
        (0..8).fold(0, |number, _| number << 8 | u64::from(self.u8()))
    }

    /// Reads `count` bytes, or as many as are left.
    pub fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    /// Reads a byte, and then as many bytes as it says.
    pub fn short(&mut self) -> &'a [u8] {
        let count = usize::from(self.u8());
        self.bytes(count)
    }

    /// Returns `true` for 16 of the 256 values of the next byte.
    pub fn rarely(&mut self) -> bool {
        self.u8() >= 240
    }

    /// Returns mostly `number`, sometimes a number near it, or any number below 2^62, which no counter reaches.
    pub fn near(&mut self, number: u64) -> u64 {
        let number = match self.u8() {
            0..=223 => number,
            delta @ 224..=251 => number.saturating_add(u64::from(delta)).saturating_sub(238),
            _ => self.u64(),
        };
        number & (u64::MAX >> 2)
    }
}
