//! Commands on hashes.

use std::collections::BTreeSet;

use bytes::Bytes;
use quorate_env::mutant::Mutant;
use quorate_model::keys::{Condition, Expiry, ExpiryCondition, HashCommand, KeyEvent, KeysReply, Kind};

use crate::KeysError;
use crate::elements::check_pairs;
use crate::keys::{Keys, ReplyBytes, check_expiry, check_fields};
use crate::number::{check_decimal, decimal_sum, integer};
use crate::tables::{Element, Tables};

impl<T: Tables> Keys<'_, T> {
    pub(crate) fn run_hash(&mut self, command: &HashCommand) -> Result<KeysReply, T::Error> {
        match command {
            HashCommand::Set { key, fields, condition, expiry } => self.set_fields(key, fields, condition, *expiry),
            HashCommand::Get { key, fields } => Ok(KeysReply::Values(self.values(key, fields)?)),
            HashCommand::GetExpire { key, fields, at, relative } => {
                let at = self.context.time(*at, *relative)?;
                let values = self.values(key, fields)?;
                self.expire_fields(key, Kind::Hash, fields, at, ExpiryCondition::Always)?;
                Ok(KeysReply::Values(values))
            }
            HashCommand::Take { key, fields } => {
                let (values, mut taken) = (self.values(key, fields)?, BTreeSet::new());
                self.remove_fields(key, Kind::Hash, fields)?;
                let values = values.into_iter().zip(fields);
                Ok(KeysReply::Values(values.map(|(value, field)| value.filter(|_| taken.insert(field))).collect()))
            }
            HashCommand::Add { key, field, by } => {
                let old = self.field(key, field)?;
                let number = old.map_or(Some(0), |old| integer(&old.value)).ok_or(KeysError::FieldNotInteger)?;
                let sum = number.checked_add(*by).ok_or(KeysError::Overflow)?;
                self.put_field(key, field, sum.to_string().into(), KeyEvent::HashAdd)?;
                Ok(KeysReply::Integer(sum))
            }
            HashCommand::AddFloat { key, field, by } => {
                check_decimal(by)?;
                let old = self.field(key, field)?.map_or(Bytes::from_static(b"0"), |old| old.value);
                let sum = Bytes::from(decimal_sum(&old, by, KeysError::FieldNotFloat)?);
                self.put_field(key, field, sum.clone(), KeyEvent::HashAddFloat)?;
                Ok(KeysReply::Value(sum))
            }
        }
    }

    /// Returns the values of fields that exist.
    fn values(&mut self, key: &Bytes, fields: &[Bytes]) -> Result<Vec<Option<Bytes>>, T::Error> {
        let mut bytes = ReplyBytes::default();
        let values = self.each_element(key, Kind::Hash, fields, |element| {
            let value = element.map(|element| element.value);
            _ = bytes.add(value.as_ref().map_or(0, Bytes::len));
            value.filter(|_| bytes.check().is_ok())
        })?;
        bytes.check()?;
        Ok(values)
    }

    fn set_fields(
        &mut self,
        key: &Bytes,
        fields: &[(Bytes, Bytes)],
        condition: &Condition,
        expiry: Expiry,
    ) -> Result<KeysReply, T::Error> {
        let bytes = fields.iter().map(|(_, value)| value.len()).sum();
        self.context.charge_rows(fields.len(), bytes)?;
        check_pairs(fields)?;
        check_expiry(expiry)?;
        let found = self.typed(key, Kind::Hash)?;
        if *condition != Condition::Always {
            for (field, _) in fields {
                let old = found.as_ref().map(|open| self.live_element(open.id(), field)).transpose()?.flatten();
                if !applies(condition, old.as_ref()) {
                    return Ok(KeysReply::NotApplied);
                }
            }
        }
        if fields.is_empty() {
            return Ok(KeysReply::Count(0));
        }
        let mut open = self.found_or_new(found, key, Kind::Hash)?;
        let mut added = 0;
        for (field, value) in fields {
            let expires_at = match expiry {
                Expiry::Never => None,
                Expiry::Keep => self.live_element(open.id(), field)?.and_then(|old| old.expires_at),
                Expiry::At(at) => Some(at),
                Expiry::In(nanos) => Some(self.context.after(nanos)),
            };
            added += u64::from(self.put(&mut open, field, value.clone(), expires_at)?);
        }
        self.context.note(open.space, key, &[KeyEvent::HashSet]);
        let events = self.expiry_events(Kind::Hash, expiry);
        self.save(open, events)?;
        Ok(KeysReply::Count(added))
    }

    fn field(&mut self, key: &Bytes, field: &Bytes) -> Result<Option<Element>, T::Error> {
        self.context.charge_rows(1, 0)?;
        check_fields([field])?;
        let Some(open) = self.typed(key, Kind::Hash)? else { return Ok(None) };
        self.live_element(open.id(), field)
    }

    /// Sets a field and leaves its expiry. The key holds a hash or is missing.
    fn put_field(&mut self, key: &Bytes, field: &Bytes, value: Bytes, event: KeyEvent) -> Result<(), T::Error> {
        let found = self.typed(key, Kind::Hash)?;
        let mut open = self.found_or_new(found, key, Kind::Hash)?;
        let expires_at = self.live_element(open.id(), field)?.and_then(|old| old.expires_at);
        let expires_at = expires_at.filter(|_| !Mutant::FieldExpiryForgotten.is_on());
        self.put(&mut open, field, value, expires_at)?;
        self.save(open, &[event])
    }
}

/// Returns whether a condition holds for a field that exists, or is missing.
fn applies(condition: &Condition, element: Option<&Element>) -> bool {
    match condition {
        Condition::Always => true,
        Condition::Missing => element.is_none(),
        Condition::Exists => element.is_some(),
        Condition::Version(version) => element.is_some_and(|element| element.version == *version),
        Condition::Value(value) => element.is_some_and(|element| element.value == *value),
    }
}
