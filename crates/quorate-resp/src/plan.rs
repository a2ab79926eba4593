//! What a command asks of the store, and how the answer becomes a reply.

use std::fmt;

use bytes::Bytes;
use quorate_keys::{KeysCommand, KeysReply, Space, SpaceCommand, Version};
use quorate_model::{Command, CommandResult, Failure, FailureKind, LocksCommand};

use crate::frame::Frame;

/// The results of commands, in their order.
pub type Results = Vec<CommandResult>;

/// The answers to commands on keys, in their order.
pub type Answers = Vec<Result<KeysReply, Failure>>;

/// What the store is asked, and what is made of the answer.
pub struct Plan {
    /// What the store is asked. Each command succeeds or fails by itself.
    pub commands: Vec<Command>,
    /// Whether it may change something.
    pub is_write: bool,
    /// Whether the store is usually asked for more, so that nothing else may happen before that.
    pub continues: bool,
    /// What is made of the answer.
    pub finish: Finish,
}

/// What is made of the answers.
pub type Finish = Box<dyn FnOnce(Results) -> Outcome + Send>;

/// A key with the version that it must have, or none if it must be missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Premise {
    /// The space of the key.
    pub space: Space,
    /// The key.
    pub key: Bytes,
    /// Its version.
    pub version: Option<Version>,
}

/// What a client waits for.
#[derive(Clone, Debug, PartialEq)]
pub enum Awaited {
    /// That one of some keys changes.
    Keys {
        /// The space of the keys.
        space: Space,
        /// The keys.
        keys: Vec<Bytes>,
    },
    /// That a lock is granted, by this command.
    Lock(LocksCommand),
}

/// That a client waits.
#[derive(Clone, Debug, PartialEq)]
pub struct Wait {
    /// For what.
    pub awaited: Awaited,
    /// How long, as a time in nanoseconds since 1970; none for ever.
    pub until: Option<u64>,
    /// The reply in a transaction, which does not wait.
    pub otherwise: Frame,
}

/// The result of a plan.
#[derive(Debug)]
pub enum Outcome {
    /// The reply.
    Reply(Frame),
    /// The store has to be asked for more. What has been asked before has only read.
    More(Plan),
    /// Nothing was found, and the client waits until that changes; then the store is asked again.
    Wait(Wait, Plan),
    /// The versions of keys that the next transaction depends on. The reply is OK.
    Watched(Vec<Premise>),
}

impl From<Frame> for Outcome {
    fn from(frame: Frame) -> Self {
        Self::Reply(frame)
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan").field("commands", &self.commands).finish_non_exhaustive()
    }
}

impl Plan {
    /// Returns a plan of several commands.
    pub fn of<O: Into<Outcome>>(commands: Vec<Command>, finish: impl FnOnce(Results) -> O + Send + 'static) -> Self {
        Self { commands, is_write: false, continues: false, finish: Box::new(|results| finish(results).into()) }
    }

    /// Returns a plan of several commands on keys.
    pub fn new<O: Into<Outcome>>(
        commands: Vec<SpaceCommand>,
        finish: impl FnOnce(Answers) -> O + Send + 'static,
    ) -> Self {
        let commands = commands.into_iter().map(Command::Keys).collect();
        Self::of(commands, |results| finish(results.into_iter().map(of_keys).collect()))
    }

    /// Returns a plan that changes keys, and that waits if its reply is null.
    pub fn or_wait(make: impl Fn() -> Self + Send + 'static, wait: Wait) -> Self {
        let Self { commands, finish, .. } = make();
        let finish = move |answers| match finish(answers) {
            Outcome::Reply(Frame::Null | Frame::NullArray) => Outcome::Wait(wait.clone(), Self::or_wait(make, wait)),
            other => other,
        };
        Self { commands, is_write: true, continues: false, finish: Box::new(finish) }
    }

    /// Returns the same plan, which [continues](Self::continues).
    pub fn continues(self) -> Self {
        Self { continues: true, ..self }
    }

    /// Returns a plan of one command on keys. Its failure is the reply.
    pub fn one<O: Into<Outcome>>(
        space: Space,
        command: KeysCommand,
        finish: impl FnOnce(KeysReply) -> O + Send + 'static,
    ) -> Self {
        Self::new(vec![SpaceCommand { space, command }], |answers| match last(answers) {
            Ok(reply) => finish(reply).into(),
            Err(failure) => Frame::from(failure).into(),
        })
    }
}

/// Returns the answer to a command on keys.
fn of_keys(result: CommandResult) -> Result<KeysReply, Failure> {
    match result {
        CommandResult::Keys(reply) => Ok(reply),
        CommandResult::Failed(failure) => Err(failure),
        _ => Err(Failure::new(FailureKind::Refused, "the store answered with a reply of another kind; report this")),
    }
}

/// Returns the last answer; there is one if any command ran.
pub fn last(mut answers: Answers) -> Result<KeysReply, Failure> {
    answers.pop().unwrap_or(Ok(KeysReply::Missing))
}

/// Returns all replies, or the first failure.
pub fn all(answers: Answers) -> Result<Vec<KeysReply>, Failure> {
    answers.into_iter().collect()
}
