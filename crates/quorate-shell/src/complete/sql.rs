//! The candidates at a place in a statement: the words that the rules allow there, and the names that suit it.

use super::next::{Next, is_name, next};
use super::rules::{Names as Wish, OPERANDS};
use crate::format::literal;
use crate::keywords::{KEYWORDS, is_keyword};
use crate::names::Names;
use crate::statements::{Piece, Sort, in_word, pieces};

/// A place in a text of statements, where a word is being typed.
pub struct Place<'a> {
    /// Where that word begins, with its quote.
    pub start: usize,
    /// The word so far, without its quote.
    typed: &'a str,
    /// The name before the dot before the word.
    table: Option<String>,
    /// The words before it in its statement.
    before: Vec<&'a str>,
    /// The whole statement.
    statement: Vec<&'a str>,
}

/// A candidate: its text, and whether a space follows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub text: String,
    pub is_word: bool,
}

impl<'a> Place<'a> {
    /// The place in a text, unless it is in a literal or a comment.
    pub fn of(text: &'a str, at: usize) -> Option<Self> {
        let is_word = |piece: &Piece<'_>| piece.is_open || piece.sort == Sort::Plain && piece.text.starts_with(in_word);
        let ends_here = |piece: &Piece<'_>| piece.at.saturating_add(piece.text.len()) == at;
        let word = pieces(text.get(..at)?).last().filter(|piece| is_word(piece) && ends_here(piece));
        let (start, typed) = match word {
            Some(word) if word.sort == Sort::Comment || word.is_open && word.text.starts_with('\'') => return None,
            Some(word) => (word.at, word.text.trim_start_matches(['"', '`', '['])),
            None => (at, ""),
        };
        let whole: Vec<Piece<'_>> = pieces(text).filter(|piece| piece.sort != Sort::Comment).collect();
        let is_end = |piece: &Piece<'_>| piece.text == ";";
        // A statement in the body of a trigger is a statement of its own here.
        let begin =
            whole.iter().rposition(|piece| piece.at < start && is_end(piece)).map_or(0, |at| at.saturating_add(1));
        let statement: Vec<Piece<'_>> = whole.into_iter().skip(begin).take_while(|piece| !is_end(piece)).collect();
        let before: Vec<&str> = statement.iter().filter(|piece| piece.at < start).map(|piece| piece.text).collect();
        let statement = statement.into_iter().map(|piece| piece.text).collect();
        match before.as_slice() {
            [.., ":" | "@"] => None,
            [.., table, "."] => Some(Self { start, typed, table: Some(unquoted(table)), before, statement }),
            _ => Some(Self { start, typed, table: None, before, statement }),
        }
    }

    /// Returns the words and names that may stand here and begin with the typed letters, in any case. The columns of
    /// the tables that the statement names come first.
    pub fn candidates(&self, names: &Names) -> Vec<Candidate> {
        if let Some(table) = &self.table {
            let found = if table == "main" { tables(names) } else { self.columns_of(table, names) };
            return self.fitting(found, false);
        }
        let Next { names: wish, words, is_open } = next(&self.before);
        let mut found = match wish {
            Wish::Tables => self.fitting(tables(names), false),
            Wish::Columns | Wish::Expression => self.columns(names),
            Wish::Functions | Wish::Unknown => Vec::new(),
        };
        // Without a letter the list would be too long.
        if matches!(wish, Wish::Functions | Wish::Expression) && !self.typed.is_empty() {
            found.extend(self.fitting(names.functions.iter().map(|name| format!("{name}(")), false));
            found.extend(self.words(OPERANDS.split(", ")));
        }
        found.extend(self.words(words.into_iter()));
        if found.is_empty() && is_open && !self.typed.is_empty() {
            found = self.words(KEYWORDS.iter().copied());
        }
        found
    }

    /// The columns of the tables that the statement names, or else those of all tables.
    fn columns(&self, names: &Names) -> Vec<Candidate> {
        let own = self.named(names).into_iter().flat_map(|(table, _)| columns(table, names));
        let own = self.fitting(own, false);
        if own.is_empty() {
            self.fitting(names.tables.keys().flat_map(|table| columns(table, names)), false)
        } else {
            own
        }
    }

    /// The columns of a table, which may be named by its alias; those of all tables if there is no such table.
    fn columns_of(&self, table: &str, names: &Names) -> Vec<String> {
        let is_it = |name: &str| name.eq_ignore_ascii_case(table);
        let found =
            self.named(names).into_iter().find(|(name, alias)| is_it(name) || alias.as_deref().is_some_and(is_it));
        let found =
            found.map(|(name, _)| name).or_else(|| names.tables.keys().map(String::as_str).find(|name| is_it(name)));
        match found {
            Some(table) => columns(table, names).collect(),
            None => names.tables.keys().flat_map(|table| columns(table, names)).collect(),
        }
    }

    /// The tables that the statement names, each with its alias.
    fn named<'n>(&self, names: &'n Names) -> Vec<(&'n str, Option<String>)> {
        let mut found = Vec::new();
        let mut rest = self.statement.as_slice();
        while let Some((name, after)) = rest.split_first() {
            let alias = match after {
                [word, alias, ..] if word.eq_ignore_ascii_case("AS") => Some(alias),
                [alias, ..] => Some(alias),
                [] => None,
            };
            let alias = alias.filter(|alias| is_name(alias)).map(|alias| unquoted(alias));
            let name = unquoted(name);
            let table = names.tables.keys().find(|table| table.eq_ignore_ascii_case(&name));
            found.extend(table.map(|table| (table.as_str(), alias)));
            rest = after;
        }
        found
    }

    /// Keywords in the case that the user types.
    fn words<'w>(&self, words: impl Iterator<Item = &'w str>) -> Vec<Candidate> {
        let last = |words: &[&'a str]| words.iter().rev().find(|word| is_keyword(word)).copied();
        let typed = if self.typed.is_empty() { last(&self.before) } else { Some(self.typed) };
        let is_lower = typed.is_some_and(|typed| typed.starts_with(char::is_lowercase));
        self.fitting(words.map(|word| if is_lower { word.to_lowercase() } else { word.to_owned() }), true)
    }

    /// Returns those of the texts that begin with the typed letters, sorted.
    fn fitting(&self, texts: impl IntoIterator<Item = String>, is_word: bool) -> Vec<Candidate> {
        let typed = self.typed.to_lowercase();
        let fits = |text: &String| text.trim_start_matches('"').to_lowercase().starts_with(&typed);
        let mut texts: Vec<String> = texts.into_iter().filter(fits).collect();
        texts.sort_by_key(|text| text.trim_start_matches('"').to_lowercase());
        texts.dedup();
        let candidate = |text: String| Candidate { is_word: is_word && text.ends_with(|c| c != '('), text };
        texts.into_iter().map(candidate).collect()
    }
}

fn tables(names: &Names) -> Vec<String> {
    names.tables.keys().map(|name| literal::name(name)).collect()
}

fn columns<'n>(table: &str, names: &'n Names) -> impl Iterator<Item = String> + use<'n> {
    names.tables.get(table).into_iter().flatten().map(|name| literal::name(name))
}

/// A name without its quotes.
fn unquoted(name: &str) -> String {
    name.trim_matches(['"', '`', '[', ']']).to_owned()
}
