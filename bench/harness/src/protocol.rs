//! What a driver asks of a host, one line of JSON each way.
//!
//! Invariant: a host answers every request once, in their order; its first line, unasked, says that its nodes serve. An
//! empty line is no request: it ends a load that has no end of its own.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::load::Load;
use crate::system::NodeSpec;

/// Marks the lines of a host that are answers: a library may print what it wants.
pub const ANSWER: &str = "answer ";

/// What a host is told when it starts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostSpec {
    /// The nodes in it.
    pub nodes: Vec<NodeSpec>,
}

/// What is asked of a host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Make the tables. Needs the leader.
    CreateTables,
    /// Whether one of its nodes leads: `bool`.
    Leads,
    /// Write rows that belong to these keys, and filler of so many MiB. Needs the leader.
    Fill {
        /// From 1 to this.
        rows: u64,
        /// Added to the database.
        mib: u64,
    },
    /// How many rows each of its nodes has applied: `Vec<u64>`.
    Counts,
    /// Bytes of its first node's database: `u64`.
    DatabaseBytes,
    /// Wait until each of its nodes answers a linearizable read, and a local one, of this row.
    Ready {
        /// Its key.
        id: i64,
    },
    /// Run a load, if need be until an empty line comes: [`crate::load::Loaded`].
    Run(Load),
    /// Stop its nodes in good order. It can do nothing more then.
    Stop,
    /// Run inserts, kill a process, wait until an insert that began after that is acknowledged:
    /// [`crate::load::Recovered`].
    Failover {
        /// The load; its ends do not count.
        load: Load,
        /// The process.
        pid: i32,
    },
}

/// An answer: the value that the request names, or why there is none.
pub type Answer = Result<Value, String>;
