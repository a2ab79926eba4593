//! The committed data of the engine in memory as bytes (`docs/memory-format.md`).
//!
//! # Invariants
//!
//! - No bytes make decoding panic, or allocate more than a small multiple of their number.
//! - Decoding accepts only what encoding writes. So equal data have equal bytes, and nothing is skipped.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes};
use quorate_model::codec::{decode_user, encode_user};
use quorate_model::{Applied, Archiver, Epoch, GroupId, LogId, NodeId, RequestKey, StoreFault, StoreIdentity};
use xxhash_rust::xxh3::xxh3_64;

use super::{Key, Memory, Record};
use crate::{AppliedRow, RequestPlace, RequestRecord, SessionRecord};

/// The most bytes of an encoded state.
pub const STATE_BYTES_MAX: u64 = 256 << 20;

const MAGIC: &[u8; 8] = b"QUORMEMS";

/// The version of the format; that of a state that holds users or keys of requests; and that of one whose applied row
/// names an archiver. A state says the lowest one that holds it, because older programs know only that.
const VERSION: u16 = 1;
const VERSION_2: u16 = 2;
const VERSION_3: u16 = 3;

/// Bytes of the header: the magic, the version, zeros, and the length of the records.
const HEAD_BYTES: usize = 24;

/// Bytes of zeros in the header, and of the checksum at the end.
const ZERO_BYTES: usize = 6;
const SUM_BYTES: usize = 8;

/// The tags of records.
const APPLIED: u8 = 1;
const SESSION: u8 = 2;
const OUTCOME: u8 = 3;
const REJECTION: u8 = 4;
const ROW: u8 = 5;
const USER: u8 = 6;
const REQUEST: u8 = 7;

impl Memory {
    /// Encodes the committed data. What an open transaction has changed is left out.
    ///
    /// # Errors
    ///
    /// [`StoreFault::Full`] if they take more than [`STATE_BYTES_MAX`].
    pub fn encode(&self) -> Result<Bytes, StoreFault> {
        let committed;
        let map = if self.journal.is_empty() {
            &self.map
        } else {
            let mut copy = self.clone();
            copy.undo(0);
            committed = copy.map;
            &committed
        };
        let mut out = Vec::new();
        out.put_slice(MAGIC);
        out.put_u16_le(version_of(map));
        out.put_bytes(0, ZERO_BYTES);
        // Replaced below, when it is known.
        out.put_u64_le(0);
        for (key, record) in map {
            put_record(&mut out, key, record)?;
            check_size(out.len().saturating_add(SUM_BYTES))?;
        }
        let len = out.len().saturating_sub(HEAD_BYTES) as u64;
        if let Some(place) = out.get_mut(HEAD_BYTES - size_of::<u64>()..HEAD_BYTES) {
            place.copy_from_slice(&len.to_le_bytes());
        }
        out.put_u64_le(xxh3_64(&out));
        Ok(out.into())
    }

    /// Decodes data that [`Memory::encode`] has encoded.
    ///
    /// # Errors
    ///
    /// [`StoreFault::Damaged`] for anything else, and [`StoreFault::Unsupported`] if a newer version wrote it.
    pub fn decode(bytes: &[u8]) -> Result<Self, StoreFault> {
        let (version, mut left) = records_of(bytes)?;
        let (mut map, mut by_key) = (BTreeMap::new(), Vec::new());
        while !left.is_empty() {
            let place = bytes.len().saturating_sub(left.len()).saturating_sub(SUM_BYTES);
            let unreadable = || damaged(&format!("the record at byte {place} can't be read"));
            let (key, record) = take_record(&mut left, version).ok_or_else(unreadable)?;
            let is_next = map.last_key_value().map_or(key == Key::Applied, |(last, _)| *last < key);
            if !is_next {
                return Err(damaged(&format!("the record at byte {place} is out of order")));
            }
            if let Record::Request(request) = &record {
                by_key.push((Key::RequestOf(request.key.clone(), request.place.number), Record::RequestOf));
            }
            map.insert(key, record);
        }
        if map.is_empty() {
            return Err(damaged("the applied row is missing"));
        }
        map.extend(by_key);
        if version != version_of(&map) {
            return Err(damaged("its format is not the one that its records need"));
        }
        Ok(Self { map, ..Self::default() })
    }
}

/// Returns the version of the format that data need.
fn version_of(map: &BTreeMap<Key, Record>) -> u16 {
    // The applied row is the first record; users and requests are the last ones.
    let last = map.last_key_value().map(|(key, _)| key);
    match (map.get(&Key::Applied), last) {
        (Some(Record::Applied(AppliedRow { archiver: Some(_), .. })), _) => VERSION_3,
        (_, Some(Key::User(_) | Key::RequestOf(..))) => VERSION_2,
        _ => VERSION,
    }
}

