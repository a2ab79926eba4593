//! What can be a key, a field or a value.

use bytes::Bytes;

/// A type that can be a key, a field, a member or a value: a text or bytes.
pub trait IntoBytes {
    /// Returns the bytes.
    fn into_bytes(self) -> Bytes;
}

impl IntoBytes for &str {
    fn into_bytes(self) -> Bytes {
        Bytes::copy_from_slice(self.as_bytes())
    }
}

impl IntoBytes for &[u8] {
    fn into_bytes(self) -> Bytes {
        Bytes::copy_from_slice(self)
    }
}

impl<const N: usize> IntoBytes for &[u8; N] {
    fn into_bytes(self) -> Bytes {
        Bytes::copy_from_slice(self)
    }
}

impl<const N: usize> IntoBytes for [u8; N] {
    fn into_bytes(self) -> Bytes {
        Bytes::copy_from_slice(&self)
    }
}

impl IntoBytes for &String {
    fn into_bytes(self) -> Bytes {
        self.as_str().into_bytes()
    }
}

impl IntoBytes for String {
    fn into_bytes(self) -> Bytes {
        self.into()
    }
}

impl IntoBytes for Vec<u8> {
    fn into_bytes(self) -> Bytes {
        self.into()
    }
}

impl IntoBytes for &Bytes {
    fn into_bytes(self) -> Bytes {
        self.clone()
    }
}

impl IntoBytes for Bytes {
    fn into_bytes(self) -> Bytes {
        self
    }
}

/// Converts each of several.
pub(super) fn all<B: IntoBytes>(items: impl IntoIterator<Item = B>) -> Vec<Bytes> {
    items.into_iter().map(IntoBytes::into_bytes).collect()
}
