//! The store: a handle to a writer that applies, a checkpointer beside it, and readers.
//!
//! Invariants:
//! - Where the store stands is published after the commit that brought it there, so whoever waited for an index reads
//!   it.
//! - The workers end with [`SqlStore::close`], or when the last handle is dropped; what was applied stays either way.

use std::future::Future;
use std::path::Path;
use std::sync::{Arc, Mutex};

use quorate_env::disk::make_dir;
use quorate_env::worker::WorkerHandle;
use quorate_env::{Env, Instant, lock, timeout_at};
use quorate_model::{Applied, Entry, ImageSink, ImageSource, OnApplied, RunningStatement, Store, StoreFault};
use tokio::sync::watch;

use crate::checkpoint::Checkpointer;
use crate::error::OpenError;
use crate::generation::{Generation, Generations};
use crate::image;
use crate::metrics::StoreMetrics;
use crate::options::StoreOptions;
use crate::readers::Readers;
use crate::validate::Validator;

mod agreement;
pub(crate) mod core;
mod dry_run;
mod queue;
pub(crate) mod shared;
mod turn;
mod verify;
mod writer;

#[cfg(test)]
pub(crate) mod tests;

use self::core::Core;
pub use dry_run::DryRun;
use shared::{Shared, Stop};
pub use verify::Verification;
use writer::Writer;

/// A store in one SQLite file. Cheap to clone; all clones are the same store.
#[derive(Clone)]
pub struct SqlStore(Arc<Handle>);

/// Ends the workers with the last clone.
struct Handle {
    shared: Arc<Shared>,
    workers: Mutex<Option<Workers>>,
}

struct Workers {
    checkpointer: WorkerHandle,
    writer: WorkerHandle,
}

/// How large a store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes of the database file.
    pub database: u64,
    /// Bytes of the `-wal` in use.
    pub wal: u64,
    /// Bytes of the `-wal` file.
    pub wal_file: u64,
    /// Bytes of entries that wait to be applied.
    pub queued: u64,
    /// Bytes of the temporary files of queries.
    pub temp: u64,
}

/// The index was not applied in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("entry {index} was not applied here in time; try again, or ask another node")]
pub struct WaitTimeout {
    /// What was waited for.
    pub index: u64,
}

impl WaitTimeout {
    /// Always: it may be applied later.
    pub fn is_retryable(&self) -> bool {
        true
    }
}

impl SqlStore {
    /// Opens the store in `dir`, or makes an empty one, and starts its workers. Blocks: opening takes as long as SQLite
    /// needs to look through the `-wal`, some 0.3 s per GB of it, whatever the size of the database.
    pub fn open(env: &Env, dir: &Path, options: StoreOptions) -> Result<Self, OpenError> {
        let disk = env.disk();
        make_dir(&**disk, dir).map_err(OpenError::disk(dir))?;
        let generations = Generations::open(disk, dir, options.page_size, options.extensions.clone())?;
        generations.temp().limit(options.temp);
        let supervision = Arc::default();
        let core = Core::open(generations.current(), &options, &supervision)?;
        let shared = Shared::new(env, options, generations, core, supervision);
        let (writer, checkpointer) = (Writer::new(Arc::clone(&shared)), Checkpointer::new(Arc::clone(&shared)));
        let writer = env.start_worker("SQL writer", writer, &shared.writer).map_err(OpenError::disk(dir))?;
        let checkpointer = env.start_worker("checkpointer", checkpointer, &shared.checkpointer);
        let checkpointer = checkpointer.map_err(|error| {
            shared.set_stop(Stop::Abandoned);
            OpenError::disk(dir)(error)
        })?;
        shared.checkpointer.wake();
        Ok(Self(Arc::new(Handle { shared, workers: Mutex::new(Some(Workers { checkpointer, writer })) })))
    }

    /// Ends the workers in good order: entries that wait, and those that are being applied, are refused as
    /// [`StoreFault::Closed`] and nothing of them is done; reads end; the `-wal` is emptied unless somebody reads or it
    /// is long. The directory can be opened again once all clones are dropped.
    pub fn close(&self) -> impl Future<Output = ()> + Send + use<> {
        let handle = Arc::clone(&self.0);
        async move {
            let workers = lock(&handle.workers).take();
            let Some(workers) = workers else { return };
            handle.shared.readers.close();
            handle.shared.set_stop(Stop::Closing);
            workers.checkpointer.ended().await;
            handle.shared.set_stop(Stop::Closed);
            workers.writer.ended().await;
        }
    }

