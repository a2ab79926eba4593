//! A lexer that knows just enough of Rust to distinguish code, comments and literals.
//!
//! Invariant: blanking replaces each byte by one space and keeps every newline, so offsets and line numbers of the
//! result are those of the source.

use std::ops::Range;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    Comment,
    Literal,
}

/// What [`blank`] blanks out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Blank {
    Comments,
    CommentsAndLiterals,
}

/// Returns the source with its comments, and if `what` says so its string and character literals, replaced by spaces.
pub fn blank(source: &str, what: Blank) -> String {
    let mut result = String::with_capacity(source.len());
    let mut rest = source;
    while !rest.is_empty() {
        let (kind, length) = next(rest);
        let (token, tail) = rest.split_at(length);
        match (kind, what) {
            (Kind::Code, _) | (Kind::Literal, Blank::Comments) => result.push_str(token),
            _ => result.extend(token.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' })),
        }
        rest = tail;
    }
    result
}

/// Returns the kind and the length in bytes of the token at the start of `text`, which must not be empty.
fn next(text: &str) -> (Kind, usize) {
    let first = text.chars().next().unwrap_or(' ');
    if text.starts_with("//") {
        (Kind::Comment, text.find('\n').unwrap_or(text.len()))
    } else if text.starts_with("/*") {
        (Kind::Comment, block_comment(text))
    } else if first == '"' {
        (Kind::Literal, quoted(text, '"'))
    } else if first == '\'' {
        character(text)
    } else if is_word(first) {
        let word = text.find(|c| !is_word(c)).unwrap_or(text.len());
        match raw_string(&text[..word], &text[word..]) {
            Some(length) => (Kind::Literal, word + length),
            None => (Kind::Code, word),
        }
    } else {
        (Kind::Code, first.len_utf8())
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the length of a block comment, in which other block comments may be nested.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while let Some(found) = text[at..].find(['/', '*']) {
        at += found;
        let step = match text.get(at..at + 2) {
            Some("/*") => 1,
            Some("*/") => -1,
            _ => 0,
        };
        depth += step;
        at += if step == 0 { 1 } else { 2 };
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// Returns the length of a literal between two `quote`s, in which a backslash escapes the next character.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// Returns the kind and length of a token that starts with `'`: `'a'` is a literal; the quote of the lifetime `'a` is
/// code.
fn character(text: &str) -> (Kind, usize) {
    let mut chars = text.chars().skip(1);
    match (chars.next(), chars.next()) {
        (Some('\\'), _) | (Some(_), Some('\'')) => (Kind::Literal, quoted(text, '\'')),
        _ => (Kind::Code, 1),
    }
}

/// If `word` and `rest` begin a raw string, `r#"..."#`, returns the length of its part in `rest`.
fn raw_string(word: &str, rest: &str) -> Option<usize> {
    if !matches!(word, "r" | "br" | "cr") {
        return None;
    }
    let hashes = rest.find(|c| c != '#')?;
    let body = rest[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", &rest[..hashes]);
    let inside = body.find(&end).map_or(body.len(), |at| at + end.len());
    Some(hashes + 1 + inside)
}

/// Returns the offsets in `code` at which `word` occurs as a whole word.
pub fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let before = code[..at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// Returns the block of the item that starts at `from` in blanked code, from its `{` to after its `}`, or `None` if the
/// item ends with a `;`.
pub fn block(code: &str, from: usize) -> Option<Range<usize>> {
    let mut nesting = 0_usize;
    let mut braces = 0_usize;
    let mut start = None;
    for (at, c) in code.char_indices().skip_while(|(at, _)| *at < from) {
        match c {
            '(' | '[' => nesting += 1,
            ')' | ']' => nesting = nesting.saturating_sub(1),
            ';' if start.is_none() && nesting == 0 => return None,
            '{' if start.is_some() || nesting == 0 => {
                start = start.or(Some(at));
                braces += 1;
            }
            '}' if start.is_some() => {
                braces -= 1;
                if braces == 0 {
                    return start.map(|start| start..at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(source: &str) -> String {
        let blanked = blank(source, Blank::CommentsAndLiterals);
        assert_eq!(blanked.len(), source.len());
        blanked.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_are_blanked_even_nested_ones() {
        assert_eq!(code("a // b {\nc /* d /* e */ f */ g"), "a c g");
        assert_eq!(code("a /* never closed"), "a");
    }

    #[test]
    fn literals_of_all_kinds_are_blanked() {
        assert_eq!(code(r##"a("x\"{", r#"y"{"#, b"z", '{', '\'', b'\\')"##), "a( , , b , , , b )");
        assert_eq!(code("r\"never closed"), "");
        assert_eq!(code("\"é{\" + 'é'"), "+");
    }

    #[test]
    fn lifetimes_and_raw_identifiers_are_code() {
        assert_eq!(code("fn f<'a>(x: &'a str, r#in: u8)"), "fn f<'a>(x: &'a str, r#in: u8)");
    }

    #[test]
    fn blanking_only_comments_keeps_strings() {
        assert_eq!(blank("a(\"b // c\") // d", Blank::Comments), "a(\"b // c\")     ");
    }

    #[test]
    fn a_block_ends_at_its_own_brace() {
        let source = "fn f(x: [u8; 2]) { if y { z } } }";
        assert_eq!(block(source, 0).map(|range| &source[range]), Some("{ if y { z } }"));
        assert_eq!(block("fn f(); { }", 0), None);
    }

    #[test]
    fn words_are_found_only_as_whole_words() {
        assert_eq!(words("unsafe_fn unsafe xunsafe unsafe", "unsafe").collect::<Vec<_>>(), [10, 25]);
    }
}
