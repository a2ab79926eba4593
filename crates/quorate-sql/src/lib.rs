//! Quorate's SQLite store: a deterministic state machine in one SQLite file that can be killed at any instant.
//!
//! [`SqlStore`] implements [`quorate_model::StateMachine`]. One writer applies committed entries by the rules of
//! [`quorate_apply`], which sees the database as a [`machine`]; readers
//! run on the threads of their callers ([`readers`]); only the store runs checkpoints ([`checkpoint`]); an [`image`] is
//! the database file itself, sent while the store keeps working; a [`generation`] is the directory that holds one
//! database, replaced as a whole when an image is installed; a [`backup`] is an image in a separate file; a [`capture`]
//! reads the pages that commits have changed.
//!
//! # Invariants
//!
//! - One thread at a time uses the only write connection. Code other than apply may use it only between transactions.
//! - The applied row changes in the same transaction as the data, so a restart continues exactly where the store
//!   stopped.
//! - Applying uses no clock but the entry's stamp, no randomness but its seed, and no query plan that depends on this
//!   node.
//! - The main file and the `-shm` of a generation are opened once and closed last ([`generation`]): closing any handle
//!   of them drops SQLite's POSIX locks.
//! - A checkpoint runs only inside the gate of [`checkpoint`], and an image exists only after a complete one.
//! - All `unsafe` code is in `ffi`.

#![allow(rustdoc::private_intra_doc_links, reason = "module docs explain the parts of the crate to its developers")]
#![deny(unsafe_code)]

mod ffi;

pub mod backup;
pub mod capture;
pub mod checkpoint;
pub mod cluster_time;
pub mod connection;
pub mod error;
pub mod events;
pub mod extensions;
mod functions;
#[doc(hidden)]
pub mod fuzzing;
pub mod generation;
#[cfg(test)]
mod hostile;
pub mod image;
pub mod keys;
pub mod locks;
pub mod metrics;
pub mod options;
mod stack;
pub mod store;
mod supervision;
pub mod usage;
mod value;
pub mod vfs;

pub mod authorizer;
pub mod classify;
pub mod determinism;
pub mod logical_hash;
pub mod machine;
pub mod plain;
pub mod records;
pub mod rows_hash;
pub mod schema_check;

pub mod query;
pub mod readers;
pub mod slow;
pub mod validate;

pub use error::OpenError;
pub use extensions::Extensions;
pub use options::StoreOptions;
pub use store::SqlStore;
