//! The tokens of SQL, as far as the doors need them: words, variables and semicolons, outside of literals and comments.

/// A token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Token<'a> {
    Semicolon,
    Open,
    Close,
    /// A keyword, a name without quotes, or a number.
    Word(&'a str),
    /// A parameter as it is spelled: `?`, `?1`, `:a`, `@a` or `$a`.
    Variable(&'a str),
    Other,
}

impl Token<'_> {
    pub(super) fn is_word(self, word: &str) -> bool {
        matches!(self, Self::Word(found) if found.eq_ignore_ascii_case(word))
    }
}

/// Returns the tokens of a text, each with the place where it ends.
pub(super) fn tokens(text: &str) -> impl Iterator<Item = (Token<'_>, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = text.get(at..).filter(|rest| !rest.is_empty())?;
            let (token, length) = first(rest);
            at += length;
            if let Some(token) = token {
                return Some((token, at));
            }
        }
    })
}

/// Returns the first token of a text that is not empty, and its length; no token for space and comments.
fn first(text: &str) -> (Option<Token<'_>>, usize) {
    let mut chars = text.chars();
    let (c, second) = (chars.next().unwrap_or_default(), chars.next());
    match (c, second) {
        ('-', Some('-')) => (None, to(text, 2, "\n")),
        ('/', Some('*')) => (None, to(text, 2, "*/")),
        (c, _) if c.is_ascii_whitespace() || c == '\u{FEFF}' => (None, c.len_utf8()),
        (';', _) => (Some(Token::Semicolon), 1),
        ('(', _) => (Some(Token::Open), 1),
        (')', _) => (Some(Token::Close), 1),
        ('\'', _) => (Some(Token::Other), to(text, 1, "'")),
        ('"', _) => (Some(Token::Other), to(text, 1, "\"")),
        ('`', _) => (Some(Token::Other), to(text, 1, "`")),
        ('[', _) => (Some(Token::Other), to(text, 1, "]")),
        ('?', _) => {
            let length = 1 + run_of(text.get(1..).unwrap_or_default(), |c| c.is_ascii_digit());
            (text.get(..length).map(Token::Variable), length)
        }
        (':' | '@' | '$', _) => {
            let length = variable(text);
            (Some(text.get(..length).filter(|_| length > 1).map_or(Token::Other, Token::Variable)), length)
        }
        (c, _) if in_word(c) => {
            let length = run_of(text, in_word);
            (text.get(..length).map(Token::Word), length)
        }
        (c, _) => (Some(Token::Other), c.len_utf8()),
    }
}

fn in_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '$' || !c.is_ascii()
}

fn run_of(text: &str, is: impl Fn(char) -> bool) -> usize {
    text.find(|c| !is(c)).unwrap_or(text.len())
}

/// Returns the length up to and including the first `end` after `from` bytes.
fn to(text: &str, from: usize, end: &str) -> usize {
    let rest = text.get(from..).unwrap_or_default();
    rest.find(end).map_or(text.len(), |at| from + at + end.len())
}

/// Returns the length of a variable: its sign, then word characters and `::`, then perhaps an index in parentheses, as
/// Tcl spells it.
fn variable(text: &str) -> usize {
    let mut length = 1;
    loop {
        let rest = text.get(length..).unwrap_or_default();
        let word = run_of(rest, in_word);
        if word > 0 {
            length += word;
        } else if rest.starts_with("::") {
            length += 2;
        } else if rest.starts_with('(') && length > 1 {
            // An index without its end is an error of syntax for SQLite.
            let end = run_of(rest, |c| c != ')' && !c.is_ascii_whitespace());
            return if rest.get(end..).is_some_and(|after| after.starts_with(')')) { length + end + 1 } else { length };
        } else {
            return length;
        }
    }
}
