//! What nodes say to each other.

pub(crate) mod messages;
