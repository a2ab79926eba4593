//! Splits text into statements at the semicolons that end one, as `sqlite3_complete` does: not at those in literals,
//! comments, or the body of a trigger.
//!
//! Invariant: each byte is examined a bounded number of times, however the text is split into lines.

/// A statement, without its semicolon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Its text, from its first word to its last.
    pub text: String,
    /// The line that it begins in, counted from 1.
    pub line: u64,
}

/// Takes a text line by line and returns its statements.
#[derive(Debug, Default)]
pub struct Splitter {
    text: String,
    /// Where the statement that is being read begins in `text`.
    start: usize,
    /// Where its first token begins, once there is one.
    first: Option<usize>,
    /// The end of the examined part of `text`.
    at: usize,
    state: State,
    /// The end mark of the literal or comment that is open at `at`.
    open: Option<&'static str>,
    /// The number of lines that end before `start`.
    lines: u64,
}

impl Splitter {
    /// Adds a text. Unless it is the last one, it ends with a line break.
    pub fn push(&mut self, text: &str) {
        if self.first.is_none() {
            self.begin_at(self.at);
        }
        self.text.drain(..self.start);
        self.at = self.at.saturating_sub(self.start);
        self.first = self.first.map(|first| first.saturating_sub(self.start));
        self.start = 0;
        self.text.push_str(text);
    }

    /// The next statement that a semicolon ends. Empty statements are skipped.
    pub fn next(&mut self) -> Option<Statement> {
        while let Some(token) = self.token() {
            let state = self.state.after(token);
            let before = std::mem::replace(&mut self.state, state);
            if state == State::Start && token == Token::Semicolon {
                let statement = self.take(self.at.saturating_sub(1));
                if before != State::Start {
                    return Some(statement);
                }
            }
        }
        None
    }

    /// The text after the last semicolon, if it is more than space and comments. The next text begins a new statement.
    pub fn rest(&mut self) -> Option<Statement> {
        let is_there = self.is_unfinished();
        let rest = self.take(self.text.len());
        (self.state, self.open, self.at) = (State::Start, None, self.text.len());
        is_there.then_some(rest)
    }

    /// Whether a statement has begun and not ended in the part that [`Splitter::next`] has examined.
    pub fn is_unfinished(&self) -> bool {
        self.state != State::Start
    }

    /// Whether the next text begins a new statement: none has begun, and no comment is open.
    pub fn is_between(&self) -> bool {
        !self.is_unfinished() && self.open().is_none()
    }

    /// The start mark of the literal or comment that is open: the quote, or `/*`.
    pub fn open(&self) -> Option<&'static str> {
        self.open.filter(|end| *end != "\n").map(|end| match end {
            "*/" => "/*",
            "]" => "[",
            quote => quote,
        })
    }

    /// The statement that has begun, so far.
    pub fn unfinished(&self) -> &str {
        self.text.get(self.start..).unwrap_or_default()
    }

    /// Bytes of the statement that has begun.
    pub fn unfinished_bytes(&self) -> usize {
        self.unfinished().len()
    }

    /// The statement up to `end`; the next one begins at `at`.
    fn take(&mut self, end: usize) -> Statement {
        let first = self.first.take().unwrap_or(self.start);
        self.begin_at(first);
        let line = self.lines.saturating_add(1);
        let text = self.text.get(self.start..end).unwrap_or_default().trim_end().to_owned();
        self.begin_at(self.at.max(end));
        Statement { text, line }
    }

    /// Moves the start, and counts the lines before it.
    fn begin_at(&mut self, at: usize) {
        let before = self.text.get(self.start..at).unwrap_or_default();
        let lines = before.bytes().filter(|byte| *byte == b'\n').count();
        self.lines = self.lines.saturating_add(lines.try_into().unwrap_or(u64::MAX));
        self.start = at;
    }

    /// Returns the next token and moves behind it. `None` at the end of the text; a literal that is open there
    /// continues in the next text.
    fn token(&mut self) -> Option<Token> {
        if let Some(open) = self.open {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let Some(end) = rest.find(open) else {
                self.at = self.text.len();
                return None;
            };
            self.open = None;
            self.at += end + open.len();
            // The token was returned when the literal began.
            return Some(Token::Space);
        }
        let rest = self.text.get(self.at..).filter(|rest| !rest.is_empty())?;
        let (token, extent) = first(rest);
        if token != Token::Space && token != Token::Semicolon {
            self.first.get_or_insert(self.at);
        }
        match extent {
            Extent::Length(length) => self.at += length,
            Extent::Until { from, end } => {
                self.at += from;
                self.open = Some(end);
            }
        }
        Some(token)
    }
}

/// The tokens of a text outside literals and comments, each with the place where it begins.
pub fn tokens(text: &str) -> impl Iterator<Item = (usize, &str)> {
    pieces(text).filter(|piece| piece.sort == Sort::Plain).map(|piece| (piece.at, piece.text))
}

