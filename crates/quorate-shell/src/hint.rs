//! Hints about errors of SQLite.

use std::sync::Arc;

use quorate::config::mistyped;

use crate::names::Names;

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
        return meant(mistyped(table, names().keys().map(String::as_str)), ".tables lists the tables and views");
    }
    let column = missing("no such column: ").or_else(|| missing("has no column named "))?;
    meant(
        mistyped(column, names().values().flatten().map(String::as_str)),
        ".schema TABLE shows the columns of a table",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_name_gets_the_nearest_one() {
        let names = Arc::new(Names::from([("users".to_owned(), vec!["id".to_owned(), "name".to_owned()])]));
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
