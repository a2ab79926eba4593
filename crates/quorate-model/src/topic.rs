//! What waiters wait for.

/// What a waiter waits for, and what an entry touches, for instance a key. It is a hint, never a result: a waiter that
/// is woken has to look, and topics that differ may have the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Topic(pub u64);
