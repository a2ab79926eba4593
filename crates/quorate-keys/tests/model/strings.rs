//! Strings.

use std::collections::BTreeMap;

use bytes::Bytes;
use quorate_keys::limits::VALUE_BYTES_MAX;
use quorate_keys::{Condition, Expiry, ExpiryCondition, KeysError, KeysReply, Kind, Space, StringCommand};

use super::{Entry, Held, Model, Name, Reply};

impl Model {
    pub fn run_string(&mut self, space: Space, command: &StringCommand) -> Reply {
        match command {
            StringCommand::Set { key, value, condition, expiry, get } => {
                self.set_string(&(space, key.clone()), value, condition, *expiry, *get)
            }
            StringCommand::Get { key } => Ok(value_or_missing(self.string(&(space, key.clone()))?)),
            StringCommand::SetAll { strings, condition, expiry } => self.set_all(space, strings, condition, *expiry),
            StringCommand::GetExpire { key, at, relative } => {
                let name = (space, key.clone());
                let value = self.string(&name)?;
                self.expire_key(&name, self.time(*at, *relative), ExpiryCondition::Always);
                Ok(value_or_missing(value))
            }
            StringCommand::Take { key } => {
                let name = (space, key.clone());
                let value = self.string(&name)?;
                self.keys.remove(&name);
                Ok(value_or_missing(value))
            }
            StringCommand::GetRange { key, start, end } => {
                let value = self.string(&(space, key.clone()))?.unwrap_or_default();
                Ok(KeysReply::Value(get_range(&value, *start, *end)))
            }
            StringCommand::Length { key } => {
                Ok(KeysReply::Count(self.string(&(space, key.clone()))?.unwrap_or_default().len() as u64))
            }
            StringCommand::Append { key, value } => {
                let name = (space, key.clone());
                let joined = [self.string(&name)?.unwrap_or_default(), value.clone()].concat();
                *self.change(&name, Kind::String) = Held::String(joined.clone().into());
                Ok(KeysReply::Count(joined.len() as u64))
            }
            StringCommand::SetRange { key, offset, value } => {
                let name = (space, key.clone());
                let mut old = self.string(&name)?.unwrap_or_default().to_vec();
                if value.is_empty() {
                    return Ok(KeysReply::Count(old.len() as u64));
                }
                if offset.saturating_add(value.len() as u64) > VALUE_BYTES_MAX as u64 {
                    return Err(KeysError::StringTooLong);
                }
                let offset = *offset as usize;
                old.resize(old.len().max(offset + value.len()), 0);
                old[offset..offset + value.len()].copy_from_slice(value);
                *self.change(&name, Kind::String) = Held::String(old.clone().into());
                Ok(KeysReply::Count(old.len() as u64))
            }
            StringCommand::Add { key, by } => {
                let name = (space, key.clone());
                let sum = add(self.string(&name)?, *by, KeysError::NotInteger)?;
                *self.change(&name, Kind::String) = Held::String(sum.to_string().into());
                Ok(KeysReply::Integer(sum))
            }
            StringCommand::AddFloat { key, by } => {
                let name = (space, key.clone());
                let sum = add_float(self.string(&name)?, by, KeysError::NotFloat)?;
                *self.change(&name, Kind::String) = Held::String(sum.clone());
                Ok(KeysReply::Value(sum))
            }
        }
    }

    fn set_all(&mut self, space: Space, strings: &[(Bytes, Bytes)], condition: &Condition, expiry: Expiry) -> Reply {
        let last: BTreeMap<_, _> = strings.iter().cloned().collect();
        for key in last.keys() {
            let name = (space, key.clone());
            if matches!(condition, Condition::Value(_)) {
                self.string(&name)?;
            }
            if !self.applies(&name, condition) {
                return Ok(KeysReply::NotApplied);
            }
        }
        for (key, value) in last {
            self.set_string(&(space, key), &value, &Condition::Always, expiry, false)?;
        }
        Ok(KeysReply::Done)
    }

    pub fn string(&self, name: &Name) -> Result<Option<Bytes>, KeysError> {
        Ok(self.typed(name, Kind::String)?.map(|held| match held {
            Held::String(value) => value.clone(),
            _ => unreachable!(),
        }))
    }

