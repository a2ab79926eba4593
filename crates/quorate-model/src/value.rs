//! SQL values.

use std::fmt;

use bytes::Bytes;

/// A value, by SQLite's storage classes.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value {
    /// SQL NULL.
    #[default]
    Null,
    /// A 64-bit signed integer.
    Integer(i64),
    /// A 64-bit float. SQLite stores NaN as NULL.
    Real(f64),
    /// UTF-8 text.
    Text(String),
    /// Bytes.
    Blob(Bytes),
}

impl Value {
    /// Returns the name of the storage class.
    pub fn class(&self) -> &'static str {
        match self {
            Self::Null => "NULL",
            Self::Integer(_) => "INTEGER",
            Self::Real(_) => "REAL",
            Self::Text(_) => "TEXT",
            Self::Blob(_) => "BLOB",
        }
    }

    /// Returns the number of bytes of a text or blob; 8 for numbers, 0 for NULL.
    pub fn size(&self) -> usize {
        match self {
            Self::Null => 0,
            Self::Integer(_) | Self::Real(_) => 8,
            Self::Text(text) => text.len(),
            Self::Blob(bytes) => bytes.len(),
        }
    }
}

impl fmt::Display for Value {
    /// Formats the value as SQLite's shell does; blobs as `x'..'`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("NULL"),
            Self::Integer(value) => write!(f, "{value}"),
            Self::Real(value) => write!(f, "{value:?}"),
            Self::Text(text) => f.write_str(text),
            Self::Blob(bytes) => {
                f.write_str("x'")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
                f.write_str("'")
            }
        }
    }
}

macro_rules! value_from {
    ($($type:ty => $make:expr),* $(,)?) => {$(
        impl From<$type> for Value {
            fn from(value: $type) -> Self {
                let make: fn($type) -> Value = $make;
                make(value)
            }
        }
    )*};
}

mod types;

value_from! {
    i64 => Value::Integer,
    i32 => |value| Value::Integer(value.into()),
    i16 => |value| Value::Integer(value.into()),
    i8 => |value| Value::Integer(value.into()),
    u32 => |value| Value::Integer(value.into()),
    u16 => |value| Value::Integer(value.into()),
    u8 => |value| Value::Integer(value.into()),
    bool => |value| Value::Integer(value.into()),
    f64 => Value::Real,
    f32 => |value| Value::Real(value.into()),
    String => Value::Text,
    &str => |value| Value::Text(value.to_owned()),
    Vec<u8> => |value| Value::Blob(value.into()),
    Bytes => Value::Blob,
    &[u8] => |value| Value::Blob(Bytes::copy_from_slice(value)),
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}
