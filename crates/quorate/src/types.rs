//! Small types that several handles use.

pub use quorate_consensus::ClusterId;
pub use quorate_model::{Archiver, Epoch, GroupId, LogId, NodeId, StoreFault, ValueRef};
