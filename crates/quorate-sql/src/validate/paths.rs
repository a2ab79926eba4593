//! Limits the number of paths in a call of a JSON function: SQLite searches for each path from the beginning of the
//! document, all in one step.
//!
//! Invariant: the text of a call shows the number of its arguments. A statement that passes, and any view or trigger
//! that such a statement created, therefore calls no JSON function with more than [`JSON_PATHS_MAX`] paths.

use quorate_model::{Failure, FailureKind};

use super::text::Token;

/// The most paths of one call. Following one path to the end of 16 MiB takes about 0.1 s.
pub const JSON_PATHS_MAX: usize = 16;

/// Functions that take a document and paths.
const OF_PATHS: [&str; 4] = ["json_extract", "jsonb_extract", "json_remove", "jsonb_remove"];

/// Functions that take a document, and then pairs of a path and a value.
const OF_PAIRS: [&str; 8] = [
    "json_set",
    "jsonb_set",
    "json_insert",
    "jsonb_insert",
    "json_replace",
    "jsonb_replace",
    "json_array_insert",
    "jsonb_array_insert",
];

/// Counts the arguments of calls, one token of a statement after another.
#[derive(Default)]
pub(super) struct Calls<'a> {
    /// The name before the current token.
    name: Option<&'a [u8]>,
    /// For each open parenthesis: how many more arguments are allowed, if it belongs to a call of such a function.
    open: Vec<Option<usize>>,
}

impl<'a> Calls<'a> {
    /// Processes the next token. Fails at the first argument beyond the limit.
    pub(super) fn take(&mut self, token: Token<'a>) -> Result<(), Failure> {
        let name = self.name.take();
        match token {
            Token::Word(word) | Token::Quoted(word) => self.name = Some(word),
            Token::Open => self.open.push(name.and_then(arguments_max)),
            Token::Close => _ = self.open.pop(),
            Token::Comma => {
                if let Some(Some(left)) = self.open.last_mut() {
                    // A call with n commas has n + 1 arguments, so this must stay above 0.
                    *left = left.checked_sub(1).filter(|left| *left > 0).ok_or_else(too_many)?;
                }
            }
            Token::Semicolon | Token::Other => {}
        }
        Ok(())
    }
}

fn arguments_max(name: &[u8]) -> Option<usize> {
    let is_one_of = |names: &[&str]| names.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()));
    if is_one_of(&OF_PATHS) {
        Some(1 + JSON_PATHS_MAX)
    } else if is_one_of(&OF_PAIRS) {
        Some(1 + 2 * JSON_PATHS_MAX)
    } else {
        None
    }
}

fn too_many() -> Failure {
    let text = format!("a JSON function takes at most {JSON_PATHS_MAX} paths at once; call it for some at a time");
    Failure::new(FailureKind::TooBig, text)
}

#[cfg(test)]
mod tests {
    use super::super::text::check_single;
    use super::*;

    fn call(name: &str, arguments: usize, argument: &str) -> String {
        format!("SELECT 1, 2, {name} ( j{} ), 3, 4", format!(", {argument}").repeat(arguments))
    }

    #[test]
    fn a_call_with_too_many_paths_is_found_in_any_form() {
        let names = ["json_extract", "JSONB_Remove", "\"json_extract\"", "[json_extract] /* ( */", "`json_remove`"];
        for name in names {
            for argument in ["'$.a, b'", "f(1, 2, 3)", "(SELECT a, b)", "json_extract(j, 'a', 'b')"] {
                assert_eq!(check_single(&call(name, JSON_PATHS_MAX, argument)), Ok(()), "{name} {argument}");
                let failure = check_single(&call(name, JSON_PATHS_MAX + 1, argument)).err().map(|failure| failure.kind);
                assert_eq!(failure, Some(FailureKind::TooBig), "{name} {argument}");
            }
        }
        assert_eq!(check_single(&call("json_set", 2 * JSON_PATHS_MAX, "'$.a'")), Ok(()));
        assert!(check_single(&call("json_set", 2 * JSON_PATHS_MAX + 1, "'$.a'")).is_err());
        assert!(check_single(&format!("SELECT f({})", call("json_set", 40, "1"))).is_err());
    }

    #[test]
    fn other_calls_are_not_limited() {
        for name in ["json_object", "json_array", "max", "json_extract.x", "'json_extract'", "json_extract + "] {
            assert_eq!(check_single(&call(name, 100, "1")), Ok(()), "{name}");
        }
        assert_eq!(check_single(&format!("SELECT json_extract(j, '$.a'){}", ", 1".repeat(100))), Ok(()));
    }
}
