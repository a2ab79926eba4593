//! Commands on strings: a string is in the row of its key.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use quorate_env::mutant::Mutant;
use quorate_model::keys::{Condition, Expiry, ExpiryCondition, KeyEvent, KeysReply, Kind, StringCommand};

use crate::KeysError;
use crate::generic::applies;
use crate::keys::{Keys, Open, check_expiry, check_value};
use crate::limits::VALUE_BYTES_MAX;
use crate::number::{decimal_sum, integer};
use crate::tables::Tables;

impl<T: Tables> Keys<'_, T> {
    pub(crate) fn run_string(&mut self, command: &StringCommand) -> Result<KeysReply, T::Error> {
        match command {
            StringCommand::Set { key, value, condition, expiry, get } => {
                self.set_string(key, value, condition, *expiry, *get)
            }
            StringCommand::Get { key } => Ok(self.string(key)?.map_or(KeysReply::Missing, KeysReply::Value)),
            StringCommand::SetAll { strings, condition, expiry } => self.set_strings(strings, condition, *expiry),
            StringCommand::GetExpire { key, at, relative } => {
                let at = self.context.time(*at, *relative)?;
                let Some(open) = self.typed(key, Kind::String)? else { return Ok(KeysReply::Missing) };
                let value = open.row.value.clone();
                self.expire_found(open, at, ExpiryCondition::Always)?;
                Ok(KeysReply::Value(value))
            }
            StringCommand::Take { key } => {
                let Some(open) = self.typed(key, Kind::String)? else { return Ok(KeysReply::Missing) };
                self.remove(&open, &[KeyEvent::Delete])?;
                Ok(KeysReply::Value(open.row.value))
            }
            StringCommand::GetRange { key, start, end } => {
                let value = self.string(key)?.unwrap_or_default();
                let (from, to) = cut(value.len() as u64, *start, *end);
                Ok(KeysReply::Value(value.slice(from as usize..to as usize)))
            }
            StringCommand::Length { key } => {
                Ok(KeysReply::Count(self.string(key)?.map_or(0, |value| value.len() as u64)))
            }
            StringCommand::Append { key, value } => {
                let offset = self.string(key)?.map_or(0, |old| old.len() as u64);
                self.write_string(key, offset, value, KeyEvent::Append)
            }
            StringCommand::SetRange { key, offset, value } => self.set_range(key, *offset, value),
            StringCommand::Add { key, by } => {
                let found = self.typed(key, Kind::String)?;
                let number = found.as_ref().map_or(Some(0), |open| integer(&open.row.value));
                let sum = number.ok_or(KeysError::NotInteger)?.checked_add(*by).ok_or(KeysError::Overflow)?;
                self.put_string(key, found, sum.to_string().into(), KeyEvent::Add)?;
                Ok(KeysReply::Integer(sum))
            }
            StringCommand::AddFloat { key, by } => {
                let found = self.typed(key, Kind::String)?;
                let old = found.as_ref().map_or(Bytes::from_static(b"0"), |open| open.row.value.clone());
                let sum = Bytes::from(decimal_sum(&old, by, KeysError::NotFloat)?);
                self.put_string(key, found, sum.clone(), KeyEvent::AddFloat)?;
                Ok(KeysReply::Value(sum))
            }
        }
    }

    pub(crate) fn string(&mut self, key: &Bytes) -> Result<Option<Bytes>, T::Error> {
        Ok(self.typed(key, Kind::String)?.map(|open| open.row.value))
    }

    fn set_string(
        &mut self,
        key: &Bytes,
        value: &Bytes,
        condition: &Condition,
        expiry: Expiry,
        get: bool,
    ) -> Result<KeysReply, T::Error> {
        check_value(value)?;
        check_expiry(expiry)?;
        self.context.charge_bytes(value.len())?;
        let needs_string = get || matches!(condition, Condition::Value(_));
        let found = if needs_string { self.typed(key, Kind::String)? } else { self.find(key)? };
        let row = found.as_ref().map(|open| &open.row);
        let previous = row.filter(|_| get).map(|row| row.value.clone());
        if !applies(condition, row) {
            return Ok(KeysReply::Set { applied: false, previous });
        }
        self.put_found(found, key, value.clone(), expiry, &[KeyEvent::Set])?;
        Ok(KeysReply::Set { applied: true, previous })
    }

    fn set_strings(
        &mut self,
        strings: &[(Bytes, Bytes)],
        condition: &Condition,
        expiry: Expiry,
    ) -> Result<KeysReply, T::Error> {
        self.context.charge_rows(strings.len(), strings.iter().map(|(_, value)| value.len()).sum())?;
        strings.iter().try_for_each(|(_, value)| check_value(value))?;
        check_expiry(expiry)?;
        let last: BTreeMap<&Bytes, &Bytes> = strings.iter().map(|(key, value)| (key, value)).collect();
        let needs_string = matches!(condition, Condition::Value(_));
        let mut all = Vec::with_capacity(last.len());
        for (key, value) in last {
            let mut found = if needs_string { self.typed(key, Kind::String)? } else { self.find(key)? };
            if !applies(condition, found.as_ref().map(|open| &open.row)) {
                return Ok(KeysReply::NotApplied);
            }
            // The old strings are not kept: together they may be long.
            found.iter_mut().for_each(|open| open.row.value.clear());
            all.push((found, key, value));
        }
        for (found, key, value) in all {
            self.put_found(found, key, value.clone(), expiry, &[KeyEvent::Set])?;
        }
        Ok(KeysReply::Done)
    }

    /// Sets a key, as it was found, to a string, by these events.
    pub(crate) fn put_found(
        &mut self,
        found: Option<Open>,
        key: &Bytes,
        value: Bytes,
        expiry: Expiry,
        events: &[KeyEvent],
    ) -> Result<(), T::Error> {
        let expires_at = match expiry {
            Expiry::Never if !Mutant::ExpiryKept.is_on() => None,
            Expiry::Never | Expiry::Keep => found.as_ref().and_then(|open| open.row.expires_at),
            Expiry::At(at) => Some(at),
            Expiry::In(nanos) => Some(self.context.after(nanos)),
        };
        if !self.context.is_alive(expires_at) {
            return found.map_or(Ok(()), |open| self.remove(&open, &[KeyEvent::Expired]));
        }
        let mut open = self.found_or_new(found.filter(|open| open.row.kind == Kind::String), key, Kind::String)?;
        open.row.value = value;
        self.set_expiry(&mut open.row, expires_at)?;
        let gets_expiry = matches!(expiry, Expiry::At(_) | Expiry::In(_));
        self.context.note(open.space, key, events);
        self.save(open, if gets_expiry { &[KeyEvent::Expire] } else { &[] })
    }

    fn set_range(&mut self, key: &Bytes, offset: u64, value: &Bytes) -> Result<KeysReply, T::Error> {
        if value.is_empty() {
            return Ok(KeysReply::Count(self.string(key)?.map_or(0, |old| old.len() as u64)));
        }
        self.write_string(key, offset, value, KeyEvent::SetRange)
    }

    /// Writes bytes into a string from an offset on, and returns its length. An empty string is made, too.
    fn write_string(
        &mut self,
        key: &Bytes,
        offset: u64,
        value: &Bytes,
        event: KeyEvent,
    ) -> Result<KeysReply, T::Error> {
        let found = self.typed(key, Kind::String)?;
        let old = found.as_ref().map(|open| open.row.value.clone()).unwrap_or_default();
        let end = offset.saturating_add(value.len() as u64);
        let length = end.max(old.len() as u64);
        if length > VALUE_BYTES_MAX as u64 {
            return Err(KeysError::StringTooLong.into());
        }
        self.context.charge_bytes(length as usize)?;
        let mut written = BytesMut::zeroed(length as usize);
        for (part, at) in [(&old, 0), (value, offset as usize)] {
            if let Some(place) = written.get_mut(at..at + part.len()) {
                place.copy_from_slice(part);
            }
        }
        self.put_string(key, found, written.freeze(), event)?;
        Ok(KeysReply::Count(length))
    }

    /// Sets a string, which was found or is missing, and leaves its expiry.
    fn put_string(&mut self, key: &Bytes, found: Option<Open>, value: Bytes, event: KeyEvent) -> Result<(), T::Error> {
        let mut open = self.found_or_new(found, key, Kind::String)?;
        open.row.value = value;
        self.save(open, &[event])
    }
}

/// Returns the range from one index to another of so many bytes or bits of a string, both inside. Redis takes a last
/// index before the first byte as that of the first byte, but not from -1 to -9.
pub(crate) fn cut(count: u64, start: i64, end: i64) -> (u64, u64) {
    if start < 0 && end < start { (0, 0) } else { cut_forward(count, start, end) }
}

/// Does as [`cut`], but from -1 to -9, too.
pub(crate) fn cut_forward(count: u64, start: i64, end: i64) -> (u64, u64) {
    slice(count, start, end.max(-(count as i64)))
}

/// Returns the range from one index to another of so many things, both inside; a negative index counts from the end.
pub(crate) fn slice(count: u64, first: i64, last: i64) -> (u64, u64) {
    let place = |index: i64| {
        let from_start = u64::try_from(index).ok();
        from_start.or_else(|| count.checked_sub(index.unsigned_abs()))
    };
    let from = place(first).unwrap_or(0).min(count);
    let to = place(last).map_or(0, |last| last.saturating_add(1).min(count));
    (from, to.max(from))
}
