//! Conversion of values to Rust types.

use std::fmt;

use bytes::Bytes;
use quorate_model::Value;

/// What was expected of a value, and what was found instead.
#[derive(Clone, Debug, PartialEq)]
pub struct Mismatch {
    expected: &'static str,
    found: String,
}

impl Mismatch {
    /// The value has another storage class than expected.
    pub fn class(expected: &'static str, found: &Value) -> Self {
        Self { expected, found: found.class().to_owned() }
    }

    /// The value has the right storage class, but the type can't represent it.
    pub fn value(expected: &'static str, found: &Value) -> Self {
        Self { expected, found: format!("{} {found}", found.class()) }
    }

    /// Returns what was expected.
    pub fn expected(&self) -> &'static str {
        self.expected
    }

    /// Returns what was found: the storage class, followed by the value if the class is right.
    pub fn found(&self) -> &str {
        &self.found
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} was expected, it holds {}", self.expected, self.found)?;
        if self.found == Value::Null.class() { f.write_str("; read it as an Option") } else { Ok(()) }
    }
}

impl std::error::Error for Mismatch {}

/// A type that can be read from a value, by the value's storage class.
pub trait FromValue<'a>: Sized {
    /// Reads a value.
    fn from_value(value: &'a Value) -> Result<Self, Mismatch>;
}

/// Types that correspond to one storage class.
macro_rules! from_class {
    ($($type:ty, $class:ident, $expected:literal, $make:expr;)*) => {$(
        impl<'a> FromValue<'a> for $type {
            fn from_value(value: &'a Value) -> Result<Self, Mismatch> {
                match value {
                    Value::$class(inner) => Ok($make(inner)),
                    other => Err(Mismatch::class($expected, other)),
                }
            }
        }
    )*};
}

from_class! {
    i64, Integer, "an INTEGER", |inner: &i64| *inner;
    String, Text, "TEXT", Clone::clone;
    &'a str, Text, "TEXT", String::as_str;
    Vec<u8>, Blob, "a BLOB", |bytes: &Bytes| bytes.to_vec();
    Bytes, Blob, "a BLOB", Clone::clone;
    &'a [u8], Blob, "a BLOB", |bytes: &'a Bytes| bytes.as_ref();
}

/// Narrower integers: the value must fit.
macro_rules! from_integer {
    ($($type:ty, $expected:literal;)*) => {$(
        impl FromValue<'_> for $type {
            fn from_value(value: &Value) -> Result<Self, Mismatch> {
                match value {
                    Value::Integer(inner) => Self::try_from(*inner).map_err(|_| Mismatch::value($expected, value)),
                    other => Err(Mismatch::class($expected, other)),
                }
            }
        }
    )*};
}

from_integer! {
    i32, "an INTEGER of 32 bits";
    u32, "an INTEGER of 32 bits without sign";
    u64, "an INTEGER without sign";
    i16, "an INTEGER of 16 bits";
    u16, "an INTEGER of 16 bits without sign";
    i8, "an INTEGER of 8 bits";
    u8, "an INTEGER of 8 bits without sign";
    usize, "an INTEGER without sign";
}

/// Reads a REAL, or an INTEGER that an `f64` represents exactly: SQLite stores whole numbers as INTEGER in some
/// columns.
impl FromValue<'_> for f64 {
    fn from_value(value: &Value) -> Result<Self, Mismatch> {
        const EXACT: i64 = 1 << f64::MANTISSA_DIGITS;
        match value {
            Value::Real(inner) => Ok(*inner),
            #[expect(clippy::cast_precision_loss, reason = "the guard admits only numbers that are exact")]
            Value::Integer(inner) if (-EXACT..=EXACT).contains(inner) => Ok(*inner as f64),
            Value::Integer(_) => Err(Mismatch::value("a REAL", value)),
            other => Err(Mismatch::class("a REAL", other)),
        }
    }
}

/// Reads the INTEGER 0 or 1.
impl FromValue<'_> for bool {
    fn from_value(value: &Value) -> Result<Self, Mismatch> {
        const EXPECTED: &str = "0 or 1";
        match value {
            Value::Integer(0) => Ok(false),
            Value::Integer(1) => Ok(true),
            Value::Integer(_) => Err(Mismatch::value(EXPECTED, value)),
            other => Err(Mismatch::class(EXPECTED, other)),
        }
    }
}

/// Reads NULL as `None`.
impl<'a, T: FromValue<'a>> FromValue<'a> for Option<T> {
    fn from_value(value: &'a Value) -> Result<Self, Mismatch> {
        if *value == Value::Null { Ok(None) } else { T::from_value(value).map(Some) }
    }
}

/// Copies any value.
impl FromValue<'_> for Value {
    fn from_value(value: &Value) -> Result<Self, Mismatch> {
        Ok(value.clone())
    }
}

/// Borrows any value.
impl<'a> FromValue<'a> for &'a Value {
    fn from_value(value: &'a Value) -> Result<Self, Mismatch> {
        Ok(value)
    }
}
