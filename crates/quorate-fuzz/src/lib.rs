//! What must hold for any bytes that a decoder of Quorate is given: a function for each decoder, or family of them.
//!
//! `cargo xtask fuzz` runs them under libFuzzer, which finds its way by coverage (`fuzz/`); the tests here run them on
//! the committed corpora and on mutations of these. Both ends of a checksum are in the hands of a target: it completes
//! the bytes with the right one, so that what lies behind is reached, and damages them with care to see it refused.
//!
//! Invariants:
//! - A target panics exactly where a promise is broken. It does the same each time.
//! - What a target makes of bytes never changes without need: the corpora would mean something else.

#![forbid(unsafe_code)]

mod cli;
mod config;
mod disk;
mod input;
mod model;
mod peer;
mod sql;
mod wal;
mod wire;

/// A decoder, or a family of them, and what must hold of it.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, and that of its corpus.
    pub name: &'static str,
    /// Bytes of an input at most.
    pub input_max: usize,
    /// Bytes that it may allocate at a time, whatever the input says.
    pub memory_max: usize,
    /// Panics if something does not hold.
    pub run: fn(&[u8]),
}

/// What a small message may take.
const SMALL: usize = 4 << 20;

/// All targets.
pub const TARGETS: &[Target] = &[
    target("proposal", 512, SMALL, model::proposal),
    target("entry", 512, SMALL, model::entry),
    target("outcome", 512, SMALL, model::outcome),
    target("row", 512, SMALL, model::row),
    target("log", 512, 16 << 20, wal::log),
    target("log-raw", 8192, 16 << 20, wal::raw),
    target("frames", 256, SMALL, wire::frames),
    target("messages", 640, SMALL, wire::messages),
    target("handshake", 256, SMALL, wire::handshake),
    target("peer-messages", 512, SMALL, peer::nodes),
    target("client-messages", 512, SMALL, peer::clients),
    target("image-piece", 1024, 16 << 20, sql::image_piece),
    target("store-files", 512, SMALL, sql::files),
    target("config", 256, SMALL, config::server),
    target("csv", 128, SMALL, cli::csv),
    target("ndjson", 128, SMALL, cli::ndjson),
    target("script", 128, SMALL, cli::script),
];

const fn target(name: &'static str, input_max: usize, memory_max: usize, run: fn(&[u8])) -> Target {
    Target { name, input_max, memory_max, run }
}

/// The target of a name.
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
