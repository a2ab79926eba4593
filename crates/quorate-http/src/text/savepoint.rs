//! Statements about savepoints.

use super::token::tokens;

/// What a statement does with a savepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Savepoint {
    Set,
    RollBackTo,
    Release,
}

/// The words that may stand before the name.
const WORDS: [&str; 5] = ["SAVEPOINT", "ROLLBACK", "TRANSACTION", "TO", "RELEASE"];

impl Savepoint {
    /// Returns the name in a statement about a savepoint; `None` if it has none.
    pub(crate) fn name(statement: &str) -> Option<String> {
        let before = tokens(statement).take_while(|(token, _)| WORDS.iter().any(|word| token.is_word(word)));
        let begin = before.last().map_or(0, |(_, end)| end);
        let name = statement.get(begin..)?.trim().trim_end_matches(';').trim_end();
        let close = match name.chars().next()? {
            '[' => ']',
            quote @ ('"' | '\'' | '`') => quote,
            _ => return Some(name.to_owned()),
        };
        let inner = name.get(1..)?.strip_suffix(close)?;
        Some(inner.replace(&String::from_iter([close, close]), &close.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_savepoint_is_read_as_sqlite_does() {
        for (statement, name) in [
            ("SAVEPOINT a", Some("a")),
            ("release SAVEPOINT \"a b\" ;", Some("a b")),
            ("RELEASE sp1", Some("sp1")),
            ("ROLLBACK TRANSACTION TO SAVEPOINT 'it''s'", Some("it's")),
            ("ROLLBACK TO [c]", Some("c")),
            ("SAVEPOINT", None),
            ("SAVEPOINT \"", None),
        ] {
            assert_eq!(Savepoint::name(statement).as_deref(), name, "{statement}");
        }
    }
}
