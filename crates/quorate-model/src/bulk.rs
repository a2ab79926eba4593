//! A statement that is run once for each of many rows of parameters, and the compact encoding of such rows.
//!
//! The rows are encoded back to back, and all have the same number of values. A value is a tag and its content; numbers
//! are little-endian. Each value has exactly one encoding, the shortest.
//!
//! | tag | value |
//! |---|---|
//! | 0 | NULL |
//! | 1 | a real: 8 bytes |
//! | 2 | a text of 240 bytes or more: its length (4 bytes), its bytes |
//! | 3 | a blob: its length (4 bytes), its bytes |
//! | 4..=12 | an integer of tag - 4 bytes, the fewest that hold it in two's complement; 0 has no bytes |
//! | 16..=255 | a text of tag - 16 bytes |
//!
//! Invariant: the contents of [`PackedRows`] are well-formed. Reading them never fails, and applying them never meets
//! bytes that another version would read differently.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;

use crate::limits::{BULK_ROWS_MAX, IN_PIECES, PARAMETERS_MAX, VALUE_BYTES_MAX, check_text, limit};
use crate::{Failure, FailureKind, Value};

const NULL: u8 = 0;
const REAL: u8 = 1;
const LONG_TEXT: u8 = 2;
const BLOB: u8 = 3;
const INTEGER: u8 = 4;
const SHORT_TEXT: u8 = 16;

/// The most bytes of an integer.
const INTEGER_BYTES_MAX: u8 = 8;

/// The most bytes of a text whose length is part of its tag.
const SHORT_TEXT_MAX: u8 = u8::MAX - SHORT_TEXT;

/// A statement that writes, and that is run once for each row of parameters, in their order.
///
/// It returns no rows. Its result covers all runs: the sum of the changes, and the last rowid inserted. If a run fails,
/// the [`Failure`] names its row.
#[derive(Clone, Debug, PartialEq)]
pub struct Bulk {
    /// One statement of SQL. A literal is borrowed, so that no call allocates for it.
    pub sql: Cow<'static, str>,
    /// Its parameters: the first value of a row is parameter 1.
    pub rows: PackedRows,
}

impl Bulk {
    /// Checks the limits on the text, on the rows and on their values.
    pub fn check_limits(&self) -> Result<(), Failure> {
        check_text(&self.sql)?;
        limit("rows of a statement", self.rows.len(), BULK_ROWS_MAX, "pass fewer rows at a time")?;
        limit("bytes of a value", self.rows.largest, VALUE_BYTES_MAX, IN_PIECES)
    }
}

/// A borrowed value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueRef<'a> {
    /// SQL NULL.
    Null,
    /// A 64-bit signed integer.
    Integer(i64),
    /// A 64-bit float.
    Real(f64),
    /// UTF-8 text.
    Text(&'a str),
    /// Bytes.
    Blob(&'a [u8]),
}

impl<'a> From<&'a Value> for ValueRef<'a> {
    fn from(value: &'a Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Integer(value) => Self::Integer(*value),
            Value::Real(value) => Self::Real(*value),
            Value::Text(text) => Self::Text(text),
            Value::Blob(bytes) => Self::Blob(bytes),
        }
    }
}

impl From<ValueRef<'_>> for Value {
    fn from(value: ValueRef<'_>) -> Self {
        match value {
            ValueRef::Null => Self::Null,
            ValueRef::Integer(value) => Self::Integer(value),
            ValueRef::Real(value) => Self::Real(value),
            ValueRef::Text(text) => Self::Text(text.to_owned()),
            ValueRef::Blob(bytes) => Self::Blob(Bytes::copy_from_slice(bytes)),
        }
    }
}

/// Rows of values, all of the same width, made by a [`RowPacker`]. Cheap to clone.
#[derive(Clone, PartialEq)]
pub struct PackedRows {
    width: usize,
    rows: usize,
    /// Bytes of the largest text or blob.
    largest: usize,
    bytes: Bytes,
}

