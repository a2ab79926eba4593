//! Finds shadow tables: the tables in which virtual tables keep their content.
//!
//! `PRAGMA table_list` reports them too, but it first looks up the columns of all views, and starts again at the first
//! table each time that this fails for a view. That takes seconds if views with thousands of columns use each other.
//!
//! Invariant: the result equals that of the pragma, for the modules that commands may use.

use std::collections::BTreeSet;

/// The suffixes of each module's shadow tables (`t_data`), as in the module's `xShadowName` in SQLite.
const ENDINGS: [(&str, &[&str]); 3] = [
    ("fts5", &["config", "content", "data", "docsize", "idx"]),
    ("rtree", &["node", "parent", "rowid"]),
    ("rtree_i32", &["node", "parent", "rowid"]),
];

/// Returns those of `names`, in lower case, that are shadow tables of the virtual table `owner`, which `sql` creates.
pub(super) fn of(owner: &str, sql: &str, names: &BTreeSet<String>) -> impl Iterator<Item = String> {
    let module = module(sql).unwrap_or_default();
    let endings = ENDINGS.iter().find(|(name, _)| *name == module).map_or(&[][..], |(_, endings)| endings);
    let owner = owner.to_ascii_lowercase();
    endings.iter().map(move |ending| format!("{owner}_{ending}")).filter(|name| names.contains(name))
}

/// Returns the module, in lower case, in a text as SQLite stores it: `CREATE VIRTUAL TABLE name USING module`.
fn module(sql: &str) -> Option<String> {
    let mut rest = sql.get("CREATE VIRTUAL TABLE".len()..)?;
    let mut word = || {
        let (word, after) = first(rest)?;
        rest = after;
        Some(word)
    };
    let (_name, _using) = (word()?, word()?);
    word().map(|module| module.to_ascii_lowercase())
}

/// Returns the first word of a text, without its quotes, and the text after it. Comments and white space before it are
/// skipped. A doubled quote inside a name stays doubled, which is harmless: no module has a quote in its name.
fn first(mut text: &str) -> Option<(&str, &str)> {
    loop {
        text = text.trim_ascii_start();
        text = match (text.strip_prefix("--"), text.strip_prefix("/*")) {
            (Some(comment), _) => comment.split_once('\n')?.1,
            (_, Some(comment)) => comment.split_once("*/")?.1,
            _ => break,
        };
    }
    let close = match text.bytes().next()? {
        b'[' => Some(']'),
        quote @ (b'"' | b'\'' | b'`') => Some(char::from(quote)),
        _ => None,
    };
    let Some(close) = close else {
        let end = text.find(|c: char| c.is_ascii() && !c.is_ascii_alphanumeric() && c != '_' && c != '$');
        return Some(text.split_at(end.unwrap_or(text.len())));
    };
    let inside = text.get(1..)?;
    let mut end = inside.find(close)?;
    while close != ']' && inside.get(end + 1..)?.starts_with(close) {
        end += 2 + inside.get(end + 2..)?.find(close)?;
    }
    Some((inside.get(..end)?, inside.get(end + 1..)?))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use rusqlite::Connection;

    use crate::schema_check::{Schema, quoted};

    /// Returns the names that the pragma reports.
    fn of_sqlite(conn: &Connection, kind: &str) -> BTreeSet<String> {
        let sql = "SELECT lower(name) FROM pragma_table_list WHERE schema = 'main' AND type = ?1";
        conn.prepare(sql).unwrap().query_map([kind], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    }

    fn assert_same(conn: &Connection) {
        let schema = Schema::read(conn).unwrap();
        assert_eq!(schema.shadows, of_sqlite(conn, "shadow"));
        let named: BTreeSet<_> = schema.virtual_tables.iter().map(|name| name.to_ascii_lowercase()).collect();
        assert_eq!(named, of_sqlite(conn, "virtual"));
    }

    /// Generates a quoted name.
    fn name() -> impl Strategy<Value = String> {
        let inside = prop::sample::select(vec![
            "t", "u", "_", "node", "data", " ", "\"", "'", "]", "`", "é", "USING", "fts5", "rtree", "(", ")", "--",
            "/*", "*/",
        ]);
        (prop::collection::vec(inside, 1..6), 0..4_usize).prop_map(|(parts, quote)| {
            let name = parts.concat();
            let doubled = |quote: &str| format!("{quote}{}{quote}", name.replace(quote, &quote.repeat(2)));
            match quote {
                0 => doubled("\""),
                1 => doubled("'"),
                2 => doubled("`"),
                _ => format!("[{}]", name.replace(']', "")),
            }
        })
    }

    fn gap() -> impl Strategy<Value = &'static str> {
        prop::sample::select(vec![" ", "\n\t", " /* USING rtree */ ", " -- USING fts5\n", "/**/"])
    }

    fn module() -> impl Strategy<Value = &'static str> {
        prop::sample::select(vec![
            "fts5(a)",
            "FTS5 (a, b)",
            "\"fts5\"(a)",
            "[rtree](a, b, c)",
            "rtree(a,b,c)",
            "rtree_i32(a,b,c)",
        ])
    }

    proptest! {
        #[test]
        fn shadow_tables_equal_those_of_sqlite(
            tables in prop::collection::vec((name(), gap(), gap(), module()), 1..4),
            plain in prop::collection::vec(prop::sample::select(vec!["node", "DATA", "idx", "other"]), 0..4),
            renamed in any::<bool>(),
        ) {
            let conn = Connection::open_in_memory().unwrap();
            for (name, before, after, module) in &tables {
                // This fails if a name is taken or empty; then there is nothing to compare.
                let _ = conn.execute_batch(&format!("CREATE VIRTUAL TABLE {name}{before}USING{after}{module}"));
            }
            let owners = Schema::read(&conn).unwrap().virtual_tables;
            for (owner, ending) in owners.iter().zip(plain) {
                let _ = conn.execute_batch(&format!("CREATE TABLE {} (a)", quoted(&format!("{owner}_{ending}"))));
            }
            assert_same(&conn);
            if let (Some(owner), true) = (owners.first(), renamed) {
                let _ = conn.execute_batch(&format!("ALTER TABLE {} RENAME TO moved", quoted(owner)));
                assert_same(&conn);
            }
        }
    }
}
