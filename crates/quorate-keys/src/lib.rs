//! The logic of Redis' data types (strings, hashes, sets, sorted sets and lists) over a table interface.
//!
//! [`Keys`] runs a [`KeysCommand`] on [`Tables`] and returns a [`KeysReply`]; [`Memory`] is an engine of such tables.
//! Beyond Redis, each key has a [`Version`] that a command can depend on, keys are scanned in the order of their bytes,
//! and fields of hashes and members of sets and sorted sets can expire. What is written here holds for all engines.
//!
//! # Invariants
//!
//! - What a command does and replies depends on the tables before it, the command and its [`Context`], and on nothing
//!   else: no clock, no randomness, no I/O. Of `quorate-env` it takes only the deliberate bugs.
//! - A command that fails, or does not apply, has written nothing.
//! - What has expired at the time of the context does not exist for any command, whether or not it was swept; but it
//!   counts where a command says so.
//! - The work of a command does not depend on the size of a collection, unless its documentation says so; then it has a
//!   limit. Its steps are charged before the work.
//!
//! # Example
//!
//! ```
//! use quorate_keys::{Context, Keys, KeysCommand, KeysReply, Memory, StringCommand, Version};
//!
//! let mut tables = Memory::default();
//! let mut context = Context::new(1_000, Version::new(7, 0), 10_000);
//! let add = KeysCommand::String(StringCommand::Add { key: "visits".into(), by: 5 });
//! assert_eq!(Keys::new(&mut tables, &mut context, 0).run(&add), Ok(KeysReply::Integer(5)));
//! ```

#![forbid(unsafe_code)]

mod bits;
mod blocks;
mod combine;
mod context;
mod copy;
mod draw;
mod elements;
mod error;
mod expiring;
mod generic;
mod hashes;
mod keys;
pub mod limits;
mod lists;
mod measure;
mod memory;
mod number;
mod ordered;
mod ranges;
mod run;
mod sets;
mod sorted_sets;
mod strings;
#[cfg(feature = "suite")]
pub mod suite;
mod sweep;
mod tables;

pub use blocks::BLOCK_MEMBERS_MAX;
pub use context::Context;
pub use error::KeysError;
pub use keys::Keys;
pub use memory::Memory;
pub use quorate_model::keys::{
    AddOptions, Aggregate, BitAction, BitCommand, BitInteger, BitOperation, BitRange, BitStep, BitUnit, Change,
    Collection, Compare, Condition, ElementCommand, End, EventClasses, Expiry, ExpiryCondition, HashCommand, KeyChange,
    KeyCommand, KeyEntry, KeyEvent, KeyInfo, KeySize, KeysCommand, KeysReply, Kind, ListCommand, Order, Overflow, Page,
    Range, SetCommand, SetOperation, SortedSetCommand, Space, SpaceCommand, Span, StringCommand, Version, Which,
};
pub use sweep::{next_due, sweep};
pub use tables::{Element, FIRST_PLACE, Id, KeyRow, Part, Place, Score, Tables, Visit, after};
