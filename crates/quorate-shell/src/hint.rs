//! Hints about errors of SQLite, and the place of a syntax error.

use std::sync::Arc;

use quorate::config::mistyped;
use unicode_width::UnicodeWidthStr as _;

use crate::format::visible;
use crate::names::Names;
use crate::statements::tokens;

/// The next step after an error, if there is one. Names are fetched only if they help.
pub fn hint(error: &str, names: impl FnOnce() -> Arc<Names>) -> Option<String> {
    let missing = |what: &str| {
        let (_, name) = error.split_once(what)?;
        let name = name.split(|c: char| c.is_whitespace() || c == ';').next()?;
        Some(name.rsplit('.').next().unwrap_or(name).trim_matches('"'))
    };
    let meant = |near: Option<&str>, lists: &str| {
        Some(near.map_or_else(|| lists.to_owned(), |near| format!("did you mean {near}?")))
    };
    if let Some(table) = missing("no such table: ") {
        return meant(mistyped(table, names().tables.keys().map(String::as_str)), ".tables lists the tables and views");
    }
    let column = missing("no such column: ").or_else(|| missing("has no column named "))?;
    meant(
        mistyped(column, names().tables.values().flatten().map(String::as_str)),
        ".schema TABLE shows the columns of a table",
    )
}

/// The line of a statement in which a syntax error is, and a line with a caret below the error. SQLite names only the
/// token, so there is no place if the statement has it more than once.
pub fn place(error: &str, statement: &str) -> Option<String> {
    let (_, rest) = error.split_once("near \"")?;
    let (near, _) = rest.split_once("\": syntax error")?;
    let mut found = tokens(statement).filter(|(_, token)| *token == near);
    let (at, _) = found.next().filter(|_| found.next().is_none())?;
    let (before, after) = statement.split_at_checked(at)?;
    let begin = before.rfind('\n').map_or(0, |at| at.saturating_add(1));
    let end = after.find('\n').map_or(statement.len(), |length| at.saturating_add(length));
    let shown = |from, to| statement.get(from..to).map(visible::one_line);
    let indent = shown(begin, at)?.width();
    Some(format!("  {}\n  {:indent$}^\n", shown(begin, end)?, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_syntax_error_is_shown_below_its_line() {
        let place = |near: &str, statement| place(&format!("near \"{near}\": syntax error"), statement);
        assert_eq!(
            place("FORM", "SELECT 'FORM', \n 'ü' FORM t\nWHERE a"),
            Some("   'ü' FORM t\n       ^\n".to_owned())
        );
        assert_eq!(place(",", "SELECT a,, b"), None);
        assert_eq!(place("x", "SELECT"), None);
    }

    #[test]
    fn a_mistyped_name_gets_the_nearest_one() {
        let tables = [("users".to_owned(), vec!["id".to_owned(), "name".to_owned()])].into();
        let names = Arc::new(Names { tables, ..Names::default() });
        for (error, expected) in [
            ("no such table: usres", Some("did you mean users?")),
            ("no such table: main.orders", Some(".tables lists the tables and views")),
            ("no such column: u.nmae", Some("did you mean name?")),
            ("table users has no column named naem", Some("did you mean name?")),
            ("no such column: elsewhere", Some(".schema TABLE shows the columns of a table")),
            ("UNIQUE constraint failed: users.id", None),
        ] {
            assert_eq!(hint(error, || Arc::clone(&names)).as_deref(), expected, "{error}");
        }
    }
}
