//! The arguments of a command, read one after the other.

use std::sync::Arc;

use bytes::Bytes;
use quorate_keys::{KeyCommand, KeysCommand, KeysReply, Kind, Space, SpaceCommand};

use crate::cursors::Cursors;
use crate::error::Refusal;
use crate::frame::Frame;
use crate::number::{double, integer};
use crate::plan::{Answers, Outcome, Plan};

/// What a command depends on, beside its arguments.
#[derive(Clone, Debug)]
pub struct Moment {
    /// The time, in nanoseconds since 1970.
    pub now: u64,
    /// What draws depend on, drawn at random.
    pub seed: u64,
    /// The space of the keys: the database that the client has selected.
    pub space: Space,
    /// The cursors of scans of the node.
    pub cursors: Arc<Cursors>,
}

/// The arguments of a command that are still to be read.
#[derive(Debug)]
pub struct Args<'a> {
    words: &'a [Bytes],
    /// The name of the command.
    pub name: &'static str,
    /// The last word of its name, as it was sent.
    pub word: &'a Bytes,
    /// What it depends on.
    pub moment: &'a Moment,
}

/// What most functions that read a command return.
pub type Planned = Result<Plan, Refusal>;

impl<'a> Args<'a> {
    /// Returns the arguments of a command.
    pub fn new(name: &'static str, word: &'a Bytes, words: &'a [Bytes], moment: &'a Moment) -> Self {
        Self { words, name, word, moment }
    }

    /// Returns the next argument.
    pub fn next(&mut self) -> Result<Bytes, Refusal> {
        let (first, rest) = self.words.split_first().ok_or(Refusal::Syntax)?;
        self.words = rest;
        Ok(first.clone())
    }

    /// Returns the next argument, and leaves it.
    pub fn peek(&self) -> Option<&'a Bytes> {
        self.words.first()
    }

    /// Returns the rest of the arguments.
    pub fn rest(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.words).to_vec()
    }

    /// Returns the rest of the arguments in pairs.
    pub fn pairs(&mut self) -> Result<Vec<(Bytes, Bytes)>, Refusal> {
        let (pairs, odd) = self.words.as_chunks::<2>();
        if !odd.is_empty() {
            return Err(self.arity());
        }
        self.words = &[];
        Ok(pairs.iter().map(|[first, second]| (first.clone(), second.clone())).collect())
    }

    /// Returns so many of the next arguments.
    pub fn take(&mut self, count: usize) -> Result<Vec<Bytes>, Refusal> {
        let (taken, rest) = self.words.split_at_checked(count).ok_or(Refusal::Syntax)?;
        self.words = rest;
        Ok(taken.to_vec())
    }

    /// Returns how many arguments are left.
    pub fn left(&self) -> usize {
        self.words.len()
    }

    /// Returns whether there are no more arguments.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Refuses arguments that are left.
    pub fn end(&self) -> Result<(), Refusal> {
        if self.is_empty() { Ok(()) } else { Err(Refusal::Syntax) }
    }

    /// Returns whether one of the next arguments is this word.
    pub fn has(&self, word: &str) -> bool {
        self.words.iter().any(|other| other.eq_ignore_ascii_case(word.as_bytes()))
    }

    /// Takes the next argument, if it is this word.
    pub fn option(&mut self, word: &str) -> bool {
        let (Some(first), rest) = (self.words.first(), self.words.get(1..)) else { return false };
        let is_it = first.eq_ignore_ascii_case(word.as_bytes());
        if is_it {
            self.words = rest.unwrap_or_default();
        }
        is_it
    }

    /// Takes the next argument, if it is one of these words, and returns what stands for it.
    pub fn choice<T: Copy>(&mut self, words: &[(&str, T)]) -> Option<T> {
        words.iter().find(|(word, _)| self.option(word)).map(|(_, choice)| *choice)
    }

    /// Returns the next argument, which is an integer.
    pub fn integer(&mut self) -> Result<i64, Refusal> {
        integer(&self.next()?).ok_or(Refusal::NotInteger)
    }

    /// Returns the next argument, which is an integer from 0 on.
    pub fn positive(&mut self) -> Result<u64, Refusal> {
        integer(&self.next()?).and_then(|number| u64::try_from(number).ok()).ok_or(Refusal::Negative)
    }

    /// Returns the next argument, which is a number.
    pub fn double(&mut self) -> Result<f64, Refusal> {
        double(&self.next()?).ok_or(Refusal::NotFloat)
    }

    /// Returns the error that the number of arguments is wrong.
    pub fn arity(&self) -> Refusal {
        Refusal::Arity(self.name.to_owned())
    }

    /// Returns the plan of a command that is refused, but only if the key holds what it is for: a missing key has its
    /// own reply, and another one is of the wrong type.
    pub fn refuse_after(&mut self, key: Bytes, kind: Kind, missing: Frame, refusal: Refusal) -> Planned {
        self.rest();
        self.plan(KeysCommand::Key(KeyCommand::Count { key, kind }), move |reply| match reply {
            KeysReply::Count(0) => missing,
            _ => Frame::error(refusal),
        })
    }

    /// Returns the plan of one command.
    pub fn plan<O: Into<Outcome>>(
        &self,
        command: KeysCommand,
        finish: impl FnOnce(KeysReply) -> O + Send + 'static,
    ) -> Planned {
        self.end()?;
        Ok(Plan::one(self.moment.space, command, finish))
    }

    /// Returns the plan of several commands.
    pub fn plan_all<O: Into<Outcome>>(
        &self,
        commands: Vec<KeysCommand>,
        finish: impl FnOnce(Answers) -> O + Send + 'static,
    ) -> Planned {
        self.end()?;
        let space = self.moment.space;
        let commands = commands.into_iter().map(|command| SpaceCommand { space, command });
        Ok(Plan::new(commands.collect(), finish))
    }
}
