//! Hooks for simulations: sizes that applications can't configure, a wrapper between consensus and the state machine
//! that observes what is applied, and groups beside `main`.
//!
//! Invariant: the default hooks change nothing.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use quorate_apply::waits::Waits;
use quorate_consensus::{ConsensusConfig, OpenStore};
use quorate_model::{GroupId, StateMachine, StoreIdentity};
use quorate_sql::options::StoreOptions;
use quorate_sql::store::SqlStore;

/// Changes the options with which a store is opened.
pub type TuneStore = Arc<dyn Fn(&mut StoreOptions) + Send + Sync>;

/// Wraps the store; consensus uses the returned state machine in its place.
pub type WatchStore = Arc<dyn Fn(SqlStore) -> Arc<dyn StateMachine> + Send + Sync>;

/// Opens the store of a group beside `main`, for the cluster, epoch and group of its argument. The store must wake the
/// waiters for topics that entries touch.
pub type OpenGroup =
    Arc<dyn Fn(StoreIdentity, Waits) -> Result<Arc<dyn StateMachine>, Box<dyn Error + Send + Sync>> + Send + Sync>;

/// Changes how a node is assembled.
#[derive(Clone, Default)]
pub struct SimHooks {
    /// The highest format level that the node understands; if `None`, that of this build.
    pub level: Option<u32>,
    /// Whether the node announces that it can write an archive, although its configuration has none.
    pub archives: bool,
    /// The size of one file of the log, in bytes.
    pub log_segment_bytes: Option<u64>,
    /// Changes the options with which the store is opened.
    pub tune: Option<TuneStore>,
    /// Wraps the store.
    pub watch: Option<WatchStore>,
    /// Groups beside `main`. All nodes must have the same.
    pub groups: BTreeMap<GroupId, OpenGroup>,
}

impl SimHooks {
    pub(crate) fn consensus(&self, config: ConsensusConfig) -> ConsensusConfig {
        let level = self.level.unwrap_or(config.level);
        let log_segment_bytes = self.log_segment_bytes.unwrap_or(config.log_segment_bytes);
        let archives = self.archives || config.archives;
        ConsensusConfig { level, archives, log_segment_bytes, ..config }
    }

    /// Returns new waits for each group beside `main`.
    pub(crate) fn waits(&self) -> BTreeMap<GroupId, Waits> {
        self.groups.keys().map(|group| (*group, Waits::default())).collect()
    }

    /// Returns the stores of the groups beside `main`. Each wakes the waiters of its group.
    pub(crate) fn stores(&self, waits: &BTreeMap<GroupId, Waits>) -> impl IntoIterator<Item = (GroupId, OpenStore)> {
        let store = |(group, open): (&GroupId, &OpenGroup)| {
            let (open, waits) = (Arc::clone(open), waits.get(group).cloned().unwrap_or_default());
            (*group, Box::new(move |identity| open(identity, waits)) as OpenStore)
        };
        self.groups.iter().map(store)
    }

    pub(crate) fn options(&self, mut options: StoreOptions) -> StoreOptions {
        options.level = self.level.unwrap_or(options.level);
        if let Some(tune) = &self.tune {
            tune(&mut options);
        }
        options
    }

    pub(crate) fn store(&self, store: SqlStore) -> Arc<dyn StateMachine> {
        match &self.watch {
            Some(watch) => watch(store),
            None => Arc::new(store),
        }
    }
}

impl fmt::Debug for SimHooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimHooks").field("log_segment_bytes", &self.log_segment_bytes).finish_non_exhaustive()
    }
}
