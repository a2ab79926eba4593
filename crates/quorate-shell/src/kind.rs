//! The kind of a statement, guessed from its words. The node that runs the statement decides.

use crate::statements::words;

/// The kind of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// BEGIN.
    Begin,
    /// COMMIT, or END.
    Commit,
    /// ROLLBACK.
    Rollback,
    /// SAVEPOINT, RELEASE, ROLLBACK TO.
    Savepoint,
    /// A statement that writes.
    Write,
    /// A query.
    Read,
    /// EXPLAIN.
    Explain,
    /// PRAGMA foreign_keys, with which the dumps of sqlite3 begin.
    ForeignKeys,
    /// Any other statement; it may read or write.
    Unknown,
}

impl Kind {
    /// The kind of this statement.
    pub fn of(statement: &str) -> Self {
        let mut found = words(statement).map(|(word, depth)| (word.to_ascii_uppercase(), depth));
        let first = found.next().map(|(word, _)| word).unwrap_or_default();
        let is_write = |word: &str| matches!(word, "INSERT" | "REPLACE" | "UPDATE" | "DELETE");
        match first.as_str() {
            "BEGIN" => Self::Begin,
            "COMMIT" | "END" => Self::Commit,
            "ROLLBACK" if found.any(|(word, _)| word == "TO") => Self::Savepoint,
            "ROLLBACK" => Self::Rollback,
            "SAVEPOINT" | "RELEASE" => Self::Savepoint,
            "CREATE" | "DROP" | "ALTER" | "REINDEX" | "ANALYZE" | "VACUUM" => Self::Write,
            word if is_write(word) => Self::Write,
            "SELECT" | "VALUES" => Self::Read,
            "EXPLAIN" => Self::Explain,
            "PRAGMA" if found.next().is_some_and(|(word, _)| word == "FOREIGN_KEYS") => Self::ForeignKeys,
            "WITH" => {
                let verb = |word: &str| is_write(word) || matches!(word, "SELECT" | "VALUES");
                let verb = found.find(|(word, depth)| *depth == 0 && verb(word));
                if verb.is_some_and(|(word, _)| is_write(&word)) { Self::Write } else { Self::Read }
            }
            _ => Self::Unknown,
        }
    }

    /// Whether it may change the names that completion knows.
    pub fn may_change_names(self) -> bool {
        matches!(self, Self::Write | Self::Commit | Self::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_statement_give_its_kind() {
        for (statement, kind) in [
            ("begin immediate transaction", Kind::Begin),
            ("-- now\nCOMMIT", Kind::Commit),
            ("END TRANSACTION", Kind::Commit),
            ("rollback", Kind::Rollback),
            ("ROLLBACK TRANSACTION TO SAVEPOINT x", Kind::Savepoint),
            ("RELEASE x", Kind::Savepoint),
            ("/* x */ insert INTO t VALUES (1)", Kind::Write),
            ("CREATE TABLE t (a)", Kind::Write),
            ("WITH a AS (SELECT 1), b AS (VALUES (2)) INSERT INTO t SELECT * FROM a", Kind::Write),
            ("WITH a AS (DELETE) SELECT replace('a', 'b', 'c'), 'INSERT' FROM a", Kind::Read),
            ("VALUES (1)", Kind::Read),
            ("EXPLAIN DELETE FROM t", Kind::Explain),
            ("PRAGMA foreign_keys=OFF", Kind::ForeignKeys),
            ("PRAGMA user_version = 3", Kind::Unknown),
            ("ATTACH 'x' AS y", Kind::Unknown),
            ("", Kind::Unknown),
        ] {
            assert_eq!(Kind::of(statement), kind, "{statement}");
        }
    }
}
