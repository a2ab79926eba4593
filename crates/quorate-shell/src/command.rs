//! The dot commands: their names, their arguments, and the parser of their lines.
//!
//! Invariant: [`COMMANDS`] is the only list of them; help and completion use it too.

use std::path::PathBuf;

use quorate::config::nearest;

use crate::client::Level;
use crate::format::{MODES, Mode};
use crate::parameters::Change;

/// A command, as typed.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    Changes(Option<bool>),
    Dump(Vec<String>),
    /// The typed or the last statement is edited. Only a prompt can do that.
    Edit,
    Eqp(Option<bool>),
    Exit,
    /// `None` to toggle.
    Expanded(Option<bool>),
    Explain(String),
    Headers(Option<bool>),
    Help(Option<&'static Spec>),
    Import {
        file: PathBuf,
        table: String,
    },
    Indexes(Option<String>),
    /// The keys that start with this.
    Keys(String),
    Level(Option<Level>),
    /// The locks whose names start with this.
    Locks(String),
    Mode(Option<Mode>),
    NullValue(Option<String>),
    /// The next result goes to this file.
    Once(PathBuf),
    /// `None` for the terminal again.
    Output(Option<PathBuf>),
    /// `on`, `off` or a command line.
    Pager(Option<String>),
    Param(Change),
    Print(String),
    Read(PathBuf),
    Schema(Option<String>),
    Show,
    Status,
    Tables(Option<String>),
    Timer(Option<bool>),
    Width(Vec<i16>),
}

/// The kind of a command's arguments, for completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    Nothing,
    Switch,
    Tables,
    File,
    FileAndTable,
    Mode,
    Level,
    Command,
    Query,
}

/// A command as help shows it.
#[derive(Debug, PartialEq, Eq)]
pub struct Spec {
    /// Its name, with the dot.
    pub name: &'static str,
    /// Its arguments.
    pub takes: &'static str,
    /// What it does, in a line.
    pub does: &'static str,
    /// More lines of help.
    pub more: &'static str,
    /// What completes its arguments.
    pub completes: Takes,
}

const fn spec(
    name: &'static str,
    takes: &'static str,
    does: &'static str,
    more: &'static str,
    completes: Takes,
) -> Spec {
    Spec { name, takes, does, more, completes }
}

/// All commands, by their names.
#[rustfmt::skip]
pub const COMMANDS: &[Spec] = &[
    spec(".changes", "on|off", "print how many rows a write changes, in every mode", "", Takes::Switch),
    spec(".dump", "[TABLE..]", "print all, or these tables, as SQL for sqlite3",
        "The dump shows one position. TABLE may be a LIKE pattern.\n.output FILE before it sends it to a file.",
        Takes::Tables),
    spec(".edit", "", "edit the last statement, and run it",
        "\\e at the end of a line edits the statement that is being typed.\n\
         The editor is QUORATE_EDITOR, VISUAL, EDITOR, or vi.", Takes::Nothing),
    spec(".eqp", "on|off", "show the plan before each query", "", Takes::Switch),
    spec(".exit", "", "leave, as .quit and Ctrl-D do", "", Takes::Nothing),
    spec(".expanded", "[on|off]", "print each row as lines, or as before",
        "Without on or off it switches between the two, as \\x does.", Takes::Switch),
    spec(".explain", "QUERY", "the plan of a query, as a tree", "", Takes::Query),
    spec(".headers", "on|off", "print the names of the columns", "", Takes::Switch),
    spec(".help", "[COMMAND]", "this list, or more about one command", "", Takes::Command),
    spec(".import", "FILE TABLE", "load a file into a table", "", Takes::FileAndTable),
    spec(".indexes", "[TABLE]", "the indexes, or those of one table", "TABLE may be a LIKE pattern.", Takes::Tables),
    spec(".keys", "[PREFIX]", "the keys, or those that start with PREFIX",
        "They are those of space 0. quorate keys reads and changes them, in any space.", Takes::Nothing),
    spec(".level", "local|linearizable", "the guarantee of reads",
        "local: what the node that answers has applied.\nlinearizable: everything that was acknowledged before.",
        Takes::Level),
    spec(".locks", "[PREFIX]", "the locks, or those that start with PREFIX: their holders and waiters",
        "quorate locks acquires, releases and forces them.", Takes::Nothing),
    spec(".mode", "MODE", "how results are printed", "", Takes::Mode),
    spec(".nullvalue", "TEXT", "the text for NULL", "", Takes::Nothing),
    spec(".once", "FILE", "send the next result to a file", "", Takes::File),
    spec(".output", "FILE|off", "send results to a file, or to the terminal again", "", Takes::File),
    spec(".pager", "on|off|COMMAND", "show long results in a pager",
        "The pager is QUORATE_PAGER, PAGER, or less. Only the prompt uses it.", Takes::Switch),
    spec(".param", "set NAME VALUE", "give the parameter :NAME a value",
        "VALUE is a literal of SQL, or a text without quotes.\n.param unset NAME, .param clear, .param list",
        Takes::Nothing),
    spec(".print", "[TEXT]", "print a text", "", Takes::Nothing),
    spec(".quit", "", "leave, as .exit and Ctrl-D do", "", Takes::Nothing),
    spec(".read", "FILE", "run a file, up to the first error", "", Takes::File),
    spec(".schema", "[TABLE]", "the statements that create all, or one", "TABLE may be a LIKE pattern.", Takes::Tables),
    spec(".show", "", "all settings", "", Takes::Nothing),
    spec(".status", "", "the status of the members", "", Takes::Nothing),
    spec(".tables", "[PATTERN]", "the tables and views", "A LIKE pattern: %user% finds users.", Takes::Tables),
    spec(".timer", "on|off", "print how long each statement takes", "", Takes::Switch),
    spec(".width", "[N..]", "the widths of columns; 0 for as wide as needed",
        "A negative width aligns to the right. Without numbers all are as wide as needed.", Takes::Nothing),
];