    fn set_string(&mut self, name: &Name, value: &Bytes, condition: &Condition, expiry: Expiry, get: bool) -> Reply {
        if get || matches!(condition, Condition::Value(_)) {
            self.string(name)?;
        }
        let previous = if get { self.string(name)? } else { None };
        let applied = self.applies(name, condition);
        if applied {
            let expires_at = match expiry {
                Expiry::Never => None,
                Expiry::Keep => self.keys.get(name).and_then(|entry| entry.expires_at),
                Expiry::At(at) => Some(at),
                Expiry::In(nanos) => self.time(Some(nanos), true),
            };
            let entry = Entry { held: Held::String(value.clone()), version: self.version, expires_at };
            self.keys.insert(name.clone(), entry);
        }
        Ok(KeysReply::Set { applied, previous })
    }
}

fn value_or_missing(value: Option<Bytes>) -> KeysReply {
    value.map_or(KeysReply::Missing, KeysReply::Value)
}

/// As the source of Redis has it.
fn get_range(value: &Bytes, start: i64, end: i64) -> Bytes {
    let length = value.len() as i128;
    let (mut start, mut end) = (i128::from(start), i128::from(end));
    if start < 0 && end < 0 && start > end {
        return Bytes::new();
    }
    if start < 0 {
        start = (start + length).max(0);
    }
    if end < 0 {
        end = (end + length).max(0);
    }
    end = end.min(length - 1);
    if start > end { Bytes::new() } else { value.slice(start as usize..=end as usize) }
}

pub fn add(old: Option<Bytes>, by: i64, error: KeysError) -> Result<i64, KeysError> {
    let old = old.map_or("0".to_owned(), |old| String::from_utf8_lossy(&old).into_owned());
    let number: i64 = old.parse().map_err(|_| error.clone())?;
    if number.to_string() != old {
        return Err(error);
    }
    number.checked_add(by).ok_or(KeysError::Overflow)
}

/// Right for the numbers of the streams: small ones with an exponent are integers.
pub fn add_float(old: Option<Bytes>, by: &Bytes, error: KeysError) -> Result<Bytes, KeysError> {
    let old = old.unwrap_or("0".into());
    let number = |text: &[u8], error: KeysError| {
        let number: f64 = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(error.clone())?;
        let is_too_large = number.is_infinite() && text.iter().any(u8::is_ascii_digit);
        if number.is_nan() || is_too_large { Err(error) } else { Ok(number) }
    };
    let sum = number(&old, error)? + number(by, KeysError::NotFloat)?;
    if !sum.is_finite() {
        return Err(KeysError::NotFinite);
    }
    let (Some(left), Some(right)) = (parts(&old), parts(by)) else {
        return Ok((sum + 0.0).to_string().into());
    };
    let (mut whole, mut fraction) = (left.0 + right.0, left.1 + right.1);
    whole += fraction.div_euclid(UNIT);
    fraction = fraction.rem_euclid(UNIT);
    let sign = if whole < 0 { "-" } else { "" };
    if whole < 0 && fraction > 0 {
        (whole, fraction) = (whole + 1, UNIT - fraction);
    }
    fraction = (fraction + DROPPED / 2) / DROPPED;
    let text = format!("{sign}{}.{:017}", whole.abs() + fraction / WRITTEN, fraction % WRITTEN);
    let text = text.trim_end_matches('0').trim_end_matches('.');
    Ok(Bytes::from(if text == "-0" { "0".to_owned() } else { text.to_owned() }))
}

const UNIT: i128 = 10_i128.pow(30);
const WRITTEN: i128 = 10_i128.pow(17);
const DROPPED: i128 = UNIT / WRITTEN;

/// The part of a number before the point, and 30 digits after it, both with its sign; if these are all, and few.
fn parts(text: &[u8]) -> Option<(i128, i128)> {
    let text = std::str::from_utf8(text).unwrap();
    let number: f64 = text.parse().unwrap();
    if text.contains('e') {
        return (number.abs() < 1e9 && number.fract() == 0.0).then_some((number as i128, 0));
    }
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let fraction = fraction.trim_end_matches('0');
    let digits = [whole, fraction].concat().trim_start_matches(['-', '0']).len();
    if fraction.len() > 30 || digits > 30 {
        return None;
    }
    let fraction: i128 = format!("{fraction:0<30}").parse().ok()?;
    Some((whole.parse().ok()?, if whole.starts_with('-') { -fraction } else { fraction }))
}
