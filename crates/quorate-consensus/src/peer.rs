//! The messages between nodes.

pub(crate) mod messages;