fn damaged(what: &str) -> StoreFault {
    StoreFault::Damaged(what.to_owned())
}

fn check_size(bytes: usize) -> Result<(), StoreFault> {
    if bytes as u64 <= STATE_BYTES_MAX {
        return Ok(());
    }
    Err(StoreFault::Full(format!("the state has {bytes} bytes, encoded: the limit is {STATE_BYTES_MAX}")))
}

/// Checks everything around the records, and returns the version and their bytes.
fn records_of(bytes: &[u8]) -> Result<(u16, &[u8]), StoreFault> {
    let (covered, sum) = bytes.split_last_chunk::<SUM_BYTES>().ok_or_else(|| damaged("it is too short"))?;
    let (head, records) = covered.split_first_chunk::<HEAD_BYTES>().ok_or_else(|| damaged("it is too short"))?;
    let mut head = head.as_slice();
    let missing = |_| damaged("its header is too short");
    if !head.starts_with(MAGIC) {
        return Err(damaged("it does not begin like the state of a store in memory"));
    }
    head.advance(MAGIC.len());
    if u64::from_le_bytes(*sum) != xxh3_64(covered) {
        return Err(damaged("its checksum does not match"));
    }
    let version = head.try_get_u16_le().map_err(missing)?;
    if !(VERSION..=VERSION_3).contains(&version) {
        let text = format!("their format is {version}, and it knows formats up to {VERSION_3}");
        return Err(StoreFault::Unsupported(text));
    }
    let zeros = head.split_off(..ZERO_BYTES).unwrap_or_default();
    let len = head.try_get_u64_le().map_err(missing)?;
    if zeros.iter().any(|byte| *byte != 0) || len != records.len() as u64 {
        return Err(damaged("its header does not match its length"));
    }
    Ok((version, records))
}

fn put_record(out: &mut Vec<u8>, key: &Key, record: &Record) -> Result<(), StoreFault> {
    match (key, record) {
        (Key::Applied, Record::Applied(row)) => {
            out.put_u8(APPLIED);
            put_applied_row(out, row)?;
        }
        (Key::Session(id), Record::Session(session)) => {
            out.put_u8(SESSION);
            out.put_u64_le(*id);
            out.put_u64_le(session.used);
            out.put_u64_le(session.floor);
            out.put_u64_le(session.highest);
            put_bytes(out, &session.recent)?;
        }
        (Key::Outcome(session, sequence), Record::Outcome(outcome)) => {
            out.put_u8(OUTCOME);
            out.put_u64_le(*session);
            out.put_u64_le(*sequence);
            out.put_u8(u8::from(outcome.is_some()));
            if let Some(outcome) = outcome {
                put_bytes(out, outcome)?;
            }
        }
        (Key::Rejection(index), Record::Rejection) => {
            out.put_u8(REJECTION);
            out.put_u64_le(*index);
        }
        (Key::Row(table, key), Record::Row(value)) => {
            out.put_u8(ROW);
            out.put_u8(*table);
            put_bytes(out, key)?;
            put_bytes(out, value)?;
        }
        (Key::User(_), Record::User(user)) => {
            out.put_u8(USER);
            put_bytes(out, &encode_user(user))?;
        }
        (Key::Request(_), Record::Request(request)) => {
            out.put_u8(REQUEST);
            let RequestPlace { number, low, high, used } = request.place;
            [number, low, high, used, request.entry].into_iter().for_each(|value| out.put_u64_le(value));
            out.put_slice(&request.hash);
            put_bytes(out, &request.key)?;
            put_bytes(out, &request.outcome)?;
        }
        // Decoding makes it again.
        (Key::RequestOf(..), Record::RequestOf) => {}
        _ => return Err(damaged("a record of another kind is kept under a key")),
    }
    Ok(())
}

fn put_applied_row(out: &mut Vec<u8>, row: &AppliedRow) -> Result<(), StoreFault> {
    let AppliedRow { identity, applied, now, outcome_hash, archiver } = row;
    out.put_u128_le(identity.cluster);
    out.put_u64_le(identity.epoch.0);
    out.put_u32_le(identity.group.0);
    out.put_u8(u8::from(applied.log_id.is_some()));
    if let Some(id) = &applied.log_id {
        put_log_id(out, id);
    }
    out.put_u8(u8::from(applied.membership.is_some()));
    if let Some((id, members)) = &applied.membership {
        put_log_id(out, id);
        put_bytes(out, members)?;
    }
    out.put_u32_le(applied.level);
    out.put_u8(u8::from(applied.due.is_some()));
    if let Some(due) = applied.due {
        out.put_u64_le(due);
    }
    out.put_u64_le(*now);
    out.put_u64_le(*outcome_hash);
    // The version of the format says whether there is one.
    if let Some(Archiver { node, token }) = archiver {
        out.put_u64_le(node.0);
        out.put_u64_le(*token);
    }
    Ok(())
}

