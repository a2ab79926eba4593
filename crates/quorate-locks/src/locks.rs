//! The commands that change locks.

use std::ops::ControlFlow;

use bytes::Bytes;
use quorate_env::mutant::Mutant;
use quorate_model::keys::limits::TIME_MAX;
use quorate_model::locks::limits::WAITERS_MAX;
use quorate_model::locks::{Lease, LocksCommand, LocksReply, Token, Wait};

use crate::context::Context;
use crate::tables::{ClaimRow, LockRow, Tables};

/// Runs commands on tables.
pub struct Locks<'a, T> {
    pub(crate) tables: &'a mut T,
    pub(crate) context: &'a mut Context,
}

/// A lock that a command works on. It is settled: nothing of it has expired, and if somebody waits, no permit is free.
struct Open<'a> {
    name: &'a Bytes,
    /// What the tables hold, or nothing.
    before: Option<LockRow>,
    row: LockRow,
}

impl Open<'_> {
    fn is_free(&self) -> bool {
        self.row.held < self.row.permits.saturating_add(Mutant::PermitTooMany.is_on().into())
    }
}

/// What a command to acquire asks for.
struct Asked<'a> {
    holder: &'a Bytes,
    ttl: u64,
    permits: u64,
    wait: Option<u64>,
    note: &'a Bytes,
}

impl<'a, T: Tables> Locks<'a, T> {
    /// Runs commands in a context.
    pub fn new(tables: &'a mut T, context: &'a mut Context) -> Self {
        Self { tables, context }
    }

    /// Runs a command.
    ///
    /// # Errors
    ///
    /// [`LocksError`](crate::LocksError), and those of the tables.
    pub fn run(&mut self, command: &LocksCommand) -> Result<LocksReply, T::Error> {
        self.context.charge_command()?;
        match command {
            LocksCommand::Acquire { name, holder, ttl, permits, wait, note } => {
                self.context.charge_claim()?;
                self.acquire(name, &Asked { holder, ttl: *ttl, permits: *permits, wait: *wait, note })
            }
            LocksCommand::Renew { name, holder, token, ttl } => self.renew(name, holder, *token, *ttl),
            LocksCommand::Release { name, holder } => self.release(name, holder),
            LocksCommand::Withdraw { name, holder } => self.withdraw(name, holder),
            LocksCommand::Force { name, token } => self.force(name, *token),
            LocksCommand::Expect { name, token } => self.check_held(name, *token),
            LocksCommand::Inspect { name } => self.inspect(name),
            LocksCommand::List { names, limit } => self.list(names, *limit),
        }
    }

    fn acquire(&mut self, name: &Bytes, asked: &Asked<'_>) -> Result<LocksReply, T::Error> {
        let mut lock = self.open(name, asked.permits)?;
        let reply = if lock.row.permits == asked.permits {
            self.claim(&mut lock, asked)?
        } else {
            LocksReply::OtherPermits(lock.row.permits)
        };
        self.save(lock)?;
        Ok(reply)
    }

    fn claim(&mut self, lock: &mut Open<'_>, asked: &Asked<'_>) -> Result<LocksReply, T::Error> {
        let Asked { holder, ttl, wait, note, .. } = *asked;
        if let Some(found) = self.tables.claim(lock.name, holder)? {
            let lasts = if found.held { Some(ttl) } else { wait };
            let ends_at = lasts.map_or(found.ends_at, |lasts| self.after(lasts));
            let claim = ClaimRow { ttl, ends_at, note: note.clone(), ..found };
            self.tables.update_claim(lock.name, &claim)?;
            return self.standing(lock.name, &claim);
        }
        let is_free = lock.is_free();
        if !is_free && (wait.is_none() || lock.row.waiting >= WAITERS_MAX) {
            let oldest = self.oldest(lock.name)?;
            return Ok(if wait.is_some() { LocksReply::Full(oldest) } else { LocksReply::Busy(oldest) });
        }
        let lasts = if is_free { ttl } else { wait.unwrap_or_default() };
        let (number, ends_at) = (self.next_token()?, self.after(lasts));
        let claim = ClaimRow { holder: holder.clone(), held: is_free, number, ttl, ends_at, note: note.clone() };
        self.tables.add_claim(lock.name, &claim)?;
        if is_free {
            lock.row.held += 1;
        } else {
            lock.row.waiting += 1;
        }
        self.standing(lock.name, &claim)
    }

