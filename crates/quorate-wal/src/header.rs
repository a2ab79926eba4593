//! The header of a segment: its epoch, its position in the log, and the state that all earlier frames have produced.

use bytes::{Buf, BufMut};

use crate::frame::SegmentEpoch;
use crate::options::PAGE;
use crate::record::{NotUnderstood, Records};
use crate::state::LogState;

/// The length of a header without its state.
pub(crate) const HEADER_FIXED: usize = 64;
/// The offset of the checksum. It covers the bytes before it, and the state.
const CRC_AT: usize = 60;
const MAGIC: &[u8; 8] = b"QUORWALS";
const VERSION: u16 = 1;
/// The lowest format version that this version of Quorate does not know.
pub(crate) const NEXT_VERSION: u32 = 2;
/// The maximum length of a header: enough for the votes and ids of some 100,000 groups.
pub(crate) const MAX_HEADER_BYTES: usize = 64 << 20;

/// The header of a segment.
#[derive(Clone, Debug)]
pub(crate) struct SegmentHeader {
    pub(crate) epoch: SegmentEpoch,
    /// The sequence of the first frame of this segment. Frames in earlier segments with this or a higher sequence are
    /// ignored.
    pub(crate) first_sequence: u64,
    /// The highest sequence that was known to be durable when this header was written.
    pub(crate) durable: u64,
    /// The state that all frames before `first_sequence` have produced.
    pub(crate) state: LogState,
}

/// The fixed part of a header, not yet verified.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Preamble {
    state_len: u32,
}

/// The reason why bytes are not a valid header.
#[derive(Debug)]
pub(crate) enum NoHeader {
    /// They never were one, or they are torn or damaged.
    Invalid,
    /// A later version wrote them.
    Version(u32),
}

impl From<NotUnderstood> for NoHeader {
    fn from(_: NotUnderstood) -> Self {
        Self::Version(NEXT_VERSION)
    }
}

impl SegmentHeader {
    /// The header's bytes, padded to whole pages.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; HEADER_FIXED];
        let count = self.state.encode(&mut out);
        let state_len = out.len() - HEADER_FIXED;
        let mut fixed = Vec::with_capacity(HEADER_FIXED);
        fixed.put_slice(MAGIC);
        fixed.put_u16_le(VERSION);
        fixed.put_u16_le(0);
        fixed.put_u32_le(self.epoch.ordinal);
        fixed.put_u32_le(self.epoch.nonce);
        fixed.put_u32_le(u32::try_from(state_len).unwrap_or(u32::MAX));
        fixed.put_u64_le(self.first_sequence);
        fixed.put_u64_le(self.durable);
        fixed.put_u32_le(count);
        fixed.resize(CRC_AT, 0);
        let crc = self.epoch.checksum(&[&fixed, out.get(HEADER_FIXED..).unwrap_or_default()]);
        fixed.put_u32_le(crc);
        out.splice(..HEADER_FIXED, fixed);
        out.resize(out.len().next_multiple_of(usize::try_from(PAGE).unwrap_or(1)), 0);
        out
    }

    /// Parses and verifies a header. `bytes` must hold all of it.
    pub(crate) fn decode(bytes: &[u8], ordinal: u32) -> Result<Self, NoHeader> {
        Preamble::decode(bytes).ok_or(NoHeader::Invalid)?;
        Self::parse(bytes, ordinal).ok_or(NoHeader::Invalid)?
    }

    fn parse(bytes: &[u8], ordinal: u32) -> Option<Result<Self, NoHeader>> {
        let mut input = bytes.get(MAGIC.len() + 4..)?;
        let epoch = SegmentEpoch { ordinal: input.try_get_u32_le().ok()?, nonce: input.try_get_u32_le().ok()? };
        let state_len = usize::try_from(input.try_get_u32_le().ok()?).ok()?;
        let version = bytes.get(MAGIC.len()..)?.try_get_u16_le().ok()?;
        let first_sequence = input.try_get_u64_le().ok()?;
        let durable = input.try_get_u64_le().ok()?;
        let state = bytes.get(HEADER_FIXED..HEADER_FIXED.checked_add(state_len)?)?;
        let crc = epoch.checksum(&[bytes.get(..CRC_AT)?, state]);
        if bytes.get(CRC_AT..HEADER_FIXED)? != crc.to_le_bytes() || epoch.ordinal != ordinal {
            return None;
        }
        if version != VERSION {
            return Some(Err(NoHeader::Version(version.into())));
        }
        let mut header = Self { epoch, first_sequence, durable, state: LogState::default() };
        for record in Records::new(state) {
            match record {
                Ok((record, _)) => header.state.adopt(&record),
                Err(error) => return Some(Err(error.into())),
            }
        }
        Some(Ok(header))
    }
}

impl Preamble {
    /// Parses the fixed part. Its layout is the same in all versions, so that damage can be distinguished from a later
    /// version.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let state_len = bytes.strip_prefix(MAGIC)?.get(12..)?.try_get_u32_le().ok()?;
        (usize::try_from(state_len).ok()? <= MAX_HEADER_BYTES).then_some(Self { state_len })
    }

    /// The length of the header, before and after padding.
    pub(crate) fn lengths(self) -> (usize, u64) {
        let len = HEADER_FIXED + usize::try_from(self.state_len).unwrap_or(usize::MAX);
        (len, (len as u64).next_multiple_of(PAGE))
    }
}
