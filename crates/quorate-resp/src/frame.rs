//! Replies, and how the two versions of the protocol write them.
//!
//! A reply is made without knowledge of the version: what version 3 has a type for is written by version 2 as Redis
//! writes it there. `redis-protocol` is not used to write: its maps and sets lose the order of what is in them, it
//! writes doubles in other words than Redis, and it has no null array.

use bytes::{BufMut, Bytes, BytesMut};

use quorate_model::Failure;

use crate::number::double_text;

/// A version of the protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// RESP 2.
    #[default]
    Two,
    /// RESP 3.
    Three,
}

/// A reply, or a part of it.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// A word that tells a state.
    Simple(&'static str),
    /// A line of text.
    Line(String),
    /// An error, its code in front.
    Error(String),
    /// An integer.
    Integer(i64),
    /// Bytes.
    Bulk(Bytes),
    /// Text for a person.
    Text(String),
    /// Nothing.
    Null,
    /// Nothing, where an array could be.
    NullArray,
    /// A double; version 2: bytes.
    Double(f64),
    /// Whether something is so; version 2: 0 or 1.
    Flag(bool),
    /// An array.
    Array(Vec<Frame>),
    /// A set; version 2: an array.
    Set(Vec<Frame>),
    /// Keys with their values; version 2: one array.
    Map(Vec<(Frame, Frame)>),
    /// Pairs, as arrays in an array; version 2: one array.
    Pairs(Vec<(Frame, Frame)>),
    /// What the client did not ask for; version 2: an array.
    Push(Vec<Frame>),
}

impl From<Failure> for Frame {
    /// Returns the error that a failed command of the store is to its client.
    fn from(failure: Failure) -> Self {
        Self::Error(with_code(failure.message))
    }
}

/// The codes with which texts of the store begin.
const CODES: [&str; 3] = ["CONFLICT ", "ERR ", "WRONGTYPE "];

/// Returns the text of an error with a code in front, as each error of Redis has one.
pub fn with_code(text: String) -> String {
    if CODES.iter().any(|code| text.starts_with(code)) { text } else { format!("ERR {text}") }
}

impl Frame {
    /// The reply that something was done.
    pub const OK: Self = Self::Simple("OK");

    /// Returns bytes.
    pub fn bulk(text: impl Into<Bytes>) -> Self {
        Self::Bulk(text.into())
    }

    /// Returns bytes, or null if there are none.
    pub fn bulk_or_null(bytes: Option<Bytes>) -> Self {
        bytes.map_or(Self::Null, Self::Bulk)
    }

    /// Returns an array of bytes.
    pub fn bulks(list: impl IntoIterator<Item = Bytes>) -> Self {
        Self::Array(list.into_iter().map(Self::Bulk).collect())
    }

    /// Returns a number of things.
    pub fn count(number: u64) -> Self {
        Self::Integer(i64::try_from(number).unwrap_or(i64::MAX))
    }

    /// Returns an error.
    pub fn error(error: impl ToString) -> Self {
        Self::Error(error.to_string())
    }

    /// Writes the reply.
    pub fn write(&self, protocol: Protocol, out: &mut BytesMut) {
        let is_three = protocol == Protocol::Three;
        match self {
            Self::Simple(word) => line(out, b'+', word.as_bytes()),
            Self::Line(text) => line(out, b'+', &one_line(text)),
            Self::Error(text) => line(out, b'-', &one_line(text)),
            Self::Integer(number) => header(out, b':', *number),
            Self::Bulk(bytes) => bulk(out, bytes),
            Self::Text(text) if is_three => {
                header(out, b'=', text.len() as i64 + 4);
                out.put_slice(b"txt:");
                line_end(out, text.as_bytes());
            }
            Self::Text(text) => bulk(out, text.as_bytes()),
            Self::Null | Self::NullArray if is_three => out.put_slice(b"_\r\n"),
            Self::Null => out.put_slice(b"$-1\r\n"),
            Self::NullArray => out.put_slice(b"*-1\r\n"),
            Self::Double(number) if is_three => line(out, b',', double_text(*number).as_bytes()),
            Self::Double(number) => bulk(out, double_text(*number).as_bytes()),
            Self::Flag(flag) if is_three => line(out, b'#', if *flag { b"t" } else { b"f" }),
            Self::Flag(flag) => header(out, b':', i64::from(*flag)),
            Self::Array(parts) => list(out, b'*', parts, protocol),
            Self::Set(parts) => list(out, if is_three { b'~' } else { b'*' }, parts, protocol),
            Self::Push(parts) => list(out, if is_three { b'>' } else { b'*' }, parts, protocol),
            Self::Map(pairs) if is_three => {
                header(out, b'%', pairs.len() as i64);
                flat(out, pairs, protocol);
            }
            Self::Pairs(pairs) if is_three => {
                header(out, b'*', pairs.len() as i64);
                for pair in pairs {
                    header(out, b'*', 2);
                    flat(out, std::slice::from_ref(pair), protocol);
                }
            }
            Self::Map(pairs) | Self::Pairs(pairs) => {
                header(out, b'*', 2 * pairs.len() as i64);
                flat(out, pairs, protocol);
            }
        }
    }
}

fn list(out: &mut BytesMut, kind: u8, parts: &[Frame], protocol: Protocol) {
    header(out, kind, parts.len() as i64);
    parts.iter().for_each(|part| part.write(protocol, out));
}

fn flat(out: &mut BytesMut, pairs: &[(Frame, Frame)], protocol: Protocol) {
    for (left, right) in pairs {
        left.write(protocol, out);
        right.write(protocol, out);
    }
}

fn bulk(out: &mut BytesMut, bytes: &[u8]) {
    header(out, b'$', bytes.len() as i64);
    line_end(out, bytes);
}

fn header(out: &mut BytesMut, kind: u8, number: i64) {
    line(out, kind, number.to_string().as_bytes());
}

fn line(out: &mut BytesMut, kind: u8, text: &[u8]) {
    out.reserve(text.len() + 3);
    out.put_u8(kind);
    line_end(out, text);
}

fn line_end(out: &mut BytesMut, text: &[u8]) {
    out.put_slice(text);
    out.put_slice(b"\r\n");
}

/// Returns a text without ends of lines.
fn one_line(text: &str) -> Vec<u8> {
    text.bytes().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }).collect()
}
