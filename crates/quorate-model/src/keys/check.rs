//! Checks of limits, before a command is proposed or answered, and when its bytes arrive. The store checks them too,
//! and what a value grows to.

use bytes::Bytes;

use super::limits::{ARGUMENTS_MAX, FIELD_BYTES_MAX, KEY_BYTES_MAX, SPACES, VALUE_BYTES_MAX};
use super::{
    BitCommand, Condition, ElementCommand, HashCommand, KeyCommand, KeysCommand, ListCommand, SetCommand,
    SortedSetCommand, Space, SpaceCommand, StringCommand,
};
use crate::{Failure, FailureKind};

impl SpaceCommand {
    /// Checks every limit except the encoded size.
    pub fn check_limits(&self) -> Result<(), Failure> {
        check_space(self.space)?;
        if let KeysCommand::Key(KeyCommand::Rename { to_space, .. } | KeyCommand::Copy { to_space, .. }) = &self.command
        {
            check_space(*to_space)?;
        }
        let mut check = Check { count: 0, failed: None };
        check.command(&self.command);
        match check.failed {
            Some(failure) => Err(failure),
            None if check.count > ARGUMENTS_MAX => Err(too_big(format!(
                "ERR the command has {} arguments, and may have {ARGUMENTS_MAX}; split it into smaller ones",
                check.count
            ))),
            None => Ok(()),
        }
    }

    /// Checks them for a read.
    pub fn check_read(&self) -> Result<(), Failure> {
        if self.command.only_reads() {
            return self.check_limits();
        }
        Err(Failure::new(FailureKind::Refused, "ERR this command may write, so it can't be answered as a read"))
    }
}

fn check_space(space: Space) -> Result<(), Failure> {
    if space < SPACES {
        return Ok(());
    }
    Err(Failure::new(FailureKind::Refused, format!("ERR DB index is out of range: it is {space}, and below {SPACES}")))
}

fn too_big(text: String) -> Failure {
    Failure::new(FailureKind::TooBig, text)
}

/// The arguments of a command that were seen.
struct Check {
    count: usize,
    failed: Option<Failure>,
}

impl Check {
    fn argument(&mut self, what: &str, argument: &Bytes, max: usize) {
        self.count = self.count.saturating_add(1);
        let bytes = argument.len();
        if bytes > max && self.failed.is_none() {
            self.failed = Some(too_big(format!("ERR the {what} has {bytes} bytes, and may have {max}")));
        }
    }

