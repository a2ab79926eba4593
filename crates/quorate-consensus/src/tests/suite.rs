//! openraft's storage suite on our log, with real files.

use std::sync::Arc;

use openraft::StorageError;
use openraft::storage::RaftStateMachine;
use openraft::testing::log::{StoreBuilder, Suite};
use quorate_env::Env;
use quorate_model::{Entry, GroupId, LogId, NodeId, Payload, StateMachine};
use quorate_wal::{Opened, Restart, Wal, WalOptions};

use super::store::MemStore;
use crate::group_log::GroupLog;
use crate::home::Home;
use crate::identity::Identity;
use crate::metrics::GroupMetrics;
use crate::raft::log_store::LogStore;
use crate::raft::machine::Machine;
use crate::raft::runtime::RaftRuntime;
use crate::raft::types::TypeConfig;
use crate::stages::Stages;
use crate::verdict::Verdicts;

/// Builds the log and the state machine over this store.
struct Builder(Arc<MemStore>);

/// Keeps the directory, and ends the log's threads when dropped.
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
        let stages = Stages::new(env.clone(), NodeId(1), Arc::new(GroupMetrics::default()));
        let store: Arc<dyn StateMachine> = Arc::clone(&self.0) as _;
        let home = Home::new(env, wal.clone(), Identity::new(1, "n"), false);
        let log = GroupLog::new(&home, GroupId::MAIN);
        let verdicts = Verdicts::begin(&log, &store, Restart::Clean).await.unwrap();
        let machine = Machine::new(log.clone(), Arc::clone(&store), Arc::clone(&verdicts));
        let log_store = LogStore::new(&log, &stages, &store, &verdicts);
        Ok((Guard { wal, _dir: dir }, log_store, machine))
    }
}

#[test]
fn our_log_passes_openrafts_storage_suite() {
    use openraft_rt::AsyncRuntime;
    /// Builds a new store for each test of the suite.
    struct Fresh;
    impl StoreBuilder<TypeConfig, LogStore, Machine, Guard> for Fresh {
        async fn build(&self) -> Result<(Guard, LogStore, Machine), StorageError<TypeConfig>> {
            Builder(Arc::default()).build().await
        }
    }
    RaftRuntime::run(async { Suite::test_all(Fresh).await }).unwrap();
}

#[test]
fn a_snapshot_holds_only_what_the_core_has_applied() {
    use openraft_rt::AsyncRuntime;
    RaftRuntime::run(async {
        let store = Arc::new(MemStore::default());
        let (_guard, _log, mut machine) = Builder(Arc::clone(&store)).build().await.unwrap();
        machine.applied_state().await.unwrap();
        // As after an image that ends later than announced, or after the store's state was replaced.
        let log_id = LogId { term: 1, node: NodeId(1), index: 2 };
        store.apply(vec![Entry { log_id, payload: Payload::Blank }], false, Box::new(drop));
        assert!(
            machine.try_create_snapshot_builder(false).await.is_none(),
            "the log must keep the entries that are applied again"
        );
        machine.applied_state().await.unwrap();
        assert!(machine.try_create_snapshot_builder(false).await.is_some());
    });
}