impl PackedRows {
    /// Checks and takes rows that were encoded elsewhere; an error says what is wrong with them.
    pub(crate) fn decode(width: u32, bytes: Bytes) -> Result<Self, &'static str> {
        let width = usize::try_from(width).unwrap_or(usize::MAX);
        if width == 0 || width > PARAMETERS_MAX {
            return Err("rows with no values, or with too many");
        }
        let (mut values, mut largest, mut rest) = (0_usize, 0, &*bytes);
        while !rest.is_empty() {
            let (value, after) = split_value(rest).ok_or("a value in rows of parameters")?;
            if let RawValue::Text(text) = value {
                std::str::from_utf8(text).map_err(|_| "a text in rows of parameters")?;
            }
            largest = largest.max(value.text_or_blob().len());
            values = values.saturating_add(1);
            rest = after;
        }
        if !values.is_multiple_of(width) {
            return Err("a row of parameters is cut short");
        }
        Ok(Self { width, rows: values / width, largest, bytes })
    }

    /// Returns the number of values in each row; at least 1.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Returns the encoded rows.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Iterates over all values, row after row.
    pub fn values(&self) -> impl Iterator<Item = ValueRef<'_>> {
        self.raw_values().map_while(RawValue::checked)
    }

    /// Iterates over all values, row after row, without checking again that texts are UTF-8.
    pub fn raw_values(&self) -> RawValues<'_> {
        RawValues(&self.bytes)
    }

    /// Returns the rows without those at these numbers, which count from 0 and are in ascending order.
    #[must_use]
    pub fn without(&self, numbers: &[u32]) -> Self {
        let mut packer = RowPacker::with_capacity(self.width, self.bytes.len());
        let mut left_out = numbers.iter().copied().peekable();
        let mut values = self.values();
        for number in 0..self.rows {
            let keep = left_out.next_if(|left_out| usize::try_from(*left_out) == Ok(number)).is_none();
            for value in values.by_ref().take(self.width) {
                if keep {
                    packer.push(value);
                }
            }
            if keep {
                packer.complete_row();
            }
        }
        packer.finish()
    }
}

impl fmt::Debug for PackedRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PackedRows")
            .field("width", &self.width)
            .field("values", &Vec::from_iter(self.values()))
            .finish()
    }
}

/// A value of packed rows; a text is given as bytes that are known to be UTF-8.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RawValue<'a> {
    /// SQL NULL.
    Null,
    /// A 64-bit signed integer.
    Integer(i64),
    /// A 64-bit float.
    Real(f64),
    /// UTF-8 text.
    Text(&'a [u8]),
    /// Bytes.
    Blob(&'a [u8]),
}

/// The values of [`PackedRows`], one after another.
#[derive(Clone, Debug)]
pub struct RawValues<'a>(&'a [u8]);

impl<'a> Iterator for RawValues<'a> {
    type Item = RawValue<'a>;

    #[inline]
    fn next(&mut self) -> Option<RawValue<'a>> {
        let (value, rest) = split_value(self.0)?;
        self.0 = rest;
        Some(value)
    }
}

impl<'a> RawValue<'a> {
    /// Returns the same value, with a text as `str`; `None` if the text is not UTF-8.
    fn checked(self) -> Option<ValueRef<'a>> {
        Some(match self {
            Self::Null => ValueRef::Null,
            Self::Integer(value) => ValueRef::Integer(value),
            Self::Real(value) => ValueRef::Real(value),
            Self::Text(text) => ValueRef::Text(std::str::from_utf8(text).ok()?),
            Self::Blob(bytes) => ValueRef::Blob(bytes),
        })
    }

    /// Returns the bytes of a text or blob; empty for other values.
    #[inline]
    fn text_or_blob(self) -> &'a [u8] {
        match self {
            Self::Text(bytes) | Self::Blob(bytes) => bytes,
            Self::Null | Self::Integer(_) | Self::Real(_) => &[],
        }
    }
}

/// Splits the first value from bytes; `None` if they do not begin with the shortest encoding of a value. Does not check
/// that a text is UTF-8.
#[inline]
fn split_value(bytes: &[u8]) -> Option<(RawValue<'_>, &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    match tag {
        SHORT_TEXT.. => {
            let (text, rest) = rest.split_at_checked(usize::from(tag - SHORT_TEXT))?;
            Some((RawValue::Text(text), rest))
        }
        INTEGER.. => split_integer(tag - INTEGER, rest),
        NULL => Some((RawValue::Null, rest)),
        REAL => {
            let (real, rest) = rest.split_first_chunk()?;
            Some((RawValue::Real(f64::from_le_bytes(*real)), rest))
        }
        LONG_TEXT => {
            let (text, rest) = split_sized(rest)?;
            (text.len() > usize::from(SHORT_TEXT_MAX)).then_some((RawValue::Text(text), rest))
        }
        _ => split_sized(rest).map(|(blob, rest)| (RawValue::Blob(blob), rest)),
    }
}

#[inline]
fn split_integer(len: u8, bytes: &[u8]) -> Option<(RawValue<'_>, &[u8])> {
    let rest = bytes.get(usize::from(len)..)?;
    // Usually eight bytes can be taken at once; those after the number are shifted out below.
    let low = match bytes.first_chunk() {
        Some(eight) => u64::from_le_bytes(*eight),
        None => bytes.iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte)),
    };
    let unused = u32::from(INTEGER_BYTES_MAX.checked_sub(len)?) * 8;
    let value = low.checked_shl(unused).map_or(0, |high| high.cast_signed() >> unused);
    (integer_len(value) == len).then_some((RawValue::Integer(value), rest))
}

