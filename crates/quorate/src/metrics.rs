//! What a node measures, gathered from its parts: [`Node::metrics`](crate::Node::metrics).
//!
//! `docs/metrics.md` names each of them as `quorate-server` shows it.

use std::time::Duration;

use quorate_env::disk::Space;
use quorate_env::metrics::{Counter, Histogram};
use quorate_env::{Instant, Usage};
use quorate_model::{NodeId, StoreFault};

pub use quorate_consensus::{
    ConsensusMetrics, FailureCounts, LONG_SYNC, LongSync, LongSyncs, WalMetrics, WalStats, WriteMetrics, WriteTrace,
};
pub use quorate_sql::metrics::StoreMetrics;
pub use quorate_sql::store::Sizes;
pub use quorate_wire::Connections;

use crate::error::Error;
use crate::level::Level;
pub use crate::node::WriteTraces;
use crate::readiness::NotReady;
use crate::status::Status;

/// One in so many validations is timed: most take less than looking at the clock twice costs.
pub const VALIDATIONS_PER_SAMPLE: u64 = 16;

/// Everything that a node measures, as it was at one moment. What counts began with the node's start.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// The version of this library.
    pub version: &'static str,
    /// The version of the SQLite that is built in.
    pub sqlite_version: &'static str,
    /// How the node and its cluster stand.
    pub status: Status,
    /// Why the node can't serve at the moment; empty if it can.
    pub not_ready: Vec<NotReady>,
    /// The database's fault, if it has one.
    pub fault: Option<StoreFault>,
    /// A member of which nothing was heard for longer than this counts as unreachable.
    pub silence_max: Duration,
    /// The clocks of the other members that can be reached, minus this node's, in nanoseconds.
    pub clock_offsets: Vec<(NodeId, i64)>,
    /// What is asked of the node.
    pub node: NodeMetrics,
    /// Its part in consensus.
    pub consensus: ConsensusMetrics,
    /// Its log.
    pub log: WalMetrics,
    /// Figures about its log.
    pub log_stats: WalStats,
    /// Its database.
    pub store: StoreMetrics,
    /// How large its database is.
    pub sizes: Sizes,
    /// Connections of other nodes and of clients.
    pub connections: Connections,
    /// The file system of its data directory, if it can be asked.
    pub space: Option<Space>,
    /// What its process has used, with everything else in it; `None` in a simulation.
    pub usage: Option<Usage>,
    /// Since its start.
    pub uptime: Duration,
}

/// What is asked of a node.
#[derive(Clone, Debug, Default)]
pub struct NodeMetrics {
    validations: Counter,
    /// How long it took to check a statement that is to be proposed: one in [`VALIDATIONS_PER_SAMPLE`].
    pub validate: Histogram,
    /// Statements that were refused by that check.
    pub invalid: Counter,
    /// Reads.
    pub reads: ReadMetrics,
    /// Attempts of reads and writes of this node's handles after the first.
    pub retries: Counter,
    /// Times that this node's data were found to differ from those of a majority.
    pub divergences: Counter,
    /// Times that nodes were found to differ, this one or others.
    pub disagreements: Counter,
}

/// Reads that a node was asked for, by its handles and by clients.
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
    /// Those of all levels that failed, but for the next.
    pub failed: Counter,
    /// Those of all levels that were refused because no reader became free in time.
    pub overloaded: Counter,
}

impl NodeMetrics {
    /// Checks a statement, and times it now and then.
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
    /// Counts a read by what came of it.
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
