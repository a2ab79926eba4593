//! Checks of a statement that need only its text, such as whether it is a single statement or a VACUUM.
//!
//! This is not a parser. It recognises words, quotes, variables and comments like SQLite's tokenizer, and the end of a
//! statement like `sqlite3_complete`. It is needed for four reasons. Preparing a text with many statements nests one
//! call for each and would exhaust the stack, so statements are counted first. SQLite does not call the authorizer for
//! VACUUM. Planning n window functions takes time proportional to the cube of n. And a call of a JSON function runs in
//! one step.
//!
//! Invariant: a text that [`check_single`] accepts is at most one statement for SQLite too. It may refuse a text that
//! SQLite would accept.

use quorate_model::{Failure, FailureKind};

use super::near::check_near;
use super::paths::Calls;

/// The most occurrences of `OVER` in a statement. Planning this many different windows takes about 50 ms, 2,000 of them
/// 15 s.
pub const WINDOWS_MAX: usize = 250;

/// Fails unless the text is exactly one statement, without a zero byte, at which SQLite would stop reading, with at
/// most [`WINDOWS_MAX`] window functions, no `NEAR` of FTS5 with too many terms, and no call of a JSON function with
/// too many paths.
pub fn check_single(sql: &str) -> Result<(), Failure> {
    if sql.as_bytes().contains(&0) {
        return Err(Failure::new(
            FailureKind::Sql,
            "a statement can't hold a zero byte; pass such text as a parameter",
        ));
    }
    check_near(sql.as_bytes())?;
    let (mut state, mut ended, mut empty, mut windows) = (State::Start, false, true, 0_usize);
    let mut calls = Calls::default();
    for token in Tokens(sql.as_bytes()) {
        if ended && token != Token::Semicolon {
            let text = "several statements in one text; send them one by one, or together as a batch";
            return Err(Failure::new(FailureKind::Refused, text));
        }
        calls.take(token)?;
        state = state.after(token);
        empty = empty && token == Token::Semicolon;
        windows = windows.saturating_add(usize::from(token.is_word("over")));
        ended = state == State::Start && !empty;
    }
    if windows > WINDOWS_MAX {
        let text = format!("more than {WINDOWS_MAX} window functions in one statement; use fewer");
        return Err(Failure::new(FailureKind::TooBig, text));
    }
    if empty { Err(Failure::new(FailureKind::Sql, "the text holds no statement; give it one")) } else { Ok(()) }
}

/// Returns the statements of a text, without their semicolons; the last needs none. Comments between statements are
/// left out, or returned as part of the next statement.
pub fn split(sql: &str) -> Result<Vec<&str>, Failure> {
    let (mut tokens, mut state) = (Tokens(sql.as_bytes()), State::Start);
    let (mut statements, mut begin, mut empty) = (Vec::new(), 0, true);
    let mut take = |from: usize, to: usize| statements.extend(sql.get(from..to).map(str::trim));
    while let Some(token) = tokens.next() {
        state = state.after(token);
        let at = sql.len().saturating_sub(tokens.0.len());
        if state == State::Start && token == Token::Semicolon {
            if !empty {
                take(begin, at.saturating_sub(1));
            }
            (begin, empty) = (at, true);
        } else {
            empty = false;
        }
    }
    if !empty {
        take(begin, sql.len());
    }
    statements.iter().try_for_each(|statement| check_single(statement))?;
    Ok(statements)
}

/// Whether a text is a `VACUUM`, and which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Vacuum {
    /// The text is not a `VACUUM`.
    No,
    /// `VACUUM` or `VACUUM main`.
    Main,
    /// `VACUUM INTO`, of another schema, or malformed.
    Other,
}

/// Recognises `VACUUM`; the text must be a single statement.
pub(super) fn vacuum(sql: &str) -> Vacuum {
    let mut words = Tokens(sql.as_bytes()).filter(|token| *token != Token::Semicolon);
    match (words.next(), words.next(), words.next()) {
        (Some(first), None, _) if first.is_word("vacuum") => Vacuum::Main,
        (Some(first), Some(schema), None) if first.is_word("vacuum") && schema.is_word("main") => Vacuum::Main,
        (Some(first), ..) if first.is_word("vacuum") => Vacuum::Other,
        _ => Vacuum::No,
    }
}

/// The state machine of `sqlite3_complete`. Only a trigger contains semicolons, and it ends with `; END ;`.
#[derive(Clone, Copy, PartialEq)]
enum State {
    /// Between statements.
    Start,
    Inside,
    Explain,
    Create,
    Trigger,
    TriggerSemicolon,
    TriggerEnd,
}

