//! Tests of this crate: openraft's own storage suite, and whole clusters in the simulated world.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that fails may panic"
)]

mod archive;
mod birth;
mod cluster;
mod combiner;
mod groups;
mod leader_contact;
mod lineage;
mod members;
mod messages;
mod metrics;
mod pace;
mod promises;
mod purge;
mod reboot;
mod reconcile;
mod store;
mod suite;
mod thrift;
mod ticks;
mod verdict;
