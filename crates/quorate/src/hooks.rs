//! What only simulations use: sizes that no one else has a reason to choose, the place between consensus and the state
//! machine, where a simulation watches what is applied.
//!
//! Invariant: the default changes nothing.

use std::fmt;
use std::sync::Arc;

use quorate_consensus::ConsensusConfig;
use quorate_model::StateMachine;
use quorate_sql::options::StoreOptions;
use quorate_sql::store::SqlStore;

/// Changes how a store is opened.
pub type TuneStore = Arc<dyn Fn(&mut StoreOptions) + Send + Sync>;

/// Gives what consensus is to take for the store.
pub type WatchStore = Arc<dyn Fn(SqlStore) -> Arc<dyn StateMachine> + Send + Sync>;

/// Changes how a node is put together.
#[derive(Clone, Default)]
pub struct SimHooks {
    /// The highest format level that the node understands; if `None`, that of this build.
    pub level: Option<u32>,
    /// Bytes of one file of the log.
    pub log_segment_bytes: Option<u64>,
    /// Changes how the store is opened.
    pub tune: Option<TuneStore>,
    /// Watches the store.
    pub watch: Option<WatchStore>,
}

impl SimHooks {
    pub(crate) fn consensus(&self, config: ConsensusConfig) -> ConsensusConfig {
        let level = self.level.unwrap_or(config.level);
        let log_segment_bytes = self.log_segment_bytes.unwrap_or(config.log_segment_bytes);
        ConsensusConfig { level, log_segment_bytes, ..config }
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