/// Returns the fewest bytes that hold an integer.
#[inline]
fn integer_len(value: i64) -> u8 {
    if value == 0 {
        return 0;
    }
    // The significant bits, and one for the sign.
    let bits = 65 - (value ^ (value >> 63)).leading_zeros();
    u8::try_from(bits.div_ceil(8)).unwrap_or(INTEGER_BYTES_MAX)
}

#[inline]
fn split_sized(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::try_from(u32::from_le_bytes(*len)).ok()?)
}

/// Packs rows, value by value.
///
/// ```
/// use quorate_model::{RowPacker, Value, ValueRef};
///
/// let mut packer = RowPacker::new(2);
/// for (id, name) in [(1, "Ann"), (2, "Bob")] {
///     packer.push(ValueRef::Integer(id));
///     packer.push(ValueRef::Text(name));
///     packer.end_row()?;
/// }
/// let rows = packer.finish();
/// assert_eq!((rows.len(), rows.values().nth(3)), (2, Some(ValueRef::Text("Bob"))));
/// # Ok::<(), quorate_model::Failure>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct RowPacker {
    width: usize,
    rows: usize,
    largest: usize,
    bytes: Vec<u8>,
    /// Where the unfinished row begins, and how many values it has.
    row_at: usize,
    values: usize,
}

impl RowPacker {
    /// Creates a packer for rows of `width` values; a width of 0 counts as 1.
    pub fn new(width: usize) -> Self {
        Self::with_capacity(width, 0)
    }

    /// Creates the same packer with capacity for `bytes` bytes.
    pub fn with_capacity(width: usize, bytes: usize) -> Self {
        Self { width: width.max(1), bytes: Vec::with_capacity(bytes), ..Self::default() }
    }

    /// Adds a value to the unfinished row.
    #[inline]
    pub fn push(&mut self, value: ValueRef<'_>) {
        self.values = self.values.saturating_add(1);
        match value {
            ValueRef::Null => self.bytes.push(NULL),
            ValueRef::Integer(value) => {
                let len = integer_len(value);
                self.bytes.push(INTEGER + len);
                // Copying eight bytes is faster than copying a few.
                let end = self.bytes.len().saturating_add(len.into());
                self.bytes.extend_from_slice(&value.to_le_bytes());
                self.bytes.truncate(end);
            }
            ValueRef::Real(value) => {
                self.bytes.push(REAL);
                self.bytes.extend_from_slice(&value.to_le_bytes());
            }
            ValueRef::Text(text) => match u8::try_from(text.len()) {
                Ok(len) if len <= SHORT_TEXT_MAX => {
                    self.bytes.push(SHORT_TEXT + len);
                    self.bytes.extend_from_slice(text.as_bytes());
                    self.largest = self.largest.max(text.len());
                }
                _ => self.sized(LONG_TEXT, text.as_bytes()),
            },
            ValueRef::Blob(blob) => self.sized(BLOB, blob),
        }
    }

    /// Ends the row.
    ///
    /// # Errors
    ///
    /// Returns [`FailureKind::Sql`] if the row does not have as many values as the others; the row is then dropped.
    pub fn end_row(&mut self) -> Result<(), Failure> {
        if self.values == self.width {
            self.complete_row();
            return Ok(());
        }
        let text =
            format!("it has {} values, the first row has {}: give every row the same number", self.values, self.width);
        self.drop_row();
        Err(Failure::new(FailureKind::Sql, text))
    }

    /// Drops the values of the unfinished row.
    pub fn drop_row(&mut self) {
        self.bytes.truncate(self.row_at);
        self.values = 0;
    }

    /// Returns the number of finished rows.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Returns whether there are no finished rows.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Returns the number of bytes of the finished rows.
    pub fn byte_len(&self) -> usize {
        self.row_at
    }

    /// Returns the rows. An unfinished row is dropped.
    pub fn finish(mut self) -> PackedRows {
        self.drop_row();
        let Self { width, rows, largest, bytes, .. } = self;
        PackedRows { width, rows, largest, bytes: bytes.into() }
    }

    fn complete_row(&mut self) {
        self.rows = self.rows.saturating_add(1);
        self.row_at = self.bytes.len();
        self.values = 0;
    }

    /// A length beyond 32 bits need not be encoded correctly, because such a value exceeds every limit and is never
    /// read.
    fn sized(&mut self, tag: u8, bytes: &[u8]) {
        self.bytes.push(tag);
        self.bytes.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
        self.bytes.extend_from_slice(bytes);
        self.largest = self.largest.max(bytes.len());
    }
}
