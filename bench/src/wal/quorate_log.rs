//! Quorate's log with its two threads, as in a node.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use quorate_bench_harness::Result;
use quorate_env::Env;
use quorate_env::disk::RealDisk;
use quorate_env::worker::WorkerHandle;
use quorate_model::{GroupId, LogId, NodeId};
use quorate_wal::{Opened, Wal, WalOptions};

use super::{Done, Log};

const GROUP: GroupId = GroupId(1);

/// An open log.
pub struct QuorateLog {
    wal: Wal,
    payload: Bytes,
    _threads: [WorkerHandle; 2],
}

impl QuorateLog {
    pub fn open(dir: &Path, entry_bytes: u32) -> Result<Self> {
        let Opened { wal, writer, keeper, .. } = Wal::open(Arc::new(RealDisk), dir, WalOptions::new(1))?;
        let env = Env::real();
        let (writer_bell, keeper_bell) = (writer.signal().clone(), keeper.signal().clone());
        let threads = [
            env.start_worker("wal-writer", writer, &writer_bell)?,
            env.start_worker("wal-keeper", keeper, &keeper_bell)?,
        ];
        Ok(Self { wal, payload: super::payload(entry_bytes).into(), _threads: threads })
    }
}

impl Log for QuorateLog {
    fn append(&mut self, number: u64, done: &Done) -> Result<()> {
        let id = LogId { term: 1, node: NodeId(1), index: number };
        let done = done.clone();
        let completion = Box::new(move |outcome: Result<(), quorate_wal::WalError>| {
            // The other end waits for every completion.
            let _ = done.send(outcome.map(|()| number).map_err(|error| error.to_string()));
        });
        Ok(self.wal.append(GROUP, vec![(id, self.payload.clone())], completion)?)
    }

    fn syncs(&self) -> Option<u64> {
        Some(self.wal.stats().syncs)
    }
}
