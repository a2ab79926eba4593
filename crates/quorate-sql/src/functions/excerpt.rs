//! `snippet()` and `highlight()` of FTS5.
//!
//! For each instance of a phrase, SQLite's `snippet` visits all instances, and for each mark its `highlight` copies its
//! whole output. The replacements return the same in time that is linear in the text and the instances: instances are
//! in order, so a window over them only moves forward.

use std::ops::Range;

use rusqlite::ffi;

use super::{Work, before_nul};
use crate::ffi::fts5::{Found, More, Token};
use crate::ffi::functions::{Answer, Failed};
use crate::usage::Buffer;

/// The score of the first instance of a phrase in a window; each further instance scores 1.
const NEW_PHRASE: i64 = 1000;

/// The extra score of a window that begins with the text, or with a sentence.
const BEGINS_TEXT: i64 = 120;
const BEGINS_SENTENCE: i64 = 100;

/// The most tokens of a snippet; SQLite takes a larger number for this one.
const TOKENS_MAX: i64 = 64;

/// How many bytes of work a visited instance counts as.
const INSTANCE_BYTES: usize = 16;

/// `highlight(table, column, open, close)`.
pub(super) fn highlight(found: &Found<'_>, work: &mut Work<'_>) -> Result<Answer<'static>, Failed> {
    if found.call.len() != 3 {
        return Err(wrong_number("highlight"));
    }
    let Ok(column) = usize::try_from(column_of(found)) else { return Ok(Answer::Text(Buffer::default())) };
    if column >= found.columns() {
        return Ok(Answer::Text(Buffer::default()));
    }
    let Some(text) = found.text(column)? else { return Ok(Answer::Null) };
    let mut marked = Marked::new(found, column, text, Tokens { first: 0, last: None })?;
    marked.write(work)?;
    marked.append_rest()?;
    Ok(Answer::Text(marked.out))
}

/// `snippet(table, column, open, close, ellipsis, tokens)`.
pub(super) fn snippet(found: &Found<'_>, work: &mut Work<'_>) -> Result<Answer<'static>, Failed> {
    if found.call.len() != 5 {
        return Err(wrong_number("snippet"));
    }
    let tokens = found.call.integer(4).min(TOKENS_MAX);
    if tokens < 1 {
        let text =
            format!("snippet() needs a number of tokens from 1 on; more than {TOKENS_MAX} count as {TOKENS_MAX}");
        return Err(Failed::Text(text));
    }
    let best = Search::new(found, tokens).best(work)?;
    let Some(text) = found.text(best.column)? else { return Ok(Answer::Null) };
    let size = if best.size == 0 { found.column_tokens(best.column)? } else { best.size };
    let last = best.start.saturating_add(tokens - 1);
    let ellipsis = text_of(found, 3)?;
    let mut marked = Marked::new(found, best.column, text, Tokens { first: best.start, last: Some(last) })?;
    if best.start > 0 {
        marked.append(ellipsis)?;
    }
    marked.write(work)?;
    if last >= size - 1 {
        marked.append_rest()?;
    } else {
        marked.append(ellipsis)?;
    }
    Ok(Answer::Text(marked.out))
}

fn wrong_number(name: &str) -> Failed {
    Failed::Text(format!("wrong number of arguments to function {name}()"))
}

/// Returns the requested column, as a C `int`; -1 for all negative numbers, and the largest `int` for all larger ones.
fn column_of(found: &Found<'_>) -> i32 {
    i32::try_from(found.call.integer(0).max(-1)).unwrap_or(i32::MAX)
}

fn text_of<'a>(found: &Found<'a>, argument: usize) -> Result<&'a [u8], Failed> {
    Ok(before_nul(found.call.bytes(argument)?.unwrap_or_default()))
}

/// A range of tokens of a column, with its score.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    score: i64,
    column: usize,
    start: i64,
    /// The number of tokens of the column; 0 if no window was found.
    size: i64,
}

/// Searches for the window with the highest score.
struct Search<'f, 'a> {
    found: &'f Found<'a>,
    tokens: i64,
}

impl<'f, 'a> Search<'f, 'a> {
    fn new(found: &'f Found<'a>, tokens: i64) -> Self {
        Self { found, tokens }
    }

    fn best(&self, work: &mut Work<'_>) -> Result<Window, Failed> {
        let wanted = usize::try_from(column_of(self.found)).ok();
        let mut best = Window { column: wanted.unwrap_or(0), ..Window::default() };
        let (count, mut end) = (self.found.instances()?, 0);
        for column in 0..self.found.columns() {
            let first = end;
            while end < count && self.found.instance(end)?.column == column {
                work.bytes(INSTANCE_BYTES)?;
                end += 1;
            }
            if wanted.is_none_or(|wanted| wanted == column) {
                self.look_at(column, first..end, &mut best, work)?;
            }
        }
        Ok(best)
    }

