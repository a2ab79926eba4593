//! Runs commands by their families.

use quorate_model::keys::{KeysCommand, KeysReply};

use crate::keys::Keys;
use crate::limits::COMMAND_STEPS;
use crate::tables::Tables;

impl<T: Tables> Keys<'_, T> {
    /// Runs a command.
    ///
    /// # Errors
    ///
    /// A [`KeysError`](crate::KeysError), if the command failed; then it has written nothing. Another error if the
    /// tables are in trouble; then it may have done a part of its work, which the caller undoes.
    pub fn run(&mut self, command: &KeysCommand) -> Result<KeysReply, T::Error> {
        self.context.charge(COMMAND_STEPS)?;
        match command {
            KeysCommand::Key(command) => self.run_key(command),
            KeysCommand::String(command) => self.run_string(command),
            KeysCommand::Bits(command) => self.run_bits(command),
            KeysCommand::Element(command) => self.run_element(command),
            KeysCommand::Hash(command) => self.run_hash(command),
            KeysCommand::Set(command) => self.run_set(command),
            KeysCommand::SortedSet(command) => self.run_sorted_set(command),
            KeysCommand::List(command) => self.run_list(command),
        }
    }
}
