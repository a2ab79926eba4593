//! Which commands only read, and which return little.

use super::{
    BitAction, BitCommand, ElementCommand, HashCommand, KeyCommand, KeysCommand, ListCommand, SetCommand,
    SortedSetCommand, StringCommand,
};

impl KeysCommand {
    /// Returns whether it changes nothing, whatever the keys are. Then it can be a [`Read`](crate::Read), too.
    pub fn only_reads(&self) -> bool {
        match self {
            Self::Key(command) => key(command),
            Self::String(command) => string(command),
            Self::Bits(command) => bits(command),
            Self::Element(command) => element(command),
            Self::Hash(command) => hash(command),
            Self::Set(command) => set(command),
            Self::SortedSet(command) => sorted_set(command),
            Self::List(command) => list(command),
        }
    }

    /// Returns whether its reply has at most [`BRIEF_REPLY_BYTES`](super::limits::BRIEF_REPLY_BYTES), whatever the keys
    /// hold, among the commands that write.
    pub fn replies_briefly(&self) -> bool {
        use {HashCommand as Hash, ListCommand as List, SetCommand as Set, SortedSetCommand as Sorted};
        match self {
            Self::Key(command) => !key(command),
            Self::String(StringCommand::Set { get, .. }) => !get,
            Self::String(StringCommand::GetExpire { .. } | StringCommand::Take { .. }) => false,
            Self::String(command) => !string(command),
            Self::Bits(command) => matches!(command, BitCommand::Combine { .. }),
            Self::Element(command) => matches!(command, ElementCommand::Remove { .. }),
            Self::Hash(command) => matches!(command, Hash::Set { .. } | Hash::Add { .. } | Hash::AddFloat { .. }),
            Self::Set(Set::Add { .. } | Set::Move { .. } | Set::Combine { store: Some(_), .. }) => true,
            Self::Set(Set::Pop { .. } | Set::Combine { .. }) => false,
            Self::SortedSet(Sorted::Pop { .. } | Sorted::PopFirst { .. } | Sorted::Expire { .. }) => false,
            Self::SortedSet(command) => !sorted_set(command),
            Self::List(List::Pop { .. } | List::PopFirst { .. } | List::Move { .. }) => false,
            Self::List(command) => !list(command),
        }
    }
}

fn key(command: &KeyCommand) -> bool {
    use KeyCommand::*;
    match command {
        Exists { .. } | Describe { .. } | Expect { .. } | Count { .. } | CountAll => true,
        Draw { .. } | Measure { .. } | Scan { .. } => true,
        Delete { .. } | Expire { .. } | Rename { .. } | Copy { .. } | Flush => false,
    }
}

fn string(command: &StringCommand) -> bool {
    use StringCommand::*;
    match command {
        Get { .. } | GetRange { .. } | Length { .. } => true,
        Set { .. } | SetAll { .. } | GetExpire { .. } | Take { .. } => false,
        Append { .. } | SetRange { .. } | Add { .. } | AddFloat { .. } => false,
    }
}

fn bits(command: &BitCommand) -> bool {
    match command {
        BitCommand::Fields { steps, .. } => steps.iter().all(|step| step.action == BitAction::Get),
        BitCommand::Count { .. } | BitCommand::Find { .. } => true,
        BitCommand::Combine { .. } => false,
    }
}

fn element(command: &ElementCommand) -> bool {
    use ElementCommand::*;
    match command {
        Contains { .. } | Scan { .. } | Describe { .. } | Draw { .. } => true,
        Remove { .. } | Expire { .. } => false,
    }
}

fn hash(command: &HashCommand) -> bool {
    use HashCommand::*;
    match command {
        Get { .. } => true,
        Set { .. } | GetExpire { .. } | Take { .. } | Add { .. } | AddFloat { .. } => false,
    }
}

fn set(command: &SetCommand) -> bool {
    match command {
        SetCommand::Combine { store, .. } => store.is_none(),
        SetCommand::Add { .. } | SetCommand::Pop { .. } | SetCommand::Move { .. } => false,
    }
}

fn sorted_set(command: &SortedSetCommand) -> bool {
    use SortedSetCommand::*;
    match command {
        Combine { store, .. } => store.is_none(),
        Scores { .. } | Rank { .. } | Range { .. } | CountRange { .. } | Scan { .. } | Draw { .. } => true,
        Describe { .. } => true,
        Add { .. } | Increment { .. } | Remove { .. } | RemoveRange { .. } | Pop { .. } => false,
        PopFirst { .. } | StoreRange { .. } | Expire { .. } => false,
    }
}

fn list(command: &ListCommand) -> bool {
    use ListCommand::*;
    match command {
        Index { .. } | Range { .. } | Find { .. } => true,
        Push { .. } | Pop { .. } | PopFirst { .. } | Move { .. } | Set { .. } => false,
        Trim { .. } | Insert { .. } | Remove { .. } => false,
    }
}