    /// Scores the windows that begin with one of the instances, or with the sentence that contains it. The instances
    /// must be all those of the column.
    fn look_at(
        &self,
        column: usize,
        instances: Range<usize>,
        best: &mut Window,
        work: &mut Work<'_>,
    ) -> Result<(), Failed> {
        let (sentences, size) = (self.sentences(column, work)?, self.found.column_tokens(column)?);
        let (mut shown, mut shown_of_sentence) = (self.sliding(&instances)?, self.sliding(&instances)?);
        let mut sentence = 0;
        for at in instances {
            work.bytes(INSTANCE_BYTES)?;
            let token = self.found.instance(at)?.token;
            if token > size {
                return Err(Failed::Code(ffi::SQLITE_CORRUPT_VTAB));
            }
            shown.begin(token)?;
            best.improve(shown.score(), column, shown.centered(size), size);
            while sentences.get(sentence + 1).is_some_and(|next| *next <= token) {
                sentence += 1;
            }
            let start = sentences.get(sentence).copied().filter(|start| *start < token && size > self.tokens);
            if let Some(start) = start {
                shown_of_sentence.begin(start)?;
                let more = if start == 0 { BEGINS_TEXT } else { BEGINS_SENTENCE };
                best.improve(shown_of_sentence.score() + more, column, start, size);
            }
        }
        Ok(())
    }

    /// Returns the numbers of the tokens with which sentences begin: the first one, and those after a full stop or a
    /// colon and white space.
    fn sentences(&self, column: usize, work: &mut Work<'_>) -> Result<Vec<i64>, Failed> {
        let Some(text) = self.found.text(column)? else { return Ok(Vec::new()) };
        let (mut starts, mut number, mut done) = (Vec::new(), 0_i64, 0);
        self.found.tokens(column, text, |Token { start, end }| {
            work.bytes(end.saturating_sub(done) + 1)?;
            done = end.max(done);
            if number == 0 || ends_sentence(text.get(..start).unwrap_or_default()) {
                starts.try_reserve(1).map_err(|_| Failed::NoMemory)?;
                starts.push(number);
            }
            number += 1;
            Ok(More::Yes)
        })?;
        Ok(starts)
    }

    fn sliding(&self, instances: &Range<usize>) -> Result<Sliding<'f, 'a>, Failed> {
        let (mut counts, phrases) = (Vec::new(), self.found.phrases());
        counts.try_reserve_exact(phrases).map_err(|_| Failed::NoMemory)?;
        counts.resize(phrases, 0);
        let (found, tokens, begun, inside) = (self.found, self.tokens, 0, instances.start..instances.start);
        Ok(Sliding { found, tokens, begun, inside, end: instances.end, counts, phrases: 0, last: 0 })
    }
}

/// Returns whether a text ends with a full stop or a colon, followed by white space.
fn ends_sentence(text: &[u8]) -> bool {
    let last = text.iter().rposition(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
    last.is_some_and(|last| last + 1 < text.len() && matches!(text.get(last), Some(b'.' | b':')))
}

impl Window {
    fn improve(&mut self, score: i64, column: usize, start: i64, size: i64) {
        if score > self.score {
            *self = Self { score, column, start, size };
        }
    }
}

/// A window that moves forward over the instances of a column.
struct Sliding<'f, 'a> {
    found: &'f Found<'a>,
    tokens: i64,
    /// The first token of the window.
    begun: i64,
    /// The instances in the window.
    inside: Range<usize>,
    /// The end of the column's instances.
    end: usize,
    /// The number of instances of each phrase in the window, and the number of phrases that have any.
    counts: Vec<usize>,
    phrases: usize,
    /// The number of the token after the last instance in the window.
    last: i64,
}

impl Sliding<'_, '_> {
    /// Moves the window forward so that it begins with `token`.
    fn begin(&mut self, token: i64) -> Result<(), Failed> {
        self.begun = token;
        while self.inside.end < self.end {
            let instance = self.found.instance(self.inside.end)?;
            if instance.token >= token.saturating_add(self.tokens) {
                break;
            }
            if let Some(count) = self.counts.get_mut(instance.phrase) {
                *count += 1;
                self.phrases += usize::from(*count == 1);
            }
            self.last = instance.token.saturating_add(self.found.phrase_tokens(instance.phrase));
            self.inside.end += 1;
        }
        while !self.inside.is_empty() {
            let instance = self.found.instance(self.inside.start)?;
            if instance.token >= token {
                break;
            }
            if let Some(count) = self.counts.get_mut(instance.phrase) {
                *count -= 1;
                self.phrases -= usize::from(*count == 0);
            }
            self.inside.start += 1;
        }
        Ok(())
    }

    fn score(&self) -> i64 {
        as_score(self.inside.len()) + (NEW_PHRASE - 1) * as_score(self.phrases)
    }

    /// Returns the first token of the window in whose middle the phrases of this one are.
    fn centered(&self, size: i64) -> i64 {
        let start = self.begun - (self.tokens - (self.last - self.begun)) / 2;
        start.min(size - self.tokens).max(0)
    }
}

fn as_score(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX / NEW_PHRASE)
}

