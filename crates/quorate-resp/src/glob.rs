//! Patterns of names: `*`, `?`, `[a-c]`, `[^a]`, and `\` before a character that stands for itself.
//!
//! The time is the product of the lengths at most: only the last star is tried again, which is enough, as each other
//! part of a pattern stands for one byte.

use bytes::Bytes;

use crate::error::Refusal;

/// The most bytes of a pattern.
pub const PATTERN_BYTES_MAX: usize = 1 << 10;

/// A pattern.
#[derive(Clone, Debug)]
pub struct Glob(Bytes);

impl Glob {
    /// Returns a pattern.
    ///
    /// # Errors
    ///
    /// A text, if it is too long.
    pub fn new(pattern: Bytes) -> Result<Self, Refusal> {
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err(Refusal::Text("ERR the pattern has more than 1024 bytes"));
        }
        Ok(Self(pattern))
    }

    /// Returns the bytes that all matches begin with.
    pub fn prefix(&self) -> Bytes {
        let end = self.0.iter().position(|byte| matches!(byte, b'*' | b'?' | b'[' | b'\\'));
        self.0.slice(..end.unwrap_or(self.0.len()))
    }

    /// Returns whether a name matches.
    pub fn matches(&self, name: &[u8]) -> bool {
        let (mut pattern, mut name) = (self.0.as_ref(), name);
        // Where to go on, if what follows the last star does not match: one byte further.
        let mut star: Option<(&[u8], &[u8])> = None;
        loop {
            if let Some(rest) = pattern.strip_prefix(b"*") {
                (pattern, star) = (rest, Some((rest, name)));
                continue;
            }
            match (pattern.is_empty(), name.split_first()) {
                (true, None) => return true,
                (false, Some((byte, left))) => {
                    if let Some(rest) = one(pattern, *byte) {
                        (pattern, name) = (rest, left);
                        continue;
                    }
                }
                _ => {}
            }
            let Some((after, [_, further @ ..])) = star else { return false };
            (pattern, name, star) = (after, further, Some((after, further)));
        }
    }
}

/// Returns the pattern after its first part, if that stands for this byte.
fn one(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    match pattern {
        [b'?', rest @ ..] => Some(rest),
        [b'[', rest @ ..] => class(rest, byte),
        [b'\\', literal, rest @ ..] | [literal, rest @ ..] => (*literal == byte).then_some(rest),
        [] => None,
    }
}

/// Returns the pattern after a class, if that has this byte. The end of the pattern ends a class.
fn class(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    let (is_other, mut rest) = match pattern {
        [b'^', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let mut has = false;
    loop {
        rest = match rest {
            [] => break,
            [b'\\', literal, after @ ..] => {
                has |= *literal == byte;
                after
            }
            [b']', after @ ..] => {
                rest = after;
                break;
            }
            [low, b'-', high, after @ ..] => {
                has |= (*low.min(high)..=*low.max(high)).contains(&byte);
                after
            }
            [literal, after @ ..] => {
                has |= *literal == byte;
                after
            }
        };
    }
    (has != is_other).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        Glob::new(Bytes::copy_from_slice(pattern.as_bytes())).unwrap().matches(name.as_bytes())
    }

    #[test]
    fn patterns_match_as_in_redis() {
        let cases = [
            ("*", "", true),
            ("a*c", "abbc", true),
            ("a*c", "abb", false),
            ("a?c", "abc", true),
            ("[a-c]x", "bx", true),
            ("[c-a]x", "bx", true),
            ("[^a]x", "bx", true),
            ("[^a]x", "ax", false),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("[\\]]", "]", true),
            ("[ab", "b", true),
            ("**a*", "xxa", true),
            ("", "", true),
            ("", "a", false),
            ("a\\", "a\\", true),
            ("*a*b", "aab", true),
        ];
        for (pattern, name, expected) in cases {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn many_stars_do_not_take_long() {
        let pattern = "a*".repeat(PATTERN_BYTES_MAX / 2 - 1) + "b";
        assert!(!matches(&pattern, &"a".repeat(64 << 10)));
    }

    #[test]
    fn prefixes_end_before_what_stands_for_others() {
        for (pattern, prefix) in [("user:*", "user:"), ("a\\*", "a"), ("abc", "abc"), ("[a]", "")] {
            assert_eq!(Glob::new(pattern.into()).unwrap().prefix(), prefix);
        }
    }
}
