//! The store: a handle to the writer that applies entries, to the checkpointer, and to the readers.
//!
//! Invariants:
//! - The applied position is published after the commit that reached it, so a reader that waited for an index sees it.
//! - The workers end with [`SqlStore::close`], or when the last handle is dropped. Applied entries stay in either case.

use std::future::Future;
use std::path::Path;
use std::sync::{Arc, Mutex};

use quorate_apply::Users;
use quorate_apply::changes::Changes;
use quorate_apply::waits::Waits;
use quorate_env::disk::make_dir;
use quorate_env::worker::WorkerHandle;
use quorate_env::{Env, Instant, lock, timeout_at};
use quorate_model::{
    Applied, Archiver, Entry, ImageSink, ImageSource, OnApplied, RunningStatement, StateMachine, StoreFault,
};
use tokio::sync::watch;

use crate::capture::Capture;
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

/// Ends the workers when the last clone is dropped.
struct Handle {
    shared: Arc<Shared>,
    workers: Mutex<Option<Workers>>,
}

struct Workers {
    checkpointer: WorkerHandle,
    writer: WorkerHandle,
}

/// The sizes of a store.
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

/// The index was not applied before the deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("entry {index} was not applied here in time; try again, or ask another node")]
pub struct WaitTimeout {
    /// The index that the caller waited for.
    pub index: u64,
}

impl WaitTimeout {
    /// Always true: the entry may be applied later.
    pub fn is_retryable(&self) -> bool {
        true
    }
}

impl SqlStore {
    /// Opens the store in `dir`, or creates an empty one, and starts its workers. Blocks while SQLite reads the `-wal`,
    /// about 0.3 s per GB of it, whatever the size of the database.
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

    /// Ends the workers in order. Entries that wait or are being applied are refused as [`StoreFault::Closed`] and have
    /// no effect. Reads end. The `-wal` is emptied unless a reader uses it or it is long. The directory can be opened
    /// again after all clones are dropped.
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

    /// The readers of the store.
    pub fn readers(&self) -> &Readers {
        &self.shared().readers
    }

    /// Checks whether a statement may be proposed.
    pub fn validator(&self) -> &Validator {
        &self.shared().validator
    }

    /// The cluster's time, by which reads judge what has expired, in nanoseconds since 1970.
    pub fn cluster_time(&self) -> u64 {
        self.shared().time.now()
    }

    /// The current generation. The caller keeps its files in place while it holds the `Arc`.
    pub fn generation(&self) -> Arc<Generation> {
        self.shared().generations.current()
    }

    /// The options that the store was opened with.
    pub fn options(&self) -> &StoreOptions {
        &self.shared().options
    }

    /// The applied position, updated after each batch.
    pub fn watch_applied(&self) -> watch::Receiver<Applied> {
        self.shared().applied.subscribe()
    }

    /// The store's current fault, if there is one. [`StoreFault::Full`] clears itself when there is space again; other
    /// faults clear when an image is installed. A node with a fault must not lead.
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

    /// Returns the result of the verification that the entry at `index` requested, and waits for it until `deadline`.
    /// Returns `None` if there is none: the entry requests none, was applied by an earlier process, came with an image,
    /// or its verification was dropped because a later entry requested one.
    pub async fn verification(&self, index: u64, deadline: Instant) -> Option<Verification> {
        self.shared().verifications.get(index, deadline).await
    }

    /// The sizes of the store; 0 for a size that can't be read.
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

    /// The users, as the last COMMIT that changed them left them. They are replaced before the position of that change
    /// becomes visible, and when an image is installed.
    pub fn watch_users(&self) -> watch::Receiver<Arc<Users>> {
        self.shared().users.subscribe()
    }

    /// Returns the present users; see [`SqlStore::watch_users`].
    pub fn users(&self) -> Arc<Users> {
        Arc::clone(&self.shared().users.borrow())
    }

    /// The node that writes the archive, as the last COMMIT that changed it left it. It is replaced before the position
    /// of that change becomes visible, and when an image is installed.
    pub fn watch_archiver(&self) -> watch::Receiver<Option<Archiver>> {
        self.shared().archiver.subscribe()
    }

    /// Returns the node that writes the archive, if there is one; see [`SqlStore::watch_archiver`].
    pub fn archiver(&self) -> Option<Archiver> {
        *self.shared().archiver.borrow()
    }

    /// The waiters for topics that entries touch. Installing an image wakes all of them.
    pub fn waits(&self) -> &Waits {
        &self.shared().waits
    }

    /// The changes of keys that entries make. Those that come with an image are none.
    pub fn changes(&self) -> &Changes {
        &self.shared().changes
    }

    /// Begins a capture of changed pages. A store has one at a time.
    pub fn capture(&self) -> Result<Capture, StoreFault> {
        Capture::begin(self.shared())
    }

    /// The measurements of the store so far.
    pub fn metrics(&self) -> StoreMetrics {
        let held = &self.shared().metrics.held;
        self.readers().counts().into_iter().for_each(|counts| held.note(&counts));
        held.waiters.set(self.waits().count() as u64);
        held.watches.set(self.changes().count() as u64);
        self.shared().metrics.clone()
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }
}

impl StateMachine for SqlStore {
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

    fn prefetch(&self, entries: Vec<Entry>) {
        self.shared().queue.prefetch(entries);
        self.shared().writer.wake();
    }

    fn outlives_process(&self) -> bool {
        true
    }

    fn durable(&self) -> Applied {
        self.shared().durable()
    }

    fn is_slowed(&self) -> bool {
        self.shared().writer_lock.slowness() > 0
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