/// A range of tokens of a column, up to and including `last`, if there is one.
#[derive(Clone, Copy, Debug)]
struct Tokens {
    first: i64,
    last: Option<i64>,
}

/// Copies a part of a text, and puts marks around the phrases that match the query.
struct Marked<'f, 'a> {
    found: &'f Found<'a>,
    column: usize,
    text: &'a [u8],
    range: Tokens,
    /// The marks before and after each phrase.
    open: &'a [u8],
    close: &'a [u8],
    is_open: bool,
    /// The number of bytes of the text that have been copied or skipped.
    done: usize,
    /// The number of the first instance after `next`.
    at: usize,
    /// The first and the last of the tokens to mark next; overlapping instances are marked together.
    next: Option<(i64, i64)>,
    length_max: usize,
    out: Buffer,
}

impl<'f, 'a> Marked<'f, 'a> {
    fn new(found: &'f Found<'a>, column: usize, text: &'a [u8], range: Tokens) -> Result<Self, Failed> {
        let (open, close) = (text_of(found, 1)?, text_of(found, 2)?);
        let length_max = found.call.limit(ffi::SQLITE_LIMIT_LENGTH);
        let (is_open, done, at, next, out) = (false, 0, 0, None, Buffer::default());
        let mut marked = Self { found, column, text, range, open, close, is_open, done, at, next, length_max, out };
        marked.advance()?;
        while marked.next.is_some_and(|(first, _)| first < range.first) {
            marked.advance()?;
        }
        Ok(marked)
    }

    /// Finds the next tokens to mark.
    fn advance(&mut self) -> Result<(), Failed> {
        self.next = None;
        let count = self.found.instances()?;
        while self.at < count {
            let instance = self.found.instance(self.at)?;
            if instance.column == self.column {
                let last = instance.token + self.found.phrase_tokens(instance.phrase) - 1;
                self.next = match self.next {
                    None => Some((instance.token, last)),
                    Some((first, end)) if instance.token <= end => Some((first, end.max(last))),
                    Some(_) => return Ok(()),
                };
            }
            self.at += 1;
        }
        Ok(())
    }

    /// Writes the tokens of the range, and the text between them.
    fn write(&mut self, work: &mut Work<'_>) -> Result<(), Failed> {
        let (mut number, mut seen) = (0, 0);
        let (found, column, text) = (self.found, self.column, self.text);
        found.tokens(column, text, |token| {
            work.bytes(token.end.saturating_sub(seen) + 1)?;
            seen = seen.max(token.end);
            number += 1;
            if number <= self.range.first { Ok(More::Yes) } else { self.token(number - 1, token) }
        })?;
        if self.is_open { self.close() } else { Ok(()) }
    }

    fn token(&mut self, number: i64, token: Token) -> Result<More, Failed> {
        if number == self.range.first && number > 0 {
            self.done = token.start;
        }
        let is_inside = self.next.is_some_and(|(first, _)| first < number);
        if self.is_open && !is_inside && token.start >= self.done {
            self.close()?;
        }
        if !self.is_open && self.next.is_some_and(|(first, _)| first == number) {
            self.copy(token.start)?;
            self.open()?;
        }
        if self.next.is_some_and(|(_, last)| last == number) {
            self.copy(token.end)?;
            self.advance()?;
        }
        if self.range.last != Some(number) {
            return Ok(More::Yes);
        }
        if self.is_open {
            if self.next.is_some_and(|(first, _)| first <= number) {
                self.copy(token.end)?;
            }
            self.close()?;
        }
        self.copy(token.end)?;
        Ok(More::No)
    }

    fn open(&mut self) -> Result<(), Failed> {
        self.is_open = true;
        self.append(self.open)
    }

    fn close(&mut self) -> Result<(), Failed> {
        self.is_open = false;
        self.append(self.close)
    }

    /// Copies the text up to byte `end`.
    fn copy(&mut self, end: usize) -> Result<(), Failed> {
        let text = self.text.get(self.done..end).unwrap_or_default();
        self.done = end;
        self.append(before_nul(text))
    }

    fn append_rest(&mut self) -> Result<(), Failed> {
        self.copy(self.text.len())
    }

    fn append(&mut self, text: &[u8]) -> Result<(), Failed> {
        if self.out.len().saturating_add(text.len()) > self.length_max {
            return Err(Failed::TooBig);
        }
        Ok(self.out.append(text)?)
    }
}