    fn renew(&mut self, name: &Bytes, holder: &Bytes, token: Token, ttl: u64) -> Result<LocksReply, T::Error> {
        let lock = self.open(name, 0)?;
        let is_of = |claim: &ClaimRow| claim.number == token || Mutant::StaleRenewed.is_on();
        let found = self.tables.claim(name, holder)?.filter(|claim| claim.held && is_of(claim));
        let reply = match found {
            Some(found) => {
                let claim = ClaimRow { ttl, ends_at: self.after(ttl), ..found };
                self.tables.update_claim(name, &claim)?;
                self.standing(name, &claim)?
            }
            None => LocksReply::Missing,
        };
        self.save(lock)?;
        Ok(reply)
    }

    fn release(&mut self, name: &Bytes, holder: &Bytes) -> Result<LocksReply, T::Error> {
        let mut lock = self.open(name, 0)?;
        let reply = match self.tables.claim(name, holder)? {
            Some(claim) => {
                self.end(&mut lock, &claim)?;
                if !Mutant::WaitersForgotten.is_on() {
                    self.grant(&mut lock)?;
                }
                if claim.held { LocksReply::Released(self.lease(&claim)) } else { LocksReply::Withdrawn }
            }
            None => LocksReply::Missing,
        };
        self.save(lock)?;
        Ok(reply)
    }

    fn withdraw(&mut self, name: &Bytes, holder: &Bytes) -> Result<LocksReply, T::Error> {
        let mut lock = self.open(name, 0)?;
        let reply = match self.tables.claim(name, holder)? {
            Some(claim) if claim.held => LocksReply::Held(self.lease(&claim)),
            Some(claim) => {
                self.end(&mut lock, &claim)?;
                LocksReply::Withdrawn
            }
            None => LocksReply::Missing,
        };
        self.save(lock)?;
        Ok(reply)
    }

    fn force(&mut self, name: &Bytes, token: Option<Token>) -> Result<LocksReply, T::Error> {
        let mut lock = self.open(name, 0)?;
        let mut ended = self.all(name, true)?;
        ended.retain(|claim| token.is_none_or(|token| token == claim.number));
        for claim in &ended {
            self.end(&mut lock, claim)?;
            self.context.touch(name, &claim.holder);
        }
        self.grant(&mut lock)?;
        self.save(lock)?;
        Ok(LocksReply::Forced(ended.into_iter().map(|claim| claim.number).collect()))
    }

    /// Settles a lock.
    pub(crate) fn settle(&mut self, name: &Bytes) -> Result<(), T::Error> {
        let lock = self.open(name, 0)?;
        self.save(lock)
    }

