//! The pieces of an image as bytes (docs/image-format.md).
//!
//! Invariant: no input makes decoding panic or allocate more than [`PIECE_BLOCKS_MAX`] blocks.

use bytes::{Buf, BufMut, Bytes};
use quorate_model::{Epoch, GroupId, LogId, NodeId, StoreIdentity};

use super::{IMAGE_BYTES_MAX, PIECE_BLOCKS_MAX};
use crate::vfs::marks::BLOCK;

/// The version of the format, the first byte of each piece.
const VERSION: u8 = 1;

const START: u8 = 1;
const BLOCKS: u8 = 2;
const END: u8 = 3;

/// Bytes of the checksum at the end of a piece.
const SUM_BYTES: usize = 4;

/// Bytes of a run: its first block and its count.
const RUN_BYTES: usize = 12;

/// The compression level of zstd: fast, and effective enough.
const ZSTD_LEVEL: i32 = 1;

/// One piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// The first piece.
    Start(StoreIdentity),
    /// Blocks of the file.
    Blocks(Runs),
    /// The last piece.
    End(End),
}

/// Blocks with their content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Runs {
    /// The first block and the count of each run.
    pub(super) runs: Vec<(u64, u32)>,
    /// The contents of all runs, one after the other.
    pub(super) bytes: Vec<u8>,
}

/// What the file must be after the last piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    /// Bytes of the file.
    pub(super) len: u64,
    /// The digest of its blocks.
    pub(super) digest: u128,
    /// The last applied entry in it.
    pub(super) log_id: Option<LogId>,
}

impl Piece {
    pub(super) fn encode(&self) -> Result<Bytes, String> {
        let mut out = vec![VERSION];
        match self {
            Self::Start(identity) => {
                out.put_u8(START);
                out.put_u128_le(identity.cluster);
                out.put_u64_le(identity.epoch.0);
                out.put_u32_le(identity.group.0);
            }
            Self::Blocks(blocks) => {
                out.put_u8(BLOCKS);
                out.put_u32_le(u32::try_from(blocks.runs.len()).map_err(|error| error.to_string())?);
                for (first, count) in &blocks.runs {
                    out.put_u64_le(*first);
                    out.put_u32_le(*count);
                }
                let packed = zstd::bulk::compress(&blocks.bytes, ZSTD_LEVEL).map_err(|error| error.to_string())?;
                out.extend_from_slice(&packed);
            }
            Self::End(end) => {
                out.put_u8(END);
                out.put_u64_le(end.len);
                out.put_u128_le(end.digest);
                out.put_u8(u8::from(end.log_id.is_some()));
                let id = end.log_id.unwrap_or_default();
                out.put_u64_le(id.term);
                out.put_u64_le(id.node.0);
                out.put_u64_le(id.index);
            }
        }
        out.put_u32_le(crc32c::crc32c(&out));
        Ok(out.into())
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let (body, mut sum) = bytes.split_at_checked(bytes.len().saturating_sub(SUM_BYTES)).ok_or("too short")?;
        if sum.try_get_u32_le() != Ok(crc32c::crc32c(body)) {
            return Err("a checksum does not match".to_owned());
        }
        let mut body = body;
        let piece = decode_body(&mut body).map_err(|error| error.to_string())??;
        if body.is_empty() { Ok(piece) } else { Err("bytes follow the end of a piece".to_owned()) }
    }
}

fn decode_body(body: &mut &[u8]) -> Result<Result<Piece, String>, bytes::TryGetError> {
    let version = body.try_get_u8()?;
    if version != VERSION {
        return Ok(Err(format!(
            "images of version {version} are not supported here; install the version that the other nodes run"
        )));
    }
    Ok(match body.try_get_u8()? {
        START => Ok(Piece::Start(StoreIdentity {
            cluster: body.try_get_u128_le()?,
            epoch: Epoch(body.try_get_u64_le()?),
            group: GroupId(body.try_get_u32_le()?),
        })),
        BLOCKS => decode_runs(body)?.map(Piece::Blocks),
        END => Ok(Piece::End(End {
            len: body.try_get_u64_le()?,
            digest: body.try_get_u128_le()?,
            log_id: {
                let is_there = body.try_get_u8()? != 0;
                let (term, node, index) = (body.try_get_u64_le()?, body.try_get_u64_le()?, body.try_get_u64_le()?);
                is_there.then_some(LogId { term, node: NodeId(node), index })
            },
        })),
        kind => {
            Err(format!("pieces of kind {kind} are not supported here; install the version that the other nodes run"))
        }
    })
}

