//! Bytes of a fuzzer as choices and contents.
//!
//! Invariant: what was all used up goes on as zeros, so every input means something.

/// What is left of an input.
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

    /// So many bytes, or as many as there are.
    pub fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    /// Bytes whose number is one of them.
    pub fn short(&mut self) -> &'a [u8] {
        let count = usize::from(self.u8());
        self.bytes(count)
    }

    /// True once in a while.
    pub fn rarely(&mut self) -> bool {
        self.u8() >= 240
    }

    /// Mostly this number, else one near it, or any up to where nobody ever counts.
    pub fn near(&mut self, number: u64) -> u64 {
        let number = match self.u8() {
            0..=223 => number,
            delta @ 224..=251 => number.saturating_add(u64::from(delta)).saturating_sub(238),
            _ => self.u64(),
        };
        number & (u64::MAX >> 2)
    }
}
