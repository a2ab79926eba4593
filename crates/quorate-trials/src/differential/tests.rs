//! Runs the trial for a few thousand statements. That a difference is found is tested by `tests/program.rs`.

use std::path::PathBuf;

use super::run::{Settings, run};
use crate::harness::cluster::Cluster;
use crate::harness::options::Options;

/// Returns the binary that the tests of quorate-cli use, which the tests of the workspace build.
fn binary() -> PathBuf {
    // This program is in the folder `deps` next to it.
    let binary = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("quorate");
    assert!(binary.is_file(), "build the binary first: cargo build -p quorate-cli");
    binary
}

#[tokio::test]
async fn a_cluster_under_kills_does_what_sqlite_does() {
    let settings = Settings { seed: 20_261_124, statements: 10_000, kills: 6, break_at: None };
    let mut cluster = Cluster::start(&Options { dir: None, quorate: Some(binary()) }, &[]).await.unwrap();
    let summary = run(&settings, &cluster).await;
    cluster.stop().await.unwrap();
    let summary = summary.unwrap_or_else(|difference| panic!("{difference}"));
    println!("{summary:?}");
    assert!(summary.statements >= 10_000 && summary.kills.all >= 5 && summary.kills.leaders >= 1, "{summary:?}");
    // The comparison is meaningful: most statements succeed, and all kinds of units and of failures occur.
    let failed: u64 = summary.failures.values().sum();
    assert!((300..3000).contains(&failed) && summary.failures.len() >= 8, "{summary:?}");
    assert!(summary.units.len() == 8 && summary.units.values().all(|count| *count > 0), "{summary:?}");
}
