//! The table of commands. A row says all there is to know of a command; dispatch, its number of arguments, roles and
//! `COMMAND` are made of the same rows.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use bytes::Bytes;

use crate::args::{Args, Planned};
use crate::commands;
use crate::connection::{self, Local};
use crate::error::{REPEATED_BYTES_MAX, Refusal, text};

/// A row of the table.
#[derive(Debug)]
pub struct Spec {
    /// Its name, in small letters.
    pub name: &'static str,
    /// How many words a call has with the name; if negative, so many at least.
    pub arity: i8,
    /// What it does to keys.
    pub access: Access,
    /// Where its keys are.
    pub keys: Places,
    /// The version of Redis that had it first.
    pub since: &'static str,
    /// What it does, in a sentence.
    pub summary: &'static str,
    /// How it runs.
    pub run: Run,
    /// Whether a client may send it that has not logged in.
    pub before_login: bool,
    /// Whether it is done by itself, after the requests before it, and before those after it.
    pub is_alone: bool,
    /// Whether it may keep the thread of the port for milliseconds. Other clients have their turn after each.
    pub is_costly: bool,
}

/// What a command does to keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It concerns none.
    None,
    /// It reads them.
    Read,
    /// It may change them.
    Write,
}

/// How a command runs.
#[derive(Debug)]
pub enum Run {
    /// The store is asked.
    Keys(fn(&mut Args) -> Planned),
    /// The connection answers it by itself.
    Local(Local),
    /// By the row for its second word, or by the connection if there may be none.
    Sub(&'static [Spec], Option<Local>),
}

/// Where the keys of a command are among its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Places {
    /// From the first word to the last one, in steps. A negative last one counts from the end; no first one: no keys.
    Words(i8, i8, i8),
    /// After the word that says how many there are.
    Counted(i8),
    /// Every second word after the first one, which says how many there are.
    CountedPairs,
    /// The first word, and those after the second, which says how many these are.
    Stored,
}

/// No keys.
pub const NONE: Places = Places::Words(0, 0, 0);
/// One key.
pub const ONE: Places = Places::Words(1, 1, 1);
/// One key, after a second word that belongs to the name.
pub const SECOND: Places = Places::Words(2, 2, 1);
/// Two keys.
pub const TWO: Places = Places::Words(1, 2, 1);
/// All words are keys.
pub const ALL: Places = Places::Words(1, -1, 1);
/// Every second word is a key.
pub const PAIRS: Places = Places::Words(1, -1, 2);

/// Returns the row of a command that concerns no keys, with no property that other methods add.
const fn plain(name: &'static str, arity: i8, since: &'static str, summary: &'static str, run: Run) -> Spec {
    Spec {
        name,
        arity,
        access: Access::None,
        keys: NONE,
        since,
        summary,
        run,
        before_login: false,
        is_alone: false,
        is_costly: false,
    }
}

/// Returns the row of a command that reads keys.
pub const fn read(
    name: &'static str,
    arity: i8,
    keys: Places,
    since: &'static str,
    summary: &'static str,
    run: fn(&mut Args) -> Planned,
) -> Spec {
    Spec { access: Access::Read, keys, ..plain(name, arity, since, summary, Run::Keys(run)) }
}

/// Returns the row of a command that changes keys.
pub const fn write(
    name: &'static str,
    arity: i8,
    keys: Places,
    since: &'static str,
    summary: &'static str,
    run: fn(&mut Args) -> Planned,
) -> Spec {
    Spec { access: Access::Write, ..read(name, arity, keys, since, summary, run) }
}

/// Returns the row of a command that the connection answers.
pub const fn local(name: &'static str, arity: i8, since: &'static str, summary: &'static str, run: Local) -> Spec {
    plain(name, arity, since, summary, Run::Local(run))
}

/// Returns the row of a command whose second word says more.
pub const fn sub(name: &'static str, since: &'static str, summary: &'static str, of: &'static [Spec]) -> Spec {
    plain(name, -2, since, summary, Run::Sub(of, None))
}

/// Returns the row of a command whose second word says more, and may be missing.
pub const fn sub_or(
    name: &'static str,
    since: &'static str,
    summary: &'static str,
    of: &'static [Spec],
    alone: Local,
) -> Spec {
    let row = local(name, -1, since, summary, alone);
    Spec { run: Run::Sub(of, Some(alone)), ..row }
}

impl Spec {
    /// Returns the row of a command that a client may send before it has logged in.
    pub const fn before_login(self) -> Self {
        Self { before_login: true, ..self }
    }

    /// Returns the row of a command that does this to keys, or to other data.
    pub const fn access(self, access: Access) -> Self {
        Self { access, ..self }
    }

    /// Returns the row of a command whose keys are there.
    pub const fn keys(self, keys: Places) -> Self {
        Self { keys, ..self }
    }

    /// Returns the row of a command that is done by itself.
    pub const fn alone(self) -> Self {
        Self { is_alone: true, ..self }
    }

    /// Returns the row of a command that may keep the thread of the port for milliseconds.
    pub const fn costly(self) -> Self {
        Self { is_alone: true, is_costly: true, ..self }
    }

    /// Returns whether a call may have so many words.
    pub fn allows(&self, words: usize) -> bool {
        let arity = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { words >= arity } else { words == arity }
    }

