//! The family of the store of keys: Redis' data types. Commands hold what the caller wants, and no logic; that is in
//! `quorate-keys`.
//!
//! One command with options stands for the several names that Redis has for it; each says which these are. Whether a
//! key is missing, or a condition is not met, the reply says.

use bytes::Bytes;

mod bits;
mod check;
mod elements;
mod event;
mod generic;
mod key;
mod level;
pub mod limits;
mod lists;
mod reads;
mod reply;
mod sorted_sets;
mod strings;

pub use bits::{BitAction, BitCommand, BitInteger, BitOperation, BitRange, BitStep, BitUnit, Overflow};
pub use elements::{Collection, ElementCommand, HashCommand, SetCommand, SetOperation};
pub use event::{EventClasses, KeyChange, KeyEvent};
pub use generic::KeyCommand;
pub use key::{Kind, Order, Space, Span, Version};
pub use lists::{End, ListCommand};
pub use reply::{Change, KeyEntry, KeyInfo, KeySize, KeysReply, Page};
pub use sorted_sets::{AddOptions, Aggregate, Compare, Range, SortedSetCommand, Which};
pub use strings::StringCommand;

/// The format level since which there are keys.
pub const KEYS_LEVEL: u32 = 5;

/// The format level since which a [`ReadCheck`](crate::ReadCheck) may be a command on keys.
pub const KEY_CHECKS_LEVEL: u32 = 6;

/// The format level since which an expiry may count from the stamp of its entry.
pub const RELATIVE_LEVEL: u32 = 6;

/// The format level since which a member of a sorted set may expire by itself.
pub const MEMBER_EXPIRY_LEVEL: u32 = 7;

/// A command, and the space that it is for.
#[derive(Clone, Debug, PartialEq)]
pub struct SpaceCommand {
    /// The space, below [`limits::SPACES`].
    pub space: Space,
    /// The command.
    pub command: KeysCommand,
}

/// A command on the keys of one space.
#[derive(Clone, Debug, PartialEq)]
pub enum KeysCommand {
    /// On keys, whatever they hold.
    Key(KeyCommand),
    /// On a string.
    String(StringCommand),
    /// On the bits of strings.
    Bits(BitCommand),
    /// On the elements of a hash or a set.
    Element(ElementCommand),
    /// On a hash.
    Hash(HashCommand),
    /// On sets.
    Set(SetCommand),
    /// On a sorted set.
    SortedSet(SortedSetCommand),
    /// On lists.
    List(ListCommand),
}

/// What has to hold for a command to apply to a key, or to each of some fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// Nothing.
    #[default]
    Always,
    /// It is missing (NX).
    Missing,
    /// It exists (XX).
    Exists,
    /// It exists with this version (IFREV).
    Version(Version),
    /// It exists with this value (IFEQ).
    Value(Bytes),
}

/// What becomes of the expiry of something that is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expiry {
    /// It has none.
    #[default]
    Never,
    /// It is as before (KEEPTTL).
    Keep,
    /// It expires at this time, in nanoseconds since 1970; at once, if that has come (EXAT, PXAT).
    At(u64),
    /// It expires this many nanoseconds after the stamp of the entry (EX, PX), since [`RELATIVE_LEVEL`].
    In(u64),
}

/// What has to hold for a new expiry. No expiry is later than all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExpiryCondition {
    /// Nothing.
    #[default]
    Always,
    /// There is none (NX).
    Missing,
    /// There is one (XX).
    Exists,
    /// The new one is later (GT).
    Later,
    /// The new one is earlier (LT).
    Earlier,
}

/// Makes each kind of command a command.
macro_rules! kinds {
    ($($kind:ident($command:ty);)*) => {$(
        impl From<$command> for KeysCommand {
            fn from(command: $command) -> Self {
                Self::$kind(command)
            }
        }
    )*};
}

kinds! {
    Key(KeyCommand);
    String(StringCommand);
    Bits(BitCommand);
    Element(ElementCommand);
    Hash(HashCommand);
    Set(SetCommand);
    SortedSet(SortedSetCommand);
    List(ListCommand);
}
