//! What the rules say may come next, after some words of a statement.
//!
//! The words are read from left to right and reduced: what is in closed parentheses, or from CASE to END, becomes one
//! item, and a name with its table becomes a name. Then the rule whose words end last governs. Some words of the rules
//! are phrases, as GROUP BY; after a part of a phrase its other words come next.

use super::rules::{ENDINGS, Names, OPERATORS, RULES, Rule};
use crate::keywords::is_keyword;
use crate::statements::in_word;

/// The most words of a phrase that may precede its last.
const PHRASE_WORDS_MAX: usize = 3;

/// What may come next.
#[derive(Debug, PartialEq, Eq)]
pub struct Next {
    pub names: Names,
    /// Words and phrases.
    pub words: Vec<&'static str>,
    /// Whether a keyword may come that the rules do not know.
    pub is_open: bool,
}

/// What may come after these words.
pub fn next(words: &[&str]) -> Next {
    let reduced = reduced(words);
    let mut rests = Vec::new();
    let mut is_whole = true;
    for count in 1..=PHRASE_WORDS_MAX.min(reduced.len().saturating_sub(1)) {
        let Some((before, typed)) = reduced.split_at_checked(reduced.len().saturating_sub(count)) else { break };
        let phrases = governed(before).words;
        let found: Vec<&str> = phrases.iter().filter_map(|phrase| rest(phrase, typed)).collect();
        is_whole &= found.is_empty() || found.contains(&"");
        rests.extend(found.into_iter().filter(|rest| !rest.is_empty()));
    }
    let mut next =
        if is_whole { governed(&reduced) } else { Next { names: Names::Unknown, words: Vec::new(), is_open: false } };
    next.words.extend(rests);
    next
}

/// The words of a phrase after those that were typed, if it begins with them.
fn rest(phrase: &'static str, typed: &[&str]) -> Option<&'static str> {
    let mut rest = phrase;
    for word in typed {
        let (first, after) = rest.split_once(' ').unwrap_or((rest, ""));
        if !first.eq_ignore_ascii_case(word) {
            return None;
        }
        rest = after;
    }
    Some(rest)
}

/// What the governing rule says.
fn governed(words: &[&str]) -> Next {
    let nothing = Next { names: Names::Unknown, words: Vec::new(), is_open: false };
    let Some((rule, items)) = governing(words) else { return nothing };
    let split = |list: &'static str| list.split(", ").filter(|word| !word.is_empty());
    match items.last().copied() {
        // A new name follows.
        Some(last) if last.eq_ignore_ascii_case("AS") => nothing,
        Some(_) if ends_item(items) => {
            let operators = if rule.names == Names::Expression { OPERATORS } else { "" };
            Next { names: Names::Unknown, words: split(rule.then).chain(split(operators)).collect(), is_open: true }
        }
        last => {
            let begin = if last.is_none_or(|last| last == ",") { rule.begin } else { "" };
            let can_query = last == Some("(") && matches!(rule.names, Names::Expression | Names::Tables);
            let query = if can_query { "SELECT" } else { "" };
            let is_open = rule.names == Names::Expression;
            Next { names: rule.names, words: split(begin).chain(split(query)).collect(), is_open }
        }
    }
}

/// The rule whose words end last, the longest of them, and what follows its words.
fn governing<'a, 'w>(words: &'a [&'w str]) -> Option<(&'static Rule, &'a [&'w str])> {
    (1..=words.len()).rev().find_map(|end| {
        let (before, items) = words.split_at_checked(end)?;
        let ends_list = items.iter().take_while(|item| **item != "(").any(|item| *item == ",");
        let fits = |rule: &&Rule| (rule.is_list || !ends_list) && ends_with(before, rule.after);
        let rule = RULES.iter().filter(fits).max_by_key(|rule| rule.after.split(' ').count())?;
        Some((rule, items))
    })
}

/// Whether the words end with those of a rule.
fn ends_with(words: &[&str], after: &str) -> bool {
    let mut words = words.iter().rev();
    let is = |pattern: &str, word: &str| match pattern {
        "_" => is_name(word),
        pattern => pattern.split('|').any(|pattern| pattern.eq_ignore_ascii_case(word)),
    };
    after.split(' ').rev().all(|pattern| words.next().is_some_and(|word| is(pattern, word)))
}

/// Whether the last of these words ends an item, so that no other item can follow without a comma or an operator.
fn ends_item(items: &[&str]) -> bool {
    let Some((last, before)) = items.split_last() else { return false };
    let is_ending = |word: &str| ENDINGS.split(", ").any(|ending| ending.eq_ignore_ascii_case(word));
    match *last {
        // All columns; or a product, if it has a first factor.
        "*" => !ends_item(before),
        "()" | "?" => true,
        last => is_name(last) || last.starts_with(|c: char| c.is_ascii_digit() || c == '\'') || is_ending(last),
    }
}

/// Whether it is a name: a word that is no keyword, or a text in quotes.
pub fn is_name(word: &str) -> bool {
    let is_word = word.starts_with(in_word) && !word.starts_with(|c: char| c.is_ascii_digit());
    word.starts_with(['"', '`', '[']) || is_word && !is_keyword(word)
}

/// The words with less detail, behind a `^`.
fn reduced<'a>(words: &[&'a str]) -> Vec<&'a str> {
    let mut reduced = vec!["^"];
    for word in words {
        match word.to_ascii_uppercase().as_str() {
            ")" => close(&mut reduced, "("),
            "END" if reduced.iter().any(|word| word.eq_ignore_ascii_case("CASE")) => close(&mut reduced, "CASE"),
            "EXISTS" => match reduced.as_slice() {
                [.., r#if, not] if r#if.eq_ignore_ascii_case("IF") && not.eq_ignore_ascii_case("NOT") => {
                    reduced.truncate(reduced.len().saturating_sub(2));
                }
                [.., r#if] if r#if.eq_ignore_ascii_case("IF") => drop(reduced.pop()),
                _ => reduced.push(word),
            },
            _ => {
                if reduced.last() == Some(&".") && is_name(word) {
                    reduced.truncate(reduced.len().saturating_sub(2));
                }
                reduced.push(word);
            }
        }
    }
    reduced
}

/// Replaces everything from the last `begin` by one item.
fn close(words: &mut Vec<&str>, begin: &str) {
    if let Some(at) = words.iter().rposition(|word| word.eq_ignore_ascii_case(begin)) {
        words.truncate(at);
    }
    words.push("()");
}
