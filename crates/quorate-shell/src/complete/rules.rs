//! What may come where in a statement, as a table.
//!
//! A rule governs the place behind its words until another rule's words follow. It is a help to the typist and no
//! grammar: it need not know everything that SQLite accepts.

/// The names that an item may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// None that is known, for example a new one.
    Unknown,
    /// Tables and views.
    Tables,
    Columns,
    Functions,
    /// Columns and functions.
    Expression,
}

/// What may follow some words.
#[derive(Debug)]
pub struct Rule {
    /// The words. `^` is the beginning of a statement, `_` any name, `()` a closed pair of parentheses, `A|B` either.
    pub after: &'static str,
    /// The names that may come next.
    pub names: Names,
    /// Whether more items may follow after commas.
    pub is_list: bool,
    /// The words that may begin an item, separated by commas, like all lists of words.
    pub begin: &'static str,
    /// The words that may follow an item.
    pub then: &'static str,
}

/// A rule for one item.
const fn one(after: &'static str, names: Names, begin: &'static str, then: &'static str) -> Rule {
    Rule { after, names, is_list: false, begin, then }
}

/// A rule for items between commas.
const fn list(after: &'static str, names: Names, begin: &'static str, then: &'static str) -> Rule {
    Rule { after, names, is_list: true, begin, then }
}

/// The words that begin an operand of an expression.
pub const OPERANDS: &str = "CASE, CAST(, CURRENT_DATE, CURRENT_TIME, CURRENT_TIMESTAMP, DISTINCT, EXISTS, NOT, NULL";

/// The words that follow an operand of an expression.
pub const OPERATORS: &str = "AND, BETWEEN, COLLATE, GLOB, IN, IS NOT NULL, IS NULL, LIKE, MATCH, NOT BETWEEN, NOT IN, \
     NOT LIKE, OR, OVER";

/// The keywords that end an item, as a name does.
pub const ENDINGS: &str = "ASC, AUTOINCREMENT, CASCADE, CURRENT_DATE, CURRENT_TIME, CURRENT_TIMESTAMP, DESC, END, \
     ISNULL, KEY, NOTNULL, NULL, ROW, STRICT, UNIQUE";

/// The words that may follow the tables of a query.
const AFTER_TABLES: &str = "AS, CROSS JOIN, EXCEPT, FULL JOIN, GROUP BY, INDEXED BY, INNER JOIN, INTERSECT, JOIN, \
     LEFT JOIN, LIMIT, NATURAL JOIN, ORDER BY, RETURNING, RIGHT JOIN, UNION, UNION ALL, WHERE, WINDOW";

const QUERY: &str = "SELECT, VALUES, WITH";
const CHANGES: &str = "DELETE, INSERT, SELECT, UPDATE";
const GROUPED: &str = "EXCEPT, GROUP BY, INTERSECT, LIMIT, ORDER BY, RETURNING, UNION, UNION ALL, WINDOW";

use Names::{Columns, Expression, Functions, Tables, Unknown};

