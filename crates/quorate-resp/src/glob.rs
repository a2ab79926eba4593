//! Patterns of names, with the limit of the door.

use bytes::Bytes;
use quorate_model::events::glob_matches;

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
        glob_matches(&self.0, name)
    }
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
