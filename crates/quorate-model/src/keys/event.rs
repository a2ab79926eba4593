//! What happens to keys, in the words of Redis' notifications of the key space. Nobody stores or sends these: a node
//! hands them to those who watch what it applies.

use std::ops::BitOr;

use bytes::Bytes;

use super::Space;

/// A change of a key that was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyChange {
    /// The space of the key.
    pub space: Space,
    /// The key.
    pub key: Bytes,
    /// What has happened to it.
    pub event: KeyEvent,
}

/// Classes of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventClasses(u16);

impl EventClasses {
    /// None of them.
    pub const NONE: Self = Self(0);
    /// All of them.
    pub const ALL: Self = Self(u16::MAX);
    /// Events of keys, whatever they hold.
    pub const GENERIC: Self = Self(1);
    /// Events of strings.
    pub const STRING: Self = Self(1 << 1);
    /// Events of lists.
    pub const LIST: Self = Self(1 << 2);
    /// Events of sets.
    pub const SET: Self = Self(1 << 3);
    /// Events of hashes.
    pub const HASH: Self = Self(1 << 4);
    /// Events of sorted sets.
    pub const SORTED_SET: Self = Self(1 << 5);
    /// Ends of keys whose time has come.
    pub const EXPIRED: Self = Self(1 << 6);
    /// Beginnings of keys.
    pub const NEW: Self = Self(1 << 7);

    /// Returns whether there are none.
    pub fn is_empty(self) -> bool {
        self == Self::NONE
    }

    /// Returns whether some of the classes are among others.
    pub fn meet(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }

    /// Returns the classes as a number.
    pub fn bits(self) -> u16 {
        self.0
    }

    /// Returns the classes that [`bits`](Self::bits) has made a number.
    pub fn from_bits(bits: u16) -> Self {
        Self(bits)
    }
}

impl BitOr for EventClasses {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Lists the events with their classes and names.
macro_rules! events {
    ($($class:ident: $($event:ident = $name:literal),+;)+) => {
        /// What has happened to a key. An event has the name that Redis gives it; those that Redis does not have are
        /// `sexpire`, `spersist` and `sexpired`, for members of sets, which only Quorate lets expire, and `zexpire`,
        /// `zpersist` and `zexpired`, for members of sorted sets.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        #[expect(missing_docs, reason = "the names say it")]
        pub enum KeyEvent {
            $($($event,)+)+
        }

        impl KeyEvent {
            /// Returns the name.
            pub fn name(self) -> &'static str {
                match self {
                    $($(Self::$event => $name,)+)+
                }
            }

            /// Returns the class.
            pub fn class(self) -> EventClasses {
                match self {
                    $($(Self::$event)|+ => EventClasses::$class,)+
                }
            }
        }
    };
}

events! {
    GENERIC: Delete = "del", Expire = "expire", Persist = "persist", RenameFrom = "rename_from",
        RenameTo = "rename_to", MoveFrom = "move_from", MoveTo = "move_to", CopyTo = "copy_to";
    STRING: Set = "set", SetRange = "setrange", SetBit = "setbit", Append = "append", Add = "incrby",
        AddFloat = "incrbyfloat";
    LIST: LeftPush = "lpush", RightPush = "rpush", LeftPop = "lpop", RightPop = "rpop", ListInsert = "linsert",
        ListSet = "lset", ListRemove = "lrem", ListTrim = "ltrim";
    SET: SetAdd = "sadd", SetRemove = "srem", SetPop = "spop", SetUnion = "sunionstore",
        SetIntersection = "sinterstore", SetDifference = "sdiffstore", SetExpire = "sexpire",
        SetPersist = "spersist", SetExpired = "sexpired";
    HASH: HashSet = "hset", HashAdd = "hincrby", HashAddFloat = "hincrbyfloat", HashRemove = "hdel",
        HashExpire = "hexpire", HashPersist = "hpersist", HashExpired = "hexpired";
    SORTED_SET: ScoreAdd = "zadd", ScoreIncrement = "zincr", ScoreRemove = "zrem", RankRangeRemove = "zremrangebyrank",
        ScoreRangeRemove = "zremrangebyscore", MemberRangeRemove = "zremrangebylex", LowestPop = "zpopmin",
        HighestPop = "zpopmax", RangeStore = "zrangestore", ScoreUnion = "zunionstore",
        ScoreIntersection = "zinterstore", ScoreDifference = "zdiffstore", ScoreExpire = "zexpire",
        ScorePersist = "zpersist", ScoreExpired = "zexpired";
    EXPIRED: Expired = "expired";
    NEW: New = "new";
}
