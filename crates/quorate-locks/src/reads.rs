//! The commands that only read. They see what has not expired, whether or not the rest was swept.

use std::ops::ControlFlow;

use bytes::Bytes;
use quorate_env::mutant::Mutant;
use quorate_model::keys::{Page, Span};
use quorate_model::locks::limits::{LIST_CLAIMS_MAX, LIST_MAX};
use quorate_model::locks::{Claim, Lease, LockInfo, LocksReply, Token};

use crate::error::LocksError;
use crate::locks::Locks;
use crate::tables::{ClaimRow, Tables};

impl<T: Tables> Locks<'_, T> {
    pub(crate) fn check_held(&mut self, name: &Bytes, token: Token) -> Result<LocksReply, T::Error> {
        if Mutant::FencingIgnored.is_on() {
            return Ok(LocksReply::Held(Lease::default()));
        }
        let lease = self.tables.lease(name, token)?.filter(|lease| lease.ends_at > self.context.now);
        let lease = lease.ok_or(LocksError::NotHeld(token))?;
        Ok(LocksReply::Held(self.lease(&lease)))
    }

    pub(crate) fn inspect(&mut self, name: &Bytes) -> Result<LocksReply, T::Error> {
        Ok(self.info(name)?.map_or(LocksReply::Missing, LocksReply::Lock))
    }

    pub(crate) fn list(&mut self, names: &Span, limit: u64) -> Result<LocksReply, T::Error> {
        let limit = usize::try_from(limit.min(LIST_MAX)).unwrap_or(usize::MAX);
        let mut found = Vec::new();
        self.tables.names(names, &mut |name| {
            found.push(name);
            if found.len() > limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        let (mut rows, mut claims) = (Vec::new(), 0);
        for (number, name) in found.into_iter().enumerate() {
            if number >= limit || claims >= LIST_CLAIMS_MAX {
                return Ok(LocksReply::Locks(Page { rows, next: Some(name) }));
            }
            self.context.charge_command()?;
            if let Some(lock) = self.info(&name)? {
                claims += lock.holders.len() + lock.waiters.len();
                rows.push(lock);
            }
        }
        Ok(LocksReply::Locks(Page { rows, next: None }))
    }

    /// Returns a lock that somebody holds or waits for.
    fn info(&mut self, name: &Bytes) -> Result<Option<LockInfo>, T::Error> {
        let Some(lock) = self.tables.lock(name)? else { return Ok(None) };
        let (holders, waiters) = (self.present(name, true)?, self.present(name, false)?);
        let exists = !(holders.is_empty() && waiters.is_empty());
        Ok(exists.then(|| LockInfo { name: name.clone(), permits: lock.permits, holders, waiters }))
    }

    fn present(&mut self, name: &Bytes, held: bool) -> Result<Vec<Claim>, T::Error> {
        let claims = self.all(name, held)?;
        self.context.charge_read(claims.len())?;
        Ok(claims.into_iter().filter(|claim| claim.ends_at > self.context.now).map(|claim| self.shown(claim)).collect())
    }

    fn shown(&self, claim: ClaimRow) -> Claim {
        let left = self.left(&claim);
        Claim { holder: claim.holder, token: claim.number, left, note: claim.note }
    }
}