/// The commands of psql, each with the one that it stands for.
const PSQL: &[(&str, &str)] = &[
    ("\\q", ".quit"),
    ("\\?", ".help"),
    ("\\h", ".help"),
    ("\\d", ".schema"),
    ("\\dt", ".tables"),
    ("\\di", ".indexes"),
    ("\\e", ".edit"),
    ("\\i", ".read"),
    ("\\o", ".output"),
    ("\\echo", ".print"),
    ("\\x", ".expanded"),
    ("\\timing", ".timer"),
];

/// Parses a line.
pub fn parse(line: &str) -> Result<Command, String> {
    let psql = |line: &str| {
        let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        PSQL.iter().find(|(psql, _)| *psql == name).map(|(_, ours)| format!("{ours} {rest}"))
    };
    let line = match line.strip_prefix('\\') {
        Some(_) => &psql(line.trim()).ok_or_else(|| format!("{line}: not known; .help lists the commands"))?,
        None => line,
    };
    let line = line.trim();
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let spec = find(name)?;
    command(spec, rest.trim()).map_err(|why| format!("{}: {why}", spec.name))
}

/// The command with this name, or the only one whose name begins with it.
fn find(name: &str) -> Result<&'static Spec, String> {
    let name = name.to_ascii_lowercase();
    if let Some(spec) = COMMANDS.iter().find(|spec| spec.name == name) {
        return Ok(spec);
    }
    let mut beginnings = COMMANDS.iter().filter(|spec| name.len() > 1 && spec.name.starts_with(&name));
    match (beginnings.next(), beginnings.next()) {
        (Some(spec), None) => Ok(spec),
        (Some(one), Some(other)) => Err(format!("{name} may be {} or {}; type more of it", one.name, other.name)),
        _ => {
            let near = nearest(&name, COMMANDS.iter().map(|spec| spec.name)).unwrap_or(".help");
            Err(format!("{name} is not known; the nearest is {near}; .help lists all"))
        }
    }
}

