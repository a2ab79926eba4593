//! What the doors read from the text of SQL: its tokens, the statements of a script, and the kind of a statement.
//!
//! This is not a parser. The node that runs a statement decides what it is; the doors only need to know which call of
//! the library to try first, and where a client begins and ends a transaction.
//!
//! Invariants:
//! - Any text is read to its end in time proportional to its length, and none causes a panic.
//! - The pieces of [`split`] are the statements that SQLite would find.

mod kind;
mod parameters;
mod returned;
mod savepoint;
mod token;

pub(crate) use kind::{Begin, Kind};
pub(crate) use parameters::{bind, names};
pub(crate) use returned::returning_query;
pub(crate) use savepoint::Savepoint;
use token::{Token, tokens};

/// Returns whether a statement writes, as far as its words say it. The node that runs it decides.
pub fn may_write(statement: &str) -> bool {
    matches!(Kind::of(statement), Kind::Write { .. })
}

/// Returns the statements of a script, without the semicolons that end them. Comments between statements are part of
/// the next statement.
pub(crate) fn split(script: &str) -> Vec<&str> {
    let (mut place, mut begin, mut is_empty) = (Place::Start, 0, true);
    let mut statements = Vec::new();
    for (token, end) in tokens(script) {
        place = place.after(token);
        if place == Place::Start && token == Token::Semicolon {
            if !is_empty {
                statements.extend(script.get(begin..end.saturating_sub(1)).map(str::trim_ascii));
            }
            (begin, is_empty) = (end, true);
        } else {
            is_empty = false;
        }
    }
    if !is_empty {
        statements.extend(script.get(begin..).map(str::trim_ascii));
    }
    statements
}

/// A place in a script. Only the definition of a trigger contains semicolons, and it ends with `; END ;`.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    /// Between statements.
    Start,
    Inside,
    /// After `EXPLAIN`, which may stand before `CREATE`.
    Explain,
    Create,
    Trigger,
    TriggerSemicolon,
    TriggerEnd,
}

impl Place {
    fn after(self, token: Token<'_>) -> Self {
        match (self, token) {
            (Self::Trigger | Self::TriggerSemicolon, Token::Semicolon) => Self::TriggerSemicolon,
            (Self::TriggerSemicolon, token) if token.is_word("end") => Self::TriggerEnd,
            (Self::TriggerSemicolon | Self::Trigger, _) => Self::Trigger,
            (_, Token::Semicolon) => Self::Start,
            (Self::TriggerEnd, _) => Self::Trigger,
            (Self::Start, token) if token.is_word("explain") => Self::Explain,
            (Self::Start | Self::Explain, token) if token.is_word("create") => Self::Create,
            (Self::Create, token) if token.is_word("temp") || token.is_word("temporary") => Self::Create,
            (Self::Create, token) if token.is_word("trigger") => Self::Trigger,
            (Self::Explain, _) => Self::Explain,
            _ => Self::Inside,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn semicolons_end_statements_but_not_in_literals_comments_and_triggers() {
        let trigger = "CREATE TEMP TRIGGER t AFTER INSERT ON a BEGIN SELECT 1; DELETE FROM a; END";
        for (script, statements) in [
            ("", &[][..]),
            (" ;; -- nothing\n", &[]),
            ("SELECT 1", &["SELECT 1"]),
            ("SELECT ';' ; SELECT \";\", [;], `;` /* ; */;", &["SELECT ';'", "SELECT \";\", [;], `;` /* ; */"]),
            ("SELECT 'it''s; one';x", &["SELECT 'it''s; one'", "x"]),
            (&format!("{trigger}; SELECT 2"), &[trigger, "SELECT 2"]),
            ("EXPLAIN QUERY PLAN SELECT 1; SELECT 2", &["EXPLAIN QUERY PLAN SELECT 1", "SELECT 2"]),
            ("SELECT 'open ; ", &["SELECT 'open ;"]),
        ] {
            assert_eq!(split(script), statements, "{script}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_split_into_parts_of_itself(script in "[ -~\n;'\"\\[\\]]{0,80}|\\PC{0,40}") {
            let statements = split(&script);
            prop_assert!(statements.iter().all(|statement| script.contains(statement)));
            let bytes: usize = statements.iter().map(|statement| statement.len()).sum();
            prop_assert!(bytes <= script.len());
        }

        #[test]
        fn statements_joined_by_semicolons_are_found_again(
            parts in proptest::collection::vec("SELECT [a-z0-9+]{1,9}|DELETE FROM [a-z]{2,5} WHERE 'x;y' > [0-9]", 0..6)
        ) {
            let script = parts.join(" ; ");
            prop_assert_eq!(split(&script), parts);
        }
    }
}
