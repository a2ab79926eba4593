//! `LIKE` and `GLOB`, without recursion.
//!
//! If the text after a wildcard does not match, only the last wildcard for any text is tried again, one character
//! later: a longer match of an earlier wildcard can't succeed where the last one fails. SQLite's own form does the
//! same, but recursively.

use rusqlite::ffi;

use super::{Answer, Call, Failed, Work, before_nul, read_char};

/// The special characters of a pattern; 0 if there is none.
#[derive(Clone, Copy)]
struct Rules {
    /// Matches any text.
    all: u32,
    /// Matches one character.
    one: u32,
    /// Begins a set of characters.
    set: u32,
    /// Makes the next character literal.
    escape: u32,
    ignores_case: bool,
    name: &'static str,
}

/// Negates a set at whose start it is.
const NOT: u32 = b'^' as u32;
const SET_END: u32 = b']' as u32;
const RANGE: u32 = b'-' as u32;

/// How many searched bytes count as one comparison.
const SEARCHED: usize = 16;

/// The number of comparisons between two checks of the meter.
const ROUND: u64 = 1 << 12;

pub(super) fn like<'a>(call: &Call<'a>, work: &mut Work<'_>) -> Result<Answer<'a>, Failed> {
    let (all, one, name) = (u32::from(b'%'), u32::from(b'_'), "LIKE");
    run(call, work, Rules { all, one, set: 0, escape: 0, ignores_case: true, name })
}

pub(super) fn glob<'a>(call: &Call<'a>, work: &mut Work<'_>) -> Result<Answer<'a>, Failed> {
    let (all, one, set) = (u32::from(b'*'), u32::from(b'?'), u32::from(b'['));
    run(call, work, Rules { all, one, set, escape: 0, ignores_case: false, name: "GLOB" })
}

fn run<'a>(call: &Call<'a>, work: &mut Work<'_>, mut rules: Rules) -> Result<Answer<'a>, Failed> {
    let pattern = call.bytes(0)?;
    if pattern.is_some_and(|pattern| pattern.len() > call.limit(ffi::SQLITE_LIMIT_LIKE_PATTERN_LENGTH)) {
        return Err(Failed::Text("LIKE or GLOB pattern too complex".to_owned()));
    }
    if call.len() == 3 {
        let Some(escape) = call.bytes(2)? else { return Ok(Answer::Null) };
        let escape = before_nul(escape);
        rules.escape = match read_char(escape, 0) {
            Some((c, next)) if next == escape.len() => c,
            _ => return Err(Failed::Text("ESCAPE expression must be a single character".to_owned())),
        };
        for sign in [&mut rules.all, &mut rules.one] {
            if *sign == rules.escape {
                *sign = 0;
            }
        }
    }
    let (Some(pattern), Some(text)) = (pattern, call.bytes(1)?) else { return Ok(Answer::Null) };
    let (pattern, text) = (before_nul(pattern), before_nul(text));
    work.bytes(pattern.len() + text.len() / SEARCHED)?;
    let fits = Matcher { pattern, text, rules, done: 0 }.run(work)?;
    Ok(Answer::Integer(fits.into()))
}

struct Matcher<'a> {
    pattern: &'a [u8],
    text: &'a [u8],
    rules: Rules,
    /// Comparisons that have not been counted yet.
    done: u64,
}

/// The result of comparing one character of the pattern.
enum Compared {
    /// It matches; the offsets after it in the pattern and in the text.
    Fits(usize, usize),
    Differs,
    /// The text has ended: no later start can match.
    TextEnded,
}

