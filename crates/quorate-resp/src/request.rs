//! Reads requests from the bytes of a client: arrays of byte strings, or lines of words that a person types.
//!
//! `redis-protocol` is not used to read: it reads any type of RESP to any depth and has no limits, begins anew with
//! each piece of a request that arrives, and does not know lines. A client may send nothing but what is read here, so
//! the depth is 1. Its tests read what [`Frame`](crate::Frame) writes.
//!
//! # Invariants
//!
//! - Arguments are slices of the input; nothing is copied but the words of a line.
//! - Each byte is looked at once, however many pieces a request arrives in, but for a line that is not complete.
//! - No length is believed before it is checked against a limit, and no memory is taken for what has not arrived.

use bytes::{Buf, Bytes, BytesMut};
use thiserror::Error;

use crate::limits::{
    ARGUMENT_BYTES_MAX, ARGUMENTS_MAX, COMMAND_BYTES_MAX, LINE_BYTES_MAX, LOGIN_ARGUMENT_BYTES_MAX, LOGIN_ARGUMENTS_MAX,
};
use crate::number::integer;

/// Why the door does not understand a client. It sends the text, which is that of Redis, and closes the connection.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ProtocolError {
    /// A line has no end.
    #[error("ERR Protocol error: too big {0}")]
    LineTooLong(&'static str),
    /// The number of arguments is not a number, or too high.
    #[error("ERR Protocol error: invalid multibulk length")]
    ArgumentCount,
    /// The length of an argument is not a number, or too high.
    #[error("ERR Protocol error: invalid bulk length")]
    ArgumentLength,
    /// There are more arguments than a client may send that has not logged in.
    #[error("ERR Protocol error: unauthenticated multibulk length")]
    LoginArgumentCount,
    /// An argument is longer than that of a client may be that has not logged in.
    #[error("ERR Protocol error: unauthenticated bulk length")]
    LoginArgumentLength,
    /// Something else than an argument.
    #[error("ERR Protocol error: expected '$', got '{}'", char::from(*.0))]
    NoArgument(u8),
    /// A quotation mark is missing.
    #[error("ERR Protocol error: unbalanced quotes in request")]
    Quotes,
}

/// Reads requests. It keeps what it knows of one that has not arrived whole.
#[derive(Debug, Default)]
pub struct Reader {
    /// The arguments that are still to be read, if the number is known.
    missing: Option<usize>,
    /// The length of the next argument, if it is known.
    length: Option<usize>,
    /// The bytes of the input that were read.
    read: usize,
    /// Where the arguments that were read begin and end.
    arguments: Vec<(usize, usize)>,
    /// The bytes of these arguments together.
    argument_bytes: usize,
}

impl Reader {
    /// Takes the next request from the input, if it has arrived whole: the name of a command, and its arguments.
    ///
    /// # Errors
    ///
    /// [`ProtocolError`]; nothing more can be read then.
    pub fn next(&mut self, input: &mut BytesMut, is_user: bool) -> Result<Option<Vec<Bytes>>, ProtocolError> {
        loop {
            let found = match (self.missing, input.first()) {
                (None, None) => return Ok(None),
                (None, Some(b'*')) => match self.count(input, is_user)? {
                    Some(()) => continue,
                    None => None,
                },
                (None, Some(_)) => words(input)?,
                (Some(_), _) => self.array(input, is_user)?,
            };
            match found {
                Some(arguments) if arguments.is_empty() => {}
                found => return Ok(found),
            }
        }
    }

    /// Returns how many bytes the input has at least when the request is complete.
    pub fn needs(&self) -> usize {
        self.read + self.length.map_or(1, |length| length + 2)
    }

    /// Reads the number of arguments.
    fn count(&mut self, input: &mut BytesMut, is_user: bool) -> Result<Option<()>, ProtocolError> {
        let Some((number, end)) = line(input, 1, "mbulk count string")? else { return Ok(None) };
        let count = number.filter(|count| *count <= ARGUMENTS_MAX as i64).ok_or(ProtocolError::ArgumentCount)?;
        let count = usize::try_from(count).unwrap_or(0);
        if count > LOGIN_ARGUMENTS_MAX && !is_user {
            return Err(ProtocolError::LoginArgumentCount);
        }
        if count == 0 {
            input.advance(end);
        } else {
            (self.missing, self.read) = (Some(count), end);
        }
        Ok(Some(()))
    }

