//! Benchmarks the log on a disk: `cargo run --release -p quorate-wal --example wal_bench -- DIRECTORY`.
//!
//! Prints the appends per second with 1, 8, 64 and 512 pending, next to plain page writes with a sync each into a
//! preallocated file, and the speed of recovery from the page cache. The writer runs inline, so the figures do not
//! include thread hand-offs.

#![allow(clippy::print_stdout, clippy::disallowed_methods, clippy::expect_used, reason = "a program for people")]
#![allow(clippy::cast_precision_loss, reason = "figures for people")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use quorate_env::disk::{Disk, OpenMode, RealDisk};
use quorate_env::worker::{Step, Worker};
use quorate_model::{GroupId, LogId, NodeId};
use quorate_wal::{Durability, Opened, Wal, WalOptions};

const GROUP: GroupId = GroupId(1);
const TIME: Duration = Duration::from_secs(2);
const ENTRY_BYTES: usize = 256;

fn main() {
    let base = std::env::args().nth(1).expect("name a directory on the disk to measure");
    let base = Path::new(&base);
    let dir = base.join("wal-bench");
    // Removes the files of an earlier run.
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(base).expect("the directory can be made");

    println!("entries of {ENTRY_BYTES} bytes");
    println!("plain 4 KiB write + fdatasync       {:>9.0} /s", plain(base));
    let mut log = open(&dir);
    let mut index = 0;
    for pending in [1, 8, 64, 512] {
        let (rate, frames) = appends(&mut log, &mut index, pending);
        println!("log, fsync, {pending:>3} pending             {rate:>9.0} /s, {frames:>6.0} frames /s");
    }
    log.wal.set_durability(GROUP, Durability::Os);
    let (rate, _) = appends(&mut log, &mut index, 1);
    println!("log, os, 1 pending                  {rate:>9.0} /s");
    recover(log, &dir, index);
    let _ = std::fs::remove_dir_all(&dir);
}

fn plain(base: &Path) -> f64 {
    let path = base.join("wal-bench-plain");
    let disk = RealDisk;
    let file = disk.open(&path, OpenMode::Create).expect("the file can be made");
    let (page, pages) = ([7; 4096], 4096);
    file.write_at(&vec![0; 4096 * pages], 0).expect("it can be filled");
    file.sync_data().expect("it can be synced");
    let (start, mut count) = (Instant::now(), 0_u64);
    while start.elapsed() < TIME {
        file.write_at(&page, count % pages as u64 * 4096).expect("it can be written");
        file.sync_data().expect("it can be synced");
        count += 1;
    }
    let rate = count as f64 / start.elapsed().as_secs_f64();
    disk.remove_file(&path).expect("it can be removed");
    rate
}

fn open(dir: &Path) -> Opened {
    Wal::open(Arc::new(RealDisk), dir, WalOptions::new(1)).expect("the log opens")
}

/// Appends `pending` entries at a time; returns appends and frames per second.
fn appends(log: &mut Opened, index: &mut u64, pending: u64) -> (f64, f64) {
    let mut payload = vec![0; ENTRY_BYTES];
    quorate_env::Rng::from_seed(1).fill(&mut payload);
    let payload = Bytes::from(payload);
    let frames = log.wal.stats().frames;
    let (start, first) = (Instant::now(), *index);
    while start.elapsed() < TIME {
        for _ in 0..pending {
            let id = LogId { term: 1, node: NodeId(1), index: *index };
            let done = Box::new(|result: Result<(), _>| result.expect("it is durable"));
            log.wal.append(GROUP, vec![(id, payload.clone())], done).expect("the log accepts it");
            *index += 1;
        }
        while log.wal.pending_bytes() > 0 {
            log.writer.run_once();
        }
        // In place of the keeper's thread.
        log.keeper.run_once();
    }
    let seconds = start.elapsed().as_secs_f64();
    ((*index - first) as f64 / seconds, (log.wal.stats().frames - frames) as f64 / seconds)
}

fn recover(mut log: Opened, dir: &Path, entries: u64) {
    while log.writer.run_once() == Step::Again {}
    drop(log);
    let start = Instant::now();
    let log = open(dir);
    let (seconds, bytes) = (start.elapsed().as_secs_f64(), log.recovery.bytes_read as f64);
    println!(
        "opening {:.0} MB on disk, {entries} entries: {:.0} ms, {:.2} GB/s of entries",
        bytes / 1e6,
        seconds * 1e3,
        entries as f64 * ENTRY_BYTES as f64 / seconds / 1e9
    );
}
