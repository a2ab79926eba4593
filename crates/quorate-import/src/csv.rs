//! CSV as in RFC 4180: fields between delimiters, quoted if they hold a delimiter, a quote or a line break.
//!
//! Lines end with LF or CRLF; empty lines are skipped. A quote inside a field that does not begin with one stands for
//! itself. Unlike most readers this one knows whether a field was quoted, so that an empty text differs from NULL.

use std::io;

use quorate::{sql::RowPacker, types::ValueRef};

use crate::columns::Rule;
use crate::line::{Read, bad_line};
use crate::window::{RECORD_BYTES_MAX, Window};

/// The reason for refusing a record longer than [`RECORD_BYTES_MAX`].
const TOO_LARGE: &str = "larger than a record may be, 16 MiB";

/// The byte order mark of UTF-8, with which a file may begin.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The extent of a field in its record, without its quotes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Field {
    start: usize,
    end: usize,
    quoted: bool,
    /// Whether it contains doubled quotes.
    escaped: bool,
}

/// What the beginning of a buffer holds.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// A record: its bytes with the line break, and the lines that it spans.
    Record { bytes: usize, lines: u64 },
    /// Part of a record; more bytes are needed.
    More,
    /// A field with text after its closing quote.
    AfterQuote,
}

/// Reads records.
pub struct Csv {
    window: Window,
    delimiter: u8,
    fields: Vec<Field>,
    /// The number of the next line, from 1.
    line: u64,
}

impl Csv {
    /// A reader at the beginning of a file.
    pub fn new(mut window: Window, delimiter: u8) -> io::Result<Self> {
        if window.rest().is_empty() {
            window.grow()?;
        }
        if window.rest().starts_with(BYTE_ORDER_MARK) {
            window.take(BYTE_ORDER_MARK.len());
        }
        Ok(Self { window, delimiter, fields: Vec::new(), line: 1 })
    }

    /// Bytes of the file that were read as records.
    pub fn taken(&self) -> u64 {
        self.window.taken()
    }

    /// Whether the end of the file was read.
    pub fn is_ended(&self) -> bool {
        self.window.is_ended()
    }

    /// The fields of the next record as texts, `None` for NULL; for headers and samples.
    pub fn texts(&mut self, null: &str) -> io::Result<Option<Result<Vec<Option<String>>, String>>> {
        let mut texts = Vec::new();
        let read = self.record(|fields| {
            for field in fields {
                texts.push(field.text(null, &mut String::new()).map(str::to_owned));
            }
            Ok(())
        })?;
        Ok(match read {
            Read::Row(_) => Some(Ok(texts)),
            Read::Bad(bad) => Some(Err(bad.reason)),
            Read::End => None,
        })
    }

    /// Reads the next record into a row by a rule for each field; fields without a rule are left out.
    pub fn next(&mut self, rules: &[Option<Rule>], null: &str, row: &mut RowPacker) -> io::Result<Read> {
        let mut scratch = String::new();
        self.record(|fields| {
            if fields.len() != rules.len() {
                return Err(format!("{} fields, not {}", fields.len(), rules.len()));
            }
            for (field, rule) in fields.zip(rules) {
                let Some(rule) = rule else { continue };
                match field.text(null, &mut scratch) {
                    Some(text) => rule.push_text(text, row)?,
                    None => row.push(ValueRef::Null),
                }
            }
            Ok(())
        })
    }

    fn record(&mut self, mut read: impl FnMut(Fields<'_>) -> Result<(), String>) -> io::Result<Read> {
        loop {
            self.fields.clear();
            let rest = self.window.rest();
            match scan(rest, self.delimiter, self.window.is_ended(), &mut self.fields) {
                Found::Record { bytes: 0, .. } => return Ok(Read::End),
                Found::Record { bytes, lines } => {
                    let line = self.line;
                    self.line = line.saturating_add(lines);
                    let record = rest.get(..bytes).unwrap_or_default();
                    let is_empty =
                        matches!(self.fields.as_slice(), [field] if !field.quoted && field.start == field.end);
                    let bad = |reason| Some(Read::Bad(bad_line(line, reason, record)));
                    let done = match std::str::from_utf8(record) {
                        _ if is_empty => None,
                        // The window can hold a little more than a record may have.
                        _ if bytes > RECORD_BYTES_MAX => bad(TOO_LARGE.to_owned()),
                        Ok(text) => match read(Fields { text, fields: self.fields.iter() }) {
                            Ok(()) => Some(Read::Row(line)),
                            Err(reason) => bad(reason),
                        },
                        Err(error) => bad(format!("not UTF-8 at byte {} of the record", error.valid_up_to() + 1)),
                    };
                    self.window.take(bytes);
                    if let Some(done) = done {
                        return Ok(done);
                    }
                }
                Found::AfterQuote => {
                    return self.skip_line("text between a closing quote and the next delimiter");
                }
                Found::More if self.window.is_full() => return self.skip_line(TOO_LARGE),
                Found::More if self.window.is_ended() => {
                    return self.skip_line("a quoted field that is open at the end of the file");
                }
                Found::More => self.window.grow()?,
            }
        }
    }

    /// Reports the line as bad and continues with the next one, since the end of the record is unknown.
    fn skip_line(&mut self, reason: &str) -> io::Result<Read> {
        let line = self.line;
        let first = self.window.rest().split(|byte| *byte == b'\n').next().unwrap_or_default();
        let bad = bad_line(line, reason.to_owned(), first);
        self.window.take_line()?;
        self.line = line.saturating_add(1);
        Ok(Read::Bad(bad))
    }
}

/// The fields of one record.
struct Fields<'a> {
    text: &'a str,
    fields: std::slice::Iter<'a, Field>,
}

