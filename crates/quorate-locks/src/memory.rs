//! The tables in memory.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use quorate_model::keys::Span;
use quorate_model::locks::Token;

use crate::LocksError;
use crate::tables::{ClaimRow, LockRow, Tables, Visit};

/// Tables of locks in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    last: Token,
    locks: BTreeMap<Bytes, Lock>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Lock {
    row: LockRow,
    claims: BTreeMap<Bytes, ClaimRow>,
}

type Done<T> = Result<T, LocksError>;

impl Memory {
    fn claims_of(&self, name: &[u8]) -> impl Iterator<Item = &ClaimRow> {
        self.locks.get(name).into_iter().flat_map(|lock| lock.claims.values())
    }

    fn put_claim(&mut self, name: &Bytes, row: &ClaimRow) {
        self.locks.entry(name.clone()).or_default().claims.insert(row.holder.clone(), row.clone());
    }

    fn put_lock(&mut self, name: &Bytes, row: &LockRow) {
        self.locks.entry(name.clone()).or_default().row = *row;
    }
}

impl Tables for Memory {
    type Error = LocksError;

    fn last_token(&mut self) -> Done<Token> {
        Ok(self.last)
    }

    fn set_last_token(&mut self, token: Token) -> Done<()> {
        self.last = token;
        Ok(())
    }

    fn lock(&mut self, name: &[u8]) -> Done<Option<LockRow>> {
        Ok(self.locks.get(name).map(|lock| lock.row))
    }

    fn add_lock(&mut self, name: &Bytes, row: &LockRow) -> Done<()> {
        self.put_lock(name, row);
        Ok(())
    }

    fn update_lock(&mut self, name: &Bytes, row: &LockRow) -> Done<()> {
        self.put_lock(name, row);
        Ok(())
    }

    fn remove_lock(&mut self, name: &[u8]) -> Done<()> {
        self.locks.remove(name);
        Ok(())
    }

    fn names(&mut self, names: &Span, visit: Visit<'_, Bytes>) -> Done<()> {
        let from = (Bound::Included(names.from.clone()), Bound::Unbounded);
        let inside = |name: &&Bytes| names.to.as_ref().is_none_or(|to| *name < to);
        for name in self.locks.range(from).map(|(name, _)| name).take_while(inside) {
            if visit(name.clone()).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn first_due(&mut self) -> Done<Option<(u64, Bytes)>> {
        Ok(self.locks.iter().map(|(name, lock)| (lock.row.due, name.clone())).min())
    }

    fn claim(&mut self, name: &[u8], holder: &[u8]) -> Done<Option<ClaimRow>> {
        Ok(self.locks.get(name).and_then(|lock| lock.claims.get(holder)).cloned())
    }

    fn lease(&mut self, name: &[u8], token: Token) -> Done<Option<ClaimRow>> {
        Ok(self.claims_of(name).find(|claim| claim.held && claim.number == token).cloned())
    }

    fn first_end(&mut self, name: &[u8]) -> Done<Option<ClaimRow>> {
        Ok(self.claims_of(name).min_by_key(|claim| (claim.ends_at, claim.holder.clone())).cloned())
    }

    fn claims(&mut self, name: &[u8], held: bool, visit: Visit<'_, ClaimRow>) -> Done<()> {
        let mut claims: Vec<&ClaimRow> = self.claims_of(name).filter(|claim| claim.held == held).collect();
        claims.sort_by_key(|claim| claim.number);
        for claim in claims {
            if visit(claim.clone()).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn count_before(&mut self, name: &[u8], number: Token) -> Done<u64> {
        Ok(self.claims_of(name).filter(|claim| !claim.held && claim.number < number).count() as u64)
    }

    fn add_claim(&mut self, name: &Bytes, row: &ClaimRow) -> Done<()> {
        self.put_claim(name, row);
        Ok(())
    }

    fn update_claim(&mut self, name: &Bytes, row: &ClaimRow) -> Done<()> {
        self.put_claim(name, row);
        Ok(())
    }

    fn remove_claim(&mut self, name: &[u8], holder: &[u8]) -> Done<()> {
        if let Some(lock) = self.locks.get_mut(name) {
            lock.claims.remove(holder);
        }
        Ok(())
    }
}