    /// Reads the arguments whose number is known.
    fn array(&mut self, input: &mut BytesMut, is_user: bool) -> Result<Option<Vec<Bytes>>, ProtocolError> {
        while let Some(missing) = self.missing.filter(|missing| *missing > 0) {
            let length = match self.length {
                Some(length) => length,
                None => {
                    let Some(length) = self.argument_length(input, is_user)? else { return Ok(None) };
                    *self.length.insert(length)
                }
            };
            let end = self.read + length;
            if input.len() < end + 2 {
                return Ok(None);
            }
            self.arguments.push((self.read, end));
            self.argument_bytes += length;
            (self.missing, self.length, self.read) = (Some(missing - 1), None, end + 2);
        }
        let bytes = input.split_to(self.read).freeze();
        let arguments = std::mem::take(self).arguments;
        Ok(Some(arguments.into_iter().map(|(start, end)| bytes.slice(start..end)).collect()))
    }

    fn argument_length(&mut self, input: &BytesMut, is_user: bool) -> Result<Option<usize>, ProtocolError> {
        match input.get(self.read) {
            None => return Ok(None),
            Some(b'$') => {}
            Some(other) => return Err(ProtocolError::NoArgument(*other)),
        }
        let Some((length, end)) = line(input, self.read + 1, "bulk count string")? else { return Ok(None) };
        let length = length.and_then(|length| usize::try_from(length).ok());
        let fits = |length: &usize| self.argument_bytes + length <= COMMAND_BYTES_MAX;
        let is_allowed = |length: &usize| *length <= ARGUMENT_BYTES_MAX && fits(length);
        let length = length.filter(is_allowed).ok_or(ProtocolError::ArgumentLength)?;
        if length > LOGIN_ARGUMENT_BYTES_MAX && !is_user {
            return Err(ProtocolError::LoginArgumentLength);
        }
        self.read = end;
        Ok(Some(length))
    }
}

/// Reads a line that holds a number, from a place on; the number, if it is one, and where the line ends.
fn line(input: &[u8], from: usize, what: &'static str) -> Result<Option<(Option<i64>, usize)>, ProtocolError> {
    let rest = input.get(from..).unwrap_or_default();
    match rest.iter().take(LINE_BYTES_MAX).position(|byte| *byte == b'\r') {
        Some(at) if rest.len() >= at + 2 => Ok(Some((integer(rest.get(..at).unwrap_or_default()), from + at + 2))),
        None if rest.len() >= LINE_BYTES_MAX => Err(ProtocolError::LineTooLong(what)),
        _ => Ok(None),
    }
}

/// Takes a line from the input, and returns its words.
fn words(input: &mut BytesMut) -> Result<Option<Vec<Bytes>>, ProtocolError> {
    let Some(end) = input.iter().take(LINE_BYTES_MAX).position(|byte| *byte == b'\n') else {
        let is_too_long = input.len() >= LINE_BYTES_MAX;
        return if is_too_long { Err(ProtocolError::LineTooLong("inline request")) } else { Ok(None) };
    };
    let line = input.split_to(end + 1);
    let line = line.strip_suffix(b"\n").unwrap_or(&line);
    split(line.strip_suffix(b"\r").unwrap_or(line)).map(Some).ok_or(ProtocolError::Quotes)
}

/// Splits a line into words, which may be in quotation marks; none if a quotation mark is missing.
fn split(mut line: &[u8]) -> Option<Vec<Bytes>> {
    let mut words = Vec::new();
    loop {
        line = line.trim_ascii_start();
        let Some(first) = line.first().copied() else { return Some(words) };
        let mut word = Vec::new();
        line = match first {
            b'"' | b'\'' => quoted(line.get(1..)?, first, &mut word)?,
            _ => plain(line, &mut word)?,
        };
        words.push(word.into());
    }
}

/// Reads a word up to the next space; it may go on in quotation marks.
fn plain<'a>(mut line: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    while let Some((byte, rest)) = line.split_first() {
        match byte {
            b'"' | b'\'' => return quoted(rest, *byte, word),
            byte if byte.is_ascii_whitespace() || *byte == 0 => return Some(rest),
            byte => word.push(*byte),
        }
        line = rest;
    }
    Some(line)
}

/// Reads up to a quotation mark, which a space or the end of the line must follow.
fn quoted<'a>(mut line: &'a [u8], mark: u8, word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        let (byte, rest) = line.split_first()?;
        line = rest;
        if *byte == mark {
            return line.first().is_none_or(|next| next.is_ascii_whitespace() || *next == 0x0b).then_some(line);
        }
        match (byte, mark, rest) {
            (b'\\', b'"', [b'x', high, low, ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                word.push(u8::from_str_radix(std::str::from_utf8(&[*high, *low]).ok()?, 16).ok()?);
                line = rest.get(3..)?;
            }
            (b'\\', b'"', [next, after @ ..]) => {
                word.push(unescaped(*next));
                line = after;
            }
            (b'\\', b'\'', [b'\'', after @ ..]) => {
                word.push(b'\'');
                line = after;
            }
            _ => word.push(*byte),
        }
    }
}