impl<'a> Iterator for Fields<'a> {
    type Item = Text<'a>;

    fn next(&mut self) -> Option<Text<'a>> {
        let field = self.fields.next()?;
        Some(Text { text: self.text.get(field.start..field.end).unwrap_or_default(), field: *field })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.fields.size_hint()
    }
}

impl ExactSizeIterator for Fields<'_> {}

/// A field and its text.
struct Text<'a> {
    text: &'a str,
    field: Field,
}

impl<'a> Text<'a> {
    /// The text, or `None` for NULL. A text with escapes is unescaped into `scratch`.
    fn text<'s>(self, null: &str, scratch: &'s mut String) -> Option<&'s str>
    where
        'a: 's,
    {
        if self.field.escaped {
            *scratch = self.text.replace("\"\"", "\"");
            return Some(scratch);
        }
        (self.field.quoted || self.text != null).then_some(self.text)
    }
}

/// Finds the record at the beginning of a buffer. `ended` says that the buffer reaches to the end of the file.
fn scan(bytes: &[u8], delimiter: u8, ended: bool, fields: &mut Vec<Field>) -> Found {
    let mut at = 0_usize;
    let mut lines = 1;
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        let mut field = Field { start: at, ..Field::default() };
        if let Some(inside) = rest.strip_prefix(b"\"") {
            let Some(len) = quoted_len(inside, ended, &mut field.escaped) else { return Found::More };
            let content = inside.get(..len).unwrap_or_default();
            lines += content.iter().filter(|byte| **byte == b'\n').count() as u64;
            field = Field { start: at + 1, end: at + 1 + len, quoted: true, ..field };
            at = field.end + 1;
            fields.push(field);
            match bytes.get(at..).unwrap_or_default() {
                [byte, ..] if *byte == delimiter => at += 1,
                [b'\n', ..] => return Found::Record { bytes: at + 1, lines },
                [b'\r', b'\n', ..] => return Found::Record { bytes: at + 2, lines },
                [] | [b'\r'] if ended => return Found::Record { bytes: bytes.len(), lines },
                [] | [b'\r'] => return Found::More,
                _ => return Found::AfterQuote,
            }
        } else {
            let end = rest.iter().position(|byte| *byte == delimiter || *byte == b'\n');
            field.end = at + end.unwrap_or(rest.len());
            match end.and_then(|end| rest.get(end)) {
                Some(byte) if *byte == delimiter => {
                    at = field.end + 1;
                    fields.push(field);
                }
                None if !ended => return Found::More,
                found => {
                    let line_break = usize::from(found.is_some());
                    let bytes_end = field.end + line_break;
                    if bytes.get(field.start..field.end).is_some_and(|text| text.ends_with(b"\r")) {
                        field.end -= 1;
                    }
                    fields.push(field);
                    return Found::Record { bytes: bytes_end, lines };
                }
            }
        }
    }
}

/// The length of a quoted field up to its closing quote; `None` if more bytes are needed.
fn quoted_len(inside: &[u8], ended: bool, escaped: &mut bool) -> Option<usize> {
    let mut from = 0;
    loop {
        let quote = from + inside.get(from..)?.iter().position(|byte| *byte == b'"')?;
        match inside.get(quote + 1) {
            Some(b'"') => {
                *escaped = true;
                from = quote + 2;
            }
            None if !ended => return None,
            _ => return Some(quote),
        }
    }
}

#[cfg(test)]
mod tests;
