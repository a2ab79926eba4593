//! Small types that several handles use.

pub use quorate_consensus::ClusterId;
pub use quorate_model::{Epoch, GroupId, LogId, NodeId, StoreFault, ValueRef};