impl Matcher<'_> {
    fn run(&mut self, work: &mut Work<'_>) -> Result<bool, Failed> {
        let (mut pattern, mut text) = (0, 0);
        // The offset in the pattern after the last wildcard for any text, and the offset in the text that was last
        // tried for it.
        let mut tried: Option<(usize, usize)> = None;
        loop {
            let compared = match read_char(self.pattern, pattern) {
                None if text == self.text.len() => return self.count(work).map(|()| true),
                None => Compared::Differs,
                Some((c, next)) if c == self.rules.all => {
                    let Some((after, from)) = self.skip_wildcards(next, text) else {
                        return self.count(work).map(|()| false);
                    };
                    if after == self.pattern.len() {
                        return self.count(work).map(|()| true);
                    }
                    let Some(from) = self.search(after, from) else { return self.count(work).map(|()| false) };
                    tried = Some((after, from));
                    Compared::Fits(after, from)
                }
                Some((c, next)) => self.compare(c, next, text),
            };
            self.done += 1;
            if self.done >= ROUND {
                self.count(work)?;
            }
            match compared {
                Compared::Fits(next, behind) => (pattern, text) = (next, behind),
                Compared::TextEnded => return self.count(work).map(|()| false),
                Compared::Differs => {
                    let again = tried.and_then(|(after, from)| Some((after, read_char(self.text, from)?.1)));
                    let again = again.and_then(|(after, from)| Some((after, self.search(after, from)?)));
                    let Some((after, from)) = again else { return self.count(work).map(|()| false) };
                    tried = again;
                    (pattern, text) = (after, from);
                }
            }
        }
    }

    fn count(&mut self, work: &mut Work<'_>) -> Result<(), Failed> {
        let (name, bytes) = (self.rules.name, self.text.len());
        work.comparisons(std::mem::take(&mut self.done), || {
            let todo = "use a shorter pattern or FTS5";
            format!("{name}: this pattern needs too many comparisons for a value of {bytes} bytes; {todo}")
        })
    }

    /// Skips wildcards that follow one for any text; each wildcard for one character consumes one of the text. Returns
    /// `None` if the text ends before that.
    fn skip_wildcards(&mut self, mut pattern: usize, mut text: usize) -> Option<(usize, usize)> {
        while let Some((c, next)) = read_char(self.pattern, pattern) {
            self.done += 1;
            if c == self.rules.one {
                text = read_char(self.text, text)?.1;
            } else if c != self.rules.all {
                break;
            }
            pattern = next;
        }
        Some((pattern, text))
    }

    /// Returns the first offset at which the text may match the pattern after a wildcard. If the pattern continues with
    /// a single-byte character, that is its next occurrence.
    fn search(&mut self, pattern: usize, from: usize) -> Option<usize> {
        let (mut c, next) = read_char(self.pattern, pattern)?;
        if c == self.rules.set {
            return Some(from);
        }
        if c == self.rules.escape {
            c = read_char(self.pattern, next)?.0;
        }
        let Some(byte) = u8::try_from(c).ok().filter(u8::is_ascii) else { return Some(from) };
        let rest = self.text.get(from..)?;
        let found = if self.rules.ignores_case {
            memchr::memchr2(byte.to_ascii_lowercase(), byte.to_ascii_uppercase(), rest)
        } else {
            memchr::memchr(byte, rest)
        };
        self.done += (found.unwrap_or(rest.len()) / SEARCHED) as u64;
        found.map(|at| from + at)
    }

    /// Compares the character `c` of the pattern, which ends at `next`, with the next one of the text.
    fn compare(&mut self, mut c: u32, mut next: usize, text: usize) -> Compared {
        let of_text = read_char(self.text, text);
        if c == self.rules.set {
            let Some((found, behind)) = of_text else { return Compared::TextEnded };
            return match self.set(next, found) {
                Some(next) => Compared::Fits(next, behind),
                None => Compared::Differs,
            };
        }
        let is_escaped = c == self.rules.escape;
        if is_escaped {
            match read_char(self.pattern, next) {
                Some(read) => (c, next) = read,
                None => return Compared::Differs,
            }
        }
        let Some((found, behind)) = of_text else { return Compared::TextEnded };
        let is_same =
            c == found || c == self.rules.one && !is_escaped || self.rules.ignores_case && is_same_letter(c, found);
        if is_same { Compared::Fits(next, behind) } else { Compared::Differs }
    }

    /// Returns the offset after the set of the pattern that begins at `at`, if the set contains a character.
    fn set(&mut self, at: usize, found: u32) -> Option<usize> {
        let (mut at, mut prior, mut is_in, mut is_negated) = (at, 0, false, false);
        let read = |at: &mut usize| {
            let (c, next) = read_char(self.pattern, *at)?;
            *at = next;
            Some(c)
        };
        let mut c = read(&mut at);
        if c == Some(NOT) {
            is_negated = true;
            c = read(&mut at);
        }
        if c == Some(SET_END) {
            is_in = found == SET_END;
            c = read(&mut at);
        }
        while let Some(member) = c.filter(|c| *c != SET_END) {
            self.done += 1;
            let is_range = member == RANGE && prior > 0 && self.pattern.get(at).is_some_and(|byte| *byte != b']');
            if is_range {
                let last = read(&mut at)?;
                is_in |= (prior..=last).contains(&found);
                prior = 0;
            } else {
                is_in |= member == found;
                prior = member;
            }
            c = read(&mut at);
        }
        (c.is_some() && is_in != is_negated).then_some(at)
    }
}

/// Returns whether two characters are the same ASCII character, ignoring case.
fn is_same_letter(c: u32, other: u32) -> bool {
    match (u8::try_from(c), u8::try_from(other)) {
        (Ok(c), Ok(other)) => c.is_ascii() && c.eq_ignore_ascii_case(&other),
        _ => false,
    }
}
