//! `json_group_array`, `json_group_object`, `json_patch`, and their forms that return JSONB.
//!
//! SQLite's own aggregates check the limit of a value only when the group ends, and use unlimited memory before that.

use std::cell::RefCell;
use std::sync::Arc;

use quorate_model::limits::PATCH_PAIRS_MAX;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ffi};

use super::{Answer, Call, Failed, Meter, Work, before_nul};
use crate::ffi::functions::{Aggregate, Kind, json_real};
use crate::usage::{Buffer, NoMemory};

/// Converts JSONB to text; NULL if the value is not JSONB.
const OF_JSONB: &str = "SELECT CASE WHEN json_valid(?1, 4) THEN CAST(json(?1) AS BLOB) END";

/// Converts text to JSONB.
const TO_JSONB: &str = "SELECT jsonb(?1)";

const PATCH: &str = "SELECT json_patch(?1, ?2)";
const PATCH_JSONB: &str = "SELECT jsonb_patch(?1, ?2)";

/// Runs SQLite's own functions on a separate connection, which is opened on first use.
#[derive(Default)]
struct Converter(RefCell<Option<Connection>>);

impl Converter {
    fn run(&self, sql: &str, values: &[ValueRef<'_>]) -> Result<Option<Buffer>, Failed> {
        let run = |conn: &Connection| {
            let mut statement = conn.prepare(sql)?;
            let values = rusqlite::params_from_iter(values.iter().map(|value| ToSqlOutput::Borrowed(*value)));
            statement.query_row(values, |row| match row.get_ref(0)? {
                ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Ok(Some(Buffer::of(bytes))),
                _ => Ok(None),
            })
        };
        let mut kept = self.0.borrow_mut();
        let opened = match kept.take() {
            Some(opened) => Ok(opened),
            None => Connection::open_in_memory(),
        };
        let done = opened.and_then(|opened| run(kept.insert(opened))).map_err(|error| Failed::Text(error.to_string()));
        Ok(done?.transpose()?)
    }
}

/// Returns `json_patch` or `jsonb_patch`. SQLite's own form compares each member of one object with each of the other,
/// so the number of such pairs is limited.
pub(super) fn patch(
    is_blob: bool,
) -> impl for<'a> Fn(&Call<'a>, &mut Work<'_>) -> Result<Answer<'a>, Failed> + Send + 'static {
    let converter = Converter::default();
    move |call, work| {
        let (target, patch) = (call.bytes(0)?.unwrap_or_default(), call.bytes(1)?.unwrap_or_default());
        work.bytes(target.len().saturating_add(patch.len()).saturating_mul(8))?;
        // Upper bounds: in text a comma precedes each member but the first; in JSONB a member has at least two bytes.
        let members = |number, bytes: &[u8]| match call.kind(number) {
            Kind::Blob => bytes.len() / 2 + 1,
            _ => memchr::memchr_iter(b',', bytes).count() + 1,
        };
        if members(0, target).saturating_mul(members(1, patch)) > PATCH_PAIRS_MAX {
            let todo = "patch a smaller part, or in the program";
            return Err(Failed::Text(format!("json_patch: these have too many members to be compared; {todo}")));
        }
        let value = |number, bytes| match call.kind(number) {
            Kind::Null => ValueRef::Null,
            Kind::Blob => ValueRef::Blob(bytes),
            Kind::Real => ValueRef::Real(call.real(number)),
            _ => ValueRef::Text(bytes),
        };
        let sql = if is_blob { PATCH_JSONB } else { PATCH };
        let done = converter.run(sql, &[value(0, target), value(1, patch)])?;
        Ok(done.map_or(Answer::Null, if is_blob { Answer::Blob } else { Answer::Json }))
    }
}

/// One of the aggregates.
pub(super) struct Gather {
    is_object: bool,
    is_blob: bool,
    meter: Arc<dyn Meter>,
    /// Converts from and to JSONB with SQLite's own functions, when the group contains or returns any.
    converter: Converter,
}

/// The members of an array or object, separated by commas.
#[derive(Default)]
pub(super) struct Members {
    text: Buffer,
    /// The offset of the first remaining member.
    start: usize,
}

impl Members {
    fn left(&self) -> &[u8] {
        self.text.get(self.start..).unwrap_or_default()
    }