/// All rules. Of those that end at the same word the longest counts.
#[rustfmt::skip]
pub const RULES: &[Rule] = &[
    one("^", Unknown, "ALTER, ANALYZE, BEGIN, COMMIT, CREATE, DELETE, DROP, END, EXPLAIN, INSERT, PRAGMA, REINDEX, \
        REPLACE, ROLLBACK, SELECT, UPDATE, VACUUM, VALUES, WITH", ""),
    one("^ EXPLAIN", Unknown, "DELETE, INSERT, QUERY PLAN, SELECT, UPDATE, WITH", ""),
    one("^ EXPLAIN QUERY PLAN", Unknown, "DELETE, INSERT, SELECT, UPDATE, WITH", ""),
    one("^ BEGIN|COMMIT|END|ROLLBACK", Unknown, "TRANSACTION", ""),
    one("BEGIN", Unknown, CHANGES, ""),
    one("^ ANALYZE|REINDEX", Tables, "", ""),
    one("^ PRAGMA", Unknown, PRAGMAS, ""),
    one("^ PRAGMA _", Unknown, "(", ""),
    one("^ PRAGMA _ (", Tables, "", ""),

    list("SELECT", Expression, "", "AS, FROM, LIMIT, ORDER BY, UNION, UNION ALL, WHERE"),
    list("SELECT ALL|DISTINCT", Expression, "", "AS, FROM, LIMIT, ORDER BY, UNION, UNION ALL, WHERE"),
    list("FROM", Tables, "", AFTER_TABLES),
    one("JOIN", Tables, "", "AS, CROSS JOIN, GROUP BY, INNER JOIN, JOIN, LEFT JOIN, LIMIT, ON, ORDER BY, USING, WHERE"),
    list("USING (", Columns, "", ""),
    one("WHERE", Expression, "", GROUPED),
    one("ON", Expression, "", AFTER_TABLES),
    list("BY", Expression, "", "ASC, DESC, HAVING, LIMIT, NULLS FIRST, NULLS LAST, ORDER BY, RANGE, ROWS, UNION"),
    one("HAVING", Expression, "", "LIMIT, ORDER BY, UNION, WINDOW"),
    list("RETURNING", Expression, "", "AS"),
    one("LIMIT", Unknown, "", "OFFSET"),
    one("UNION|EXCEPT|INTERSECT|ALL", Unknown, "SELECT, VALUES", ""),
    list("WITH", Unknown, "RECURSIVE", "AS, DELETE, INSERT, SELECT, UPDATE"),
    one("AS (", Unknown, QUERY, ""),
    one("OVER (", Unknown, "ORDER BY, PARTITION BY", ""),
    one("CASE", Expression, "WHEN", "WHEN"),
    one("WHEN", Expression, "", "THEN"),
    one("THEN", Expression, "", "ELSE, END, WHEN"),
    one("ELSE", Expression, "", "END"),
    one("COLLATE", Unknown, "BINARY, NOCASE, RTRIM", ""),

    one("INSERT", Unknown, "INTO, OR IGNORE INTO, OR REPLACE INTO", ""),
    one("^ REPLACE", Unknown, "INTO", ""),
    one("INTO", Tables, "", ""),
    one("INTO _", Unknown, "(, AS, DEFAULT VALUES, SELECT, VALUES, WITH", ""),
    list("INTO _ (", Columns, "", ""),
    one("INTO _ ()", Unknown, QUERY, ""),
    list("VALUES", Unknown, "(", "ON CONFLICT, RETURNING"),
    list("VALUES (", Functions, "NULL", ""),
    one("ON CONFLICT", Unknown, "(, DO NOTHING, DO UPDATE SET", "DO NOTHING, DO UPDATE SET"),
    list("ON CONFLICT (", Columns, "", ""),
    one("UPDATE", Tables, "OR IGNORE, OR REPLACE", "AS, SET"),
    list("SET", Expression, "", "FROM, RETURNING, WHERE"),
    one("DELETE", Unknown, "FROM", ""),

    one("^ CREATE", Unknown, "INDEX, TABLE, TRIGGER, UNIQUE INDEX, VIEW, VIRTUAL TABLE", ""),
    one("^ CREATE TABLE|INDEX|VIEW|TRIGGER", Unknown, "IF NOT EXISTS", ""),
    one("VIRTUAL TABLE", Unknown, "IF NOT EXISTS", ""),
    one("UNIQUE INDEX", Unknown, "IF NOT EXISTS", ""),
    one("^ CREATE TABLE _", Unknown, "(, AS", ""),
    list("^ CREATE TABLE _ (", Unknown, "CHECK, CONSTRAINT, FOREIGN KEY, PRIMARY KEY, UNIQUE",
        "AUTOINCREMENT, BLOB, CHECK, COLLATE, DEFAULT, GENERATED ALWAYS AS, INTEGER, NOT NULL, PRIMARY KEY, REAL, \
         REFERENCES, TEXT, UNIQUE"),
    list("^ CREATE TABLE _ ()", Unknown, "STRICT, WITHOUT ROWID", "STRICT, WITHOUT ROWID"),
    one("TABLE|VIEW _ AS", Unknown, QUERY, ""),
    one("VIEW _", Unknown, "AS", ""),
    one("VIRTUAL TABLE _", Unknown, "USING", ""),
    one("VIRTUAL TABLE _ USING", Unknown, "fts5(, rtree(", ""),
    one("INDEX _", Unknown, "ON", ""),
    one("INDEX _ ON", Tables, "", ""),
    one("INDEX _ ON _", Unknown, "(", ""),
    list("INDEX _ ON _ (", Expression, "", "ASC, COLLATE, DESC"),
    one("INDEX _ ON _ ()", Unknown, "WHERE", ""),
    one("TRIGGER _", Unknown, "AFTER, BEFORE, INSTEAD OF", ""),
    one("BEFORE|AFTER|OF", Unknown, "DELETE ON, INSERT ON, UPDATE OF, UPDATE ON", ""),
    one("BEFORE|AFTER|OF DELETE|INSERT", Unknown, "ON", ""),
    one("BEFORE|AFTER|OF UPDATE", Unknown, "OF, ON", ""),
    list("UPDATE OF", Columns, "", "ON"),
    one("DELETE|INSERT|UPDATE ON", Tables, "", "BEGIN, FOR EACH ROW, WHEN"),
    one("ROW", Unknown, "BEGIN, WHEN", ""),
    one("REFERENCES", Tables, "", ""),
    one("REFERENCES _", Unknown, "(, NOT NULL, ON DELETE, ON UPDATE", ""),
    list("REFERENCES _ (", Columns, "", ""),
    one("REFERENCES _ ()", Unknown, "NOT NULL, ON DELETE, ON UPDATE", ""),
    one("ON DELETE|UPDATE", Unknown, "CASCADE, RESTRICT, SET DEFAULT, SET NULL", "ON DELETE, ON UPDATE"),
    list("PRIMARY|FOREIGN KEY (", Columns, "", ""),
    list("UNIQUE (", Columns, "", ""),
    one("CHECK (", Expression, "", ""),

    one("^ DROP", Unknown, "INDEX, TABLE, TRIGGER, VIEW", ""),
    one("^ DROP TABLE|VIEW", Tables, "IF EXISTS", ""),
    one("^ DROP INDEX|TRIGGER", Unknown, "IF EXISTS", ""),
    one("^ ALTER", Unknown, "TABLE", ""),
    one("^ ALTER TABLE", Tables, "", ""),
    one("^ ALTER TABLE _", Unknown, "ADD COLUMN, DROP COLUMN, RENAME COLUMN, RENAME TO", ""),
    one("^ ALTER TABLE _ ADD COLUMN", Unknown, "",
        "BLOB, CHECK, COLLATE, DEFAULT, INTEGER, NOT NULL, REAL, REFERENCES, TEXT"),
    one("^ ALTER TABLE _ DROP|RENAME COLUMN", Columns, "", "TO"),
];