    /// Returns a lock, settled. One that does not exist has as many permits as are asked for.
    fn open<'n>(&mut self, name: &'n Bytes, permits: u64) -> Result<Open<'n>, T::Error> {
        let before = self.tables.lock(name)?;
        let row = before.unwrap_or(LockRow { permits, ..LockRow::default() });
        let mut lock = Open { name, before, row };
        if before.is_some_and(|row| row.due <= self.context.now) {
            while let Some(claim) = self.tables.first_end(name)?.filter(|claim| claim.ends_at <= self.context.now) {
                self.end(&mut lock, &claim)?;
                self.context.touch(name, &claim.holder);
            }
            self.grant(&mut lock)?;
        }
        if lock.row.held + lock.row.waiting == 0 && permits > 0 {
            lock.row.permits = permits;
        }
        Ok(lock)
    }

    /// Grants free permits to those who wait, first come, first served.
    fn grant(&mut self, lock: &mut Open<'_>) -> Result<(), T::Error> {
        while lock.is_free() && lock.row.waiting > 0 {
            let Some(first) = self.first(lock.name, false)? else { break };
            let (number, ends_at) = (self.next_token()?, self.after(first.ttl));
            self.context.touch(lock.name, &first.holder);
            self.tables.update_claim(lock.name, &ClaimRow { held: true, number, ends_at, ..first })?;
            lock.row.held += 1;
            lock.row.waiting -= 1;
        }
        Ok(())
    }

    /// Ends a claim. The caller must grant what this frees.
    fn end(&mut self, lock: &mut Open<'_>, claim: &ClaimRow) -> Result<(), T::Error> {
        let count = if claim.held { &mut lock.row.held } else { &mut lock.row.waiting };
        *count = count.saturating_sub(1);
        self.tables.remove_claim(lock.name, &claim.holder)
    }

    /// Writes what has become of a lock; one without claims does not exist.
    fn save(&mut self, lock: Open<'_>) -> Result<(), T::Error> {
        let Open { name, before, mut row } = lock;
        let first = self.tables.first_end(name)?;
        row.due = first.as_ref().map_or(0, |claim| claim.ends_at);
        match (before, first) {
            (Some(before), Some(_)) if before == row => Ok(()),
            (Some(_), Some(_)) => self.tables.update_lock(name, &row),
            (None, Some(_)) => self.tables.add_lock(name, &row),
            (Some(_), None) => self.tables.remove_lock(name),
            (None, None) => Ok(()),
        }
    }

    /// Returns the next token: above all that were given, and above all of a history that a restore has ended, because
    /// that gave none for an entry with such an index.
    fn next_token(&mut self) -> Result<Token, T::Error> {
        let last = self.tables.last_token()?;
        let next = match last.0.checked_sub(1).filter(|_| Mutant::TokenLowered.is_on()) {
            Some(lower) => Token(lower),
            None => Token(last.0.saturating_add(1)).max(Token::first(self.context.index)),
        };
        self.tables.set_last_token(next)?;
        Ok(next)
    }

    fn after(&self, lasts: u64) -> u64 {
        self.context.now.saturating_add(lasts).min(TIME_MAX)
    }

    pub(crate) fn lease(&self, claim: &ClaimRow) -> Lease {
        Lease { token: claim.number, left: self.left(claim) }
    }

    pub(crate) fn left(&self, claim: &ClaimRow) -> u64 {
        claim.ends_at.saturating_sub(self.context.now)
    }

    fn standing(&mut self, name: &Bytes, claim: &ClaimRow) -> Result<LocksReply, T::Error> {
        if claim.held {
            return Ok(LocksReply::Held(self.lease(claim)));
        }
        let ahead = self.tables.count_before(name, claim.number)?;
        Ok(LocksReply::Waiting(Wait { ahead, left: self.left(claim) }))
    }

    fn oldest(&mut self, name: &Bytes) -> Result<Lease, T::Error> {
        Ok(self.first(name, true)?.map(|claim| self.lease(&claim)).unwrap_or_default())
    }

    fn first(&mut self, name: &Bytes, held: bool) -> Result<Option<ClaimRow>, T::Error> {
        let mut first = None;
        self.tables.claims(name, held, &mut |claim| {
            first = Some(claim);
            if Mutant::LastIsServedFirst.is_on() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(first)
    }

    /// Returns all leases of a lock, or all waits for it; both have limits.
    pub(crate) fn all(&mut self, name: &Bytes, held: bool) -> Result<Vec<ClaimRow>, T::Error> {
        let mut all = Vec::new();
        self.tables.claims(name, held, &mut |claim| {
            all.push(claim);
            ControlFlow::Continue(())
        })?;
        Ok(all)
    }
}
