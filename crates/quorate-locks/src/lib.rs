//! The logic of distributed locks over a table interface: leases by the cluster's time, waits that are served first
//! come, first served, semaphores, and fencing tokens that rise for ever.
//!
//! [`Locks`] runs a [`LocksCommand`] on [`Tables`] and returns a [`LocksReply`]; [`Memory`] is an engine of such
//! tables.
//!
//! # Invariants
//!
//! - What a command does and replies depends on the tables before it, the command and its [`Context`], and on nothing
//!   else: no clock, no randomness, no I/O. Of `quorate-env` it takes only the deliberate bugs.
//! - A command that fails has written nothing; one that only reads writes nothing.
//! - A lease or a wait whose time has come by the time of the context does not exist for any command, whether or not it
//!   was swept.
//! - No more hold a lock than it has permits. While one is free, nobody waits, except while something of the lock
//!   has expired and was not settled yet. Each command on the lock, and the sweep, settles it first.
//! - Each grant has a token that is higher than that of all grants before it, of all locks.
//!
//! # Example
//!
//! ```
//! use quorate_locks::{Context, Locks, LocksCommand, LocksReply, Memory};
//!
//! let (mut tables, mut context) = (Memory::default(), Context::new(1_000, 7, 10_000));
//! let acquire = LocksCommand::Acquire {
//!     name: "jobs".into(),
//!     holder: "ann".into(),
//!     ttl: 1_000_000_000,
//!     permits: 1,
//!     wait: None,
//!     note: "".into(),
//! };
//! assert!(matches!(Locks::new(&mut tables, &mut context).run(&acquire), Ok(LocksReply::Held(_))));
//! ```

#![forbid(unsafe_code)]

mod context;
mod error;
mod locks;
mod memory;
mod reads;
#[cfg(feature = "suite")]
pub mod suite;
mod sweep;
mod tables;

pub use context::{Context, Touched};
pub use error::LocksError;
pub use locks::Locks;
pub use memory::Memory;
pub use quorate_model::locks::{Claim, Lease, LockInfo, LocksCommand, LocksReply, Token, Wait, limits};
pub use sweep::{next_due, sweep};
pub use tables::{ClaimRow, LockRow, Tables, Visit};