fn command(spec: &'static Spec, rest: &str) -> Result<Command, String> {
    if spec.name == ".param" {
        return Change::parse(rest).map(Command::Param);
    }
    let words = words(rest)?;
    let at_most = |count: usize| {
        let extra = words.get(count);
        extra.map_or(Ok(()), |word| Err(format!("it takes {}, not {word}", takes(spec))))
    };
    let one = || at_most(1).map(|()| words.first().cloned());
    let needed = |word: Option<String>| word.ok_or_else(|| format!("it takes {}", takes(spec)));
    Ok(match spec.name {
        ".changes" => Command::Changes(switch(one()?)?),
        ".dump" => Command::Dump(words),
        ".eqp" => Command::Eqp(switch(one()?)?),
        ".expanded" => Command::Expanded(switch(one()?)?),
        ".explain" => Command::Explain(needed(Some(rest.trim_end_matches(';').to_owned()).filter(|q| !q.is_empty()))?),
        ".headers" => Command::Headers(switch(one()?)?),
        ".help" => Command::Help(one()?.map(|name| find(&dotted(&name))).transpose()?),
        ".import" => {
            at_most(2)?;
            let file = needed(words.first().cloned())?.into();
            Command::Import { file, table: needed(words.get(1).cloned())? }
        }
        ".indexes" => Command::Indexes(one()?),
        ".keys" => Command::Keys(one()?.unwrap_or_default()),
        ".level" => Command::Level(one()?.map(|word| level(&word)).transpose()?),
        ".locks" => Command::Locks(one()?.unwrap_or_default()),
        ".mode" => Command::Mode((!words.is_empty()).then(|| Mode::parse(&words.join(" "))).transpose()?),
        ".nullvalue" => Command::NullValue(one()?),
        ".once" => Command::Once(needed(one()?)?.into()),
        ".output" => {
            Command::Output(one()?.filter(|file| !matches!(file.as_str(), "off" | "stdout")).map(PathBuf::from))
        }
        ".pager" => Command::Pager(Some(rest.to_owned()).filter(|rest| !rest.is_empty())),
        ".print" => Command::Print(words.join(" ")),
        ".read" => Command::Read(needed(one()?)?.into()),
        ".schema" => Command::Schema(one()?),
        ".tables" => Command::Tables(one()?),
        ".timer" => Command::Timer(switch(one()?)?),
        ".width" => Command::Width(words.iter().map(|word| width(word)).collect::<Result<_, _>>()?),
        name => {
            at_most(0)?;
            match name {
                ".edit" => Command::Edit,
                ".show" => Command::Show,
                ".status" => Command::Status,
                _ => Command::Exit,
            }
        }
    })
}

fn takes(spec: &Spec) -> &'static str {
    if spec.takes.is_empty() { "nothing" } else { spec.takes }
}

fn dotted(name: &str) -> String {
    if name.starts_with('.') { name.to_owned() } else { format!(".{name}") }
}

fn switch(word: Option<String>) -> Result<Option<bool>, String> {
    match word.as_deref() {
        None => Ok(None),
        Some("on" | "yes" | "true" | "1") => Ok(Some(true)),
        Some("off" | "no" | "false" | "0") => Ok(Some(false)),
        Some(word) => Err(format!("on or off, not {word}")),
    }
}

fn level(word: &str) -> Result<Level, String> {
    match word {
        "local" => Ok(Level::Local),
        "linearizable" => Ok(Level::Linearizable),
        _ => Err(format!("local or linearizable, not {word}")),
    }
}

fn width(word: &str) -> Result<i16, String> {
    word.parse().map_err(|_| format!("a width is a whole number of at most {}, not {word}", i16::MAX))
}

/// Splits a line into words; quotes keep words together.
pub fn words(line: &str) -> Result<Vec<String>, String> {
    let (mut words, mut chars) = (Vec::new(), line.chars().peekable());
    while let Some(c) = chars.next() {
        match c {
            c if c.is_whitespace() => {}
            quote @ ('\'' | '"') => {
                let mut word = String::new();
                loop {
                    match chars.next() {
                        Some(c) if c == quote && chars.peek() == Some(&quote) => word.extend(chars.next()),
                        Some(c) if c == quote => break,
                        Some(c) => word.push(c),
                        None => return Err(format!("a {quote} is not closed")),
                    }
                }
                words.push(word);
            }
            c => {
                let mut word = c.to_string();
                while let Some(c) = chars.next_if(|c| !c.is_whitespace()) {
                    word.push(c);
                }
                words.push(word);
            }
        }
    }
    Ok(words)
}

/// What `.help` prints.
pub fn help(of: Option<&Spec>) -> String {
    let Some(spec) = of else {
        let left = |spec: &Spec| format!("{} {}", spec.name, spec.takes);
        let width = COMMANDS.iter().map(|spec| left(spec).len()).max().unwrap_or(0);
        let lines: String = COMMANDS.iter().map(|spec| format!("{:width$}  {}\n", left(spec), spec.does)).collect();
        return format!(
            "A statement ends with a semicolon and may take several lines. Tab completes names.\n\
             Ctrl-C ends a query, or discards the typed text. After BEGIN, nothing is written before COMMIT.\n\n{lines}"
        );
    };
    let mut text = format!("{} {}\n  {}\n", spec.name, spec.takes, spec.does);
    for line in spec.more.lines() {
        text.push_str(&format!("  {line}\n"));
    }
    if spec.completes == Takes::Mode {
        let width = MODES.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        text.extend(MODES.iter().map(|(name, what)| format!("  {name:width$}  {what}\n")));
    }
    text
}

#[cfg(test)]
mod tests;
