//! Keys of requests: by a key that a client chooses, a request that is sent again is recognised, whatever handle,
//! connection or node it comes through.
//!
//! # Invariants
//!
//! - A key has 1 to [`REQUEST_KEY_BYTES_MAX`] bytes, also after decoding.
//! - The hash is taken over what the client asks for, not over what differs between two attempts of one request (the
//!   session, the budget, stamps).

use std::fmt;

use bytes::Bytes;

use crate::limits::{REQUEST_KEY_BYTES_MAX, limit};
use crate::{Failure, FailureKind};

/// The format level since which proposals may have a key.
pub const REQUEST_KEYS_LEVEL: u32 = 3;

/// The key of a request, and the hash of what the client asked for with it.
#[derive(Clone, PartialEq, Eq)]
pub struct RequestKey {
    key: Bytes,
    hash: [u8; Self::HASH_BYTES],
}

impl RequestKey {
    /// The bytes of the hash, which is a SHA-256.
    pub const HASH_BYTES: usize = 32;

    /// Takes a key and the hash of its request.
    ///
    /// # Errors
    ///
    /// [`FailureKind::Refused`] if the key is empty, and [`FailureKind::TooBig`] if it is longer than
    /// [`REQUEST_KEY_BYTES_MAX`].
    pub fn new(key: impl Into<Bytes>, hash: [u8; Self::HASH_BYTES]) -> Result<Self, Failure> {
        let key = key.into();
        limit("bytes of the key of a request", key.len(), REQUEST_KEY_BYTES_MAX, "use a shorter one, such as a UUID")?;
        if key.is_empty() {
            let text = "the key of a request is empty; use one that no other request has, such as a UUID";
            return Err(Failure::new(FailureKind::Refused, text));
        }
        Ok(Self { key, hash })
    }

    /// Returns the key.
    pub fn key(&self) -> &Bytes {
        &self.key
    }

    /// Returns the hash.
    pub fn hash(&self) -> &[u8; Self::HASH_BYTES] {
        &self.hash
    }
}

impl fmt::Debug for RequestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RequestKey({:?})", self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_1_to_256_bytes() {
        let text =
            |len: usize| RequestKey::new(vec![b'x'; len], [0; 32]).map_or_else(|why| why.to_string(), |_| "".into());
        assert_eq!((text(1), text(REQUEST_KEY_BYTES_MAX)), (String::new(), String::new()));
        assert_eq!(text(0), "the key of a request is empty; use one that no other request has, such as a UUID");
        let long = "257 bytes of the key of a request: the limit is 256; use a shorter one, such as a UUID";
        assert_eq!(text(257), long);
    }
}
