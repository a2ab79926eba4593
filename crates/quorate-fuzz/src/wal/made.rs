//! Segments whose content the fuzzer chooses: mostly in order, in some places not.

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes};

use crate::input::Input;

const PAGE: usize = 4096;
const ALIGN: usize = 8;
/// The offset of the checksum in the header of a segment or a frame. It covers the bytes before it.
const CRC_AT: usize = 60;
const SEGMENTS_MAX: u8 = 3;
const FRAMES_MAX: u8 = 5;
const RECORDS_MAX: u8 = 5;
const GROUPS: u8 = 3;

const ENTRY: u8 = 1;
const VOTE: u8 = 2;
const COMMITTED: u8 = 3;
const TRUNCATE: u8 = 4;
const PURGE: u8 = 5;
const IDENTITY: u8 = 6;
const BOOT: u8 = 7;
const LAST: u8 = 9;

/// Assembled segments, and the entries in their whole frames.
pub struct Made {
    /// The segments with their ordinals.
    pub segments: Vec<(u32, Vec<u8>)>,
    /// The group, index and bytes of each entry.
    pub entries: Vec<(u32, u64, Bytes)>,
    state: State,
    /// The sequence number of the last frame.
    sequence: u64,
}

/// The state that results from the records so far.
#[derive(Default)]
struct State {
    groups: BTreeMap<u32, Group>,
    identity: Option<Bytes>,
}

#[derive(Clone, Default)]
struct Group {
    vote: Option<Bytes>,
    floor: Option<Id>,
    last: Option<Id>,
    committed: Option<Id>,
}

/// Term, node and index.
type Id = (u64, u64, u64);

struct Record {
    kind: u8,
    flag: u8,
    group: u32,
    id: Id,
    bytes: Bytes,
}

impl Record {
    fn new(kind: u8, group: u32, id: Option<Id>, bytes: Option<Bytes>) -> Self {
        Self { kind, flag: 0, group, id: id.unwrap_or_default(), bytes: bytes.unwrap_or_default() }
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend([self.kind, self.flag, 0, 0]);
        out.put_u32_le(self.group);
        for number in [self.id.0, self.id.1, self.id.2] {
            out.put_u64_le(number);
        }
        out.put_u32_le(u32::try_from(self.bytes.len()).unwrap_or(u32::MAX));
        out.extend_from_slice(&self.bytes);
    }
}

impl State {
    fn apply(&mut self, record: &Record) {
        let group = self.groups.entry(record.group).or_default();
        let id = Some(record.id);
        match record.kind {
            ENTRY | LAST => group.last = id,
            TRUNCATE => group.last = id.filter(|_| record.flag == 0),
            PURGE => {
                let index = |id: Option<Id>| id.map(|id| id.2);
                group.floor = if index(group.floor) < index(id) { id } else { group.floor };
                group.last = if index(group.last) <= index(id) { id } else { group.last };
            }
            COMMITTED => group.committed = id,
            VOTE => group.vote = Some(record.bytes.clone()),
            IDENTITY => self.identity = Some(record.bytes.clone()),
            _ => {}
        }
    }

    fn records(&self) -> Vec<Record> {
        let mut records = vec![Record::new(BOOT, 0, None, Some(Bytes::from_static(b"boot")))];
        records.extend(self.identity.clone().map(|bytes| Record::new(IDENTITY, 0, None, Some(bytes))));
        for (number, group) in &self.groups {
            records.extend(group.vote.clone().map(|bytes| Record::new(VOTE, *number, None, Some(bytes))));
            for (kind, id) in [(PURGE, group.floor), (LAST, group.last), (COMMITTED, group.committed)] {
                records.extend(id.map(|id| Record::new(kind, *number, Some(id), None)));
            }
        }
        records
    }
}

impl Made {
    pub fn of(input: &mut Input<'_>) -> Self {
        let mut made = Self { segments: Vec::new(), entries: Vec::new(), state: State::default(), sequence: 0 };
        let mut ordinal = u32::from(input.u8() % 3) + 1;
        // The first header may declare state of an earlier part of the log.
        let mut records = if input.rarely() { made.drawn(input) } else { made.state.records() };
        for record in &records {
            made.state.apply(record);
        }
        for _ in 0..=input.u8() % SEGMENTS_MAX {
            let bytes = made.segment(input, ordinal, &records);
            made.segments.push((ordinal, bytes));
            ordinal = ordinal.saturating_add(1 + u32::from(input.rarely()));
            records = if input.rarely() { made.drawn(input) } else { made.state.records() };
        }
        made
    }