fn unescaped(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(input: &[u8]) -> Result<Vec<Vec<Bytes>>, ProtocolError> {
        let (mut reader, mut input) = (Reader::default(), BytesMut::from(input));
        let mut found = Vec::new();
        while let Some(request) = reader.next(&mut input, true)? {
            found.push(request);
        }
        Ok(found)
    }

    #[test]
    fn requests_are_arrays_or_lines() {
        let found =
            read(b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n\r\n*0\r\n*-1\r\nset  \"a\\x20b\\n\" 'c\\'d'\r\n*1\r\n$0\r\n\r\n");
        let expected: [&[&[u8]]; 3] = [&[b"GET", b"a"], &[b"set", b"a b\n", b"c'd"], &[b""]];
        assert_eq!(found.unwrap(), expected);
    }

    #[test]
    fn requests_may_arrive_byte_by_byte() {
        let (mut reader, mut input, mut found) = (Reader::default(), BytesMut::new(), Vec::new());
        for byte in b"*2\r\n$4\r\nECHO\r\n$3\r\na\r\n\r\nPING\r\n" {
            input.extend_from_slice(&[*byte]);
            found.extend(reader.next(&mut input, true).unwrap());
        }
        assert_eq!(found, [vec![&b"ECHO"[..], b"a\r\n"], vec![b"PING"]]);
    }

    #[test]
    fn arguments_are_slices_of_the_input() {
        let mut input = BytesMut::from(&b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n"[..]);
        let from = input.as_ptr() as usize;
        let found = Reader::default().next(&mut input, true).unwrap().unwrap();
        assert_eq!(found.iter().map(|word| word.as_ptr() as usize - from).collect::<Vec<_>>(), [8, 17]);
    }

    #[test]
    fn hostile_requests_are_refused() {
        let many = format!("*{}\r\n", ARGUMENTS_MAX + 1);
        let long = format!("*1\r\n${}\r\n", ARGUMENT_BYTES_MAX + 1);
        let (no_end, no_count) = ("a".repeat(LINE_BYTES_MAX), format!("*{}", "1".repeat(LINE_BYTES_MAX)));
        let cases = [
            (many.as_str(), "invalid multibulk length"),
            ("*x\r\n", "invalid multibulk length"),
            ("*99999999999999999999\r\n", "invalid multibulk length"),
            (&long, "invalid bulk length"),
            ("*1\r\n$-1\r\n", "invalid bulk length"),
            ("*1\r\n*1\r\n", "expected '$', got '*'"),
            (&no_end, "too big inline request"),
            (&no_count, "too big mbulk count string"),
            ("get \"a\r\n", "unbalanced quotes in request"),
            ("get 'a'b\r\n", "unbalanced quotes in request"),
        ];
        for (input, text) in cases {
            let error = read(input.as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), format!("ERR Protocol error: {text}"));
        }
    }

    #[test]
    fn all_arguments_together_are_limited() {
        let argument = format!("${ARGUMENT_BYTES_MAX}\r\n{}\r\n", "a".repeat(ARGUMENT_BYTES_MAX));
        assert_eq!(read(format!("*2\r\n{argument}").as_bytes()), Ok(Vec::new()));
        let error = read(format!("*2\r\n{argument}{argument}").as_bytes()).unwrap_err();
        assert_eq!(error, ProtocolError::ArgumentLength);
    }

    /// It ends soon only if the work for an argument does not grow with the number of those before it.
    #[test]
    fn as_many_arguments_as_are_allowed_are_read() {
        let request = format!("*{ARGUMENTS_MAX}\r\n{}", "$1\r\na\r\n".repeat(ARGUMENTS_MAX));
        assert_eq!(read(request.as_bytes()).unwrap(), [vec![Bytes::from_static(b"a"); ARGUMENTS_MAX]]);
    }

    #[test]
    fn clients_that_have_not_logged_in_send_little() {
        let read = |input: &str| Reader::default().next(&mut BytesMut::from(input), false);
        assert_eq!(read("*11\r\n"), Err(ProtocolError::LoginArgumentCount));
        assert_eq!(read("*1\r\n$16385\r\n"), Err(ProtocolError::LoginArgumentLength));
    }
}
