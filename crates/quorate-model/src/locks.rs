//! The family of the store of locks: leases by the cluster's time, first come first served, with fencing tokens.
//! Commands hold what the caller wants, and no logic; that is in `quorate-locks`.
//!
//! A lock has a number of permits; with one it is a mutex, with more a semaphore. It exists as long as somebody holds a
//! permit or waits for one. A holder is whatever the caller names so. All durations are in nanoseconds.

use bytes::Bytes;

mod check;
pub mod limits;

use crate::keys::{Page, Span};

/// The format level since which there are locks.
pub const LOCKS_LEVEL: u32 = 6;

/// A fencing token: the number of a grant. Tokens of all locks rise for ever, also over the end of leases, another
/// leader and a restore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// The bits of a token for the number of a grant since an entry.
const NUMBER_BITS: u32 = 16;

impl Token {
    /// Returns the first token that the entry at `index` may give.
    pub fn first(index: u64) -> Self {
        Self(index << NUMBER_BITS)
    }
}

/// A command on locks.
#[derive(Clone, Debug, PartialEq)]
pub enum LocksCommand {
    /// Takes a permit of a lock ([`LocksReply::Held`]). If no permit is free, the holder waits for one
    /// ([`LocksReply::Waiting`]) if `wait` says for how long; without `wait` the reply is [`LocksReply::Busy`]. A
    /// holder that has a permit already keeps it with its token, and its lease begins anew. A holder that waits already
    /// keeps its place, and its wait begins anew.
    Acquire {
        /// The lock.
        name: Bytes,
        /// Who is to hold it.
        holder: Bytes,
        /// How long the lease lasts: from this entry if it is granted at once, or else from the entry that grants it.
        ttl: u64,
        /// How many may hold the lock at a time; the same for all.
        permits: u64,
        /// How long the wait lasts unless this command is sent again.
        wait: Option<u64>,
        /// What others may read of the holder.
        note: Bytes,
    },
    /// Begins the lease of a holder anew: [`LocksReply::Held`] or [`LocksReply::Missing`].
    Renew {
        /// The lock.
        name: Bytes,
        /// The holder.
        holder: Bytes,
        /// The token of its grant.
        token: Token,
        /// How long the lease lasts from this entry.
        ttl: u64,
    },
    /// Gives a permit back, or ends a wait: [`LocksReply::Released`], [`LocksReply::Withdrawn`] or
    /// [`LocksReply::Missing`].
    Release {
        /// The lock.
        name: Bytes,
        /// The holder.
        holder: Bytes,
    },
    /// Ends a wait: [`LocksReply::Withdrawn`] or [`LocksReply::Missing`]; or [`LocksReply::Held`] if it has ended with
    /// a grant.
    Withdraw {
        /// The lock.
        name: Bytes,
        /// Who waits.
        holder: Bytes,
    },
    /// Takes permits from their holders: [`LocksReply::Forced`].
    Force {
        /// The lock.
        name: Bytes,
        /// The token of the grant that ends; without it, all of the lock end.
        token: Option<Token>,
    },
    /// Fails with [`FailureKind::NotHeld`](crate::FailureKind::NotHeld) unless the lock is held with this token:
    /// [`LocksReply::Held`].
    Expect {
        /// The lock.
        name: Bytes,
        /// The token of the grant.
        token: Token,
    },
    /// Returns a lock: [`LocksReply::Lock`] or [`LocksReply::Missing`].
    Inspect {
        /// The lock.
        name: Bytes,
    },
    /// Returns locks in the order of their names: [`LocksReply::Locks`].
    List {
        /// The names.
        names: Span,
        /// The most locks of the reply.
        limit: u64,
    },
}

/// The reply to a [`LocksCommand`]. Times that are left count from the entry, or from the read.
#[derive(Clone, Debug, PartialEq)]
pub enum LocksReply {
    /// The holder has a permit.
    Held(Lease),
    /// The holder waits for one.
    Waiting(Wait),
    /// All permits are held; this is the lease that ends first.
    Busy(Lease),
    /// All permits are held, and as many wait as may.
    Full(Lease),
    /// The lock has this many permits as long as somebody holds it or waits for it.
    OtherPermits(u64),
    /// The permit was given back.
    Released(Lease),
    /// The wait has ended.
    Withdrawn,
    /// The grants with these tokens have ended.
    Forced(Vec<Token>),
    /// The holder has no permit, or nobody has one.
    Missing,
    /// A lock.
    Lock(LockInfo),
    /// Some locks.
    Locks(Page<LockInfo>),
}

/// A grant that lasts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// Its token.
    pub token: Token,
    /// How long it lasts.
    pub left: u64,
}

/// A wait that lasts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// How many wait before this one.
    pub ahead: u64,
    /// How long it lasts.
    pub left: u64,
}

/// What there is to know of a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockInfo {
    /// Its name.
    pub name: Bytes,
    /// How many may hold it at a time.
    pub permits: u64,
    /// Who holds it, in the order of their tokens.
    pub holders: Vec<Claim>,
    /// Who waits for it, in the order in which they came. If a permit is free, the next entry grants it.
    pub waiters: Vec<Claim>,
}

/// A permit that is held, or a wait for one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// Who holds it or waits for it.
    pub holder: Bytes,
    /// The token; of a wait, the number that gives its place.
    pub token: Token,
    /// How long the lease or the wait lasts.
    pub left: u64,
    /// What the holder has said of itself.
    pub note: Bytes,
}

impl LocksCommand {
    /// Returns whether it changes nothing.
    pub fn only_reads(&self) -> bool {
        matches!(self, Self::Expect { .. } | Self::Inspect { .. } | Self::List { .. })
    }

    /// Returns the lock that it is for, if it is for one.
    pub fn name(&self) -> Option<&Bytes> {
        match self {
            Self::Acquire { name, .. }
            | Self::Renew { name, .. }
            | Self::Release { name, .. }
            | Self::Withdraw { name, .. }
            | Self::Force { name, .. }
            | Self::Expect { name, .. }
            | Self::Inspect { name } => Some(name),
            Self::List { .. } => None,
        }
    }
}