fn put_log_id(out: &mut Vec<u8>, id: &LogId) {
    out.put_u64_le(id.term);
    out.put_u64_le(id.node.0);
    out.put_u64_le(id.index);
}

/// Puts the length of some bytes, and the bytes.
fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), StoreFault> {
    check_size(bytes.len())?;
    // A longer one was refused.
    out.put_u32_le(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    out.put_slice(bytes);
    Ok(())
}

/// Takes the next record off the bytes; `None` if they hold none that encoding writes.
fn take_record(left: &mut &[u8], version: u16) -> Option<(Key, Record)> {
    Some(match left.try_get_u8().ok()? {
        APPLIED => (Key::Applied, Record::Applied(take_applied_row(left, version)?)),
        SESSION => {
            let id = take_u64(left)?;
            let (used, floor, highest) = (take_u64(left)?, take_u64(left)?, take_u64(left)?);
            let recent = take_bytes(left)?.to_vec();
            (Key::Session(id), Record::Session(SessionRecord { id, used, floor, highest, recent }))
        }
        OUTCOME => {
            let key = Key::Outcome(take_u64(left)?, take_u64(left)?);
            let outcome = if take_flag(left)? { Some(take_bytes(left)?.to_vec()) } else { None };
            (key, Record::Outcome(outcome))
        }
        REJECTION => (Key::Rejection(take_u64(left)?), Record::Rejection),
        ROW => {
            let table = left.try_get_u8().ok()?;
            // Copies, because a slice would keep all of the bytes in memory.
            let key = Bytes::copy_from_slice(take_bytes(left)?);
            (Key::Row(table, key), Record::Row(Bytes::copy_from_slice(take_bytes(left)?)))
        }
        USER => {
            let user = decode_user(&Bytes::copy_from_slice(take_bytes(left)?)).ok()?;
            (Key::User(user.name.clone()), Record::User(user))
        }
        REQUEST => {
            let request = take_request(left)?;
            (Key::Request(request.place.number), Record::Request(request))
        }
        _ => return None,
    })
}

fn take_request(left: &mut &[u8]) -> Option<RequestRecord> {
    let (number, low, high, used) = (take_u64(left)?, take_u64(left)?, take_u64(left)?, take_u64(left)?);
    let entry = take_u64(left)?;
    let (hash, rest) = left.split_first_chunk::<{ RequestKey::HASH_BYTES }>()?;
    *left = rest;
    let (key, outcome) = (Bytes::copy_from_slice(take_bytes(left)?), Bytes::copy_from_slice(take_bytes(left)?));
    Some(RequestRecord { place: RequestPlace { number, low, high, used }, entry, key, hash: *hash, outcome })
}

fn take_applied_row(left: &mut &[u8], version: u16) -> Option<AppliedRow> {
    let identity = StoreIdentity {
        cluster: left.try_get_u128_le().ok()?,
        epoch: Epoch(take_u64(left)?),
        group: GroupId(left.try_get_u32_le().ok()?),
    };
    let log_id = if take_flag(left)? { Some(take_log_id(left)?) } else { None };
    let membership =
        if take_flag(left)? { Some((take_log_id(left)?, Bytes::copy_from_slice(take_bytes(left)?))) } else { None };
    let level = left.try_get_u32_le().ok()?;
    let due = if take_flag(left)? { Some(take_u64(left)?) } else { None };
    let applied = Applied { log_id, membership, level, due };
    let (now, outcome_hash) = (take_u64(left)?, take_u64(left)?);
    let archiver = if version >= VERSION_3 {
        Some(Archiver { node: NodeId(take_u64(left)?), token: take_u64(left)? })
    } else {
        None
    };
    Some(AppliedRow { identity, applied, now, outcome_hash, archiver })
}

fn take_log_id(left: &mut &[u8]) -> Option<LogId> {
    Some(LogId { term: take_u64(left)?, node: NodeId(take_u64(left)?), index: take_u64(left)? })
}

fn take_u64(left: &mut &[u8]) -> Option<u64> {
    left.try_get_u64_le().ok()
}

/// Takes whether something follows.
fn take_flag(left: &mut &[u8]) -> Option<bool> {
    match left.try_get_u8().ok()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

/// Takes a length and so many bytes.
fn take_bytes<'a>(left: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(left.try_get_u32_le().ok()?).ok()?;
    let (bytes, rest) = left.split_at_checked(len)?;
    *left = rest;
    Some(bytes)
}

#[cfg(test)]
mod tests;
