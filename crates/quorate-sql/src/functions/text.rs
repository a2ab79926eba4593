//! `instr`, `replace`, `trim`, `ltrim`, `rtrim` and `unhex`, each in time that is linear in its arguments.

use std::collections::{BTreeMap, BTreeSet};

use memchr::memmem::Finder;
use rusqlite::ffi;

use super::{Answer, Call, Failed, Work, before_nul, read_char};
use crate::ffi::functions::Kind;
use crate::usage::Buffer;

pub(super) fn instr<'a>(call: &Call<'a>, work: &mut Work<'_>) -> Result<Answer<'a>, Failed> {
    let (Some(text), Some(part)) = (call.bytes(0)?, call.bytes(1)?) else { return Ok(Answer::Null) };
    work.bytes(text.len() + part.len())?;
    let is_blob = call.kind(0) == Kind::Blob && call.kind(1) == Kind::Blob;
    let place = if is_blob { place_in_blob(text, part) } else { place_in_text(text, part) };
    Ok(Answer::Integer(place.map_or(0, |place| i64::try_from(place + 1).unwrap_or(0))))
}

fn place_in_blob(text: &[u8], part: &[u8]) -> Option<usize> {
    Finder::new(part).find(text)
}

/// Returns the number of characters before `part`. A match must begin at the first byte of a character, or at the start
/// of the text.
fn place_in_text(text: &[u8], part: &[u8]) -> Option<usize> {
    if part.first().copied().is_some_and(is_inner) {
        return text.starts_with(part).then_some(0);
    }
    let at = Finder::new(part).find(text)?;
    // The first byte of the text always begins a character.
    let begins = text.get(..at)?.iter().skip(1).filter(|byte| !is_inner(**byte)).count();
    Some(if at == 0 { 0 } else { begins + 1 })
}

/// Returns whether a byte is a continuation byte of a character.
fn is_inner(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

pub(super) fn replace<'a>(call: &Call<'a>, work: &mut Work<'_>) -> Result<Answer<'a>, Failed> {
    let (Some(text), Some(part)) = (call.bytes(0)?, call.bytes(1)?) else { return Ok(Answer::Null) };
    if part.first().is_none_or(|byte| *byte == 0) {
        return Ok(Answer::Part(text));
    }
    let Some(by) = call.bytes(2)? else { return Ok(Answer::Null) };
    work.bytes(text.len() + part.len())?;
    let finder = Finder::new(part);
    let more = by.len().saturating_sub(part.len());
    let (limit, mut length) = (call.limit(ffi::SQLITE_LIMIT_LENGTH), text.len());
    let (mut result, mut done) = (Buffer::default(), 0);
    for at in finder.find_iter(text) {
        length = length.saturating_add(more);
        if more > 0 && length > limit {
            return Err(Failed::TooBig);
        }
        result.append(text.get(done..at).unwrap_or_default())?;
        result.append(by)?;
        done = at + part.len();
    }
    result.append(text.get(done..).unwrap_or_default())?;
    work.bytes(result.len())?;
    Ok(Answer::Text(result))
}

pub(super) fn trim<'a>(call: &Call<'a>, work: &mut Work<'_>) -> Result<Answer<'a>, Failed> {
    trimmed(call, work, true, true)
}

pub(super) fn ltrim<'a>(call: &Call<'a>, work: &mut Work<'_>) -> Result<Answer<'a>, Failed> {
    trimmed(call, work, true, false)
}

pub(super) fn rtrim<'a>(call: &Call<'a>, work: &mut Work<'_>) -> Result<Answer<'a>, Failed> {
    trimmed(call, work, false, true)
}

fn trimmed<'a>(call: &Call<'a>, work: &mut Work<'_>, left: bool, right: bool) -> Result<Answer<'a>, Failed> {
    let (Some(mut text), Some(chars)) = (call.bytes(0)?, call.bytes(1)?) else { return Ok(Answer::Null) };
    let chars = Chars::of(before_nul(chars), work)?;
    while left && let Some(length) = chars.at(text, work, |text, length| text.get(..length))? {
        text = text.get(length..).unwrap_or_default();
    }
    let last = |text: &'a [u8], length| text.len().checked_sub(length).and_then(|at| text.get(at..));
    while right && let Some(length) = chars.at(text, work, last)? {
        text = text.get(..text.len() - length).unwrap_or_default();
    }
    work.bytes(text.len())?;
    Ok(Answer::Part(text))
}

/// Marks a byte that is not trimmed.
const NONE: usize = usize::MAX;

/// The cost of looking up a multi-byte character, in comparisons.
const LOOKUP: u64 = 8;

/// The characters to trim, as byte sequences that need not be valid characters. Each has a number; if several match at
/// one place, the one with the lowest number counts.
struct Chars<'a> {
    of_one_byte: [usize; 256],
    longer: BTreeMap<&'a [u8], usize>,
    /// The lengths of the sequences in `longer`.
    lengths: BTreeSet<usize>,
}

