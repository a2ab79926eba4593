//! The kind of a statement, from its words.

use super::savepoint::Savepoint;
use super::token::{Token, tokens};

/// The kind of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Begin(Begin),
    /// `COMMIT` or `END`.
    Commit,
    Rollback,
    Savepoint(Savepoint),
    /// `PRAGMA foreign_keys`, with the value that it sets, if any.
    ForeignKeys(Option<bool>),
    /// It writes. If `removes`, it may change or remove rows to which others refer.
    Write {
        removes: bool,
    },
    /// A query.
    Read,
    Explain,
    /// Any other statement; it may read or write.
    Other,
}

/// The way in which a transaction begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    /// It begins with its first statement.
    Deferred,
    /// It begins at once.
    Immediate,
    /// It only reads, and so holds up nobody.
    ReadOnly,
}

impl Kind {
    /// Returns the kind of a statement.
    pub(crate) fn of(statement: &str) -> Self {
        let mut words =
            tokens(statement).filter_map(|(token, _)| if let Token::Word(word) = token { Some(word) } else { None });
        let first = words.next().unwrap_or_default();
        let is = |word: &str| first.eq_ignore_ascii_case(word);
        let mut has = |found: &[&str]| words.any(|word| found.iter().any(|other| word.eq_ignore_ascii_case(other)));
        if is("SELECT") || is("VALUES") {
            Self::Read
        } else if is("INSERT") {
            Self::Write { removes: has(&["REPLACE", "UPDATE"]) }
        } else if is("UPDATE") || is("DELETE") || is("REPLACE") || is("DROP") {
            Self::Write { removes: true }
        } else if ["CREATE", "ALTER", "REINDEX", "ANALYZE", "VACUUM"].into_iter().any(is) {
            Self::Write { removes: false }
        } else if is("WITH") {
            Self::of_with(statement)
        } else if is("EXPLAIN") {
            Self::Explain
        } else if is("BEGIN") {
            Self::Begin(begin(words))
        } else if is("COMMIT") || is("END") {
            Self::Commit
        } else if is("ROLLBACK") {
            if has(&["TO"]) { Self::Savepoint(Savepoint::RollBackTo) } else { Self::Rollback }
        } else if is("SAVEPOINT") {
            Self::Savepoint(Savepoint::Set)
        } else if is("RELEASE") {
            Self::Savepoint(Savepoint::Release)
        } else if is("PRAGMA") {
            pragma(words)
        } else {
            Self::Other
        }
    }

    /// Returns the kind of a statement that begins with `WITH`: that of its first verb outside of parentheses.
    fn of_with(statement: &str) -> Self {
        let mut depth = 0_usize;
        for (token, end) in tokens(statement) {
            match token {
                Token::Open => depth = depth.saturating_add(1),
                Token::Close => depth = depth.saturating_sub(1),
                Token::Word(word) if depth == 0 => {
                    let verbs = ["SELECT", "VALUES", "INSERT", "UPDATE", "DELETE", "REPLACE"];
                    if verbs.iter().any(|verb| word.eq_ignore_ascii_case(verb)) {
                        let rest = statement.get(end.saturating_sub(word.len())..).unwrap_or_default();
                        return Self::of(rest);
                    }
                }
                _ => {}
            }
        }
        Self::Read
    }

    /// Returns whether it begins or ends a transaction, or would.
    pub(crate) fn is_of_transactions(self) -> bool {
        matches!(self, Self::Begin(_) | Self::Commit | Self::Rollback | Self::Savepoint(_))
    }
}

fn begin<'a>(words: impl Iterator<Item = &'a str>) -> Begin {
    let mut begin = Begin::Deferred;
    for word in words {
        if ["IMMEDIATE", "EXCLUSIVE"].iter().any(|found| word.eq_ignore_ascii_case(found)) {
            begin = Begin::Immediate;
        } else if word.eq_ignore_ascii_case("READONLY") {
            begin = Begin::ReadOnly;
        }
    }
    begin
}

fn pragma<'a>(words: impl Iterator<Item = &'a str>) -> Kind {
    let mut words = words.skip_while(|word| word.eq_ignore_ascii_case("main"));
    if !words.next().is_some_and(|word| word.eq_ignore_ascii_case("foreign_keys")) {
        return Kind::Other;
    }
    let is_on = |word: &str| ["ON", "YES", "TRUE", "1"].iter().any(|on| word.eq_ignore_ascii_case(on));
    Kind::ForeignKeys(words.next().map(is_on))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_statement_give_its_kind() {
        let writes = |removes| Kind::Write { removes };
        for (statement, kind) in [
            ("BEGIN", Kind::Begin(Begin::Deferred)),
            ("begin concurrent", Kind::Begin(Begin::Deferred)),
            ("BEGIN IMMEDIATE TRANSACTION", Kind::Begin(Begin::Immediate)),
            ("/* x */ BEGIN TRANSACTION READONLY", Kind::Begin(Begin::ReadOnly)),
            ("-- now\nCOMMIT", Kind::Commit),
            ("END TRANSACTION", Kind::Commit),
            ("rollback", Kind::Rollback),
            ("ROLLBACK TRANSACTION TO SAVEPOINT x", Kind::Savepoint(Savepoint::RollBackTo)),
            ("RELEASE x", Kind::Savepoint(Savepoint::Release)),
            ("insert INTO t VALUES ('REPLACE')", writes(false)),
            ("INSERT OR REPLACE INTO t VALUES (1)", writes(true)),
            ("CREATE TABLE t (a REFERENCES p ON DELETE CASCADE)", writes(false)),
            ("DROP TABLE t", writes(true)),
            ("WITH a AS (SELECT 1), b AS (VALUES (2)) INSERT INTO t SELECT * FROM a", writes(false)),
            ("WITH a AS (DELETE) SELECT replace('a', 'b', 'c'), 'INSERT' FROM a", Kind::Read),
            ("VALUES (1)", Kind::Read),
            ("EXPLAIN DELETE FROM t", Kind::Explain),
            ("PRAGMA foreign_keys=OFF", Kind::ForeignKeys(Some(false))),
            ("PRAGMA main.foreign_keys(on)", Kind::ForeignKeys(Some(true))),
            ("PRAGMA foreign_keys;", Kind::ForeignKeys(None)),
            ("PRAGMA user_version = 3", Kind::Other),
            ("", Kind::Other),
        ] {
            assert_eq!(Kind::of(statement), kind, "{statement}");
        }
    }
}
