//! What waiters wait for.

/// What a waiter waits for, and what an entry touches, for instance a key. It is a hint, never a result: a waiter that
/// is woken has to look, and topics that differ may have the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Topic(pub u64);

impl Topic {
    /// The topic of all events.
    pub const EVENTS: Self = Self(0x0071_756f_7261_7465);

    /// Returns the topic of those who watch this one. An entry that touches this one wakes one of its own waiters, who
    /// take turns, and all of those who watch it.
    #[must_use]
    pub fn watched(self) -> Self {
        /// Any number that is not small.
        const DISTANCE: u64 = 0x9e37_79b9_7f4a_7c15;
        Self(self.0.wrapping_add(DISTANCE))
    }
}
