//! The page of the figures, in Markdown.

use quorate_bench_harness::Disk;

use super::{Load, Run};
use crate::compare::{commit, machine, page::grouped};
use crate::markdown::{Table, wrapped};

/// Returns the page of these runs.
pub fn markdown(runs: &[Run], disk: &Disk, seconds: f64) -> String {
    let about = format!(
        "Commands of Redis, sent by `redis-benchmark` to one server after the other: to a cluster of three processes, \
         which acknowledges a write when a majority has synced it, and to one process of Valkey with `appendfsync \
         always` and one with `everysec`, on the same processors and the same disk as the load. Quorate keeps three \
         copies, Valkey one. This page is written by `cd bench && cargo run --release -- resp --quorate QUORATE \
         --valkey VALKEY --seconds {seconds}`. \
         Measured at commit `{}`: {}. An `fdatasync` of 4 KiB took {:.0} us at the median right \
         before. Each cell is the run with the median rate: requests per second, and the 99th percentile of their \
         latency. With one key, lists, sets, sorted sets and hashes have one member; with more, members and fields \
         are random, but the list, set, sorted set and hash are still one, as `redis-benchmark` does it.",
        commit(),
        machine(),
        disk.sync.p50_us,
    );
    let mut table = Table::new(&[
        "command",
        "keys",
        "bytes",
        "connections",
        "pipeline",
        "Quorate",
        "p99",
        "processors",
        "Valkey, always",
        "p99",
        "Valkey, everysec",
        "p99",
        "of always",
        "of everysec",
    ]);
    for load in loads(runs) {
        line(&mut table, runs, load);
    }
    format!("# Keys beside Valkey\n\n{}\n\n{}\n", wrapped(&about), table.text())
}

fn loads(runs: &[Run]) -> Vec<&Load> {
    let mut loads: Vec<&Load> = Vec::new();
    for run in runs {
        if !loads.contains(&&run.load) {
            loads.push(&run.load);
        }
    }
    loads
}

fn median<'a>(runs: &'a [Run], load: &Load, server: &str) -> Option<&'a Run> {
    let mut runs: Vec<_> = runs.iter().filter(|run| run.load == *load && run.server == server).collect();
    runs.sort_by(|a, b| a.per_s.total_cmp(&b.per_s));
    runs.get(runs.len() / 2).copied()
}

fn line(table: &mut Table, runs: &[Run], load: &Load) {
    let Some(own) = median(runs, load, "Quorate") else { return };
    let peers = ["Valkey, always", "Valkey, everysec"].map(|server| median(runs, load, server));
    let [always, everysec] = peers.map(|peer| {
        let rate = peer.map(|run| grouped(run.per_s)).unwrap_or_default();
        let p99 = peer.map(|run| format!("{:.1} ms", run.p99_ms)).unwrap_or_default();
        let share = peer.map(|run| format!("{:.2}x", own.per_s / run.per_s)).unwrap_or_default();
        (rate, p99, share)
    });
    table.line([
        &load.test.to_uppercase(),
        &grouped(load.keys as f64),
        &grouped(load.size as f64),
        &load.clients.to_string(),
        &load.pipeline.to_string(),
        &grouped(own.per_s),
        &format!("{:.1} ms", own.p99_ms),
        &format!("{:.2}", own.processors),
        &always.0,
        &always.1,
        &everysec.0,
        &everysec.1,
        &always.2,
        &everysec.2,
    ]);
}
