//! Limits the number of terms in a `NEAR` group of FTS5.
//!
//! FTS5 compares the terms of a group in one step. For each place in a document where one of them occurs, this takes
//! time proportional to the square of their number. FTS5 allocates nothing meanwhile, so it can't be stopped: a group
//! of 32,767 terms took minutes on a document of a thousand words. The FTS5 query is not known before it runs, so this
//! module checks every text that comes with a statement: the statement's own and those of its parameters.
//!
//! Invariant: a group that is entirely inside such a text has at most [`NEAR_TERMS_MAX`] terms. A group that SQL builds
//! at run time may have more.

use quorate_model::{Failure, FailureKind};
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};

/// The most terms of a `NEAR` group.
pub const NEAR_TERMS_MAX: usize = 32;

/// The only control character that FTS5 treats as part of a word.
const SUBSTITUTE: u8 = 0x1a;

/// Fails if a value that is bound to a parameter contains a group with more terms, as a text or as a blob.
pub(crate) fn check_bound(value: &impl ToSql) -> Result<(), Failure> {
    match value.to_sql() {
        Ok(ToSqlOutput::Borrowed(ValueRef::Text(bytes) | ValueRef::Blob(bytes))) => check_near(bytes),
        _ => Ok(()),
    }
}

/// Fails if a text contains a group with more terms. FTS5 recognises `NEAR` only in capitals.
pub fn check_near(text: &[u8]) -> Result<(), Failure> {
    let mut left = text;
    while let Some(at) = left.iter().position(|byte| *byte == b'N') {
        left = left.get(at.saturating_add(1)..).unwrap_or_default();
        let group = left.strip_prefix(b"EAR").and_then(|group| group.trim_ascii_start().strip_prefix(b"("));
        if group.is_some_and(|inside| terms(inside) > NEAR_TERMS_MAX) {
            let text = format!("a NEAR of FTS5 has more than {NEAR_TERMS_MAX} terms; name fewer, or join them by AND");
            return Err(Failure::new(FailureKind::TooBig, text));
        }
    }
    Ok(())
}

/// Counts the words and strings at the start of a text, up to one more than the limit.
fn terms(mut inside: &[u8]) -> usize {
    let mut count = 0_usize;
    while count <= NEAR_TERMS_MAX {
        inside = skip(inside, |byte| byte.is_ascii_whitespace() || b"+^*".contains(&byte));
        let left = match inside.strip_prefix(b"\"") {
            // A doubled quote inside a string makes it count as two strings.
            Some(string) => skip(string, |byte| byte != b'"').get(1..).unwrap_or_default(),
            None => skip(inside, is_of_word),
        };
        if left.len() == inside.len() {
            break;
        }
        (inside, count) = (left, count.saturating_add(1));
    }
    count
}

/// Returns whether FTS5 treats a byte as part of a word.
fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == SUBSTITUTE || !byte.is_ascii()
}

/// Returns the rest of a text from the first byte for which `kind` returns `false`.
fn skip(text: &[u8], kind: impl Fn(u8) -> bool) -> &[u8] {
    let count = text.iter().take_while(|byte| kind(**byte)).count();
    text.get(count..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(terms: usize, term: &str) -> String {
        format!("title : NEAR({}, 7)", vec![term; terms].join(" "))
    }

    #[test]
    fn a_group_with_too_many_terms_is_found_anywhere() {
        for term in ["fox", "fox*", "^fox", "\"quick fox\"", "füchse", "a_1 +"] {
            assert_eq!(check_near(near(NEAR_TERMS_MAX, term).as_bytes()), Ok(()), "{term}");
            let long = near(NEAR_TERMS_MAX + 1, term);
            for text in [long.clone(), format!("SELECT 1 FROM ft('{long}')"), format!("NEAR(a b) AND {long}")] {
                assert_eq!(
                    check_near(text.as_bytes()).map_err(|failure| failure.kind),
                    Err(FailureKind::TooBig),
                    "{text}"
                );
            }
        }
        assert!(check_near(format!("NEAR \n({})", "fox\n".repeat(33)).as_bytes()).is_err());
        assert!(check_near(format!("NEAR({})", "\"a\"\"b\"".repeat(33)).as_bytes()).is_err());
    }

    #[test]
    fn every_spelling_that_fts5_accepts_is_checked() {
        let conn = rusqlite::Connection::open_in_memory().unwrap();
        conn.execute_batch("CREATE VIRTUAL TABLE f USING fts5 (a)").unwrap();
        let mut accepted = 0;
        for byte in 1..128_u8 {
            let char = char::from(byte);
            let alone = format!("{char} ").repeat(33);
            for terms in [alone, format!("a {char} ").repeat(66), format!("{char}a ").repeat(33)] {
                let near = format!("NEAR{char}({terms})");
                for query in [near, format!("NEAR({terms})")] {
                    let found = conn.query_row("SELECT count(*) FROM f WHERE f MATCH ?", [&query], |_| Ok(()));
                    if found.is_ok() && query.contains("NEAR(") || found.is_ok() && char.is_ascii_whitespace() {
                        accepted += 1;
                        assert!(check_near(query.as_bytes()).is_err(), "{query:?}");
                    }
                }
            }
        }
        assert!(accepted > 100, "{accepted}");
    }

    #[test]
    fn other_texts_pass() {
        let words = "fox ".repeat(100);
        for text in [
            format!("near ({words})"),
            format!("NEAR {words}"),
            format!("NEAR (the river, {words})"),
            format!("({words})"),
            "NEAR(".repeat(10_000),
            "NEAR(\"".repeat(10_000),
            "NEAR".to_owned(),
        ] {
            assert_eq!(check_near(text.as_bytes()), Ok(()), "{text}");
        }
    }
}