impl State {
    fn after(self, token: Token<'_>) -> Self {
        let semicolon = token == Token::Semicolon;
        match self {
            Self::Trigger if semicolon => Self::TriggerSemicolon,
            Self::TriggerSemicolon if semicolon => self,
            Self::TriggerSemicolon if token.is_word("end") => Self::TriggerEnd,
            Self::TriggerEnd if semicolon => Self::Start,
            Self::Trigger | Self::TriggerSemicolon | Self::TriggerEnd => Self::Trigger,
            _ if semicolon => Self::Start,
            Self::Start if token.is_word("explain") => Self::Explain,
            Self::Start | Self::Explain if token.is_word("create") => Self::Create,
            Self::Explain => self,
            Self::Create if token.is_word("temp") || token.is_word("temporary") => self,
            Self::Create if token.is_word("trigger") => Self::Trigger,
            Self::Start | Self::Create | Self::Inside => Self::Inside,
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Token<'a> {
    Semicolon,
    Open,
    Close,
    Comma,
    Word(&'a [u8]),
    /// A quoted name, without its quotes.
    Quoted(&'a [u8]),
    Other,
}

impl Token<'_> {
    fn is_word(self, word: &str) -> bool {
        matches!(self, Self::Word(found) if found.eq_ignore_ascii_case(word.as_bytes()))
    }
}

/// The tokens of a text, without spaces and comments.
struct Tokens<'a>(&'a [u8]);

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        loop {
            let text = self.0;
            let (token, len) = match text {
                [] => return None,
                [b' ' | b'\t' | b'\n' | b'\x0c' | b'\r', ..] => (None, 1),
                [0xEF, 0xBB, 0xBF, ..] => (None, 3),
                [b'-', b'-', ..] => (None, length_to(text, 2, b"\n")),
                [b'/', b'*', ..] => (None, length_to(text, 2, b"*/")),
                [b';', ..] => (Some(Token::Semicolon), 1),
                [b'(', ..] => (Some(Token::Open), 1),
                [b')', ..] => (Some(Token::Close), 1),
                [b',', ..] => (Some(Token::Comma), 1),
                [b'\'', ..] => (Some(Token::Other), length_to(text, 1, b"'")),
                [quote @ (b'"' | b'`'), ..] => quoted(text, *quote),
                [b'[', ..] => quoted(text, b']'),
                [b'$' | b'@' | b':' | b'#', ..] => (Some(Token::Other), variable_length(text)),
                [first, ..] if is_word_byte(*first) => {
                    let len = word_length(text);
                    (text.get(..len).map(Token::Word), len)
                }
                _ => (Some(Token::Other), 1),
            };
            self.0 = text.get(len..).unwrap_or_default();
            if token.is_some() {
                return token;
            }
        }
    }
}

/// Returns the token of a quoted name that ends with `end`, and its length in bytes.
fn quoted(text: &[u8], end: u8) -> (Option<Token<'_>>, usize) {
    let len = length_to(text, 1, &[end]);
    (Some(text.get(1..len.saturating_sub(1)).map_or(Token::Other, Token::Quoted)), len)
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | 0x80..)
}

fn word_length(text: &[u8]) -> usize {
    text.iter().position(|byte| !is_word_byte(*byte)).unwrap_or(text.len())
}

/// Returns the number of bytes up to and including the first `end` at or after `from`, or the length of the text if
/// there is none.
fn length_to(text: &[u8], from: usize, end: &[u8]) -> usize {
    let rest = text.get(from..).unwrap_or_default();
    rest.windows(end.len()).position(|window| window == end).map_or(text.len(), |at| from + at + end.len())
}

