//! The metrics of a node, collected from its components: [`Node::metrics`](crate::Node::metrics).
//!
//! `docs/metrics.md` gives the names under which `quorate-server` exports them.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_env::disk::Space;
use quorate_env::metrics::{Counter, Histogram};
use quorate_env::{Instant, Usage};
use quorate_model::{GroupId, NodeId, StoreFault};

pub use quorate_consensus::{
    FailureCounts, GroupMetrics, LONG_SYNC, LongSync, LongSyncs, WalMetrics, WalStats, WriteMetrics, WriteTrace,
};
pub use quorate_sql::metrics::StoreMetrics;
pub use quorate_sql::store::Sizes;
pub use quorate_wire::Connections;

pub use crate::archive::metrics::ArchiveMetrics;
use crate::error::Error;
use crate::level::Level;
pub use crate::node::WriteTraces;
use crate::readiness::NotReady;
use crate::status::Status;

/// One in this many validations is timed, because most take less time than reading the clock twice.
pub const VALIDATIONS_PER_SAMPLE: u64 = 16;

/// All metrics of a node at one point in time. Counters start at zero when the node starts.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// The version of this library.
    pub version: &'static str,
    /// The version of the SQLite that is built in.
    pub sqlite_version: &'static str,
    /// The state of the node and its cluster.
    pub status: Status,
    /// Why the node can't serve at the moment; empty if it can.
    pub not_ready: Vec<NotReady>,
    /// The database's fault, if it has one.
    pub fault: Option<StoreFault>,
    /// A member that was silent for longer than this counts as unreachable.
    pub silence_max: Duration,
    /// The clocks of the other members that can be reached, minus this node's, in nanoseconds.
    pub clock_offsets: Vec<(NodeId, i64)>,
    /// Metrics of the requests to the node.
    pub node: NodeMetrics,
    /// Metrics of the group `main`.
    pub main: GroupMetrics,
    /// Metrics of the other groups.
    pub groups: BTreeMap<GroupId, GroupMetrics>,
    /// What this node, as the archiver, has asked of the store of the archive.
    pub archive: ArchiveMetrics,
    /// Metrics of the log.
    pub log: WalMetrics,
    /// Statistics of the log.
    pub log_stats: WalStats,
    /// Metrics of the database.
    pub store: StoreMetrics,
    /// The sizes of the database's files.
    pub sizes: Sizes,
    /// The connections of other nodes and of clients.
    pub connections: Connections,
    /// The space on the file system of its data directory, if it could be read.
    pub space: Option<Space>,
    /// The resources that the whole process has used; `None` in a simulation.
    pub usage: Option<Usage>,
    /// The time since its start.
    pub uptime: Duration,
}

/// Metrics of the requests to a node.
#[derive(Clone, Debug, Default)]
pub struct NodeMetrics {
    validations: Counter,
    /// How long it took to check a statement before it is proposed; one in [`VALIDATIONS_PER_SAMPLE`] is measured.
    pub validate: Histogram,
    /// Statements that this check refused.
    pub invalid: Counter,
    /// Reads.
    pub reads: ReadMetrics,
    /// Repeated attempts of reads and writes of this node's handles, without the first attempts.
    pub retries: Counter,
    /// Times that this node's data were found to differ from those of a majority.
    pub divergences: Counter,
    /// Times that nodes were found to differ, whether this node or others.
    pub disagreements: Counter,
    /// Logins of users.
    pub logins: LoginMetrics,
}

/// The checks of credentials that doors requested from a node; see [`Users`](crate::users::Users).
#[derive(Clone, Debug, Default)]
pub struct LoginMetrics {
    /// Credentials that were accepted.
    pub succeeded: Counter,
    /// Credentials that were wrong.
    pub failed: Counter,
    /// Credentials that were not checked, because too many logins have failed or were waiting.
    pub delayed: Counter,
}

/// The reads that handles and clients requested from a node.
#[derive(Clone, Debug, Default)]
pub struct ReadMetrics {
    /// At [`Level::Local`].
    pub local: Counter,
    /// At [`Level::AtLeast`].
    pub at_least: Counter,
    /// At [`Level::Linearizable`].
    pub linearizable: Counter,
    /// At [`Level::Bounded`].
    pub bounded: Counter,
    /// Reads of all levels that failed, except those counted next.
    pub failed: Counter,
    /// Reads of all levels that were refused because no reader became free in time.
    pub overloaded: Counter,
}

impl NodeMetrics {
    /// Checks a statement, and times the check for a sample of the statements.
    pub(crate) fn validated<T, E>(&self, check: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let begun = self.validations.next().is_multiple_of(VALIDATIONS_PER_SAMPLE).then(Instant::now);
        let result = check();
        if let Some(begun) = begun {
            self.validate.observe(begun.elapsed());
        }
        result.inspect_err(|_| self.invalid.inc())
    }
}

impl ReadMetrics {
    /// Counts a read and its result.
    pub(crate) fn count<T>(&self, level: Level, result: &Result<T, Error>) {
        match level {
            Level::Local => self.local.inc(),
            Level::AtLeast(_) => self.at_least.inc(),
            Level::Linearizable => self.linearizable.inc(),
            Level::Bounded(_) => self.bounded.inc(),
        }
        match result {
            Ok(_) => {}
            Err(Error::Overloaded(_)) => self.overloaded.inc(),
            Err(_) => self.failed.inc(),
        }
    }
}
