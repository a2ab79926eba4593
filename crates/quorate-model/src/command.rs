//! Commands, their results, and reads. Each belongs to the family of the store that runs it.

use smallvec::SmallVec;

use crate::events::{EVENTS_LEVEL, EventsCommand, EventsQuery, EventsReply};
use crate::keys::{KeysReply, SpaceCommand};
use crate::limits::BASE_LEVEL;
use crate::locks::LOCKS_LEVEL;
use crate::sql::NO_ROWS;
use crate::{
    Column, ControlCommand, ControlReply, Failure, ItemsCommand, ItemsReply, LocksCommand, LocksReply, SqlCommand,
    SqlReply, Statement, Value,
};

/// One operation that an entry asks of a state machine.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Concerns the state machine itself.
    Control(ControlCommand),
    /// Runs in the SQL store.
    Sql(SqlCommand),
    /// Runs in the store of keys.
    Keys(SpaceCommand),
    /// Runs in the store of locks.
    Locks(LocksCommand),
    /// Runs in the store of events.
    Events(EventsCommand),
    /// Runs in the store for tests.
    Items(ItemsCommand),
}

/// The result of one command.
#[derive(Clone, Debug, PartialEq)]
pub enum CommandResult {
    /// The result of a [`Command::Control`].
    Control(ControlReply),
    /// The result of a [`Command::Sql`].
    Sql(SqlReply),
    /// The result of a [`Command::Keys`].
    Keys(KeysReply),
    /// The result of a [`Command::Locks`].
    Locks(LocksReply),
    /// The result of a [`Command::Events`].
    Events(EventsReply),
    /// The result of a [`Command::Items`].
    Items(ItemsReply),
    /// The command failed and changed nothing. Only a [pipeline](crate::Mode::Pipeline) has such results.
    Failed(Failure),
}

/// The results of an entry's commands. Most entries have one command; it is stored inline, because a heap block would
/// be allocated on one thread and freed on another.
pub type Results = SmallVec<[CommandResult; 1]>;

/// A request to a store that changes nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum Read {
    /// A query.
    Sql(Statement),
    /// A command on keys that only reads.
    Keys(SpaceCommand),
    /// A command on locks that only reads.
    Locks(LocksCommand),
    /// A query for events.
    Events(EventsQuery),
}

impl Command {
    /// Returns the format level that it needs.
    pub fn level(&self) -> u32 {
        match self {
            Self::Control(command) => command.level(),
            Self::Sql(_) => BASE_LEVEL,
            Self::Keys(command) => command.level(),
            Self::Locks(_) => LOCKS_LEVEL,
            Self::Events(_) => EVENTS_LEVEL,
            Self::Items(_) => 2,
        }
    }

    /// Returns whether it must be the only command of its entry.
    pub fn is_alone(&self) -> bool {
        match self {
            Self::Control(command) => command.is_alone(),
            Self::Sql(command) => command.is_alone(),
            Self::Keys(_) | Self::Locks(_) | Self::Events(_) | Self::Items(_) => false,
        }
    }

    /// Returns whether it may have run before its entry was proposed ([`DryRunRecord`](crate::DryRunRecord)).
    pub fn may_run_dry(&self) -> bool {
        match self {
            // What a command on keys or locks changes gets a number by its entry, which a dry run does not know.
            Self::Control(_) | Self::Keys(_) | Self::Locks(_) | Self::Events(_) => false,
            Self::Sql(command) => command.may_run_dry(),
            Self::Items(_) => true,
        }
    }

    /// Returns the text of its statement, if it runs one.
    pub fn sql_text(&self) -> Option<&str> {
        match self {
            Self::Sql(SqlCommand::Statement(statement)) => Some(&statement.sql),
            Self::Sql(SqlCommand::Bulk(bulk)) => Some(&bulk.sql),
            Self::Sql(SqlCommand::Vacuum | SqlCommand::Extend(_)) => None,
            Self::Control(_) | Self::Keys(_) | Self::Locks(_) | Self::Events(_) | Self::Items(_) => None,
        }
    }

    /// Checks the limits of the command at place `number` of its proposal.
    pub fn check_limits(&self, number: usize) -> Result<(), Failure> {
        match self {
            Self::Control(command) => command.check_limits(),
            Self::Sql(command) => command.check_limits(number),
            Self::Keys(command) => command.check_limits(),
            Self::Locks(command) => command.check_limits(),
            Self::Events(command) => command.check_limits(),
            Self::Items(_) => Ok(()),
        }
    }
}

impl Read {
    /// Checks every limit except the encoded size.
    pub fn check_limits(&self) -> Result<(), Failure> {
        match self {
            Self::Sql(query) => query.check_limits(),
            Self::Keys(command) => command.check_read(),
            Self::Locks(command) => command.check_read(),
            Self::Events(query) => query.check_limits(),
        }
    }

    /// Returns the format level that it needs.
    pub fn level(&self) -> u32 {
        match self {
            Self::Sql(_) => BASE_LEVEL,
            Self::Keys(command) => command.level(),
            Self::Locks(_) => LOCKS_LEVEL,
            Self::Events(_) => EVENTS_LEVEL,
        }
    }
}

impl From<ControlCommand> for Command {
    fn from(command: ControlCommand) -> Self {
        Self::Control(command)
    }
}

impl From<SqlCommand> for Command {
    fn from(command: SqlCommand) -> Self {
        Self::Sql(command)
    }
}

impl From<SpaceCommand> for Command {
    fn from(command: SpaceCommand) -> Self {
        Self::Keys(command)
    }
}

impl From<LocksCommand> for Command {
    fn from(command: LocksCommand) -> Self {
        Self::Locks(command)
    }
}

impl From<EventsCommand> for Command {
    fn from(command: EventsCommand) -> Self {
        Self::Events(command)
    }
}

impl From<ItemsCommand> for Command {
    fn from(command: ItemsCommand) -> Self {
        Self::Items(command)
    }
}

impl From<ControlReply> for CommandResult {
    fn from(reply: ControlReply) -> Self {
        Self::Control(reply)
    }
}

impl From<SqlReply> for CommandResult {
    fn from(reply: SqlReply) -> Self {
        Self::Sql(reply)
    }
}

impl From<KeysReply> for CommandResult {
    fn from(reply: KeysReply) -> Self {
        Self::Keys(reply)
    }
}

impl From<LocksReply> for CommandResult {
    fn from(reply: LocksReply) -> Self {
        Self::Locks(reply)
    }
}

impl From<EventsReply> for CommandResult {
    fn from(reply: EventsReply) -> Self {
        Self::Events(reply)
    }
}

impl From<ItemsReply> for CommandResult {
    fn from(reply: ItemsReply) -> Self {
        Self::Items(reply)
    }
}

impl CommandResult {
    /// Returns the value that a parameter of a later command takes from this result. The error completes the sentence
    /// "statement 1, which ...".
    pub(crate) fn value(&self, column: &Column) -> Result<&Value, String> {
        match self {
            Self::Sql(reply) => reply.value(column),
            Self::Control(_) | Self::Keys(_) | Self::Locks(_) | Self::Events(_) | Self::Items(_) => {
                Err(NO_ROWS.to_owned())
            }
            Self::Failed(_) => Err("failed".to_owned()),
        }
    }
}
