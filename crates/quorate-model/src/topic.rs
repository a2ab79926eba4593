//! What waiters wait for.

/// What a waiter waits for, and what an entry touches, for instance a key. It is a hint, never a result: a waiter that
/// is woken has to look, and topics that differ may have the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Topic(pub u64);

impl Topic {
    /// The topic of all events. An event is for everyone, so an entry that touches this topic wakes all of its waiters;
    /// for other topics it wakes one.
    pub const EVENTS: Self = Self(0x0071_756f_7261_7465);
}