    /// What reads the store.
    pub fn readers(&self) -> &Readers {
        &self.shared().readers
    }

    /// What says whether a statement may be proposed.
    pub fn validator(&self) -> &Validator {
        &self.shared().validator
    }

    /// The generation in force. Whoever keeps it keeps its files.
    pub fn generation(&self) -> Arc<Generation> {
        self.shared().generations.current()
    }

    /// How it was opened.
    pub fn options(&self) -> &StoreOptions {
        &self.shared().options
    }

    /// Where the store stands, as it goes on.
    pub fn watch_applied(&self) -> watch::Receiver<Applied> {
        self.shared().applied.subscribe()
    }

    /// The node's own trouble with the store, as it comes and goes. [`StoreFault::Full`] goes by itself when there is
    /// space again; other faults go when an image is installed. A node with a fault must not lead.
    pub fn watch_fault(&self) -> watch::Receiver<Option<StoreFault>> {
        self.shared().fault.subscribe()
    }

    /// Waits until the entry of this index is applied.
    pub async fn wait_applied(&self, index: u64, deadline: Instant) -> Result<(), WaitTimeout> {
        let mut applied = self.watch_applied();
        let reached = applied.wait_for(|applied| applied.log_id.is_some_and(|id| id.index >= index));
        match timeout_at(deadline, reached).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(WaitTimeout { index }),
        }
    }

    /// The result of the verification that the entry of this index asked for; waits for it until `deadline`. `None` if
    /// none is known: the entry asks for none, was applied by an earlier process, came with an image, or another that
    /// asks came after it before this one was done.
    pub async fn verification(&self, index: u64, deadline: Instant) -> Option<Verification> {
        self.shared().verifications.get(index, deadline).await
    }

    /// How large the store is; 0 for what can't be read.
    pub fn sizes(&self) -> Sizes {
        let generation = self.shared().generations.current();
        Sizes {
            database: generation.main_bytes().unwrap_or(0),
            wal: generation.wal_bytes(),
            wal_file: generation.wal_file_bytes().unwrap_or(0),
            queued: self.shared().queue.bytes() as u64,
            temp: self.shared().generations.temp().used(),
        }
    }

    /// What the store has measured so far.
    pub fn metrics(&self) -> StoreMetrics {
        self.shared().metrics.clone()
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }
}

impl Store for SqlStore {
    fn applied(&self) -> Applied {
        self.shared().applied()
    }

    fn apply(&self, entries: Vec<Entry>, is_awaited: bool, on_applied: OnApplied) {
        self.shared().queue.push(entries, is_awaited, on_applied);
        self.shared().writer.wake();
    }

    fn running(&self) -> Option<RunningStatement> {
        self.shared().supervision.running()
    }

    fn rejections(&self) -> Vec<u64> {
        lock(&self.shared().rejections).clone()
    }

    fn condemn(&self, fault: &StoreFault) {
        self.shared().report(fault);
        self.shared().writer.wake();
    }

    fn foresee(&self, entries: Vec<Entry>) {
        self.shared().queue.foresee(entries);
        self.shared().writer.wake();
    }

    fn durable(&self) -> Applied {
        self.shared().durable()
    }

    fn fault(&self) -> Option<StoreFault> {
        self.shared().fault.borrow().clone()
    }

    fn send_image(&self) -> Result<Box<dyn ImageSource>, StoreFault> {
        self.shared().check_agreed()?;
        Ok(Box::new(image::Sender::begin(self.shared())?))
    }

    fn receive_image(&self) -> Result<Box<dyn ImageSink>, StoreFault> {
        Ok(Box::new(image::Receiver::begin(self.shared())?))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.set_stop(Stop::Abandoned);
    }
}

impl std::fmt::Debug for SqlStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqlStore").field("applied", &*self.shared().applied.borrow()).finish_non_exhaustive()
    }
}
