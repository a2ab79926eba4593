//! The measurements, which are the same for every system.
//!
//! A program that measures a system implements [`System`] for a node of the system and calls [`run`]. The program then
//! runs as two kinds of processes: the *driver*, which the user starts, and its *hosts*, which the driver starts and
//! each of which contains one or all nodes of the cluster. The load runs in a host, in tasks of the same process as the
//! node, as in an application that embeds it. The driver sends requests to the standard input of the hosts, and reads
//! the resources that they used from the operating system. So a host can be killed, and the work of the driver is not
//! part of any figure.
//!
//! # Invariants
//!
//! - A figure is printed only if all nodes have the rows that were acknowledged.
//! - Every wait has a time limit, and a run that did not finish says so.
//! - Systems differ only in their [`System`]. Tables, statements, clients, clocks and counting are the same code.

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
pub use machine::{Disk, MIB, Usage, data_dir};
pub use report::{Report, finish};
pub use system::{About, INSERT, INSERT_FILLER, Level, NodeSpec, Row, SELECT, Stage, System, locked_version};

/// Any error ends a measurement.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// The result of a measurement's parts.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Measures a system, or runs as one of its hosts, until this process has nothing more to do. Returns whether that
/// succeeded.
pub fn run<S: System>(measure: &Measure) -> bool {
    let done = match measure {
        Measure::Host { spec, .. } => host::run::<S>(spec),
        _ => scenario::run::<S>(measure),
    };
    finish(measure, done)
}
