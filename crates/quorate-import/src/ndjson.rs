//! NDJSON: a JSON object on each line, whose keys are columns.
//!
//! Numbers and texts keep their types, `true` and `false` become 1 and 0, objects and arrays become their JSON text. A
//! key that is missing from a line is NULL.

use std::borrow::Cow;
use std::fmt;
use std::io;

use quorate::{sql::RowPacker, types::ValueRef};
use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::columns::Rule;
use crate::line::{Read, bad_line};
use crate::window::Window;

/// The members of an object in their order, with the JSON text of their values.
pub struct Members<'a>(pub Vec<(Cow<'a, str>, &'a RawValue)>);

/// Reads lines.
pub struct Ndjson {
    window: Window,
    line: u64,
}

impl Ndjson {
    /// A reader at the beginning of a file.
    pub fn new(window: Window) -> Self {
        Self { window, line: 0 }
    }

    /// Passes the next line that is not empty to `read`.
    fn next_line<T>(&mut self, read: impl FnOnce(&[u8]) -> T) -> io::Result<Line<T>> {
        loop {
            let rest = self.window.rest();
            match rest.iter().position(|byte| *byte == b'\n') {
                None if self.window.is_full() => {
                    self.line = self.line.saturating_add(1);
                    let text = rest.to_vec();
                    self.window.take_line()?;
                    return Ok(Line::TooLong(text));
                }
                None if !self.window.is_ended() => self.window.grow()?,
                None if rest.is_empty() => return Ok(Line::End),
                end => {
                    self.line = self.line.saturating_add(1);
                    let line = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
                    let taken = line.len().saturating_add(1);
                    if line.iter().all(u8::is_ascii_whitespace) {
                        self.window.take(taken);
                        continue;
                    }
                    let done = read(line);
                    self.window.take(taken);
                    return Ok(Line::Of(done));
                }
            }
        }
    }

    /// Passes the members of each line to `see` until that returns `false`; lines that are no objects are skipped. For
    /// samples.
    pub fn sample(mut self, mut see: impl FnMut(Members<'_>) -> bool) -> io::Result<()> {
        loop {
            match self.next_line(|line| Members::parse(line).map_or(true, &mut see))? {
                Line::End | Line::Of(false) => return Ok(()),
                Line::Of(true) | Line::TooLong(_) => {}
            }
        }
    }

    /// A reader of rows: which keys to take, and how their values are converted. `only_these` says to ignore other
    /// keys, which else make a line bad.
    pub fn bind(self, names: Vec<String>, rules: Vec<Rule>, only_these: bool) -> Bound {
        Bound { ndjson: self, names, rules, only_these }
    }
}

enum Line<T> {
    Of(T),
    TooLong(Vec<u8>),
    End,
}

/// Reads lines into rows.
pub struct Bound {
    ndjson: Ndjson,
    names: Vec<String>,
    rules: Vec<Rule>,
    only_these: bool,
}

impl Bound {
    /// Bytes of the file that were read.
    pub fn taken(&self) -> u64 {
        self.ndjson.window.taken()
    }

    /// Reads the next line into a row.
    pub fn next(&mut self, row: &mut RowPacker) -> io::Result<Read> {
        let Self { ndjson, names, rules, only_these } = self;
        let read = ndjson.next_line(|line| {
            let done = Members::parse(line).and_then(|members| fill(&members, names, rules, *only_these, row));
            done.map_err(|reason| (reason, line.to_vec()))
        })?;
        Ok(match read {
            Line::End => Read::End,
            Line::Of(Ok(())) => Read::Row(ndjson.line),
            Line::Of(Err((reason, line))) => Read::Bad(bad_line(ndjson.line, reason, &line)),
            Line::TooLong(text) => {
                Read::Bad(bad_line(ndjson.line, "larger than a line may be, 16 MiB".to_owned(), &text))
            }
        })
    }
}

/// Packs the values of the members in the order of the names.
fn fill(
    Members(members): &Members<'_>,
    names: &[String],
    rules: &[Rule],
    only_these: bool,
    row: &mut RowPacker,
) -> Result<(), String> {
    let in_order = members.len() == names.len() && members.iter().zip(names).all(|((key, _), name)| key == name);
    if in_order {
        return members.iter().zip(rules).try_for_each(|((_, value), rule)| push(value, *rule, row));
    }
    let mut values: Vec<Option<&RawValue>> = vec![None; names.len()];
    for (key, value) in members {
        let place = names.iter().position(|name| name.eq_ignore_ascii_case(key));
        let Some(place) = place.and_then(|place| values.get_mut(place)) else {
            if only_these {
                continue;
            }
            return Err(format!("the table has no column {key:?}; add it, or name the keys to import with --columns"));
        };
        if place.replace(value).is_some() {
            return Err(format!("the key {key:?} occurs twice"));
        }
    }
    values.iter().zip(rules).try_for_each(|(value, rule)| match value {
        Some(value) => push(value, *rule, row),
        None => {
            row.push(ValueRef::Null);
            Ok(())
        }
    })
}

fn push(value: &RawValue, rule: Rule, row: &mut RowPacker) -> Result<(), String> {
    let text = value.get();
    match text.as_bytes().first() {
        Some(b'n') => row.push(ValueRef::Null),
        Some(b't') => row.push(ValueRef::Integer(1)),
        Some(b'f') => row.push(ValueRef::Integer(0)),
        Some(b'"') => return rule.push_text(&string(text)?, row),
        Some(b'{' | b'[') => row.push(ValueRef::Text(text)),
        _ => return rule.push_number(text, row),
    }
    Ok(())
}

/// The text of a JSON string.
pub fn string(text: &str) -> Result<Cow<'_, str>, String> {
    match text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
        Some(plain) if !plain.contains('\\') => Ok(Cow::Borrowed(plain)),
        _ => serde_json::from_str(text).map(Cow::Owned).map_err(|error| error.to_string()),
    }
}

impl<'a> Members<'a> {
    /// Reads an object.
    pub fn parse(line: &'a [u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(line);
        let text = text.map_err(|error| format!("not UTF-8 at byte {}", error.valid_up_to().saturating_add(1)))?;
        let mut json = serde_json::Deserializer::from_str(text.trim_start_matches('\u{feff}'));
        let members = (&mut json).deserialize_map(MembersVisitor).and_then(|members| json.end().map(|()| members));
        members.map_err(|error| format!("not a JSON object: {error}"))
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
        let mut members = Vec::new();
        while let Some(key) = map.next_key::<Key<'de>>()? {
            members.push((key.0, map.next_value()?));
        }
        Ok(Members(members))
    }
}

/// A key, borrowed if it contains no escapes.
#[derive(serde::Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);
