//! Bits of strings, as lists of bits.

use bytes::Bytes;
use quorate_keys::{
    BitAction, BitCommand, BitInteger, BitOperation, BitRange, BitStep, BitUnit, KeysError, KeysReply, Kind, Overflow,
    Space,
};

use super::{Entry, Held, Model, Reply};

type Bits = Vec<bool>;

impl Model {
    pub fn run_bits(&mut self, space: Space, command: &BitCommand) -> Reply {
        match command {
            BitCommand::Fields { key, steps } => {
                let name = (space, key.clone());
                if steps.iter().any(|step| step.integer.bits > if step.integer.signed { 64 } else { 63 }) {
                    return Err(KeysError::BitInteger);
                }
                let old = self.string(&name)?.unwrap_or_default();
                let mut bits = to_bits(&old);
                for step in steps.iter().filter(|step| step.action != BitAction::Get) {
                    if step.offset > 1 << 27 {
                        return Err(KeysError::BitOffset);
                    }
                    let end = step.offset as usize + usize::from(step.integer.bits);
                    bits.resize(bits.len().max(end.next_multiple_of(8)), false);
                }
                let integers = steps.iter().map(|step| apply(&mut bits, step)).collect();
                let new = to_bytes(&bits);
                if new != old {
                    *self.change(&name, Kind::String) = Held::String(new);
                }
                Ok(KeysReply::Integers(integers))
            }
            BitCommand::Count { key, range } => {
                let bits = to_bits(&self.string(&(space, key.clone()))?.unwrap_or_default());
                let is_reverse = range.start < 0 && range.end.is_some_and(|end| end < range.start);
                let inside = if is_reverse { 0..0 } else { indexes(&bits, range) };
                Ok(KeysReply::Count(inside.filter(|at| bits[*at]).count() as u64))
            }
            BitCommand::Find { key, one, range } => {
                let Some(value) = self.string(&(space, key.clone()))? else {
                    return Ok(if *one { KeysReply::Missing } else { KeysReply::Count(0) });
                };
                let bits = to_bits(&value);
                let mut inside = indexes(&bits, range);
                let behind = !one && range.end.is_none() && !inside.is_empty();
                let found = inside.find(|at| bits[*at] == *one).or(behind.then_some(bits.len()));
                Ok(found.map_or(KeysReply::Missing, |at| KeysReply::Count(at as u64)))
            }
            BitCommand::Combine { operation, keys, store } => {
                let mut strings = Vec::new();
                for key in keys {
                    strings.push(to_bits(&self.string(&(space, key.clone()))?.unwrap_or_default()));
                }
                let length = strings.iter().map(Vec::len).max().unwrap_or(0);
                let ones = |at| strings.iter().filter(|bits| bits.get(at) == Some(&true)).count();
                let bit = |at| match operation {
                    BitOperation::And => ones(at) == strings.len(),
                    BitOperation::Or => ones(at) > 0,
                    BitOperation::Xor => ones(at) % 2 == 1,
                    BitOperation::Not => ones(at) == 0,
                };
                let value = to_bytes(&(0..length).map(bit).collect::<Bits>());
                let name = (space, store.clone());
                if value.is_empty() {
                    self.keys.remove(&name);
                } else {
                    let entry = Entry { held: Held::String(value), version: self.version, expires_at: None };
                    self.keys.insert(name, entry);
                }
                Ok(KeysReply::Count(length as u64 / 8))
            }
        }
    }
}

fn apply(bits: &mut Bits, step: &BitStep) -> Option<i64> {
    let BitInteger { signed, bits: size } = step.integer;
    let is_one = |at| step.offset.checked_add(at).is_some_and(|at| bits.get(at as usize) == Some(&true));
    let raw = (0..u64::from(size)).fold(0, |raw: i128, at| raw * 2 + i128::from(is_one(at)));
    let whole = 1_i128 << size;
    let (min, max) = if signed { (-whole / 2, whole / 2 - 1) } else { (0, whole - 1) };
    let old = if raw > max { raw - whole } else { raw };
    let (exact, overflow) = match step.action {
        BitAction::Get => return Some(old as i64),
        BitAction::Set(to, overflow) if !signed && to < 0 => (i128::from(to) + (1 << 64), overflow),
        BitAction::Set(to, overflow) => (i128::from(to), overflow),
        BitAction::Add(by, overflow) => (old + i128::from(by), overflow),
    };
    let new = match overflow {
        Overflow::Wrap => (exact - min).rem_euclid(whole) + min,
        Overflow::Saturate => exact.max(min).min(max),
        Overflow::Fail if exact < min || exact > max => return None,
        Overflow::Fail => exact,
    };
    let raw = new.rem_euclid(whole);
    for at in 0..usize::from(size) {
        bits[step.offset as usize + usize::from(size) - 1 - at] = raw >> at & 1 == 1;
    }
    Some(if matches!(step.action, BitAction::Set(..)) { old } else { new } as i64)
}

/// As the source of Redis has it.
fn indexes(bits: &Bits, range: &BitRange) -> std::ops::Range<usize> {
    let unit = if range.unit == BitUnit::Byte { 8 } else { 1 };
    let count = (bits.len() / unit) as i128;
    let place = |index: i64| if index < 0 { (i128::from(index) + count).max(0) } else { i128::from(index) };
    let (start, end) = (place(range.start), place(range.end.unwrap_or(-1)).min(count - 1));
    if start > end { 0..0 } else { start as usize * unit..(end as usize + 1) * unit }
}

fn to_bits(value: &[u8]) -> Bits {
    value.iter().flat_map(|byte| (0..8).rev().map(move |at| byte >> at & 1 == 1)).collect()
}

fn to_bytes(bits: &Bits) -> Bytes {
    bits.chunks(8).map(|byte| byte.iter().fold(0, |byte, bit| byte << 1 | u8::from(*bit))).collect()
}
