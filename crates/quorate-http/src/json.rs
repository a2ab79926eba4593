//! Writes JSON into a buffer. Answers are large and simple, so they are written without a tree in between.
//!
//! Invariant: what is written is valid JSON, whatever the values are.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Writes and reads base64 without padding; padding is accepted.
pub(crate) const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_encode_padding(false).with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The same, with padding.
const PADDED: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A JSON text that is being written.
#[derive(Debug, Default)]
pub(crate) struct Json(Vec<u8>);

impl Json {
    /// Writes text as it is.
    pub(crate) fn raw(&mut self, text: &str) -> &mut Self {
        self.0.extend_from_slice(text.as_bytes());
        self
    }

    /// Writes a string with quotes.
    pub(crate) fn string(&mut self, text: &str) -> &mut Self {
        // Writing to a vector does not fail.
        let _ = serde_json::to_writer(&mut self.0, text);
        self
    }

    /// Writes an integer.
    pub(crate) fn integer(&mut self, value: impl Into<i128>) -> &mut Self {
        self.raw(&value.into().to_string())
    }

    /// Writes a float. JSON has no infinity, but a number too large for a float is valid, and most clients read it as
    /// infinity. SQLite has no NaN.
    pub(crate) fn float(&mut self, value: f64) -> &mut Self {
        if value.is_finite() {
            let _ = serde_json::to_writer(&mut self.0, &value);
            return self;
        }
        self.raw(if value.is_nan() {
            "null"
        } else if value > 0.0 {
            "1e999"
        } else {
            "-1e999"
        })
    }

    /// Writes bytes as a string of base64.
    pub(crate) fn base64(&mut self, bytes: &[u8], is_padded: bool) -> &mut Self {
        let text = if is_padded { PADDED.encode(bytes) } else { BASE64.encode(bytes) };
        self.raw("\"").raw(&text).raw("\"")
    }

    /// Writes a list, with commas between what `write` writes for each item.
    pub(crate) fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Self, T),
    ) -> &mut Self {
        self.raw("[");
        for (number, item) in items.into_iter().enumerate() {
            if number > 0 {
                self.raw(",");
            }
            write(self, item);
        }
        self.raw("]")
    }

    /// Writes another JSON text.
    pub(crate) fn append(&mut self, other: Self) -> &mut Self {
        if self.0.is_empty() {
            self.0 = other.0;
        } else {
            self.0.extend_from_slice(&other.0);
        }
        self
    }

    /// Returns the number of bytes written so far.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// Returns nanoseconds as seconds, cut to milliseconds.
pub(crate) fn seconds(nanos: u64) -> String {
    let millis = nanos / 1_000_000;
    format!("{}.{:03}", millis / 1_000, millis % 1_000)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

    use proptest::prelude::*;

    use super::*;

    fn written(write: impl FnOnce(&mut Json)) -> serde_json::Value {
        let mut json = Json::default();
        write(&mut json);
        serde_json::from_slice(&json.into_bytes()).unwrap()
    }

    proptest! {
        #[test]
        fn values_are_read_back_as_they_were(
            text in "\\PC*|[\\x00-\\x1f\"\\\\]*",
            integer in any::<i64>(),
            float in any::<f64>(),
            bytes in any::<Vec<u8>>(),
        ) {
            prop_assert_eq!(written(|json| { json.string(&text); }), serde_json::json!(text));
            prop_assert_eq!(written(|json| { json.integer(integer); }), serde_json::json!(integer));
            if float.is_finite() {
                let read = written(|json| { json.float(float); }).as_f64().unwrap();
                prop_assert_eq!(read.to_bits(), float.to_bits());
            }
            for is_padded in [false, true] {
                let read = written(|json| { json.base64(&bytes, is_padded); });
                prop_assert_eq!(BASE64.decode(read.as_str().unwrap()).unwrap(), bytes.clone());
            }
        }
    }

    #[test]
    fn infinities_are_numbers_that_are_too_large() {
        let mut json = Json::default();
        json.list([f64::INFINITY, f64::NEG_INFINITY, f64::NAN], |json, value| {
            json.float(value);
        });
        assert_eq!(json.into_bytes(), b"[1e999,-1e999,null]");
    }
}