/// A part of a text, without space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// Where it begins.
    pub at: usize,
    pub text: &'a str,
    pub sort: Sort,
    /// Whether it is a literal or a comment without its end mark.
    pub is_open: bool,
}

/// The sort of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// A word, a number, or another character.
    Plain,
    /// A literal, or a name in quotes.
    Quoted,
    Comment,
}

/// All parts of a text, comments too.
pub fn pieces(text: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = text.get(at..).filter(|rest| !rest.is_empty())?;
            let begin = at;
            let (sort, length, is_open) = match first(rest) {
                (Token::Space, Extent::Length(length)) => {
                    at += length;
                    continue;
                }
                (_, Extent::Length(length)) => (Sort::Plain, length, false),
                (token, Extent::Until { from, end }) => {
                    let end =
                        rest.get(from..).and_then(|inside| inside.find(end)).map(|found| from + found + end.len());
                    let sort = if token == Token::Space { Sort::Comment } else { Sort::Quoted };
                    (sort, end.unwrap_or(rest.len()), end.is_none())
                }
            };
            at += length;
            return Some(Piece { at: begin, text: rest.get(..length)?, sort, is_open });
        }
    })
}

/// The words of a text outside literals and comments, each with the number of parentheses that are open around it.
pub fn words(text: &str) -> impl Iterator<Item = (&str, usize)> {
    let mut depth = 0_usize;
    tokens(text).filter_map(move |(_, token)| {
        match token {
            "(" => depth += 1,
            ")" => depth = depth.saturating_sub(1),
            _ => {}
        }
        token.starts_with(in_word).then_some((token, depth))
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Semicolon,
    /// Space or a comment.
    Space,
    Explain,
    Create,
    Temp,
    Trigger,
    End,
    Other,
}

/// The state after a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Before a statement.
    #[default]
    Start,
    /// In a statement that the next semicolon ends.
    Normal,
    /// After EXPLAIN.
    Explain,
    /// After CREATE.
    Create,
    /// In a trigger's definition.
    Trigger,
    /// After a semicolon in it.
    TriggerSemicolon,
    /// After the END that follows a semicolon in it.
    TriggerEnd,
}

impl State {
    fn after(self, token: Token) -> Self {
        match (self, token) {
            (state, Token::Space) => state,
            (Self::Trigger | Self::TriggerSemicolon, Token::Semicolon) => Self::TriggerSemicolon,
            (_, Token::Semicolon) => Self::Start,
            (Self::Start, Token::Explain) => Self::Explain,
            (Self::Start | Self::Explain, Token::Create) => Self::Create,
            // The words between EXPLAIN and the statement, as in EXPLAIN QUERY PLAN.
            (Self::Explain, Token::Other) => Self::Explain,
            (Self::Create, Token::Temp) => Self::Create,
            (Self::Create, Token::Trigger) => Self::Trigger,
            (Self::TriggerSemicolon, Token::End) => Self::TriggerEnd,
            (Self::Trigger | Self::TriggerSemicolon | Self::TriggerEnd, _) => Self::Trigger,
            _ => Self::Normal,
        }
    }
}

/// The extent of a token.
enum Extent {
    /// The length of the whole token.
    Length(usize),
    /// Up to and including the first `end` after `from` bytes.
    Until { from: usize, end: &'static str },
}

/// The first token of a text that is not empty.
fn first(text: &str) -> (Token, Extent) {
    let mut chars = text.chars();
    let (c, second) = (chars.next().unwrap_or_default(), chars.next());
    let until = |token, from, end| (token, Extent::Until { from, end });
    match (c, second) {
        (';', _) => (Token::Semicolon, Extent::Length(1)),
        ('-', Some('-')) => until(Token::Space, 2, "\n"),
        ('/', Some('*')) => until(Token::Space, 2, "*/"),
        ('\'', _) => until(Token::Other, 1, "'"),
        ('"', _) => until(Token::Other, 1, "\""),
        ('`', _) => until(Token::Other, 1, "`"),
        ('[', _) => until(Token::Other, 1, "]"),
        (c, _) if c.is_ascii_whitespace() || c == '\u{FEFF}' => (Token::Space, Extent::Length(c.len_utf8())),
        (c, _) if in_word(c) => {
            let length = text.find(|c| !in_word(c)).unwrap_or(text.len());
            (word(text.get(..length).unwrap_or_default()), Extent::Length(length))
        }
        (c, _) => (Token::Other, Extent::Length(c.len_utf8())),
    }
}

/// Whether the character may be part of a word.
pub fn in_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '$' || !c.is_ascii()
}

fn word(word: &str) -> Token {
    let is = |other: &&str| word.eq_ignore_ascii_case(other);
    match ["explain", "create", "temp", "temporary", "trigger", "end"].iter().find(|other| is(other)) {
        Some(&"explain") => Token::Explain,
        Some(&"create") => Token::Create,
        Some(&("temp" | "temporary")) => Token::Temp,
        Some(&"trigger") => Token::Trigger,
        Some(&"end") => Token::End,
        _ => Token::Other,
    }
}

#[cfg(test)]
mod tests;
