//! The log of the crate raft-log. Every append is followed by a flush with a sync and a callback, which the log's
//! thread batches.
//!
//! It waits up to 1 ms for a batch to be full before it syncs. The size of a batch is set to the number of pending
//! appends, so that it never waits for appends that can't come.

use std::io;
use std::path::Path;
use std::sync::Arc;

use quorate_bench_harness::Result;
use raft_log::api::raft_log_writer::RaftLogWriter as _;
use raft_log::{Callback, Config, RaftLog, Types};

use super::{Done, Log};

/// An open log.
pub struct PeerLog {
    log: RaftLog<Entries>,
    payload: Vec<u8>,
}

/// The types of its entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Entries;

/// Reports that an entry is durable.
struct Completion {
    number: u64,
    done: Done,
}

impl Types for Entries {
    type LogId = (u64, u64);
    type LogPayload = Vec<u8>;
    type Vote = (u64, u64);
    type Callback = Completion;
    type UserData = String;

    fn log_index((_, index): &Self::LogId) -> u64 {
        *index
    }

    fn payload_size(payload: &Self::LogPayload) -> u64 {
        payload.len() as u64
    }
}

impl Callback for Completion {
    fn send(self, outcome: Result<(), io::Error>) {
        // The other end waits for every completion.
        let _ = self.done.send(outcome.map(|()| self.number).map_err(|error| error.to_string()));
    }
}

impl PeerLog {
    pub fn open(dir: &Path, entry_bytes: u32, pending: u32) -> Result<Self> {
        let mut config = Config::default();
        config.wal.dir = dir.to_string_lossy().into_owned();
        config.wal.flush_batch_max_items = Some(usize::try_from(pending)?);
        Ok(Self { log: RaftLog::open(Arc::new(config))?, payload: super::payload(entry_bytes) })
    }
}

impl Log for PeerLog {
    fn append(&mut self, number: u64, done: &Done) -> Result<()> {
        self.log.append([((1, number), self.payload.clone())])?;
        Ok(self.log.flush(true, Some(Completion { number, done: done.clone() }))?)
    }

    fn syncs(&self) -> Option<u64> {
        Some(self.log.stat().flush_metrics.sync_batch_count)
    }
}