    /// Removes the first member.
    fn remove_first(&mut self) {
        let end = end_of_first(self.left());
        // Skips the comma too.
        self.start = self.text.len().min(self.start + end + 1);
        if self.start > self.text.len() / 2 {
            self.text.cut(self.start);
            self.start = 0;
        }
    }
}

/// Returns the length of the first member.
fn end_of_first(members: &[u8]) -> usize {
    let (mut is_string, mut depth, mut at) = (false, 0_usize, 0);
    while let Some(byte) = members.get(at) {
        match byte {
            b'\\' => at += 1,
            b'"' => is_string = !is_string,
            b',' if !is_string && depth == 0 => break,
            b'{' | b'[' if !is_string => depth += 1,
            b'}' | b']' if !is_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    at
}

impl Gather {
    pub(super) fn new(is_object: bool, is_blob: bool, meter: Arc<dyn Meter>) -> Self {
        Self { is_object, is_blob, meter, converter: Converter::default() }
    }

    /// Returns whether a row adds a member: a pair whose name is NULL is left out.
    fn is_member(&self, call: &Call<'_>) -> bool {
        !self.is_object || call.kind(0) != Kind::Null
    }

    fn append_value(&self, call: &Call<'_>, number: usize, text: &mut Buffer) -> Result<(), Failed> {
        let bytes = call.bytes(number)?.unwrap_or_default();
        match call.kind(number) {
            Kind::Null => text.append(b"null")?,
            Kind::Integer => text.append(bytes)?,
            Kind::Real => text.append(&json_real(call.real(number)))?,
            Kind::Text if call.is_json(number) => text.append(bytes)?,
            Kind::Text => append_string(bytes, text)?,
            Kind::Blob => match self.converter.run(OF_JSONB, &[ValueRef::Blob(bytes)])? {
                Some(json) => text.append(&json)?,
                None => return Err(Failed::Text("JSON cannot hold BLOB values".to_owned())),
            },
        }
        Ok(())
    }
}

impl Aggregate for Gather {
    type Group = Members;

    fn step(&self, call: &Call<'_>, members: &mut Members) -> Result<(), Failed> {
        if !self.is_member(call) {
            return Ok(());
        }
        let before = members.text.len();
        if !members.left().is_empty() {
            members.text.push(b',')?;
        }
        let mut value = 0;
        if self.is_object {
            append_string(before_nul(call.bytes(0)?.unwrap_or_default()), &mut members.text)?;
            members.text.push(b':')?;
            value = 1;
        }
        self.append_value(call, value, &mut members.text)?;
        // Includes the brackets.
        if members.left().len() + 2 > call.limit(ffi::SQLITE_LIMIT_LENGTH) {
            return Err(Failed::TooBig);
        }
        Work::new(&*self.meter).bytes(members.text.len().saturating_sub(before))
    }

    fn inverse(&self, call: &Call<'_>, members: &mut Members) -> Result<(), Failed> {
        if self.is_member(call) {
            members.remove_first();
        }
        Ok(())
    }

    fn value(&self, _: &Call<'_>, members: &Members) -> Result<Answer<'static>, Failed> {
        let (open, close) = if self.is_object { (b'{', b'}') } else { (b'[', b']') };
        let members = members.left();
        Work::new(&*self.meter).bytes(members.len())?;
        let mut text = Buffer::default();
        text.reserve(members.len() + 2)?;
        text.push(open)?;
        text.append(members)?;
        text.push(close)?;
        if !self.is_blob {
            return Ok(Answer::Json(text));
        }
        Ok(self.converter.run(TO_JSONB, &[ValueRef::Text(&text)])?.map_or(Answer::Null, Answer::Blob))
    }
}

/// Appends a text as a JSON string, in the way that SQLite writes it.
fn append_string(string: &[u8], text: &mut Buffer) -> Result<(), NoMemory> {
    text.push(b'"')?;
    for &byte in string {
        match byte {
            b'"' | b'\\' => text.append(&[b'\\', byte])?,
            0x08 => text.append(b"\\b")?,
            0x09 => text.append(b"\\t")?,
            0x0a => text.append(b"\\n")?,
            0x0c => text.append(b"\\f")?,
            0x0d => text.append(b"\\r")?,
            0..=0x1f => text.append(format!("\\u{byte:04x}").as_bytes())?,
            _ => text.push(byte)?,
        }
    }
    text.push(b'"')
}