/// Returns the number of bytes of a variable: a sign, then word bytes and `::`, then optionally Tcl's index in
/// parentheses, where quotes and semicolons have no meaning.
fn variable_length(text: &[u8]) -> usize {
    let mut len = 1;
    loop {
        let rest = text.get(len..).unwrap_or_default();
        match rest {
            [byte, ..] if is_word_byte(*byte) => len += word_length(rest),
            [b':', b':', ..] => len += 2,
            [b'(', index @ ..] if len > 1 => {
                let end = index.iter().position(|byte| *byte == b')' || byte.is_ascii_whitespace());
                return end.map_or(text.len(), |end| len + 1 + end + 1);
            }
            _ => return len,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

    use proptest::prelude::*;
    use rusqlite::Connection;

    use super::*;

    #[test]
    fn window_functions_are_counted_outside_of_strings() {
        let select = |count: usize| {
            let windows: Vec<String> = (0..count).map(|n| format!("sum(a) OVER (ROWS {n} PRECEDING)")).collect();
            format!("SELECT {} FROM t", windows.join(","))
        };
        assert_eq!(check_single(&select(WINDOWS_MAX)), Ok(()));
        assert!(check_single(&select(WINDOWS_MAX + 1)).is_err());
        assert_eq!(check_single(&format!("SELECT '{}'", "over ".repeat(1000))), Ok(()));
    }

    #[test]
    fn only_a_single_statement_is_accepted() {
        let trigger = "CREATE TRIGGER t AFTER INSERT ON a BEGIN SELECT 1; DELETE FROM b; END";
        for sql in ["SELECT 1", " ;; SELECT 1 ;; -- x;y\n", "SELECT ';' /* ; */, [a;b]", "SELECT $a(;')", trigger] {
            assert_eq!(check_single(sql), Ok(()), "{sql}");
            assert!(check_single(&format!("{sql}; SELECT 2")).is_err(), "{sql}");
        }
        for sql in ["", " -- only a comment", ";;", "SELECT 1\0", "SELECT 1;SELECT 2", "SELECT 1; x"] {
            assert!(check_single(sql).is_err(), "{sql}");
        }
    }

    #[test]
    fn scripts_are_split_into_statements() {
        let trigger = "CREATE TRIGGER t AFTER INSERT ON a BEGIN SELECT 1; DELETE FROM b; END";
        let script = format!("-- first\nSELECT ';' ;; /* ; */ ; {trigger};\n SELECT [a;b] -- last");
        assert_eq!(split(&script), Ok(vec!["-- first\nSELECT ';'", trigger, "SELECT [a;b] -- last"]));
        for nothing in ["", " ; ;", "-- x;"] {
            assert_eq!(split(nothing), Ok(Vec::new()), "{nothing:?}");
        }
        assert!(split("SELECT 1; SELECT '\0'").is_err());
    }

    proptest! {
        /// Each piece is part of the script, and a single statement.
        #[test]
        fn split_returns_single_statements_of_the_script(
            parts in prop::collection::vec("[a-z;'\"\\[\\] \n-]{0,8}|create|trigger|end|;", 0..12),
        ) {
            let script = parts.join(" ");
            if let Ok(statements) = split(&script) {
                let kept: usize = statements.iter().map(|statement| statement.len()).sum();
                prop_assert!(kept <= script.len());
                for statement in statements {
                    prop_assert_eq!(check_single(statement), Ok(()), "{}", statement);
                    prop_assert!(script.contains(statement));
                }
            }
        }
    }

    #[test]
    fn vacuum_is_recognised_in_every_spelling() {
        for sql in ["VACUUM", " vacuum ;", "/* x */ Vacuum MAIN", "VACUUM -- all\n;"] {
            assert_eq!(vacuum(sql), Vacuum::Main, "{sql}");
        }
        for sql in ["VACUUM INTO 'x'", "vacuum main into 'x'", "VACUUM temp", "VACUUM 'main'"] {
            assert_eq!(vacuum(sql), Vacuum::Other, "{sql}");
        }
        for sql in ["EXPLAIN VACUUM", "SELECT 'VACUUM'", "vacuums"] {
            assert_eq!(vacuum(sql), Vacuum::No, "{sql}");
        }
    }

    /// Many sequences of these pieces are valid SQL with quotes, comments and variables next to semicolons.
    const PIECES: [&str; 24] = [
        ";",
        ";",
        ";",
        "SELECT 1",
        "SELECT $a(')",
        "SELECT @c::d(",
        ")",
        "SELECT '",
        "'",
        "SELECT \"",
        "\"",
        "SELECT `",
        "SELECT 1 AS [",
        "]",
        "--",
        "\n",
        "/*",
        "*/",
        "EXPLAIN ",
        "CREATE TRIGGER t AFTER INSERT ON x BEGIN SELECT 1;",
        "END",
        "x",
        "::",
        "\u{FEFF}",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        /// Every text that is several statements for SQLite is refused.
        #[test]
        fn several_statements_are_never_accepted(
            picks in prop::collection::vec(prop::sample::select(&PIECES[..]), 2..10),
        ) {
            let text = picks.concat();
            let connection = Connection::open_in_memory().unwrap();
            connection.execute_batch("CREATE TABLE x (a)").unwrap();
            if let Err(rusqlite::Error::MultipleStatement) = connection.prepare(&text) {
                prop_assert!(check_single(&text).is_err(), "{text}");
            }
        }
    }
}
