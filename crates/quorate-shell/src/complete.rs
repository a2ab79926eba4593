//! Completion by Tab: dot commands and their arguments, file names, and what fits into a statement at this place.

mod next;
mod rules;
mod sql;

use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};

use crate::command::{COMMANDS, Takes};
use crate::format::{MODES, literal};
use crate::names::KnownNames;
use sql::{Candidate, Place};

/// The line editor's helper.
pub struct Completion {
    names: KnownNames,
    files: FilenameCompleter,
    /// The earlier lines of the statement that is being typed; empty at its first line.
    pub earlier: String,
}

/// What the word before the cursor may be, and where it begins.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    /// One of these words.
    Words(usize, Vec<String>),
    /// A file.
    File,
    /// A table.
    Table(usize),
    /// A part of the statement that begins here.
    Sql(usize),
    Nothing,
}

impl Completion {
    /// Completes with these names.
    pub fn new(names: KnownNames) -> Self {
        Self { names, files: FilenameCompleter::new(), earlier: String::new() }
    }
}

impl Completer for Completion {
    type Candidate = Pair;

    fn complete(&self, line: &str, pos: usize, ctx: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let before = line.get(..pos).unwrap_or(line);
        let found = match wanted(before, !self.earlier.is_empty()) {
            Wanted::File => return self.files.complete(line, pos, ctx),
            Wanted::Nothing => None,
            Wanted::Words(start, words) => Some((start, pairs(before, start, words))),
            Wanted::Table(start) => {
                let tables = self.names.get().tables.keys().map(|name| literal::name(name)).collect();
                Some((start, pairs(before, start, tables)))
            }
            Wanted::Sql(from) => {
                in_statement(&self.earlier, line, from, pos, |place| place.candidates(&self.names.get()))
            }
        };
        Ok(found.unwrap_or((pos, Vec::new())))
    }
}

impl Helper for Completion {}
impl Highlighter for Completion {}
impl Validator for Completion {}

impl Hinter for Completion {
    type Hint = String;
}

/// The candidates that begin with what was typed, in any case.
fn pairs(before: &str, start: usize, candidates: Vec<String>) -> Vec<Pair> {
    let typed = before.get(start..).unwrap_or_default().trim_start_matches('"').to_lowercase();
    let fits = |candidate: &String| candidate.trim_start_matches('"').to_lowercase().starts_with(&typed);
    candidates.into_iter().filter(fits).map(|word| Pair { display: word.clone(), replacement: word }).collect()
}

/// The candidates for the word before `pos` in a line whose statement begins at `from`, or in the earlier lines.
fn in_statement(
    earlier: &str,
    line: &str,
    from: usize,
    pos: usize,
    candidates: impl FnOnce(&Place<'_>) -> Vec<Candidate>,
) -> Option<(usize, Vec<Pair>)> {
    let text = format!("{earlier}{}", line.get(from..)?);
    let place = Place::of(&text, earlier.len().saturating_add(pos.saturating_sub(from)))?;
    // A name in quotes may begin in an earlier line, which can't be changed any more.
    let start = place.start.checked_sub(earlier.len())?.saturating_add(from);
    // After a keyword another word follows.
    let pair = |Candidate { text, is_word }| {
        let replacement = if is_word { format!("{text} ") } else { text.clone() };
        Pair { display: text, replacement }
    };
    Some((start, candidates(&place).into_iter().map(pair).collect()))
}

fn wanted(before: &str, in_statement: bool) -> Wanted {
    let trimmed = before.trim_start();
    if !in_statement && trimmed.starts_with('.') { wanted_by_command(before, trimmed) } else { Wanted::Sql(0) }
}

fn wanted_by_command(before: &str, trimmed: &str) -> Wanted {
    let words = |start, words: &mut dyn Iterator<Item = &str>| Wanted::Words(start, words.map(str::to_owned).collect());
    let Some((name, rest)) = trimmed.split_once(char::is_whitespace) else {
        return words(before.len() - trimmed.len(), &mut COMMANDS.iter().map(|spec| spec.name));
    };
    let start = before.rfind(char::is_whitespace).map_or(0, |at| at.saturating_add(1));
    let is_first = rest.split_whitespace().count() <= usize::from(!rest.ends_with(char::is_whitespace));
    let Some(spec) = COMMANDS.iter().find(|spec| spec.name == name) else { return Wanted::Nothing };
    match spec.completes {
        Takes::Query => Wanted::Sql(before.len() - rest.len()),
        Takes::Tables => Wanted::Table(start),
        Takes::FileAndTable if !is_first => Wanted::Table(start),
        Takes::Mode if !is_first => Wanted::Table(start),
        Takes::File | Takes::FileAndTable => Wanted::File,
        _ if !is_first => Wanted::Nothing,
        Takes::Mode => words(start, &mut MODES.iter().filter_map(|(name, _)| name.split(' ').next())),
        Takes::Switch => words(start, &mut ["on", "off"].into_iter()),
        Takes::Level => words(start, &mut ["local", "linearizable"].into_iter()),
        Takes::Command => words(start, &mut COMMANDS.iter().map(|spec| spec.name)),
        Takes::Nothing => Wanted::Nothing,
    }
}

#[cfg(test)]
mod tests;
