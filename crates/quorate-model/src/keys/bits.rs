//! Commands on the bits of strings. Bit 0 is the highest one of the first byte; those behind the end are 0.

use bytes::Bytes;

/// A command on the bits of strings. A missing key is an empty string, unless it is said otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BitCommand {
    /// Reads and changes integers in a string, one after the other, and returns for each the one before, or the sum;
    /// none if it did not fit (BITFIELD, BITFIELD_RO; GETBIT and SETBIT with an unsigned integer of one bit). The
    /// string grows first, so that it has all that are to be changed. Costs the whole string.
    Fields {
        /// The key.
        key: Bytes,
        /// What to do.
        steps: Vec<BitStep>,
    },
    /// Returns how many bits of a range are 1 (BITCOUNT). Costs the whole string.
    Count {
        /// The key.
        key: Bytes,
        /// Which bits.
        range: BitRange,
    },
    /// Returns where the first bit of a range is that is 1, or 0 (BITPOS). A 0 is found behind the end, too, if the
    /// range has none; and as bit 0 of a missing key. Costs the whole string.
    Find {
        /// The key.
        key: Bytes,
        /// Whether it is to be 1.
        one: bool,
        /// Which bits.
        range: BitRange,
    },
    /// Combines strings, stores the result in a key, whatever that holds, and returns the number of bytes, which is
    /// that of the longest string (BITOP). An empty result removes the key. Costs all strings.
    Combine {
        /// How.
        operation: BitOperation,
        /// The keys of the strings.
        keys: Vec<Bytes>,
        /// Where the result is stored.
        store: Bytes,
    },
}

/// Something to do with an integer in a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitStep {
    /// The type of the integer.
    pub integer: BitInteger,
    /// Its first bit.
    pub offset: u64,
    /// What to do.
    pub action: BitAction,
}

/// A type of integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitInteger {
    /// Whether it has a sign, in two's complement.
    pub signed: bool,
    /// How many bits it has: 1 to 64 with a sign, else to 63.
    pub bits: u8,
}

/// What to do with an integer in a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitAction {
    /// Read it (GET).
    Get,
    /// Set it (SET). To an unsigned integer a negative one is the same bits without sign.
    Set(i64, Overflow),
    /// Add to it (INCRBY).
    Add(i64, Overflow),
}

/// What becomes of an integer that does not fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// Its lowest bits are taken (WRAP).
    #[default]
    Wrap,
    /// The nearest one that fits is taken (SAT).
    Saturate,
    /// It is not written (FAIL).
    Fail,
}

/// A range of a string, from one index to another, both inside; a negative one counts from the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitRange {
    /// The first index.
    pub start: i64,
    /// The last index; none for that of the last byte or bit.
    pub end: Option<i64>,
    /// What the indexes count.
    pub unit: BitUnit,
}

/// What an index counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BitUnit {
    /// Bytes.
    #[default]
    Byte,
    /// Bits.
    Bit,
}

/// How the bits at the same place are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitOperation {
    /// Whether all are 1.
    And,
    /// Whether any is 1.
    Or,
    /// Whether the number of those that are 1 is odd.
    Xor,
    /// Whether none is 1; of one string, its bits inverted.
    Not,
}