    /// Returns the keys of a call; none if it says that it has no keys, or more than there are words.
    pub fn keys_of<'a>(&self, words: &'a [Bytes]) -> Option<Vec<&'a Bytes>> {
        let counted = |at: usize, step: usize| {
            let (count, rest) = words.get(at..)?.split_first()?;
            // As in Redis, the number ends where the digits end.
            let digits = count.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let count: usize = std::str::from_utf8(count.get(..digits)?).ok()?.parse().ok()?;
            rest.get(..count.checked_mul(step)?).filter(|keys| !keys.is_empty()).map(|keys| keys.iter().step_by(step))
        };
        Some(match self.keys {
            Places::Words(0, _, _) => Vec::new(),
            Places::Words(first, last, step) => {
                let last = if last < 0 { words.len() as i64 + i64::from(last) } else { last.into() };
                let last = usize::try_from(last).unwrap_or(0);
                words.iter().take(last + 1).skip(first as usize).step_by(step.max(1) as usize).collect()
            }
            Places::Counted(at) => counted(at as usize, 1)?.collect(),
            Places::CountedPairs => counted(1, 2)?.collect(),
            Places::Stored => words.get(1).into_iter().chain(counted(2, 1)?).collect(),
        })
    }
}

/// The groups of commands, as `COMMAND DOCS` names them, with their rows.
pub static GROUPS: &[(&str, &[Spec])] = &[
    ("connection", connection::COMMANDS),
    ("server", connection::SERVER_COMMANDS),
    ("server", connection::SAVE_COMMANDS),
    ("transactions", connection::TRANSACTION_COMMANDS),
    ("pubsub", connection::PUBSUB_COMMANDS),
    ("generic", commands::keys::COMMANDS),
    ("generic", commands::sort::COMMANDS),
    ("string", commands::strings::COMMANDS),
    ("string", commands::lcs::COMMANDS),
    ("bitmap", commands::bits::COMMANDS),
    ("hash", commands::hashes::COMMANDS),
    ("hash", commands::fields::COMMANDS),
    ("set", commands::sets::COMMANDS),
    ("sorted-set", commands::sorted_sets::COMMANDS),
    ("sorted-set", commands::ranges::COMMANDS),
    ("sorted-set", commands::combined::COMMANDS),
    ("list", commands::lists::COMMANDS),
    ("generic", commands::scans::COMMANDS),
    ("list", commands::blocking::LIST_COMMANDS),
    ("sorted-set", commands::blocking::SORTED_SET_COMMANDS),
    ("quorate", commands::own::COMMANDS),
    ("quorate", commands::locks::COMMANDS),
    ("quorate", connection::OWN_COMMANDS),
];

static BY_NAME: LazyLock<BTreeMap<&'static str, &'static Spec>> =
    LazyLock::new(|| all().map(|(_, spec)| (spec.name, spec)).collect());

/// Returns all rows with their groups.
pub fn all() -> impl Iterator<Item = (&'static str, &'static Spec)> {
    GROUPS.iter().flat_map(|(group, specs)| specs.iter().map(|spec| (*group, spec)))
}

/// Returns the row of a command.
pub fn find(name: &[u8]) -> Option<&'static Spec> {
    let name = String::from_utf8(name.to_ascii_lowercase()).ok()?;
    BY_NAME.get(name.as_str()).copied()
}

/// What the words of a call are.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// The name of the command that it is below, if it is.
    pub of: Option<&'static str>,
    /// The row of the call.
    pub spec: &'static Spec,
    /// The last word of its name, as it was sent.
    pub word: &'a Bytes,
    /// The words that are its arguments.
    pub arguments: &'a [Bytes],
}

impl Found<'_> {
    /// Returns its whole name, with that of the command that it is below.
    pub fn name(&self) -> String {
        self.of.map_or_else(|| self.spec.name.to_owned(), |of| format!("{of}|{}", self.spec.name))
    }
}

/// Returns what the words of a call are.
///
/// # Errors
///
/// [`Refusal`], if there is no such command, or if it has another number of words.
pub fn row(words: &[Bytes]) -> Result<Found<'_>, Refusal> {
    let found = named(words)?;
    if found.spec.allows(words.len()) { Ok(found) } else { Err(Refusal::Arity(found.name())) }
}

/// Returns what the words of a call are, however many there are. Its row is that of its second word, if there is one.
///
/// # Errors
///
/// [`Refusal`], if there is no such command.
pub fn named(words: &[Bytes]) -> Result<Found<'_>, Refusal> {
    let (word, arguments) = words.split_first().ok_or(Refusal::Syntax)?;
    let spec = find(word).ok_or_else(|| unknown(word, arguments))?;
    let (Run::Sub(subs, _), Some((second, rest))) = (&spec.run, arguments.split_first()) else {
        return Ok(Found { of: None, spec, word, arguments });
    };
    let sub = subs.iter().find(|sub| second.eq_ignore_ascii_case(sub.name.as_bytes()));
    let sub = sub.ok_or_else(|| Refusal::UnknownSub { name: text(second), of: spec.name })?;
    Ok(Found { of: Some(spec.name), spec: sub, word: second, arguments: rest })
}

fn unknown(name: &[u8], arguments: &[Bytes]) -> Refusal {
    let mut repeated = String::new();
    for argument in arguments {
        if repeated.len() >= REPEATED_BYTES_MAX {
            break;
        }
        let left = REPEATED_BYTES_MAX - repeated.len();
        repeated += &format!("'{}' ", text(argument.get(..left).unwrap_or(argument)));
    }
    Refusal::Unknown { name: text(name), arguments: repeated }
}