impl<'a> Chars<'a> {
    fn of(chars: &'a [u8], work: &mut Work<'_>) -> Result<Self, Failed> {
        let mut all = Self { of_one_byte: [NONE; 256], longer: BTreeMap::new(), lengths: BTreeSet::new() };
        let mut at = 0;
        while let Some((_, next)) = read_char(chars, at) {
            match chars.get(at..next).unwrap_or_default() {
                [byte] => {
                    work.bytes(8)?;
                    if let Some(number @ &mut NONE) = all.of_one_byte.get_mut(usize::from(*byte)) {
                        *number = at;
                    }
                }
                char => {
                    count(LOOKUP, char.len(), chars, work)?;
                    all.longer.entry(char).or_insert(at);
                    all.lengths.insert(char.len());
                }
            }
            at = next;
        }
        Ok(all)
    }

    /// Returns the length of the character to trim with which the text begins or ends. `part` returns a given number of
    /// bytes from that end of the text.
    fn at(
        &self,
        text: &'a [u8],
        work: &mut Work<'_>,
        part: impl Fn(&'a [u8], usize) -> Option<&'a [u8]>,
    ) -> Result<Option<usize>, Failed> {
        let Some([byte]) = part(text, 1) else { return Ok(None) };
        count(1, 0, text, work)?;
        let mut found = (self.of_one_byte.get(usize::from(*byte)).copied().unwrap_or(NONE), 1);
        for &length in &self.lengths {
            let Some(part) = part(text, length) else { break };
            count(LOOKUP, length, text, work)?;
            found = found.min((self.longer.get(part).copied().unwrap_or(NONE), length));
        }
        Ok((found.0 != NONE).then_some(found.1))
    }
}

fn count(comparisons: u64, bytes: usize, text: &[u8], work: &mut Work<'_>) -> Result<(), Failed> {
    work.comparisons(comparisons + bytes as u64 / 16, || {
        let todo = "name fewer of them, or trim in the program";
        format!("trim: these characters need too many comparisons for a value of {} bytes; {todo}", text.len())
    })
}

pub(super) fn unhex<'a>(call: &Call<'a>, work: &mut Work<'_>) -> Result<Answer<'a>, Failed> {
    let (Some(hex), Some(passed)) = (call.bytes(0)?, call.bytes(1)?) else { return Ok(Answer::Null) };
    let hex = before_nul(hex);
    work.bytes(hex.len().saturating_add(passed.len()).saturating_mul(8))?;
    let (mut skipped, mut at) = (BTreeSet::new(), 0);
    while let Some((c, next)) = read_char(passed, at) {
        skipped.insert(c);
        at = next;
    }
    let (mut bytes, mut at) = (Buffer::default(), 0);
    bytes.reserve(hex.len() / 2)?;
    let digit = |at: usize| hex.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    while at < hex.len() {
        let Some(high) = digit(at) else {
            match read_char(hex, at) {
                Some((c, next)) if skipped.contains(&c) => at = next,
                _ => return Ok(Answer::Null),
            }
            continue;
        };
        let Some(low) = digit(at + 1) else { return Ok(Answer::Null) };
        bytes.push(u8::try_from(high << 4 | low).unwrap_or_default())?;
        at += 2;
    }
    Ok(Answer::Blob(bytes))
}