fn decode_runs(body: &mut &[u8]) -> Result<Result<Runs, String>, bytes::TryGetError> {
    let count = body.try_get_u32_le()?;
    let mut runs = Vec::new();
    let mut blocks = 0_u64;
    for _ in 0..count {
        if body.len() < RUN_BYTES || blocks >= PIECE_BLOCKS_MAX {
            return Ok(Err("more blocks than a piece may hold".to_owned()));
        }
        let (first, count) = (body.get_u64_le(), body.get_u32_le());
        if first.saturating_add(u64::from(count)) > IMAGE_BYTES_MAX / BLOCK {
            return Ok(Err(format!("block {first} lies beyond the largest database, {IMAGE_BYTES_MAX} bytes")));
        }
        blocks = blocks.saturating_add(u64::from(count));
        runs.push((first, count));
    }
    if blocks > PIECE_BLOCKS_MAX {
        return Ok(Err("more blocks than a piece may hold".to_owned()));
    }
    let len = usize::try_from(blocks.saturating_mul(BLOCK)).unwrap_or(usize::MAX);
    let bytes = zstd::bulk::decompress(std::mem::take(body), len).map_err(|error| error.to_string());
    Ok(bytes.and_then(|bytes| {
        let is_whole = bytes.len() == len;
        is_whole.then_some(Runs { runs, bytes }).ok_or_else(|| "blocks are missing in a piece".to_owned())
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use super::*;
    use proptest::prelude::*;

    fn pieces() -> Vec<Piece> {
        let identity = StoreIdentity { cluster: 1 << 100, epoch: Epoch(2), group: GroupId(3) };
        let log_id = Some(LogId { term: 4, node: NodeId(5), index: 6 });
        let bytes = (0..3 * 4096_u32).map(|at| (at % 253) as u8).collect();
        vec![
            Piece::Start(identity),
            Piece::Blocks(Runs { runs: vec![(7, 1), (1000, 2)], bytes }),
            Piece::End(End { len: 8192, digest: 1 << 127, log_id }),
            Piece::End(End { len: 0, digest: 9, log_id: None }),
        ]
    }

    #[test]
    fn pieces_decode_and_damage_is_detected() {
        for piece in pieces() {
            let bytes = piece.encode().unwrap();
            assert_eq!(Piece::decode(&bytes), Ok(piece));
            for at in 0..bytes.len() {
                let mut damaged = bytes.to_vec();
                damaged[at] ^= 0x10;
                assert!(Piece::decode(&damaged).is_err());
                assert!(Piece::decode(&bytes[..at]).is_err());
            }
        }
    }

    /// Golden bytes: a change here is a change of the format.
    #[test]
    fn the_format_is_pinned() {
        let hex = |piece: &Piece| piece.encode().unwrap().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let pieces = pieces();
        assert_eq!(hex(&pieces[0]), include_str!("../../tests/golden/image-start.hex").trim());
        assert_eq!(hex(&pieces[2]), include_str!("../../tests/golden/image-end.hex").trim());
        let golden = include_str!("../../tests/golden/image-blocks.hex").trim();
        let bytes: Vec<u8> =
            (0..golden.len()).step_by(2).map(|at| u8::from_str_radix(&golden[at..at + 2], 16).unwrap()).collect();
        assert_eq!(Piece::decode(&bytes).unwrap(), pieces[1]);
    }

    proptest! {
        #[test]
        fn no_bytes_make_decoding_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..400), kind in 0_u8..5) {
            let _ = Piece::decode(&bytes);
            bytes.splice(0..0, [VERSION, kind]);
            let sum = crc32c::crc32c(&bytes);
            bytes.extend(sum.to_le_bytes());
            let _ = Piece::decode(&bytes);
        }
    }
}
