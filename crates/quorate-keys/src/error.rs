//! Why a command failed.

use quorate_model::{Failure, FailureKind};
use thiserror::Error;

/// Why a command failed; it has written nothing. The texts are those of Redis, with its codes in front, where it has
/// the error too.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum KeysError {
    /// The key holds something of another kind.
    #[error("WRONGTYPE Operation against a key holding the wrong kind of value")]
    WrongType,
    /// A string that is to be added to is not an integer of 64 bits, written as such.
    #[error("ERR value is not an integer or out of range")]
    NotInteger,
    /// A string, or what is to be added to it, is not a number.
    #[error("ERR value is not a valid float")]
    NotFloat,
    /// A field that is to be added to is not an integer of 64 bits, written as such.
    #[error("ERR hash value is not an integer")]
    FieldNotInteger,
    /// A field that is to be added to is not a number.
    #[error("ERR hash value is not a float")]
    FieldNotFloat,
    /// What is to be added to a field is infinite.
    #[error("ERR value is NaN or Infinity")]
    Infinite,
    /// The sum is not an integer of 64 bits.
    #[error("ERR increment or decrement would overflow")]
    Overflow,
    /// The sum is not a finite number.
    #[error("ERR increment would produce NaN or Infinity")]
    NotFinite,
    /// The score, or the sum of two scores, is not a number.
    #[error("ERR resulting score is not a number (NaN)")]
    NotScore,
    /// The list has no item at the index.
    #[error("ERR index out of range")]
    NoIndex,
    /// The string would have more bytes than [`VALUE_BYTES_MAX`](crate::limits::VALUE_BYTES_MAX).
    #[error("ERR string exceeds maximum allowed size (proto-max-bulk-len)")]
    StringTooLong,
    /// A bit that is to be set is behind those of [`VALUE_BYTES_MAX`](crate::limits::VALUE_BYTES_MAX).
    #[error("ERR bit offset is not an integer or out of range")]
    BitOffset,
    /// An integer in a string has no bits, or more than 64, or than 63 without a sign.
    #[error("ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.")]
    BitInteger,
    /// The expiry is later than [`TIME_MAX`](crate::limits::TIME_MAX).
    #[error("ERR invalid expire time")]
    InvalidExpiry,
    /// A key, a field, a member or a value has too many bytes.
    #[error("ERR the {what} has {bytes} bytes, and may have {max}")]
    TooLong {
        /// What is too long.
        what: &'static str,
        /// Its bytes.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The command would look at, or change, more rows of a collection than one command may.
    #[error("ERR the command concerns {rows} elements, and may concern {max}; split it into smaller ones")]
    TooManyRows {
        /// The number of rows.
        rows: u64,
        /// The limit.
        max: u64,
    },
    /// So many members of a sorted set have expired, and were not swept, that a command can't pass over them: more than
    /// [`READ_ROWS_MAX`](crate::limits::READ_ROWS_MAX), or than a reply may have.
    #[error("ERR too many members of the sorted set have expired and are still to be removed; try again soon")]
    TooManyExpired,
    /// The reply would have more bytes than [`REPLY_BYTES_MAX`](crate::limits::REPLY_BYTES_MAX).
    #[error("ERR the reply has more than {max} bytes; ask for less")]
    ReplyTooLong {
        /// The limit.
        max: usize,
    },
    /// The key does not have the version that the entry depends on.
    #[error("CONFLICT the key has another version; read it again")]
    Conflict,
    /// The entry has not enough steps left.
    #[error("ERR the entry needs more steps than its budget has; ask for more")]
    OutOfBudget,
}

impl KeysError {
    /// Returns whether the same command may succeed when it is sent again, after what it depends on was read again.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Conflict | Self::TooManyExpired)
    }

    /// Returns the kind of the failure that tells a client.
    fn kind(&self) -> FailureKind {
        match self {
            Self::WrongType => FailureKind::WrongType,
            Self::NotInteger
            | Self::NotFloat
            | Self::FieldNotInteger
            | Self::FieldNotFloat
            | Self::Infinite
            | Self::Overflow
            | Self::NotFinite
            | Self::NotScore
            | Self::NoIndex
            | Self::BitOffset
            | Self::BitInteger
            | Self::InvalidExpiry => FailureKind::InvalidValue,
            Self::StringTooLong
            | Self::TooLong { .. }
            | Self::TooManyRows { .. }
            | Self::TooManyExpired
            | Self::ReplyTooLong { .. } => FailureKind::TooBig,
            Self::Conflict => FailureKind::Conflict,
            Self::OutOfBudget => FailureKind::Budget,
        }
    }
}

impl From<KeysError> for Failure {
    fn from(error: KeysError) -> Self {
        Self::new(error.kind(), error.to_string())
    }
}
