//! Records: the elements of frames and of the state in a segment's header.
//!
//! Layout, little-endian: kind `u8`, flag `u8`, zero `u16`, group `u32`, term `u64`, node `u64`, index `u64`, length of
//! the bytes `u32`, the bytes. Fields that a kind does not use are zero.

use bytes::{Buf, BufMut};
use quorate_model::{GroupId, LogId, NodeId};

/// The length of a record without its bytes.
pub(crate) const RECORD_HEADER: usize = 36;

/// The kind of a record. The numbers are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// An entry of a group's log.
    Entry = 1,
    /// A group's vote.
    Vote = 2,
    /// The id up to which a group is known to be committed.
    Committed = 3,
    /// The log ends with this id; with the flag, it holds nothing.
    Truncate = 4,
    /// The log begins after this id.
    Purge = 5,
    /// The node's identity.
    Identity = 6,
    /// The kernel's boot id under which the log was written or accepted; empty if it can't be read.
    Boot = 7,
    /// The log was closed cleanly; this is its last frame. With the flag, a restart of the machine was not yet
    /// accepted.
    Closed = 8,
    /// The last id of a group's log. Used only in headers.
    Last = 9,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        use Kind::{Boot, Closed, Committed, Entry, Identity, Last, Purge, Truncate, Vote};
        let all = [Entry, Vote, Committed, Truncate, Purge, Identity, Boot, Closed, Last];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// A record with borrowed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) kind: Kind,
    pub(crate) flag: bool,
    pub(crate) group: GroupId,
    pub(crate) id: LogId,
    pub(crate) bytes: &'a [u8],
}

impl<'a> Record<'a> {
    /// A record with these fields only.
    pub(crate) fn plain(kind: Kind, group: GroupId, id: LogId) -> Self {
        Self { kind, flag: false, group, id, bytes: &[] }
    }

    /// A record without a log id.
    pub(crate) fn bytes(kind: Kind, group: GroupId, bytes: &'a [u8]) -> Self {
        Self { kind, flag: false, group, id: LogId::default(), bytes }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(self.kind as u8);
        out.put_u8(u8::from(self.flag));
        out.put_u16_le(0);
        out.put_u32_le(self.group.0);
        out.put_u64_le(self.id.term);
        out.put_u64_le(self.id.node.0);
        out.put_u64_le(self.id.index);
        // Accepted records are far shorter than 4 GiB.
        out.put_u32_le(u32::try_from(self.bytes.len()).unwrap_or(u32::MAX));
        out.put_slice(self.bytes);
    }

    fn decode(input: &mut &'a [u8]) -> Option<Self> {
        let kind = Kind::from_byte(input.try_get_u8().ok()?)?;
        let flag = match input.try_get_u8().ok()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        if input.try_get_u16_le().ok()? != 0 {
            return None;
        }
        let group = GroupId(input.try_get_u32_le().ok()?);
        let term = input.try_get_u64_le().ok()?;
        let node = NodeId(input.try_get_u64_le().ok()?);
        let index = input.try_get_u64_le().ok()?;
        let len = usize::try_from(input.try_get_u32_le().ok()?).ok()?;
        let (bytes, rest) = input.split_at_checked(len)?;
        *input = rest;
        Some(Self { kind, flag, group, id: LogId { term, node, index }, bytes })
    }
}

/// The records of a body, each with the offset of its bytes. Iteration ends with one `Err` at the first unknown record.
#[derive(Debug)]
pub(crate) struct Records<'a> {
    body: &'a [u8],
    rest: &'a [u8],
}

/// A record that can't be decoded although its checksum is right: a later version wrote it.
#[derive(Debug)]
pub(crate) struct NotUnderstood;

impl<'a> Records<'a> {
    pub(crate) fn new(body: &'a [u8]) -> Self {
        Self { body, rest: body }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<(Record<'a>, u32), NotUnderstood>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let at = self.body.len() - self.rest.len() + RECORD_HEADER;
        match (Record::decode(&mut self.rest), u32::try_from(at)) {
            (Some(record), Ok(at)) => Some(Ok((record, at))),
            _ => {
                self.rest = &[];
                Some(Err(NotUnderstood))
            }
        }
    }
}
