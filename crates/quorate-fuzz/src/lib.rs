//! Fuzz targets: each is a function that checks the properties of a decoder, or of a family of decoders, on any bytes.
//!
//! `cargo xtask fuzz` runs them under libFuzzer (`fuzz/`), which is guided by coverage. The tests of this crate run
//! them on the committed corpora and on mutations of these. A target computes checksums itself: it appends the right
//! one, so that the code behind the check is reached, and flips bits afterwards to see that the decoder refuses them.
//!
//! Invariants:
//! - A target panics if, and only if, a property is violated. The same input always gives the same result.
//! - The way in which a target interprets its input changes only if that is necessary, because the committed corpora
//!   would lose their meaning.

#![forbid(unsafe_code)]

mod archive;
mod cli;
mod config;
mod disk;
mod http;
mod input;
mod model;
mod peer;
mod resp;
mod sql;
mod wal;
mod wire;

/// A decoder, or a family of decoders, and the check of its properties.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of the target and of its corpus.
    pub name: &'static str,
    /// The maximum length of an input in bytes.
    pub input_max: usize,
    /// The bytes that the target may allocate at a time, whatever lengths the input announces.
    pub memory_max: usize,
    /// Runs the target on an input. Panics if a property is violated.
    pub run: fn(&[u8]),
}

/// The memory limit for decoders of small messages.
const SMALL: usize = 4 << 20;

/// All targets.
pub const TARGETS: &[Target] = &[
    target("proposal", 512, SMALL, model::proposal),
    target("entry", 512, SMALL, model::entry),
    target("outcome", 512, SMALL, model::outcome),
    target("row", 512, SMALL, model::row),
    target("user", 512, SMALL, model::user),
    target("log", 512, 16 << 20, wal::log),
    target("log-raw", 8192, 16 << 20, wal::raw),
    target("frames", 256, SMALL, wire::frames),
    target("messages", 640, SMALL, wire::messages),
    target("handshake", 256, SMALL, wire::handshake),
    target("peer-messages", 512, SMALL, peer::nodes),
    target("client-messages", 512, SMALL, peer::clients),
    target("image-piece", 1024, 16 << 20, sql::image_piece),
    target("store-files", 512, SMALL, sql::files),
    target("ltx", 1024, 16 << 20, archive::ltx),
    target("config", 256, SMALL, config::server),
    target("csv", 128, SMALL, cli::csv),
    target("ndjson", 128, SMALL, cli::ndjson),
    target("script", 128, SMALL, cli::script),
    target("http-hrana", 512, SMALL, http::hrana),
    target("http-socket", 512, SMALL, http::socket),
    target("http-rqlite", 256, SMALL, http::rqlite),
    target("http-sql", 128, SMALL, http::sql),
    target("resp-requests", 512, SMALL, resp::requests),
    // A command of a few bytes may make a string of 16 MiB.
    target("resp-door", 256, 1 << 30, resp::door),
];

const fn target(name: &'static str, input_max: usize, memory_max: usize, run: fn(&[u8])) -> Target {
    Target { name, input_max, memory_max, run }
}

/// Returns the target with a name.
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
