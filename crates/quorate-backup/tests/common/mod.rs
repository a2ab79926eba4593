//! A node with some rows, and a directory for its backups.

#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses a part of it, and stops at the first surprise")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use quorate::{Config, Node};
use quorate_backup::store::{Location, Store};
use tempfile::TempDir;

/// How long any state may take to be reached.
pub const DEADLINE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

pub struct Place {
    pub dir: TempDir,
    pub node: Node,
}

impl Place {
    pub async fn start(rows: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::start(Config::single(dir.path().join("node"))).await.unwrap();
        node.sql().execute("CREATE TABLE kept (noise BLOB)", ()).await.unwrap();
        for _ in 0..rows {
            node.sql().execute("INSERT INTO kept VALUES (randomblob(100000))", ()).await.unwrap();
        }
        std::fs::create_dir(dir.path().join("store")).unwrap();
        Self { dir, node }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn location(&self) -> Location {
        Location::dir(self.path("store")).unwrap()
    }

    pub fn store(&self) -> Store {
        Store::open(&self.location(), None).unwrap()
    }
}

pub fn names(store: &Store) -> Vec<String> {
    let dir = store.location().as_dir().unwrap();
    let mut names: Vec<String> =
        std::fs::read_dir(dir).unwrap().map(|item| item.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

pub async fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        tokio::time::sleep(POLL).await;
    }
}
