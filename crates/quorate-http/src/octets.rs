//! Bytes in URLs and in JSON: keys, values and names of locks may be any.
//!
//! Invariant: different bytes are never written in the same way, and what is written is read back as it was.

use std::fmt;

use base64::Engine as _;
use bytes::Bytes;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};

use crate::error::Problem;
use crate::json::{BASE64, Json};

/// Bytes in JSON: a string if they are UTF-8, else `{"base64": "..."}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Text(pub(crate) Bytes);

/// Bytes that are not UTF-8, in JSON.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Encoded {
    base64: String,
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, or {\"base64\": \"...\"}")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Text, E> {
                Ok(Text(Bytes::copy_from_slice(text.as_bytes())))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Text, A::Error> {
                let Encoded { base64 } = Encoded::deserialize(MapAccessDeserializer::new(map))?;
                let bytes = BASE64.decode(base64).map_err(|error| A::Error::custom(format!("base64: {error}")))?;
                Ok(Text(bytes.into()))
            }
        }

        deserializer.deserialize_any(Either)
    }
}

/// Writes bytes as [`Text`] reads them.
pub(crate) fn write(json: &mut Json, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => json.string(text),
        Err(_) => json.raw("{\"base64\":").base64(bytes, true).raw("}"),
    };
}

/// Decodes a path, or a part of a query, in which `+` means itself.
pub(crate) fn decoded(text: &str) -> Result<Bytes, Problem> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let (byte, taken) = match (first, tail) {
            (b'%', [high, low, ..]) => (hex(*high).zip(hex(*low)).map(|(high, low)| high << 4 | low), 3),
            (b'%', _) => (None, 1),
            (byte, _) => (Some(*byte), 1),
        };
        bytes.push(byte.ok_or_else(|| Problem::malformed("'%' in a URL is followed by two hexadecimal digits"))?);
        rest = rest.get(taken..).unwrap_or_default();
    }
    Ok(bytes.into())
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// Encodes bytes for a path or a query.
pub(crate) fn encoded(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F'];
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) {
            text.push(char::from(*byte));
        } else {
            text.push('%');
            text.extend([byte >> 4, byte & 15].into_iter().filter_map(|digit| DIGITS.get(usize::from(digit))));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bytes_are_read_back_as_they_were(bytes in prop_oneof![any::<Vec<u8>>(), "\\PC*".prop_map(Vec::from)]) {
            prop_assert_eq!(&decoded(&encoded(&bytes)).unwrap(), &bytes);
            let mut json = Json::default();
            write(&mut json, &bytes);
            prop_assert_eq!(&serde_json::from_slice::<Text>(&json.into_bytes()).unwrap().0, &bytes);
        }

        #[test]
        fn any_path_and_any_json_are_bytes_or_refused(text in "\\PC*|(%[0-9a-zA-Z%]{0,2}){0,9}|\\{.*\\}") {
            let _ = decoded(&text);
            let _ = serde_json::from_str::<Text>(&text);
        }
    }

    #[test]
    fn what_is_no_bytes_is_refused() {
        for text in ["7", "null", "[]", "{}", r#"{"base64":7}"#, r#"{"base64":"!"}"#, r#"{"base64":"","x":1}"#] {
            assert!(serde_json::from_str::<Text>(text).is_err(), "{text}");
        }
        for path in ["%", "a%4", "%zz", "%+1"] {
            assert!(decoded(path).is_err(), "{path}");
        }
    }
}
