//! Commands on the bits of strings.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use quorate_model::keys::{
    BitAction, BitCommand, BitInteger, BitOperation, BitRange, BitStep, BitUnit, Expiry, KeyEvent, KeysReply, Kind,
    Overflow,
};

use crate::KeysError;
use crate::keys::{Keys, check_keys};
use crate::limits::VALUE_BYTES_MAX;
use crate::strings::{cut, cut_forward};
use crate::tables::Tables;

/// The bits of a byte.
const BYTE_BITS: u64 = 8;

/// The most bits of an integer, with a sign and without.
const INTEGER_BITS_MAX: [u8; 2] = [64, 63];

impl<T: Tables> Keys<'_, T> {
    pub(crate) fn run_bits(&mut self, command: &BitCommand) -> Result<KeysReply, T::Error> {
        match command {
            BitCommand::Fields { key, steps } => self.run_steps(key, steps),
            BitCommand::Count { key, range } => {
                let value = self.string(key)?.unwrap_or_default();
                let (from, to) = bits_of(range, &value, cut);
                let ones = bytes_of(&value, from, to, false).map(|(_, byte)| u64::from(byte.count_ones()));
                Ok(KeysReply::Count(ones.sum()))
            }
            BitCommand::Find { key, one, range } => {
                let Some(value) = self.string(key)? else {
                    return Ok(if *one { KeysReply::Missing } else { KeysReply::Count(0) });
                };
                Ok(find(&value, *one, range).map_or(KeysReply::Missing, KeysReply::Count))
            }
            BitCommand::Combine { operation, keys, store } => self.combine_strings(*operation, keys, store),
        }
    }

    fn run_steps(&mut self, key: &Bytes, steps: &[BitStep]) -> Result<KeysReply, T::Error> {
        steps.iter().try_for_each(|step| check_integer(step.integer))?;
        self.context.charge_range(steps.len() as u64)?;
        let found = self.typed(key, Kind::String)?;
        let old = found.as_ref().map(|open| open.row.value.clone()).unwrap_or_default();
        let changed = steps.iter().filter(|step| step.action != BitAction::Get);
        let Some(needed) = changed.map(|step| place(step).end.div_ceil(BYTE_BITS)).max() else {
            return Ok(KeysReply::Integers(steps.iter().map(|step| Some(read(step, &old))).collect()));
        };
        if needed > VALUE_BYTES_MAX as u64 {
            return Err(KeysError::BitOffset.into());
        }
        let length = old.len().max(needed as usize);
        self.context.charge_bytes(length)?;
        let mut value = padded(&old, length);
        let integers: Vec<_> = steps.iter().map(|step| apply(step, &mut value)).collect();
        if value != old {
            // Integers that do not fit may only have made the string longer.
            let is_written =
                |(step, integer): (&BitStep, &Option<_>)| step.action != BitAction::Get && integer.is_some();
            let is_written = steps.iter().zip(&integers).any(is_written);
            let events: &[_] = if is_written { &[KeyEvent::SetBit] } else { &[] };
            self.put_found(found, key, value.freeze(), Expiry::Keep, events)?;
        }
        Ok(KeysReply::Integers(integers))
    }

    fn combine_strings(
        &mut self,
        operation: BitOperation,
        keys: &[Bytes],
        store: &Bytes,
    ) -> Result<KeysReply, T::Error> {
        self.context.charge_rows(keys.len(), 0)?;
        check_keys(keys)?;
        let mut values = Vec::with_capacity(keys.len());
        for key in keys {
            values.push(self.string(key)?.unwrap_or_default());
        }
        let target = self.find(store)?;
        let length = values.iter().map(Bytes::len).max().unwrap_or(0);
        self.context.charge_bytes(length)?;
        if length == 0 {
            target.map_or(Ok(()), |open| self.remove(&open, &[KeyEvent::Delete]))?;
        } else {
            let value = combined(operation, &values, length);
            self.put_found(target, store, value, Expiry::Never, &[KeyEvent::Set])?;
        }
        Ok(KeysReply::Count(length as u64))
    }
}

fn check_integer(integer: BitInteger) -> Result<(), KeysError> {
    let [signed, unsigned] = INTEGER_BITS_MAX;
    let max = if integer.signed { signed } else { unsigned };
    if (1..=max).contains(&integer.bits) { Ok(()) } else { Err(KeysError::BitInteger) }
}

/// Returns the bits that the integer of a step has in the string.
fn place(step: &BitStep) -> Range<u64> {
    step.offset..step.offset.saturating_add(step.integer.bits.into())
}

fn read(step: &BitStep, value: &[u8]) -> i64 {
    let bits = place(step).fold(0, |bits, at| bits << 1 | i128::from(is_one(value, at)));
    wrapped(step.integer, bits)
}

/// Returns the integer that the lowest bits are.
fn wrapped(integer: BitInteger, bits: i128) -> i64 {
    let above = i128::BITS - u32::from(integer.bits);
    if integer.signed { (bits << above >> above) as i64 } else { (bits.cast_unsigned() << above >> above) as i64 }
}

