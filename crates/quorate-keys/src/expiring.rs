//! Members of sorted sets that expire by themselves.
//!
//! # Invariants
//!
//! - A member that has an expiry has an element beside its score, which says when; no other member has one. So the row
//!   of the key counts them, and is due, as that of a hash or a set.
//! - No element is looked up while no member of the set has an expiry.

use bytes::Bytes;
use quorate_env::mutant::Mutant;
use quorate_model::keys::{Change, ExpiryCondition, KeysReply, Kind};

use crate::generic::expiry_change;
use crate::keys::{Keys, Open};
use crate::tables::{Element, KeyRow, Score, Tables};

/// A member of a sorted set, as the tables have it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    pub(crate) score: Score,
    pub(crate) expires_at: Option<u64>,
}

impl<T: Tables> Keys<'_, T> {
    /// Takes the steps for the elements of members of a set; none if it has none.
    pub(crate) fn charge_expiries(&mut self, row: &KeyRow, members: usize) -> Result<(), T::Error> {
        let rows = if row.volatile > 0 { members.saturating_mul(2) } else { 0 };
        Ok(self.context.charge_rows(rows, 0)?)
    }

    /// Returns a member, also if it has expired.
    pub(crate) fn member(&mut self, row: &KeyRow, member: &[u8]) -> Result<Option<Member>, T::Error> {
        let Some(score) = self.tables.score(row.id, member)? else { return Ok(None) };
        self.with_expiry(row, member, score).map(Some)
    }

    /// Returns the member with a score.
    pub(crate) fn with_expiry(&mut self, row: &KeyRow, member: &[u8], score: Score) -> Result<Member, T::Error> {
        let element = if row.volatile > 0 { self.tables.element(row.id, member)? } else { None };
        Ok(Member { score, expires_at: element.and_then(|element| element.expires_at) })
    }

    /// Returns a member that exists.
    pub(crate) fn live_member(&mut self, row: &KeyRow, member: &[u8]) -> Result<Option<Member>, T::Error> {
        let found = self.member(row, member)?;
        Ok(found.filter(|found| self.context.is_alive(found.expires_at) || Mutant::FieldIsAlive.is_on()))
    }

    /// Returns the score of a member that exists.
    pub(crate) fn live_score(&mut self, row: &KeyRow, member: &[u8]) -> Result<Option<Score>, T::Error> {
        Ok(self.live_member(row, member)?.map(|found| found.score))
    }

    /// Gives a member that has an expiry, or none, another one, or none.
    pub(crate) fn put_expiry(
        &mut self,
        open: &mut Open,
        member: &Bytes,
        old: Option<u64>,
        at: Option<u64>,
    ) -> Result<(), T::Error> {
        open.row.volatile -= u64::from(old.is_some());
        let Some(at) = at else {
            return if old.is_some() { self.tables.remove_element(open.id(), member) } else { Ok(()) };
        };
        open.row.volatile += 1;
        let element = Element { version: self.context.version, expires_at: Some(at), value: Bytes::new() };
        self.tables.put_element(open.id(), member, &element)?;
        self.be_due(&mut open.row, at)
    }

    pub(crate) fn expire_member(
        &mut self,
        open: &mut Open,
        member: &Bytes,
        at: Option<u64>,
        condition: ExpiryCondition,
    ) -> Result<Change, T::Error> {
        let Some(found) = self.live_member(&open.row, member)? else { return Ok(Change::Missing) };
        let change = expiry_change(found.expires_at, at, condition, self.context.now);
        match change {
            Change::Done => self.put_expiry(open, member, found.expires_at, at)?,
            Change::Removed => self.drop_member(open, member, found)?,
            Change::NotApplied | Change::Missing => {}
        }
        Ok(change)
    }

    pub(crate) fn describe_members(&mut self, key: &Bytes, members: &[Bytes]) -> Result<KeysReply, T::Error> {
        self.context.charge_rows(members.len().saturating_mul(2), 0)?;
        let open = self.typed(key, Kind::SortedSet)?;
        let mut described = Vec::with_capacity(members.len());
        for member in members {
            let Some(open) = &open else { break };
            let found = self.live_member(&open.row, member)?;
            described.push(found.map(|found| (open.row.version, found.expires_at)));
        }
        described.resize(members.len(), None);
        Ok(KeysReply::Described(described))
    }
}
