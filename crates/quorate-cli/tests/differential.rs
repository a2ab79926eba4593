//! Runs the same generated SQL on a cluster of processes that are killed, and on plain SQLite, as
//! `examples/differential` does with any number of statements.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "tests run real processes and stop at the first surprise"
)]

#[path = "../examples/harness/mod.rs"]
mod harness;
#[path = "../examples/differential/run/mod.rs"]
mod run;

use harness::cluster::Cluster;
use harness::options::Options;
use run::{Settings, Verdict};

async fn compare(settings: &Settings) -> harness::Result<Verdict> {
    let mut options = Options::of([("quorate", env!("CARGO_BIN_EXE_quorate"))]);
    let mut cluster = Cluster::start(&mut options, &[]).await.unwrap();
    let verdict = run::run(settings, &cluster).await;
    cluster.stop().await.unwrap();
    verdict
}

#[tokio::test]
async fn a_cluster_under_kills_does_what_sqlite_does() {
    let settings = Settings { seed: 20_261_124, statements: 10_000, kills: 6, break_at: None };
    let verdict = compare(&settings).await.unwrap_or_else(|difference| panic!("{difference}"));
    println!("{verdict}");
    assert!(verdict.statements >= 10_000 && verdict.kills.all >= 5 && verdict.kills.leaders >= 1, "{verdict}");
    // The comparison is meaningful: most statements succeed, and all kinds of units and of failures occur.
    let failed: u64 = verdict.failures.values().sum();
    assert!((300..3000).contains(&failed) && verdict.failures.len() >= 8, "{verdict}");
    assert!(verdict.units.len() == 8 && verdict.units.values().all(|count| *count > 0), "{verdict}");
}

#[tokio::test]
async fn a_row_that_only_one_side_has_is_found() {
    let settings = Settings { seed: 1, statements: 600, kills: 0, break_at: Some(200) };
    let difference = compare(&settings).await.unwrap_err().to_string();
    // The row may be found by its number or by itself, at the latest in the next comparison of all data.
    let expected = ["DIFFERENT in unit", "--seed 1 --statements 600", "cluster:", "plain"];
    assert!(expected.iter().all(|text| difference.contains(text)), "{difference}");
}
