//! A node that runs alone with durability `os`, on a machine that is restarted.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

mod support;

use quorate::config::Durability;
use quorate::restore::RestoreOptions;
use quorate::{Config, Node, StartError, restore};
use support::dying::DyingDisk;
use support::run;
use tempfile::TempDir;

async fn start(config: &Config, boot_id: &'static str) -> Result<Node, StartError> {
    loop {
        match Node::start_in(DyingDisk::booted(boot_id).env(), config.clone()).await {
            // A worker of the last process may still wait for the disk.
            Err(StartError::InUse(_)) => {}
            started => return started,
        }
    }
}

async fn count(node: &Node) -> i64 {
    node.sql().query_one("SELECT count(*) FROM t", ()).await.unwrap()
}

#[test]
fn the_documented_recovery_starts_the_node() {
    run(async {
        let dir = TempDir::new().unwrap();
        let config = Config::single(dir.path().join("data")).with_durability(Durability::Os);
        let node = start(&config, "first").await.unwrap();
        node.sql().execute("CREATE TABLE t (number)", ()).await.unwrap();
        node.sql().execute("INSERT INTO t VALUES (1), (2), (3)", ()).await.unwrap();
        // The process ends but the machine does not restart: nothing is lost.
        drop(node);
        let node = start(&config, "first").await.unwrap();
        assert_eq!(count(&node).await, 3);
        let former = node.status().applied;
        drop(node);

        let error = start(&config, "second").await.err().unwrap();
        assert!(matches!(error, StartError::Consensus(quorate_consensus::StartError::Rebooted)), "{error}");
        assert!(error.to_string().contains("docs/operate.md"), "{error}");

        let saved = dir.path().join("saved.db");
        let database = rusqlite::Connection::open(config.data_dir.join("db/00000001/quorate.db")).unwrap();
        database.execute("VACUUM INTO ?", [saved.to_str().unwrap()]).unwrap();
        drop(database);
        let replacing = RestoreOptions { replace: true, ..RestoreOptions::default() };
        let restored = restore(&saved, &config, &replacing).await.unwrap();
        assert!(restored.position.epoch > former.epoch, "earlier positions are of another history");

        let node = start(&config, "second").await.unwrap();
        assert_eq!(count(&node).await, 3);
        // After an orderly stop, a restart of the machine loses nothing.
        node.stop().await;
        let node = start(&config, "third").await.unwrap();
        assert_eq!(count(&node).await, 3);
        node.stop().await;
    });
}
