//! The requests of a driver to a host, and the answers. Each is one line of JSON.
//!
//! Invariant: a host answers every request once, in the order of the requests. Its first answer, without a request,
//! says that its nodes serve. An empty line is not a request: it ends a load that has no limit.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::load::Load;
use crate::system::NodeSpec;

/// The prefix of the lines of a host that are answers. Libraries may print other lines.
pub const ANSWER: &str = "answer ";

/// The argument with which a host is started.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostSpec {
    /// The nodes in the host.
    pub nodes: Vec<NodeSpec>,
}

/// A request to a host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Creates the tables. The host must contain the leader.
    CreateTables,
    /// Asks whether one of its nodes leads: `bool`.
    Leads,
    /// Writes rows with these keys, and filler. The host must contain the leader.
    Fill {
        /// The last key; the first is 1.
        rows: u64,
        /// The size of the filler in MiB.
        mib: u64,
    },
    /// Asks how many rows each of its nodes has applied: `Vec<u64>`.
    Counts,
    /// Asks for the bytes of its first node's database: `u64`.
    DatabaseBytes,
    /// Waits until each of its nodes answers a linearizable read and a local read of this row.
    Ready {
        /// The key of the row.
        id: i64,
    },
    /// Runs a load; if it has no limit, until an empty line comes: [`crate::load::Loaded`].
    Run(Load),
    /// Stops its nodes cleanly. The host can't handle requests after that.
    Stop,
    /// Runs inserts, kills a process, and waits until an insert that began after the kill is acknowledged:
    /// [`crate::load::Recovered`].
    Failover {
        /// The load, whose limits are ignored.
        load: Load,
        /// The process to kill.
        pid: i32,
    },
}

/// An answer: the value that the request describes, or an error text.
pub type Answer = Result<Value, String>;
