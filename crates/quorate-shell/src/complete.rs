//! Completion by Tab: dot commands and their arguments, file names, keywords, tables, and columns.

use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};

use crate::command::{COMMANDS, Takes};
use crate::format::{MODES, literal};
use crate::keywords::KEYWORDS;
use crate::names::{KnownNames, Names};

/// The line editor's helper.
pub struct Completion {
    names: KnownNames,
    files: FilenameCompleter,
    /// Whether the line continues a statement, so that a dot at its beginning is not a command.
    pub in_statement: bool,
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
    /// A keyword, a table, or a column of any.
    Sql(usize),
    /// A column of a table.
    Column(usize, String),
    Nothing,
}

impl Completion {
    /// Completes with these names.
    pub fn new(names: KnownNames) -> Self {
        Self { names, files: FilenameCompleter::new(), in_statement: false }
    }
}

impl Completer for Completion {
    type Candidate = Pair;

    fn complete(&self, line: &str, pos: usize, ctx: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let before = line.get(..pos).unwrap_or(line);
        match wanted(before, self.in_statement) {
            Wanted::File => self.files.complete(line, pos, ctx),
            Wanted::Nothing => Ok((pos, Vec::new())),
            Wanted::Words(start, words) => Ok((start, pairs(before, start, words))),
            named => {
                let (start, candidates) = candidates(&named, before, &self.names.get());
                Ok((start, pairs(before, start, candidates).into_iter().map(with_space).collect()))
            }
        }
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

/// After a keyword another word follows.
fn with_space(pair: Pair) -> Pair {
    let is_keyword = KEYWORDS.iter().any(|word| word.eq_ignore_ascii_case(&pair.replacement));
    if is_keyword { Pair { replacement: pair.replacement + " ", ..pair } } else { pair }
}

fn wanted(before: &str, in_statement: bool) -> Wanted {
    let trimmed = before.trim_start();
    if !in_statement && trimmed.starts_with('.') {
        return wanted_by_command(before, trimmed);
    }
    if before.matches('\'').count() % 2 == 1 {
        return Wanted::Nothing;
    }
    let start = word_start(before);
    match before.get(..start).unwrap_or_default().strip_suffix('.') {
        Some(table) => {
            let name = table.get(word_start(table)..).unwrap_or_default();
            Wanted::Column(start, name.trim_matches('"').to_lowercase())
        }
        None => Wanted::Sql(start),
    }
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
        Takes::Query => wanted(rest, true).moved(before.len() - rest.len()),
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

impl Wanted {
    /// The same, `by` bytes further in the line.
    fn moved(self, by: usize) -> Self {
        match self {
            Self::Sql(start) => Self::Sql(start.saturating_add(by)),
            Self::Column(start, table) => Self::Column(start.saturating_add(by), table),
            other => other,
        }
    }
}

/// Where the word before the cursor begins, with the quote that opens it.
fn word_start(before: &str) -> usize {
    let in_word = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
    let start = before.char_indices().rev().take_while(|(_, c)| in_word(*c)).last().map_or(before.len(), |(at, _)| at);
    if before.get(..start).is_some_and(|before| before.matches('"').count() % 2 == 1) {
        return before.get(..start).and_then(|before| before.rfind('"')).unwrap_or(start);
    }
    start
}

fn candidates(wanted: &Wanted, before: &str, names: &Names) -> (usize, Vec<String>) {
    let tables = || names.keys().map(|name| literal::name(name));
    match wanted {
        Wanted::Table(start) => (*start, tables().collect()),
        Wanted::Column(start, table) => {
            let columns = names.iter().find(|(name, _)| name.to_lowercase() == *table).map(|(_, columns)| columns);
            // The name before the dot may be an alias, so every column is a candidate.
            let columns: Vec<String> = match columns {
                Some(columns) => columns.iter().map(|name| literal::name(name)).collect(),
                None => all_columns(names),
            };
            (*start, columns)
        }
        Wanted::Sql(start) => {
            let typed = before.get(*start..).unwrap_or_default();
            let is_lower = typed.chars().next().is_none_or(char::is_lowercase);
            let keyword = |word: &&str| if is_lower { word.to_lowercase() } else { (*word).to_owned() };
            let names = tables().chain(all_columns(names));
            let mut all: Vec<String> = names.collect();
            // Without a letter the list would be too long.
            if !typed.is_empty() {
                all.extend(KEYWORDS.iter().map(keyword));
            }
            all.sort();
            all.dedup();
            (*start, all)
        }
        Wanted::Words(start, words) => (*start, words.clone()),
        Wanted::File | Wanted::Nothing => (before.len(), Vec::new()),
    }
}

fn all_columns(names: &Names) -> Vec<String> {
    let mut columns: Vec<String> = names.values().flatten().map(|name| literal::name(name)).collect();
    columns.sort();
    columns.dedup();
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete(before: &str) -> Vec<String> {
        complete_in(before, false)
    }

    fn complete_in(before: &str, in_statement: bool) -> Vec<String> {
        let columns = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let names = Names::from([
            ("users".to_owned(), columns(&["id", "name", "Über uns"])),
            ("order".to_owned(), columns(&["id", "user_id"])),
        ]);
        let (start, candidates) = candidates(&wanted(before, in_statement), before, &names);
        let line = |pair: Pair| format!("{}{}", &before[..start], pair.replacement);
        pairs(before, start, candidates).into_iter().map(line).collect()
    }

    #[test]
    fn commands_and_their_arguments_are_completed() {
        assert_eq!(complete(".ta"), [".tables"]);
        assert_eq!(complete("  .q"), ["  .quit"]);
        assert_eq!(complete(".timer o"), [".timer on", ".timer off"]);
        assert_eq!(complete(".mode nd"), [".mode ndjson"]);
        assert_eq!(complete(".mode insert u"), [".mode insert users"]);
        assert_eq!(complete(".level l"), [".level local", ".level linearizable"]);
        assert_eq!(complete(".schema u"), [".schema users"]);
        assert_eq!(complete(".dump users o"), [".dump users \"order\""]);
        assert_eq!(complete(".help .q"), [".help .quit"]);
        assert_eq!(complete(".explain SELECT nam"), [".explain SELECT name"]);
        assert_eq!(complete(".quit x"), [""; 0]);
        assert_eq!(wanted(".read /tm", false), Wanted::File);
        assert_eq!(wanted(".import ", false), Wanted::File);
        assert_eq!(wanted(".import a.csv us", false), Wanted::Table(14));
    }

    #[test]
    fn words_of_sql_are_completed() {
        assert_eq!(complete("sel"), ["select"]);
        assert_eq!(complete("SELECT * FR"), ["SELECT * FROM"]);
        assert_eq!(
            complete("SELECT * FROM us"),
            ["SELECT * FROM user_id", "SELECT * FROM users", "SELECT * FROM using"]
        );
        assert_eq!(complete("SELECT users.na"), ["SELECT users.name"]);
        assert_eq!(complete("SELECT u.user"), ["SELECT u.user_id"]);
        assert_eq!(complete("SELECT \"Ü"), ["SELECT \"Über uns\""]);
        assert_eq!(complete("SELECT 'sel"), [""; 0]);
        assert_eq!(complete_in(".5 + na", true), [".5 + name", ".5 + natural"]);
        assert_eq!(complete("SELECT * FROM ord"), ["SELECT * FROM \"order\"", "SELECT * FROM order"]);
    }
}
