//! The tables that the logic needs of an engine.
//!
//! # Invariants
//!
//! - An engine only stores and finds rows. It decides nothing, and knows no time.

use std::ops::ControlFlow;

use bytes::Bytes;
use quorate_model::keys::Span;
use quorate_model::locks::Token;

use crate::LocksError;

/// A lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockRow {
    /// How many may hold it.
    pub permits: u64,
    /// How many hold it.
    pub held: u64,
    /// How many wait for it.
    pub waiting: u64,
    /// When the first lease or wait ends.
    pub due: u64,
}

/// A lease of a lock, or a wait for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimRow {
    /// Whose it is. A lock has at most one claim of each holder.
    pub holder: Bytes,
    /// Whether it is a lease.
    pub held: bool,
    /// The token of the lease, or the number that gives the place of the wait. No two claims have the same.
    pub number: Token,
    /// How long a lease lasts that is granted to it.
    pub ttl: u64,
    /// When it ends, in nanoseconds since 1970.
    pub ends_at: u64,
    /// What the holder has said of itself.
    pub note: Bytes,
}

/// Called for rows in their order, until it breaks.
pub type Visit<'a, R> = &'a mut dyn FnMut(R) -> ControlFlow<()>;

/// The tables of locks.
pub trait Tables {
    /// Why a method failed; the commands fail with it too.
    type Error: From<LocksError>;

    /// Returns the highest token that was given.
    fn last_token(&mut self) -> Result<Token, Self::Error>;

    /// Sets the highest token that was given.
    fn set_last_token(&mut self, token: Token) -> Result<(), Self::Error>;

    /// Returns a lock.
    fn lock(&mut self, name: &[u8]) -> Result<Option<LockRow>, Self::Error>;

    /// Adds a lock.
    fn add_lock(&mut self, name: &Bytes, row: &LockRow) -> Result<(), Self::Error>;

    /// Changes a lock.
    fn update_lock(&mut self, name: &Bytes, row: &LockRow) -> Result<(), Self::Error>;

    /// Removes a lock.
    fn remove_lock(&mut self, name: &[u8]) -> Result<(), Self::Error>;

    /// Visits names of locks in their order.
    fn names(&mut self, names: &Span, visit: Visit<'_, Bytes>) -> Result<(), Self::Error>;

    /// Returns the lock in which something ends first.
    fn first_due(&mut self) -> Result<Option<(u64, Bytes)>, Self::Error>;

    /// Returns a holder's claim.
    fn claim(&mut self, name: &[u8], holder: &[u8]) -> Result<Option<ClaimRow>, Self::Error>;

    /// Returns the lease with a token.
    fn lease(&mut self, name: &[u8], token: Token) -> Result<Option<ClaimRow>, Self::Error>;

    /// Returns the claim that ends first.
    fn first_end(&mut self, name: &[u8]) -> Result<Option<ClaimRow>, Self::Error>;

    /// Visits the leases of a lock, or the waits for it, in the order of their numbers.
    fn claims(&mut self, name: &[u8], held: bool, visit: Visit<'_, ClaimRow>) -> Result<(), Self::Error>;

    /// Returns how many wait with lower numbers.
    fn count_before(&mut self, name: &[u8], number: Token) -> Result<u64, Self::Error>;

    /// Adds a claim.
    fn add_claim(&mut self, name: &Bytes, row: &ClaimRow) -> Result<(), Self::Error>;

    /// Changes the claim of a holder.
    fn update_claim(&mut self, name: &Bytes, row: &ClaimRow) -> Result<(), Self::Error>;

    /// Removes the claim of a holder.
    fn remove_claim(&mut self, name: &[u8], holder: &[u8]) -> Result<(), Self::Error>;
}
