//! The adapters for openraft: its types, runtime, network, log and state machine, implemented with Quorate's own.
//!
//! Invariant: the crate exports no type of openraft.

pub(crate) mod codec;
pub(crate) mod log_store;
pub(crate) mod machine;
pub(crate) mod network;
pub(crate) mod runtime;
pub(crate) mod thrift;
pub(crate) mod types;

/// The core.
pub(crate) type Raft = openraft::Raft<types::TypeConfig, machine::Machine>;
