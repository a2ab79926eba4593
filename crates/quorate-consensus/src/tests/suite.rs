//! openraft's storage suite on our log, real files underneath.

use std::sync::Arc;

use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use quorate_env::Env;
use quorate_model::{GroupId, NodeId};
use quorate_wal::{Opened, Wal, WalOptions};

use super::store::MemStore;
use crate::home::Home;
use crate::identity::Identity;
use crate::metrics::ConsensusMetrics;
use crate::raft::log_store::LogStore;
use crate::raft::machine::Machine;
use crate::raft::runtime::RaftRuntime;
use crate::raft::types::TypeConfig;
use crate::stages::Stages;

struct Builder;

/// Keeps the directory, and ends the log's threads.
struct Guard {
    wal: Wal,
    _dir: tempfile::TempDir,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.wal.close_clean(Box::new(drop));
    }
}

impl StoreBuilder<TypeConfig, LogStore, Machine, Guard> for Builder {
    async fn build(&self) -> Result<(Guard, LogStore, Machine), StorageError<TypeConfig>> {
        let dir = tempfile::tempdir().unwrap();
        let env = Env::real();
        let options = WalOptions { segment_bytes: 64 << 10, ..WalOptions::small(1) };
        let Opened { wal, writer, keeper, .. } =
            Wal::open(env.disk().clone(), &dir.path().join("log"), options).unwrap();
        let (writer_bell, keeper_bell) = (writer.signal().clone(), keeper.signal().clone());
        env.start_worker("log", writer, &writer_bell).unwrap();
        env.start_worker("segments", keeper, &keeper_bell).unwrap();
        let stages = Stages::new(env.clone(), NodeId(1), Arc::new(ConsensusMetrics::default()));
        let store = Arc::new(MemStore::default());
        let machine = Machine::new(Home::new(env, wal.clone(), Identity::new(1, "n"), false), store.clone());
        Ok((Guard { wal: wal.clone(), _dir: dir }, LogStore::new(wal, GroupId::MAIN, stages, store), machine))
    }
}

#[test]
fn our_log_passes_openrafts_storage_suite() {
    use openraft_rt::AsyncRuntime;
    RaftRuntime::run(async { Suite::test_all(Builder).await }).unwrap();
}
