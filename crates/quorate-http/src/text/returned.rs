//! Finds the clause `RETURNING` in the text of a write.

use super::token::{Token, tokens};

/// Returns a query that has no rows, and the columns that a write returns; `None` if it has no `RETURNING`. The query
/// fails if SQLite reads the write otherwise.
pub(crate) fn returning_query(statement: &str) -> Option<String> {
    let mut words = Words { text: statement, tokens: Vec::new() };
    let mut depth = 0_usize;
    for (token, end) in tokens(statement) {
        match token {
            Token::Open => depth = depth.saturating_add(1),
            Token::Close => depth = depth.saturating_sub(1),
            token if depth == 0 => words.tokens.push((token, end)),
            _ => {}
        }
    }
    words.returning()
}

/// The tokens of a statement outside of parentheses, each with the place where it ends.
struct Words<'a> {
    text: &'a str,
    tokens: Vec<(Token<'a>, usize)>,
}

impl Words<'_> {
    fn is(&self, at: usize, word: &str) -> bool {
        self.tokens.get(at).is_some_and(|(token, _)| token.is_word(word))
    }

    fn find(&self, from: usize, words: &[&str]) -> Option<usize> {
        (from..self.tokens.len()).find(|&at| words.iter().any(|word| self.is(at, word)))
    }

    /// Returns the text from the end of a token to the end of another one.
    fn between(&self, from: usize, to: usize) -> Option<&str> {
        self.text.get(self.tokens.get(from)?.1..self.tokens.get(to)?.1)
    }

    fn is_dot(&self, at: usize) -> bool {
        at.checked_sub(1).and_then(|before| self.between(before, at)).is_some_and(|text| text.trim_ascii() == ".")
    }

    /// `RETURNING` sees the columns of the table that is written, but not its alias.
    fn returning(&self) -> Option<String> {
        let verb = self.find(0, &["INSERT", "REPLACE", "UPDATE", "DELETE"])?;
        let before = match (self.is(verb, "UPDATE"), self.is(verb + 1, "OR")) {
            (true, true) => verb + 2,
            (true, false) => verb,
            _ => self.find(verb, &["INTO", "FROM"])?,
        };
        let mut name = before + 1;
        if self.is_dot(name + 1) {
            name += 2;
        }
        let clause = self.find(name, &["RETURNING"])?;
        let columns = self.text.get(self.tokens.get(clause)?.1..)?;
        Some(format!("SELECT{columns}\nFROM{}\nLIMIT 0", self.between(before, name)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_statement_returns_is_asked_for_by_a_query() {
        for (statement, query) in [
            ("INSERT INTO t (a) VALUES (?) RETURNING id, a + 1 AS b", "SELECT id, a + 1 AS b\nFROM t\nLIMIT 0"),
            ("REPLACE INTO main.t SELECT 1 RETURNING *", "SELECT *\nFROM main.t\nLIMIT 0"),
            ("INSERT OR IGNORE INTO \"a b\" AS x DEFAULT VALUES RETURNING (c)", "SELECT (c)\nFROM \"a b\"\nLIMIT 0"),
            ("UPDATE OR FAIL t SET a = (SELECT 1 FROM u) RETURNING a", "SELECT a\nFROM t\nLIMIT 0"),
            ("UPDATE `t` SET a = b FROM u RETURNING a", "SELECT a\nFROM `t`\nLIMIT 0"),
            (
                "WITH c AS (SELECT 1) DELETE FROM /* t */ [t] WHERE a IN c RETURNING 'x'",
                "SELECT 'x'\nFROM /* t */ [t]\nLIMIT 0",
            ),
        ] {
            assert_eq!(returning_query(statement).as_deref(), Some(query), "{statement}");
        }
        for statement in ["", "INSERT", "UPDATE", "INSERT INTO t VALUES (1)", "DELETE FROM t", "PRAGMA table_info(t)"] {
            assert_eq!(returning_query(statement), None, "{statement}");
        }
        assert_eq!(returning_query("CREATE TABLE t (returning)"), None);
    }
}
