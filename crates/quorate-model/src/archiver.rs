//! Which node writes the archive of its cluster in object storage: at most one does, and an entry decides which one.
//!
//! Invariant: the token of an archiver is the index of the entry that appointed it. So of two archivers, the later one
//! has the higher token.

use crate::NodeId;

/// The format level since which an archiver can be appointed.
pub const ARCHIVER_LEVEL: u32 = 4;

/// The node that writes the archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Archiver {
    /// The node.
    pub node: NodeId,
    /// The index of the entry that appointed it.
    pub token: u64,
}

impl Archiver {
    /// Returns the token of the present archiver, or 0 if there is none.
    pub fn token_of(present: Option<Self>) -> u64 {
        present.map_or(0, |archiver| archiver.token)
    }
}

/// Appoints an archiver, unless somebody else has done so in the meantime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appointment {
    /// The node that becomes the archiver; `None` if nobody is to be.
    pub node: Option<NodeId>,
    /// The token of the archiver that it replaces, or 0 if there is to be none yet. With another token the command
    /// changes nothing: two leaders that both appoint do not undo each other's decision.
    pub expected: u64,
}

impl Appointment {
    /// Returns the archiver after this appointment by the entry at `index`.
    ///
    /// # Errors
    ///
    /// The present archiver if it is not the expected one. It stays.
    pub fn replace(self, present: Option<Archiver>, index: u64) -> Result<Option<Archiver>, Option<Archiver>> {
        if self.expected != Archiver::token_of(present) {
            return Err(present);
        }
        Ok(self.node.map(|node| Archiver { node, token: index }))
    }
}
