//! The adapters for openraft: its types, runtime, network, log and state machine, implemented with Quorate's own.
//!
//! Invariants:
//! - The crate exports no type of openraft.
//! - A thread never borrows the core's metrics twice at once: if the core changes them in between, both wait for ever.

pub(crate) mod codec;
pub(crate) mod log_store;
pub(crate) mod machine;
pub(crate) mod network;
pub(crate) mod runtime;
pub(crate) mod thrift;
pub(crate) mod types;

/// The core.
pub(crate) type Raft = openraft::Raft<types::TypeConfig, machine::Machine>;
