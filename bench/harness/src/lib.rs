//! What is measured and how, the same for every system.
//!
//! A program that measures a system implements [`System`] for a node of it and calls [`run`]. Two kinds of processes
//! follow from that program: the *driver*, which is what was typed, and its *hosts*, the same program once more, each
//! with one or all nodes of the cluster in it. The load runs in the host, in tasks beside the node, as in an
//! application that embeds it; the driver tells it what to do over its standard input, and reads what the hosts used
//! from the system. So a host can be killed, and what the driver does counts nowhere.
//!
//! # Invariants
//!
//! - A figure is printed only if the rows that are there are the rows that were acknowledged.
//! - Whatever is waited for has a limit, and a run that did not finish says so.
//! - Systems differ only in their [`System`]: tables, statements, clients, clocks and counting are written once.

#![forbid(unsafe_code)]

mod args;
mod cluster;
mod histogram;
mod host;
mod load;
mod machine;
mod protocol;
mod report;
mod scenario;
mod system;

pub use args::{Durability, Measure, Options, Processes, Role, SystemName};
pub use histogram::{Histogram, Summary};
pub use machine::{Disk, MIB, data_dir};
pub use report::{Report, finish};
pub use system::{About, INSERT, INSERT_FILLER, Level, NodeSpec, Row, SELECT, Stage, System, locked_version};

/// Any error ends a measurement.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// The result of a measurement's parts.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Measures a system, or is one of the processes that are measured; says whether that went well. Returns when there is
/// nothing more to do for this process.
pub fn run<S: System>(measure: &Measure) -> bool {
    let done = match measure {
        Measure::Host { spec, .. } => host::run::<S>(spec),
        _ => scenario::run::<S>(measure),
    };
    finish(measure, done)
}