/// The pragmas that a node permits in a query.
const PRAGMAS: &str = "application_id, collation_list, compile_options, database_list, foreign_key_check, \
     foreign_key_list, freelist_count, function_list, index_info, index_list, index_xinfo, integrity_check, \
     module_list, page_count, page_size, quick_check, schema_version, table_info, table_list, table_xinfo, \
     user_version";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keywords::is_keyword;

    /// Words of SQL that are no keywords.
    const NO_KEYWORDS: &str = "BINARY, BLOB, CAST(, INTEGER, NOCASE, REAL, ROWID, RTRIM, TEXT, fts5(, rtree(, (, ()";

    #[test]
    fn the_rules_use_keywords_of_sqlite() {
        let lists = RULES.iter().flat_map(|rule| [rule.begin, rule.then]).chain([OPERANDS, OPERATORS, ENDINGS]);
        let words =
            lists.filter(|list| *list != PRAGMAS).flat_map(|list| list.split(", ")).flat_map(str::split_whitespace);
        let after =
            RULES.iter().flat_map(|rule| rule.after.split([' ', '|'])).filter(|word| !["^", "_"].contains(word));
        for word in words.chain(after) {
            assert!(is_keyword(word) || NO_KEYWORDS.split(", ").any(|known| known == word), "{word}");
        }
    }

    #[test]
    fn no_two_rules_are_for_the_same_words() {
        let words: std::collections::BTreeSet<_> = RULES.iter().map(|rule| rule.after).collect();
        assert_eq!(words.len(), RULES.len());
    }
}
