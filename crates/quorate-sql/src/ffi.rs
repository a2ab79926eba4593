//! The parts of SQLite's C interface for which rusqlite has no safe form: the only `unsafe` code of the crate.
//!
//! Invariants: what these modules export is safe to use in any order. No callback panics, because a panic must not
//! unwind through C frames.

#![expect(unsafe_code, reason = "SQLite's VFS, checkpoint and test-control interfaces exist only in C")]

pub(crate) mod control;
pub(crate) mod database;
mod file;
pub(crate) mod fts5;
pub(crate) mod functions;
pub(crate) mod hooks;
pub(crate) mod memory;
pub(crate) mod shm;
pub(crate) mod vfs;
