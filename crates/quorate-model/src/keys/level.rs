//! Which format level a command needs.

use super::{
    ElementCommand, Expiry, HashCommand, KEYS_LEVEL, KeyCommand, KeysCommand, MEMBER_EXPIRY_LEVEL, RELATIVE_LEVEL,
    SetCommand, SortedSetCommand, SpaceCommand, StringCommand,
};

impl SpaceCommand {
    /// Returns the format level that it needs.
    pub fn level(&self) -> u32 {
        match &self.command {
            KeysCommand::SortedSet(SortedSetCommand::Expire { .. } | SortedSetCommand::Describe { .. }) => {
                MEMBER_EXPIRY_LEVEL
            }
            command if has_relative_expiry(command) => RELATIVE_LEVEL,
            _ => KEYS_LEVEL,
        }
    }
}

fn has_relative_expiry(command: &KeysCommand) -> bool {
    match command {
        KeysCommand::Key(KeyCommand::Expire { relative, .. })
        | KeysCommand::String(StringCommand::GetExpire { relative, .. })
        | KeysCommand::Element(ElementCommand::Expire { relative, .. })
        | KeysCommand::Hash(HashCommand::GetExpire { relative, .. }) => *relative,
        KeysCommand::String(StringCommand::Set { expiry, .. } | StringCommand::SetAll { expiry, .. })
        | KeysCommand::Hash(HashCommand::Set { expiry, .. })
        | KeysCommand::Set(SetCommand::Add { expiry, .. }) => matches!(expiry, Expiry::In(_)),
        KeysCommand::Key(_) | KeysCommand::String(_) | KeysCommand::Bits(_) | KeysCommand::Element(_) => false,
        KeysCommand::Hash(_) | KeysCommand::Set(_) | KeysCommand::SortedSet(_) | KeysCommand::List(_) => false,
    }
}