/// Returns a number so that it fits into an integer, if it is written then.
fn fit(integer: BitInteger, number: i128, overflow: Overflow) -> Option<i64> {
    let (min, max) = if integer.signed {
        (-1 << (integer.bits - 1), (1 << (integer.bits - 1)) - 1)
    } else {
        (0, (1 << integer.bits) - 1)
    };
    match overflow {
        Overflow::Wrap => Some(wrapped(integer, number)),
        Overflow::Saturate => Some(number.clamp(min, max) as i64),
        Overflow::Fail => (min..=max).contains(&number).then_some(number as i64),
    }
}

/// Does a step on a string that has all bits it changes.
fn apply(step: &BitStep, value: &mut [u8]) -> Option<i64> {
    let old = read(step, value);
    let (number, overflow) = match step.action {
        BitAction::Get => return Some(old),
        BitAction::Set(to, overflow) if step.integer.signed => (to.into(), overflow),
        BitAction::Set(to, overflow) => (to.cast_unsigned().into(), overflow),
        BitAction::Add(by, overflow) => (i128::from(old) + i128::from(by), overflow),
    };
    let new = fit(step.integer, number, overflow)?;
    for (at, shift) in place(step).zip((0..step.integer.bits).rev()) {
        if let Some(byte) = value.get_mut((at / BYTE_BITS) as usize) {
            *byte = if new >> shift & 1 == 1 { *byte | mask(at) } else { *byte & !mask(at) };
        }
    }
    Some(if matches!(step.action, BitAction::Set(..)) { old } else { new })
}

fn is_one(value: &[u8], bit: u64) -> bool {
    value.get((bit / BYTE_BITS) as usize).is_some_and(|byte| byte & mask(bit) != 0)
}

/// Returns the byte in which only the place of a bit is 1.
fn mask(bit: u64) -> u8 {
    1 << (BYTE_BITS - 1 - bit % BYTE_BITS)
}

/// Returns where the first bit of a range is that is 1, or 0.
fn find(value: &[u8], one: bool, range: &BitRange) -> Option<u64> {
    let (from, to) = bits_of(range, value, cut_forward);
    let first = bytes_of(value, from, to, !one).find(|(_, byte)| *byte != 0);
    let behind = (!one && range.end.is_none() && from < to).then_some(value.len() as u64 * BYTE_BITS);
    first.map(|(index, byte)| index * BYTE_BITS + u64::from(byte.leading_zeros())).or(behind)
}

/// Returns the bytes that have bits from one to below another one, with their indexes. Other bits in them are 0.
fn bytes_of(value: &[u8], from: u64, to: u64, inverted: bool) -> impl Iterator<Item = (u64, u8)> {
    let (first, end) = (from / BYTE_BITS, to.div_ceil(BYTE_BITS));
    let bytes = (first..).zip(value.iter().skip(first as usize));
    bytes.take_while(move |(index, _)| *index < end).map(move |(index, byte)| {
        let start = index * BYTE_BITS;
        let (before, behind) = (from.saturating_sub(start), (start + BYTE_BITS).saturating_sub(to));
        let byte = if inverted { !byte } else { *byte };
        (index, byte & u8::MAX >> before & u8::MAX << behind)
    })
}

/// Returns the range of bits from one to below another one.
fn bits_of(range: &BitRange, value: &[u8], cut: fn(u64, i64, i64) -> (u64, u64)) -> (u64, u64) {
    let (start, end, bytes) = (range.start, range.end.unwrap_or(-1), value.len() as u64);
    match range.unit {
        BitUnit::Bit => cut(bytes * BYTE_BITS, start, end),
        BitUnit::Byte => {
            let (from, to) = cut(bytes, start, end);
            (from * BYTE_BITS, to * BYTE_BITS)
        }
    }
}

/// Combines strings, each with zeros up to a length.
fn combined(operation: BitOperation, values: &[Bytes], length: usize) -> Bytes {
    let Some((first, others)) = values.split_first() else { return Bytes::new() };
    let mut combined = padded(first, length);
    for value in others {
        let (shared, rest) = combined.split_at_mut(value.len().min(length));
        let pairs = shared.iter_mut().zip(value);
        match operation {
            BitOperation::And => {
                pairs.for_each(|(left, right)| *left &= right);
                rest.fill(0);
            }
            BitOperation::Or | BitOperation::Not => pairs.for_each(|(left, right)| *left |= right),
            BitOperation::Xor => pairs.for_each(|(left, right)| *left ^= right),
        }
    }
    if operation == BitOperation::Not {
        combined.iter_mut().for_each(|byte| *byte = !*byte);
    }
    combined.freeze()
}

/// Returns a string with zeros up to a length that is not below its own.
fn padded(value: &[u8], length: usize) -> BytesMut {
    let mut padded = BytesMut::with_capacity(length);
    padded.extend_from_slice(value);
    padded.resize(length, 0);
    padded
}
