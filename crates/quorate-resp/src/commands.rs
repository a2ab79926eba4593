//! The commands on keys, by their families: what each asks of the store, and how its answer becomes a reply.

pub mod bits;
pub mod blocking;
pub mod combined;
pub mod fields;
pub mod hashes;
pub mod keys;
pub mod lcs;
pub mod lists;
pub mod locks;
pub mod own;
pub mod ranges;
pub mod scans;
pub mod sets;
pub mod sort;
pub mod sorted_sets;
pub mod strings;
mod times;