    fn segment(&mut self, input: &mut Input<'_>, ordinal: u32, records: &[Record]) -> Vec<u8> {
        let epoch = [ordinal.to_le_bytes(), ordinal.wrapping_mul(77).to_le_bytes()].concat();
        let mut state = Vec::new();
        records.iter().for_each(|record| record.put(&mut state));
        let mut out = b"QUORWALS\x01\0\0\0".to_vec();
        out.extend_from_slice(&epoch);
        out.put_u32_le(u32::try_from(state.len()).unwrap_or(u32::MAX));
        let first = input.near(self.sequence.saturating_add(1));
        self.sequence = first.saturating_sub(1);
        out.put_u64_le(first);
        out.put_u64_le(input.near(self.sequence));
        out.put_u32_le(u32::try_from(records.len()).unwrap_or(u32::MAX));
        seal(&mut out, 0, &epoch, &state);
        out.resize(out.len().next_multiple_of(PAGE), 0);
        for _ in 0..input.u8() % FRAMES_MAX {
            self.frame(input, &epoch, &mut out);
        }
        // At least eight zero bytes follow the last frame, up to the end of a page.
        out.resize((out.len() + ALIGN).next_multiple_of(PAGE), 0);
        out
    }

    fn frame(&mut self, input: &mut Input<'_>, epoch: &[u8], out: &mut Vec<u8>) {
        let choice = input.u8();
        out.resize(out.len().next_multiple_of(if choice & 1 == 0 { PAGE } else { ALIGN }), 0);
        let (records, at) = (self.drawn(input), out.len());
        let mut body = Vec::new();
        records.iter().for_each(|record| record.put(&mut body));
        if input.rarely() {
            body.extend_from_slice(input.short());
        }
        let is_packed = choice & 2 != 0;
        let raw = body.len();
        let stored = match is_packed {
            true if input.rarely() => input.short().to_vec(),
            true => literal_lz4(&body),
            false => body,
        };
        out.extend_from_slice(b"QFRM\x01");
        out.put_u8(u8::from(is_packed) | u8::from(choice & 4 != 0) << 1);
        out.put_u16_le(0);
        out.extend_from_slice(epoch);
        self.sequence = input.near(self.sequence.saturating_add(1));
        out.put_u64_le(self.sequence);
        out.put_u64_le(input.near(self.sequence.saturating_sub(1)));
        out.put_u32_le(cut(input.near(records.len() as u64)));
        out.put_u32_le(u32::try_from(stored.len()).unwrap_or(u32::MAX));
        out.put_u32_le(cut(input.near(raw as u64)));
        seal(out, at, epoch, &stored);
        if input.rarely() {
            let place = usize::from(input.u16());
            let len = out.len() - at;
            if let Some(byte) = out.get_mut(at + place / 8 % len) {
                *byte ^= 1 << (place % 8);
            }
            return;
        }
        for record in &records {
            self.state.apply(record);
            if record.kind == ENTRY {
                self.entries.push((record.group, record.id.2, record.bytes.clone()));
            }
        }
    }

    /// Draws records that continue the present state, unless the fuzzer chooses others.
    fn drawn(&self, input: &mut Input<'_>) -> Vec<Record> {
        let mut lasts: BTreeMap<u32, u64> = BTreeMap::new();
        let count = input.u8() % RECORDS_MAX;
        let draw = |_| {
            // Most records are entries.
            let kind = input.u8() % 16;
            let kind = if kind > LAST { ENTRY } else { kind };
            let (flag, group) = (u8::from(input.rarely()), u32::from(input.u8() % GROUPS));
            let last = self.state.groups.get(&group).and_then(|group| group.last).map_or(0, |id| id.2);
            let last = lasts.entry(group).or_insert(last);
            let index = input.near(last.saturating_add(u64::from(kind == ENTRY)));
            if [ENTRY, TRUNCATE, LAST].contains(&kind) {
                *last = index;
            }
            let id = (u64::from(input.u8()), u64::from(group), index);
            Record { kind, flag, group, id, bytes: Bytes::copy_from_slice(input.short()) }
        };
        (0..count).map(draw).collect()
    }
}

/// Completes the header that begins at `at` with its checksum, and appends the content, which the checksum covers too.
fn seal(out: &mut Vec<u8>, at: usize, epoch: &[u8], content: &[u8]) {
    out.resize(at + CRC_AT, 0);
    let head = out.get(at..).unwrap_or_default();
    let crc = [head, content].iter().fold(crc32c::crc32c(epoch), |crc, part| crc32c::crc32c_append(crc, part));
    out.put_u32_le(crc);
    out.extend_from_slice(content);
}

fn cut(number: u64) -> u32 {
    u32::try_from(number & u64::from(u32::MAX)).unwrap_or_default()
}

/// Returns an LZ4 block that holds the bytes uncompressed, as literals.
fn literal_lz4(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![u8::try_from(bytes.len().min(15)).unwrap_or(15) << 4];
    if let Some(more) = bytes.len().checked_sub(15) {
        out.extend(std::iter::repeat_n(255, more / 255));
        out.push(u8::try_from(more % 255).unwrap_or_default());
    }
    out.extend_from_slice(bytes);
    out
}