    fn keys<'a>(&mut self, keys: impl IntoIterator<Item = &'a Bytes>) {
        keys.into_iter().for_each(|key| self.argument("key", key, KEY_BYTES_MAX));
    }

    fn fields<'a>(&mut self, fields: impl IntoIterator<Item = &'a Bytes>) {
        fields.into_iter().for_each(|field| self.argument("field", field, FIELD_BYTES_MAX));
    }

    fn values<'a>(&mut self, values: impl IntoIterator<Item = &'a Bytes>) {
        values.into_iter().for_each(|value| self.argument("value", value, VALUE_BYTES_MAX));
    }

    fn condition(&mut self, condition: &Condition) {
        if let Condition::Value(value) = condition {
            self.values([value]);
        }
    }

    fn command(&mut self, command: &KeysCommand) {
        match command {
            KeysCommand::Key(command) => self.key_command(command),
            KeysCommand::String(command) => self.string(command),
            KeysCommand::Bits(command) => self.bits(command),
            KeysCommand::Element(command) => self.element(command),
            KeysCommand::Hash(command) => self.hash(command),
            KeysCommand::Set(command) => self.set(command),
            KeysCommand::SortedSet(command) => self.sorted_set(command),
            KeysCommand::List(command) => self.list(command),
        }
    }

    fn key_command(&mut self, command: &KeyCommand) {
        match command {
            KeyCommand::Delete { keys, condition } => {
                self.keys(keys);
                self.condition(condition);
            }
            KeyCommand::Exists { keys } => self.keys(keys),
            KeyCommand::Describe { key }
            | KeyCommand::Expect { key, .. }
            | KeyCommand::Count { key, .. }
            | KeyCommand::Measure { key }
            | KeyCommand::Expire { key, .. } => self.keys([key]),
            KeyCommand::Rename { key, to, .. } | KeyCommand::Copy { key, to, .. } => self.keys([key, to]),
            KeyCommand::Scan { .. } | KeyCommand::CountAll | KeyCommand::Flush | KeyCommand::Draw { .. } => {}
        }
    }

    fn string(&mut self, command: &StringCommand) {
        match command {
            StringCommand::Set { key, value, condition, .. } => {
                self.keys([key]);
                self.values([value]);
                self.condition(condition);
            }
            StringCommand::Append { key, value }
            | StringCommand::SetRange { key, value, .. }
            | StringCommand::AddFloat { key, by: value } => {
                self.keys([key]);
                self.values([value]);
            }
            StringCommand::SetAll { strings, condition, .. } => {
                self.keys(strings.iter().map(|(key, _)| key));
                self.values(strings.iter().map(|(_, value)| value));
                self.condition(condition);
            }
            StringCommand::Get { key }
            | StringCommand::GetExpire { key, .. }
            | StringCommand::Take { key }
            | StringCommand::GetRange { key, .. }
            | StringCommand::Length { key }
            | StringCommand::Add { key, .. } => self.keys([key]),
        }
    }

    fn bits(&mut self, command: &BitCommand) {
        match command {
            BitCommand::Fields { key, steps } => {
                self.keys([key]);
                self.count = self.count.saturating_add(steps.len());
            }
            BitCommand::Count { key, .. } | BitCommand::Find { key, .. } => self.keys([key]),
            BitCommand::Combine { keys, store, .. } => self.keys(keys.iter().chain([store])),
        }
    }

    fn element(&mut self, command: &ElementCommand) {
        match command {
            ElementCommand::Remove { key, fields, .. }
            | ElementCommand::Contains { key, fields, .. }
            | ElementCommand::Expire { key, fields, .. }
            | ElementCommand::Describe { key, fields, .. } => {
                self.keys([key]);
                self.fields(fields);
            }
            ElementCommand::Scan { key, .. } | ElementCommand::Draw { key, .. } => self.keys([key]),
        }
    }

    fn hash(&mut self, command: &HashCommand) {
        match command {
            HashCommand::Set { key, fields, condition, .. } => {
                self.keys([key]);
                self.fields(fields.iter().map(|(field, _)| field));
                self.values(fields.iter().map(|(_, value)| value));
                self.condition(condition);
            }
            HashCommand::Get { key, fields }
            | HashCommand::GetExpire { key, fields, .. }
            | HashCommand::Take { key, fields } => {
                self.keys([key]);
                self.fields(fields);
            }
            HashCommand::Add { key, field, .. } => {
                self.keys([key]);
                self.fields([field]);
            }
            HashCommand::AddFloat { key, field, by } => {
                self.keys([key]);
                self.fields([field]);
                self.values([by]);
            }
        }
    }

    fn set(&mut self, command: &SetCommand) {
        match command {
            SetCommand::Add { key, members, .. } => {
                self.keys([key]);
                self.fields(members);
            }
            SetCommand::Pop { key, .. } => self.keys([key]),
            SetCommand::Move { from, to, member } => {
                self.keys([from, to]);
                self.fields([member]);
            }
            SetCommand::Combine { keys, store, .. } => self.keys(keys.iter().chain(store)),
        }
    }

    fn sorted_set(&mut self, command: &SortedSetCommand) {
        match command {
            SortedSetCommand::Add { key, members, .. } => {
                self.keys([key]);
                self.fields(members.iter().map(|(_, member)| member));
            }
            SortedSetCommand::Remove { key, members }
            | SortedSetCommand::Scores { key, members }
            | SortedSetCommand::Expire { key, members, .. }
            | SortedSetCommand::Describe { key, members } => {
                self.keys([key]);
                self.fields(members);
            }
            SortedSetCommand::Increment { key, member, .. } | SortedSetCommand::Rank { key, member, .. } => {
                self.keys([key]);
                self.fields([member]);
            }
            SortedSetCommand::StoreRange { key, to, .. } => self.keys([key, to]),
            SortedSetCommand::PopFirst { keys, .. } => self.keys(keys),
            SortedSetCommand::Combine { sources, store, .. } => {
                self.keys(sources.iter().map(|(key, _)| key).chain(store));
            }
            SortedSetCommand::Range { key, .. }
            | SortedSetCommand::Scan { key, .. }
            | SortedSetCommand::Draw { key, .. }
            | SortedSetCommand::CountRange { key, .. }
            | SortedSetCommand::RemoveRange { key, .. }
            | SortedSetCommand::Pop { key, .. } => self.keys([key]),
        }
    }

    fn list(&mut self, command: &ListCommand) {
        match command {
            ListCommand::Push { key, values, .. } => {
                self.keys([key]);
                self.values(values);
            }
            ListCommand::Move { from, to, .. } => self.keys([from, to]),
            ListCommand::Set { key, value, .. }
            | ListCommand::Find { key, value, .. }
            | ListCommand::Remove { key, value, .. } => {
                self.keys([key]);
                self.values([value]);
            }
            ListCommand::Insert { key, pivot, value, .. } => {
                self.keys([key]);
                self.values([pivot, value]);
            }
            ListCommand::PopFirst { keys, .. } => self.keys(keys),
            ListCommand::Pop { key, .. }
            | ListCommand::Index { key, .. }
            | ListCommand::Range { key, .. }
            | ListCommand::Trim { key, .. } => self.keys([key]),
        }
    }
}
