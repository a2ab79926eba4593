//! Commands on keys, whatever they hold.

use std::ops::ControlFlow;

use bytes::Bytes;
use quorate_env::mutant::Mutant;
use quorate_model::keys::{
    Change, Condition, ExpiryCondition, KeyCommand, KeyEntry, KeyEvent, KeyInfo, KeysReply, Kind, Order, Page, Space,
    Span, Version,
};

use crate::KeysError;
use crate::keys::{Keys, Open, ReplyBytes, check_keys};
use crate::limits::{NEXT_ROW_STEPS, READ_ROWS_MAX};
use crate::tables::{KeyRow, Tables, after};

/// What a scan asks for.
pub(crate) struct Wanted {
    pub(crate) limit: u64,
    pub(crate) kind: Option<Kind>,
    pub(crate) values: bool,
}

/// How many rows a scan still needs, and what it has read.
struct Bounds {
    rows: u64,
    looked: u64,
    bytes: ReplyBytes,
}

impl Bounds {
    fn are_reached(&self) -> bool {
        self.looked >= READ_ROWS_MAX || self.bytes.check().is_err()
    }
}

type Found<E> = Result<(Vec<(Bytes, KeyRow)>, Option<Bytes>), E>;

impl<T: Tables> Keys<'_, T> {
    pub(crate) fn run_key(&mut self, command: &KeyCommand) -> Result<KeysReply, T::Error> {
        match command {
            KeyCommand::Delete { keys, condition } => self.delete(keys, condition),
            KeyCommand::Exists { keys } => self.exists(keys),
            KeyCommand::Describe { key } => {
                Ok(self.find(key)?.map_or(KeysReply::Missing, |open| KeysReply::Key(info(&open.row))))
            }
            KeyCommand::Expect { key, version } => self.check_version(key, *version),
            KeyCommand::Count { key, kind } => {
                let Some(open) = self.typed(key, *kind)? else { return Ok(KeysReply::Count(0)) };
                Ok(KeysReply::Count(self.live_count(&open.row)?))
            }
            KeyCommand::Expire { key, at, condition, relative } => {
                let at = self.context.time(*at, *relative)?;
                self.expire(key, at, *condition)
            }
            KeyCommand::Rename { key, to_space, to, replace } => self.rename(key, *to_space, to, *replace),
            KeyCommand::Copy { key, to_space, to, replace } => self.copy(key, *to_space, to, *replace),
            KeyCommand::CountAll => Ok(KeysReply::Count(self.tables.count_keys(self.space)?)),
            KeyCommand::Flush => {
                if self.tables.count_keys(self.space)? > 0 {
                    self.tables.detach_keys(self.space)?;
                    self.context.flush(self.space);
                }
                Ok(KeysReply::Done)
            }
            KeyCommand::Draw { seed } => self.draw_key(*seed),
            KeyCommand::Measure { key } => self.measure(key),
            KeyCommand::Scan { span, order, limit, kind, values } => {
                let wanted = Wanted { limit: *limit, kind: *kind, values: *values };
                Ok(KeysReply::Keys(self.scan(span.clone(), *order, &wanted)?))
            }
        }
    }

    fn delete(&mut self, keys: &[Bytes], condition: &Condition) -> Result<KeysReply, T::Error> {
        self.context.charge_rows(keys.len(), 0)?;
        check_keys(keys)?;
        let mut deleted = 0;
        for key in keys {
            let Some(open) = self.find(key)? else { continue };
            if applies(condition, Some(&open.row)) {
                self.remove(&open, &[KeyEvent::Delete])?;
                deleted += 1;
            }
        }
        Ok(KeysReply::Count(deleted))
    }

    fn exists(&mut self, keys: &[Bytes]) -> Result<KeysReply, T::Error> {
        self.context.charge_rows(keys.len(), 0)?;
        let mut found = 0;
        for key in keys {
            found += u64::from(self.find(key)?.is_some());
        }
        Ok(KeysReply::Count(found))
    }

    fn check_version(&mut self, key: &Bytes, version: Option<Version>) -> Result<KeysReply, T::Error> {
        let found = self.find(key)?.map(|open| open.row.version);
        let holds = found == version || Mutant::PremiseIgnored.is_on();
        if holds { Ok(KeysReply::Done) } else { Err(KeysError::Conflict.into()) }
    }

    fn expire(&mut self, key: &Bytes, at: Option<u64>, condition: ExpiryCondition) -> Result<KeysReply, T::Error> {
        let Some(open) = self.find(key)? else { return Ok(KeysReply::Missing) };
        let applied = self.expire_found(open, at, condition)?;
        Ok(if applied { KeysReply::Done } else { KeysReply::NotApplied })
    }

    /// Sets the expiry of a key, or removes it, and returns whether the condition held.
    pub(crate) fn expire_found(
        &mut self,
        mut open: Open,
        at: Option<u64>,
        condition: ExpiryCondition,
    ) -> Result<bool, T::Error> {
        match expiry_change(open.row.expires_at, at, condition, self.context.now) {
            Change::Done => {
                self.set_expiry(&mut open.row, at)?;
                self.save(open, &[if at.is_some() { KeyEvent::Expire } else { KeyEvent::Persist }])?;
                Ok(true)
            }
            Change::Removed => self.remove(&open, &[KeyEvent::Expired]).map(|()| true),
            Change::NotApplied | Change::Missing => Ok(false),
        }
    }

    fn rename(&mut self, key: &Bytes, to_space: Space, to: &Bytes, replace: bool) -> Result<KeysReply, T::Error> {
        let Some(mut open) = self.find(key)? else { return Ok(KeysReply::Missing) };
        if self.find_in(to_space, to)?.is_some() && !replace {
            return Ok(KeysReply::NotApplied);
        }
        if (to_space, to) == (open.space, key) {
            self.save(open, &[])?;
            return Ok(KeysReply::Done);
        }
        self.context.touch(open.space, key);
        self.free(to_space, to)?;
        self.tables.rename_key(open.id(), to_space, to)?;
        self.vacant = None;
        let (from, into) = if to_space == open.space {
            (KeyEvent::RenameFrom, KeyEvent::RenameTo)
        } else {
            (KeyEvent::MoveFrom, KeyEvent::MoveTo)
        };
        self.context.note(to_space, to, &[KeyEvent::New]);
        self.context.note(open.space, key, &[from]);
        (open.space, open.key) = (to_space, to.clone());
        self.save(open, &[into])?;
        Ok(KeysReply::Done)
    }

    fn copy(&mut self, key: &Bytes, to_space: Space, to: &Bytes, replace: bool) -> Result<KeysReply, T::Error> {
        let Some(open) = self.find(key)? else { return Ok(KeysReply::Missing) };
        let is_same = (to_space, to) == (open.space, key);
        let replaces = !is_same && self.find_in(to_space, to)?.is_some();
        if is_same || (replaces && !replace) {
            return Ok(KeysReply::NotApplied);
        }
        self.charge_copy(&open)?;
        let mut copy = self.create(to_space, to, open.row.kind)?;
        copy.row.value = open.row.value.clone();
        self.set_expiry(&mut copy.row, open.row.expires_at)?;
        self.copy_parts(&open, &mut copy)?;
        // In Redis the key that is replaced is gone before the copy.
        self.save(copy, if replaces { &[KeyEvent::New, KeyEvent::CopyTo] } else { &[KeyEvent::CopyTo] })?;
        Ok(KeysReply::Done)
    }

    /// Finds the keys of a page. A collection whose elements have all expired is found out after its row was read, so
    /// rows are read until there are enough.
    pub(crate) fn scan(&mut self, mut span: Span, order: Order, wanted: &Wanted) -> Result<Page<KeyEntry>, T::Error> {
        let mut rows = Vec::new();
        let mut bounds = Bounds { rows: 0, looked: 0, bytes: ReplyBytes::default() };
        loop {
            bounds.rows = wanted.limit.max(1) - rows.len() as u64;
            let (found, next) = self.candidates(&span, order, wanted, &mut bounds)?;
            for (key, row) in found {
                if self.is_alive(&row)? {
                    let value = (wanted.values && row.kind == Kind::String).then(|| row.value.clone());
                    rows.push(KeyEntry { key, info: info(&row), value });
                }
            }
            let is_full = rows.len() as u64 >= wanted.limit.max(1) || bounds.are_reached();
            match next {
                Some(next) if !is_full && order == Order::Up => span.from = next,
                Some(next) if !is_full => span.to = Some(next),
                next => return Ok(Page { rows, next }),
            }
        }
    }

    /// Reads the next rows that may be on a page, and where the ones after them start.
    fn candidates(&mut self, span: &Span, order: Order, wanted: &Wanted, bounds: &mut Bounds) -> Found<T::Error> {
        let (mut rows, mut next, mut result) = (Vec::new(), None, Ok(()));
        let context = &mut *self.context;
        self.tables.keys(self.space, span, order, &mut |(key, row)| {
            bounds.looked += 1;
            result = context.charge(NEXT_ROW_STEPS).and_then(|()| context.charge_bytes(row.value.len()));
            let here = key.clone();
            if context.is_alive(row.expires_at) && wanted.kind.is_none_or(|kind| kind == row.kind) {
                _ = bounds.bytes.add(key.len() + row.value.len());
                rows.push((key, row));
            }
            if result.is_err() || rows.len() as u64 >= bounds.rows || bounds.are_reached() {
                next = Some(if order == Order::Up { after(&here) } else { here });
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        result?;
        Ok((rows, next))
    }
}

/// Returns whether a condition holds for a key that exists, or is missing.
pub(crate) fn applies(condition: &Condition, row: Option<&KeyRow>) -> bool {
    match condition {
        Condition::Always => true,
        Condition::Missing => row.is_none(),
        Condition::Exists => row.is_some(),
        Condition::Version(version) => row.is_some_and(|row| row.version == *version),
        Condition::Value(value) => row.is_some_and(|row| row.kind == Kind::String && row.value == *value),
    }
}

/// Returns what a new expiry does to something that has one, or none, until now.
pub(crate) fn expiry_change(old: Option<u64>, new: Option<u64>, condition: ExpiryCondition, now: u64) -> Change {
    let order = new.unwrap_or(u64::MAX).cmp(&old.unwrap_or(u64::MAX));
    let applies = match condition {
        ExpiryCondition::Always => true,
        ExpiryCondition::Missing => old.is_none(),
        ExpiryCondition::Exists => old.is_some(),
        ExpiryCondition::Later => order.is_gt(),
        ExpiryCondition::Earlier => order.is_lt(),
    };
    match new {
        None if old.is_none() => Change::NotApplied,
        _ if !applies => Change::NotApplied,
        Some(at) if at <= now => Change::Removed,
        _ => Change::Done,
    }
}

fn info(row: &KeyRow) -> KeyInfo {
    KeyInfo { kind: row.kind, version: row.version, expires_at: row.expires_at }
}
