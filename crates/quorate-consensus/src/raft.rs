//! Everything that touches openraft: its types, its runtime, its log and its state machine over ours.
//!
//! Invariant: no type of openraft is named outside of this folder and of [`peer`](crate::peer), and none leaves the
//! crate.

pub(crate) mod codec;
pub(crate) mod log_store;
pub(crate) mod machine;
pub(crate) mod network;
pub(crate) mod runtime;
pub(crate) mod thrift;
pub(crate) mod types;

/// The core, as the rest of this crate holds it.
pub(crate) type Raft = openraft::Raft<types::TypeConfig, machine::Machine>;
