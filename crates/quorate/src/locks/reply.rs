//! Replies to commands on locks, as the types that callers ask for.

use quorate_model::keys::Page;
use quorate_model::locks::{Lease, LockInfo, LocksReply, Token};

/// A type that a reply to a command on locks can be read as.
pub trait FromLocksReply: Sized {
    /// Converts a reply; `None` if it is of another kind.
    fn from_reply(reply: LocksReply) -> Option<Self>;
}

impl FromLocksReply for LocksReply {
    fn from_reply(reply: LocksReply) -> Option<Self> {
        Some(reply)
    }
}

/// Whether something was ended.
impl FromLocksReply for bool {
    fn from_reply(reply: LocksReply) -> Option<Self> {
        match reply {
            LocksReply::Released(_) | LocksReply::Withdrawn => Some(true),
            LocksReply::Missing => Some(false),
            _ => None,
        }
    }
}

impl FromLocksReply for Lease {
    fn from_reply(reply: LocksReply) -> Option<Self> {
        if let LocksReply::Held(lease) = reply { Some(lease) } else { None }
    }
}

impl FromLocksReply for Vec<Token> {
    fn from_reply(reply: LocksReply) -> Option<Self> {
        if let LocksReply::Forced(tokens) = reply { Some(tokens) } else { None }
    }
}

impl FromLocksReply for Option<LockInfo> {
    fn from_reply(reply: LocksReply) -> Option<Self> {
        match reply {
            LocksReply::Lock(lock) => Some(Some(lock)),
            LocksReply::Missing => Some(None),
            _ => None,
        }
    }
}

impl FromLocksReply for Page<LockInfo> {
    fn from_reply(reply: LocksReply) -> Option<Self> {
        if let LocksReply::Locks(page) = reply { Some(page) } else { None }
    }
}
