//! Helpers that run a log on a simulated disk, step by step.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use quorate_env::worker::{Step, Worker};
use quorate_env_sim::SimDisk;
use quorate_model::{GroupId, LogId, NodeId};
use quorate_wal::{Completion, OpenError, Opened, Wal, WalError, WalOptions};

pub const DIR: &str = "/node/log";
pub const G: GroupId = GroupId(1);

pub fn options(segment_bytes: u64) -> WalOptions {
    WalOptions { segment_bytes, ..WalOptions::small(7) }
}

pub fn open(disk: &SimDisk) -> Result<Opened, OpenError> {
    open_with(disk, options(64 << 10))
}

pub fn open_with(disk: &SimDisk, options: WalOptions) -> Result<Opened, OpenError> {
    let parent = Path::new(DIR).parent().unwrap();
    quorate_env::disk::Disk::create_dir_all(disk, parent).unwrap();
    quorate_env::disk::Disk::sync_dir(disk, Path::new("/")).unwrap();
    Wal::open(Arc::new(disk.clone()), Path::new(DIR), options)
}

pub fn id(term: u64, index: u64) -> LogId {
    LogId { term, node: NodeId(9), index }
}

/// Entries `from..to` of `term`; their bytes name index and term.
pub fn entries(term: u64, from: u64, to: u64) -> Vec<(LogId, Bytes)> {
    (from..to).map(|index| (id(term, index), Bytes::from(format!("entry {index} of term {term}")))).collect()
}

/// The results passed to completions, in order.
#[derive(Clone, Default)]
pub struct Completed(Arc<Mutex<Vec<Answer>>>);

type Answer = (u32, Result<(), WalError>);

impl Completed {
    pub fn mark(&self, number: u32) -> Completion {
        let completed = self.clone();
        Box::new(move |result| completed.0.lock().unwrap().push((number, result)))
    }

    pub fn numbers(&self) -> Vec<u32> {
        self.0.lock().unwrap().iter().filter(|(_, result)| result.is_ok()).map(|(number, _)| *number).collect()
    }

    pub fn errors(&self) -> usize {
        self.0.lock().unwrap().iter().filter(|(_, result)| result.is_err()).count()
    }
}

/// Runs a worker until it waits or is done.
pub fn run(worker: &mut impl Worker) -> Step {
    loop {
        match worker.run_once() {
            Step::Again => {}
            step => return step,
        }
    }
}

/// Runs the writer until it has nothing left to do, as if its timers had expired, then the keeper.
pub fn settle(opened: &mut Opened) {
    for _ in 0..4 {
        run(&mut opened.writer);
    }
    run(&mut opened.keeper);
}

pub fn read_all(wal: &Wal, group: GroupId) -> Vec<(LogId, Bytes)> {
    let mut all = Vec::new();
    let mut next = wal.purged(group).map_or(0, |id| id.index + 1);
    loop {
        let some = wal.entries(group, next..u64::MAX, 1000).unwrap();
        match some.last() {
            Some((last, _)) => next = last.index + 1,
            None => return all,
        }
        all.extend(some);
    }
}
