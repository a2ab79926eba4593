//! The rules of applying committed entries, once for all engines.
//!
//! An [`Applier`] applies many entries in one transaction of a [`Machine`], each with the result that it would have
//! alone. A machine is an [`Engine`] that keeps the data, the [`Records`] that apply keeps beside them, and the
//! [`Stores`] that run commands. This crate owns everything that does not depend on the engine: exactly-once sessions
//! ([`session`]) and keys of requests ([`requests`]), the users ([`users`]), the clock of stamps, staging until COMMIT,
//! entries one by one after a transaction was lost, the outcome hash ([`outcome_hash`]), work ahead, and dry runs
//! ([`applier`]). After the commit, [`waits`] wakes those who wait for what an entry has touched, and [`changes`] tells
//! those who watch keys.
//!
//! [`memory`] is an engine that keeps its data in memory, and [`items`] a small store on it, for tests;
//! [`memory_store`] keeps both in a file, as the state machine of a group. `suite` has the tests that every machine
//! must pass.
//!
//! # Invariants
//!
//! - No input makes apply panic, stop, or run without bound. The failure of a command is an outcome.
//! - A fault of the node is never an outcome. It rolls back the transaction, and nothing of the transaction is applied.
//! - Outcomes and data do not depend on where batches end, on restarts, or on the contents of caches.
//! - The applied row is written in the same transaction as the data.

#![allow(rustdoc::private_intra_doc_links, reason = "module docs explain the parts of the crate to its developers")]
#![forbid(unsafe_code)]

pub mod applier;
pub mod changes;
pub mod items;
pub mod machine;
pub mod memory;
pub mod memory_store;
pub mod outcome_hash;
mod rejected;
pub mod requests;
pub mod row;
pub mod session;
#[cfg(any(test, feature = "suite"))]
pub mod suite;
mod trouble;
pub mod users;
pub mod waits;

pub use applier::{
    Applier, DryRunError, DryRunResult, HASHES_KEPT, SWEPT_PER_ENTRY, SWEPT_PER_TICK, Touched, check_level,
};
pub use machine::{
    Allowance, CommandContext, Engine, Machine, Records, RequestPlace, RequestRecord, Scope, SessionRecord, Stores,
};
pub use requests::Requests;
pub use row::AppliedRow;
pub use trouble::{Trouble, no_store};
pub use users::Users;
