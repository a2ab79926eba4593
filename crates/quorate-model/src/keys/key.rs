//! What there is to a key: its space, its version, what it holds; and ranges of keys.

use bytes::Bytes;

/// A key space: a "database" in the words of Redis.
pub type Space = u32;

/// The version of a key: which command of which entry changed it last. Versions rise for ever, also over deletion and
/// creation of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u64);

/// The bits of a version for the number of a command in its entry; an entry has at most 65,536.
const NUMBER_BITS: u32 = 16;

impl Version {
    /// Returns the version that the command at place `number` of the entry at `index` gives.
    pub fn new(index: u64, number: u16) -> Self {
        Self(index << NUMBER_BITS | u64::from(number))
    }
}

/// What a key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A string of bytes.
    String,
    /// A hash: values by their fields.
    Hash,
    /// A set of members.
    Set,
    /// Members in the order of their scores.
    SortedSet,
    /// A list of values.
    List,
}

/// A range: from the first bound, and below the second one; without that, to the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span<B = Bytes> {
    /// The lowest that is inside.
    pub from: B,
    /// The lowest that is above.
    pub to: Option<B>,
}

impl Span {
    /// Everything.
    pub const ALL: Self = Self { from: Bytes::new(), to: None };

    /// Returns all that starts with a prefix.
    pub fn prefix(prefix: &Bytes) -> Self {
        let kept = prefix.iter().rposition(|byte| *byte != u8::MAX).map_or(0, |last| last + 1);
        let mut to = prefix.slice(..kept).to_vec();
        let to = to.last_mut().map(|last| *last += 1).map(|()| Bytes::from(to));
        Self { from: prefix.clone(), to }
    }
}

impl<B: PartialOrd> Span<B> {
    /// Returns whether nothing can be inside.
    pub fn is_empty(&self) -> bool {
        self.to.as_ref().is_some_and(|to| *to <= self.from)
    }
}

/// Upwards or downwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// From the lowest.
    Up,
    /// From the highest.
    Down,
}
