//! Cuts text into statements at the semicolons that end one, as SQLite's own `sqlite3_complete` sees them: not those in
//! literals, comments, or the body of a trigger.

/// The statements of a text.
#[derive(Debug, PartialEq, Eq)]
pub struct Split<'a> {
    /// Those that a semicolon ends, without it.
    pub complete: Vec<&'a str>,
    /// What follows the last of them, if it is more than space and comments.
    pub rest: Option<&'a str>,
    /// Where `rest` starts, or would.
    pub rest_at: usize,
}

impl<'a> Split<'a> {
    /// Cuts a text.
    pub fn of(text: &'a str) -> Self {
        let mut complete = Vec::new();
        let (mut start, mut state) = (0, State::Start);
        for (token, end) in (Tokens { text, at: 0 }) {
            let next = state.after(token);
            if next == State::Start && token == Token::Semicolon {
                // One that holds nothing is left out.
                let statement = text.get(start..end.saturating_sub(1)).unwrap_or_default().trim();
                complete.extend((state != State::Start).then_some(statement));
                start = end;
            }
            state = next;
        }
        let rest = text.get(start..).unwrap_or_default().trim();
        Self { complete, rest: (state != State::Start).then_some(rest), rest_at: start }
    }

    /// All statements, the last one also without its semicolon.
    pub fn all(self) -> impl Iterator<Item = &'a str> {
        self.complete.into_iter().chain(self.rest)
    }
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

/// Where in a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before a statement.
    Start,
    /// In one that the next semicolon ends.
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
            // EXPLAIN QUERY PLAN: the words between are of no interest.
            (Self::Explain, Token::Other) => Self::Explain,
            (Self::Create, Token::Temp) => Self::Create,
            (Self::Create, Token::Trigger) => Self::Trigger,
            (Self::TriggerSemicolon, Token::End) => Self::TriggerEnd,
            (Self::Trigger | Self::TriggerSemicolon | Self::TriggerEnd, _) => Self::Trigger,
            _ => Self::Normal,
        }
    }
}

/// The tokens of a text, each with where it ends.
struct Tokens<'a> {
    text: &'a str,
    at: usize,
}

impl Iterator for Tokens<'_> {
    type Item = (Token, usize);

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.text.get(self.at..).filter(|rest| !rest.is_empty())?;
        let (token, length) = first(rest);
        self.at += length;
        Some((token, self.at))
    }
}

/// The first token of a text that is not empty, and its length in bytes.
fn first(text: &str) -> (Token, usize) {
    let mut chars = text.chars();
    let (c, second) = (chars.next().unwrap_or_default(), chars.next());
    let up_to = |end: &str, from: usize| {
        text.get(from..).and_then(|rest| rest.find(end)).map_or(text.len(), |at| from + at + end.len())
    };
    match (c, second) {
        (';', _) => (Token::Semicolon, 1),
        ('-', Some('-')) => (Token::Space, up_to("\n", 2)),
        ('/', Some('*')) => (Token::Space, up_to("*/", 2)),
        ('\'' | '"' | '`', _) => (Token::Other, up_to(c.encode_utf8(&mut [0; 4]), 1)),
        ('[', _) => (Token::Other, up_to("]", 1)),
        (c, _) if c.is_ascii_whitespace() => (Token::Space, 1),
        (c, _) if in_word(c) => {
            let length = text.find(|c| !in_word(c)).unwrap_or(text.len());
            (word(text.get(..length).unwrap_or_default()), length)
        }
        (c, _) => (Token::Other, c.len_utf8()),
    }
}

fn in_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '$' || !c.is_ascii()
}

fn word(word: &str) -> Token {
    match word.to_ascii_lowercase().as_str() {
        "explain" => Token::Explain,
        "create" => Token::Create,
        "temp" | "temporary" => Token::Temp,
        "trigger" => Token::Trigger,
        "end" => Token::End,
        _ => Token::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> (Vec<&str>, Option<&str>) {
        let Split { complete, rest, .. } = Split::of(text);
        (complete, rest)
    }

    #[test]
    fn semicolons_end_statements() {
        assert_eq!(split("SELECT 1; SELECT 2 ;\n"), (vec!["SELECT 1", "SELECT 2"], None));
        assert_eq!(split("SELECT 1; SELECT"), (vec!["SELECT 1"], Some("SELECT")));
        assert_eq!(split(" ;; -- nothing\n /* at all */ ;"), (vec![], None));
        assert_eq!(split(""), (vec![], None));
    }

    #[test]
    fn semicolons_in_literals_and_comments_do_not() {
        for text in [
            "SELECT ';'",
            "SELECT 'it''s;'",
            "SELECT \";\"",
            "SELECT [;], `;`",
            "SELECT 1 -- ;\n + 1",
            "SELECT /*;*/ 1",
        ] {
            assert_eq!(split(&format!("{text};")), (vec![text], None));
        }
        for text in ["SELECT 'a;", "SELECT /* ;", "SELECT 1 -- ;"] {
            assert_eq!(split(text), (vec![], Some(text)));
        }
    }

    #[test]
    fn a_trigger_ends_with_its_end() {
        let trigger = "CREATE TEMP TRIGGER t AFTER INSERT ON a BEGIN SELECT CASE 1 WHEN 1 THEN 2 END; SELECT 'é'; END";
        assert_eq!(split(&format!("{trigger}; SELECT 1;")), (vec![trigger, "SELECT 1"], None));
        let explained = format!("EXPLAIN QUERY PLAN {trigger}");
        assert_eq!(split(&format!("{explained};")), (vec![explained.as_str()], None));
        let open = "CREATE TRIGGER t AFTER INSERT ON a BEGIN SELECT 1;";
        assert_eq!(split(open), (vec![], Some(open)));
        assert_eq!(split("CREATE TABLE trigger_(x); SELECT 1"), (vec!["CREATE TABLE trigger_(x)"], Some("SELECT 1")));
    }
}
