//! Limits the resources of a user's statement: memory, temporary files, and time within single steps.
//!
//! While a statement runs, its thread is in a [`Scope`] that holds the limits. SQLite's allocator
//! ([`memory`](crate::ffi::memory)) and the VFS layer check them before they grow anything, and record why they
//! refused, so that the error can name the reason.
//!
//! For a statement of an entry, the bytes that it moves through large blocks and temporary files are counted too,
//! whether they were freed or not. This count detects a statement that takes too long sooner than a clock does, and it
//! does not depend on how busy the machine is.
//!
//! Only blocks of [`LARGE`] bytes and more are counted. Smaller blocks belong to page caches, parsed statements and
//! rows, which other limits bound. However, the deadline is checked after a fixed number of blocks of any size, because
//! SQLite checks it only between two steps of its virtual machine, and FTS5 can take minutes within one.
//!
//! Invariant: the count for all reads is the sum of the counts of their scopes, so it is 0 when no scope of a read is
//! open.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use quorate_env::Instant;
use quorate_model::{Failure, FailureKind, StoreFault};
use rusqlite::{InterruptHandle, ffi};

use crate::readers::ReadError;

mod buffer;
mod temp;

#[cfg(test)]
pub(crate) mod tests;

pub(crate) use buffer::{Buffer, NoMemory, copy, copy_uncounted, push};
pub use temp::{TEMP_BYTES_DEFAULT, TEMP_BYTES_PER_QUERY_DEFAULT, TempOptions};
pub(crate) use temp::{Temp, TempFile, TempSpace};

/// The size in bytes of the smallest block of memory that is counted.
pub(crate) const LARGE: usize = 128 << 10;

/// The most bytes of counted memory of a query, besides its page cache. If the process or its container has a memory
/// limit, this limit and the next two are at most an eighth of what was left of that at the first statement.
pub const QUERY_MEMORY_MAX: usize = 256 << 20;

/// The most bytes of counted memory of all queries of the process together.
pub const QUERIES_MEMORY_MAX: usize = 1 << 30;

/// The most bytes of counted memory of a statement of an entry, besides its page cache.
pub const WRITER_MEMORY_MAX: usize = 512 << 20;

/// The number of blocks that SQLite allocates between two checks of the clock. FTS5 reads a page of its index into each
/// block, so this is about 10 ms of its work. A block counts once more for each [`LOOK_BYTES`] of its size.
const LOOK_EVERY: usize = 1024;

/// See [`LOOK_EVERY`].
const LOOK_BYTES: usize = 4096;

/// A query, all queries together, and the writer may each have this fraction, one in `PART`, of the memory that the
/// process may still get. The process needs the rest for page caches, threads, the log and the network.
const PART: usize = 8;

/// Bytes of counted memory that all queries of the process hold.
static READS: AtomicUsize = AtomicUsize::new(0);

/// The memory limits of statements in this process, in bytes.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    query: usize,
    queries: usize,
    writer: usize,
}

impl Bounds {
    fn of(room: Option<u64>) -> Self {
        let room = room.and_then(|room| usize::try_from(room).ok()).unwrap_or(usize::MAX);
        Self {
            query: QUERY_MEMORY_MAX.min(room / PART),
            queries: QUERIES_MEMORY_MAX.min(room / PART),
            writer: WRITER_MEMORY_MAX.min(room / PART),
        }
    }

    fn get() -> Self {
        static BOUNDS: OnceLock<Bounds> = OnceLock::new();
        *BOUNDS.get_or_init(|| Self::of(quorate_env::memory_room()))
    }
}

thread_local! {
    static HERE: Here = const { Here::new() };
}

/// The limits and the usage of this thread's statement.
struct Here {
    /// The memory limit in bytes; 0 if no scope is open.
    memory_max: Cell<usize>,
    /// Whether the memory limit is doubled.
    is_generous: Cell<bool>,
    memory: Cell<usize>,
    /// The most bytes that the running statement may move; unlimited if no statement is watched.
    moved_max: Cell<u64>,
    moved: Cell<u64>,
    /// The number of blocks that SQLite has requested.
    blocks: Cell<usize>,
    /// How long the running statement may take; unlimited if no statement is watched. The time counts from `begun`, or,
    /// if that is not known, from the first check of the clock.
    time_max: Cell<Duration>,
    begun: Cell<Option<Instant>>,
    /// The time after which the statement is interrupted, and the handle for that.
    interrupt: RefCell<Option<(Duration, Arc<InterruptHandle>)>>,
    is_read: Cell<bool>,
    /// The number of the [`Temp`] to which the statement's temporary files are charged.
    temp: Cell<u64>,
    refusal: Cell<Option<Refusal>>,
}

/// Why a statement was refused a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It needs more memory than this.
    Memory(usize),
    /// It moves more bytes than this.
    Moved(u64),
    /// It takes longer than this.
    Time(Duration),
    /// All queries together have reached their memory limit.
    MemoryOfReads,
    /// The process has no more memory.
    System,
    /// Its temporary files would take more than this.
    Temp(u64),
    /// The temporary files of all queries would take more than this.
    TempOfReads(u64),
    /// The disk has only this many bytes left.
    TempReserve(u64),
    /// A temporary file could not be created or written; with SQLite's code.
    TempFile(i32),
}

/// Limits the resources of this thread's statement until it is dropped.
pub(crate) struct Scope(());

impl Scope {
    /// Opens a scope for a query. It limits the query's memory to that of one query and its page cache, its temporary
    /// files as `temp` does, and its time.
    pub(crate) fn read(cache_bytes: u32, temp: &Arc<Temp>, time_max: Duration) -> Self {
        let scope = Self::enter(Bounds::get().query.saturating_add(cache_bytes as usize), true, temp);
        watch(u64::MAX, None, time_max);
        scope
    }

    /// Opens a scope for an entry.
    pub(crate) fn write(cache_bytes: u32, temp: &Arc<Temp>) -> Self {
        Self::enter(Bounds::get().writer.saturating_add(cache_bytes as usize), false, temp)
    }

    fn enter(memory_max: usize, is_read: bool, temp: &Arc<Temp>) -> Self {
        HERE.with(|here| {
            here.memory_max.set(memory_max.max(1));
            here.is_generous.set(false);
            here.memory.set(0);
            here.is_read.set(is_read);
            here.refusal.set(None);
            here.temp.set(temp.number());
        });
        Self(())
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        HERE.with(|here| {
            here.shrink(here.memory.get());
            here.memory_max.set(0);
            here.time_max.set(Duration::MAX);
            here.interrupt.replace(None);
        });
    }
}

impl Here {
    const fn new() -> Self {
        Self {
            memory_max: Cell::new(0),
            is_generous: Cell::new(false),
            memory: Cell::new(0),
            moved_max: Cell::new(u64::MAX),
            moved: Cell::new(0),
            blocks: Cell::new(0),
            time_max: Cell::new(Duration::MAX),
            begun: Cell::new(None),
            interrupt: RefCell::new(None),
            is_read: Cell::new(false),
            temp: Cell::new(0),
            refusal: Cell::new(None),
        }
    }

    fn grow(&self, bytes: usize) -> Result<(), Refusal> {
        let max = self.memory_max.get().saturating_mul(1 + usize::from(self.is_generous.get()));
        if max == 0 {
            return Ok(());
        }
        let memory = self.memory.get().saturating_add(bytes);
        if memory > max {
            return Err(Refusal::Memory(max));
        }
        self.carry(bytes as u64)?;
        if self.is_read.get() {
            let all = READS.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
            if all > Bounds::get().queries {
                READS.fetch_sub(bytes, Ordering::Relaxed);
                return Err(Refusal::MemoryOfReads);
            }
        }
        self.memory.set(memory);
        Ok(())
    }

    /// Counts bytes that the running statement moves.
    fn carry(&self, bytes: u64) -> Result<(), Refusal> {
        let (moved, max) = (self.moved.get().saturating_add(bytes), self.moved_max.get());
        self.moved.set(moved);
        if moved > max { Err(Refusal::Moved(max)) } else { Ok(()) }
    }

    /// Counts a block that SQLite requests. Returns whether the statement may continue.
    fn ask(&self, bytes: usize) -> bool {
        let before = self.blocks.get();
        let blocks = before.wrapping_add(1 + bytes / LOOK_BYTES);
        self.blocks.set(blocks);
        before / LOOK_EVERY == blocks / LOOK_EVERY || self.is_in_time()
    }

    #[cold]
    fn is_in_time(&self) -> bool {
        let max = self.time_max.get();
        if max == Duration::MAX {
            return true;
        }
        let now = Instant::now();
        let begun = self.begun.get().unwrap_or(now);
        self.begun.set(Some(begun));
        let took = now.saturating_duration_since(begun);
        if let Some((after, handle)) = &*self.interrupt.borrow()
            && took > *after
        {
            self.refusal.set(Some(Refusal::Time(*after)));
            handle.interrupt();
        }
        let is_over = took > max;
        if is_over {
            self.refusal.set(Some(Refusal::Time(max)));
        }
        !is_over
    }

    /// Returns the [`Temp`] to which temporary files of the current statement are charged.
    fn temp(&self) -> Option<Arc<Temp>> {
        (self.memory_max.get() > 0).then(|| temp::find(self.temp.get())).flatten()
    }

    /// Subtracts freed bytes. A block that was allocated before the scope may be freed in it, so the count stops at 0.
    fn shrink(&self, bytes: usize) {
        let counted = bytes.min(self.memory.get());
        if counted == 0 {
            return;
        }
        self.memory.set(self.memory.get().saturating_sub(counted));
        if self.is_read.get() {
            READS.fetch_sub(counted, Ordering::Relaxed);
        }
    }
}

/// Requests a large block of memory, or `bytes` more for one; returns `false` if that exceeds a limit of the statement.
pub(crate) fn grow(bytes: usize) -> bool {
    let grown = HERE.try_with(|here| here.grow(bytes).inspect_err(|refusal| here.refusal.set(Some(*refusal))));
    !matches!(grown, Ok(Err(_)))
}

/// Counts a block that SQLite requests, however small; returns `false` if the statement must end. To be called for each
/// block.
pub(crate) fn ask(bytes: usize) -> bool {
    HERE.try_with(|here| here.ask(bytes)).unwrap_or(true)
}

/// Returns `bytes` of memory to the statement's limit.
pub(crate) fn shrink(bytes: usize) {
    // While a thread ends, its thread-locals may be gone; it has no scope then.
    let _ = HERE.try_with(|here| here.shrink(bytes));
}

/// Sets how many bytes this thread's statement may move, and how long it may take from `begun`, or, if that is `None`,
/// from the first check of the clock. The greatest values mean no limit.
pub(crate) fn watch(moved_max: u64, begun: Option<Instant>, time_max: Duration) {
    HERE.with(|here| {
        here.moved.set(0);
        here.moved_max.set(moved_max);
        here.begun.set(begun);
        here.time_max.set(time_max);
    });
}

/// Interrupts this thread's query once it has taken longer than `time`. If an allocation fails, SQLite rolls the
/// transaction back, and a snapshot would be lost; if the query is interrupted, SQLite does not.
pub(crate) fn interrupt_after(time: Duration, handle: &Arc<InterruptHandle>) {
    HERE.with(|here| here.interrupt.replace(Some((time, Arc::clone(handle)))));
}

/// Removes the limits that [`watch`] has set.
pub(crate) fn unwatch() {
    watch(u64::MAX, None, Duration::MAX);
}

/// Counts bytes by which a temporary file grows.
fn carry(bytes: u64) -> Result<(), Refusal> {
    HERE.try_with(|here| here.carry(bytes)).unwrap_or(Ok(()))
}

/// Returns a new temporary file for this thread's statement, if a scope is open.
pub(crate) fn temp_file() -> Option<Box<TempFile>> {
    HERE.try_with(Here::temp).ok().flatten().map(|temp| temp.file())
}

/// Records why something was refused.
pub(crate) fn refused(refusal: Refusal) {
    let _ = HERE.try_with(|here| here.refusal.set(Some(refusal)));
}

/// Calls `read`, which reads rows, and turns a panic after a refusal into [`NoMemory`]: rusqlite panics if SQLite has
/// no memory to terminate a text with a NUL.
pub(crate) fn contain<T, E: From<NoMemory>>(read: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|panic| {
        let is_refused = HERE.try_with(|here| here.refusal.get().is_some());
        if is_refused.unwrap_or(false) { Err(NoMemory.into()) } else { resume_unwind(panic) }
    })
}

/// Returns the last refusal to this thread's statement, with the directory of its temporary files, and clears it.
fn take() -> Option<Refused> {
    HERE.with(|here| {
        let refusal = here.refusal.take()?;
        let temp = temp::find(here.temp.get());
        let dir = temp.map(|temp| temp.dir().display().to_string()).unwrap_or_default();
        Some(Refused { refusal, dir })
    })
}

/// A refusal, displayed as a message for users.
struct Refused {
    refusal: Refusal,
    dir: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dir = &self.dir;
        match self.refusal {
            Refusal::Memory(max) => {
                write!(f, "the statement needs more memory than {max} bytes; build smaller values, or fewer at once")
            }
            Refusal::Moved(max) => write!(
                f,
                "the statement moves more than {max} bytes through memory and temporary files; do less at once, or \
                 allow it more (with_budget)"
            ),
            Refusal::Time(_) => f.write_str("a statement was stopped"),
            Refusal::MemoryOfReads => {
                let max = Bounds::get().queries;
                write!(f, "the queries of the node have reached their limit of {max} bytes of memory")
            }
            Refusal::System => f.write_str("the process has no more memory"),
            Refusal::Temp(max) => write!(
                f,
                "the statement needs more than {max} bytes of temporary files ('sql.temp_bytes_per_query', \
                 'sql.temp_bytes'); sort or group less at once, or give it an index to follow"
            ),
            Refusal::TempOfReads(max) => {
                write!(
                    f,
                    "the temporary files of all queries have reached their limit of {max} bytes ('sql.temp_bytes')"
                )
            }
            Refusal::TempReserve(left) => write!(
                f,
                "only {left} bytes are left on the disk of {dir}, so queries get no more temporary files; free some \
                 space"
            ),
            Refusal::TempFile(code) => {
                write!(f, "a temporary file in {dir} can't be written: {}", ffi::code_to_str(code))
            }
        }
    }
}

impl From<NoMemory> for StoreFault {
    fn from(_: NoMemory) -> Self {
        Self::Memory("there is no memory for the statement".to_owned())
    }
}

impl From<NoMemory> for ReadError {
    fn from(none: NoMemory) -> Self {
        Self::Fault(none.into())
    }
}

/// Replaces an error of a query by the refusal that caused it, if there was one.
pub(crate) fn explain(error: ReadError) -> ReadError {
    let ReadError::Fault(fault) = &error else { return error };
    if !matches!(fault, StoreFault::Full(_) | StoreFault::Io(_) | StoreFault::Memory(_) | StoreFault::Slow(_)) {
        return error;
    }
    match (take(), error) {
        (Some(refused), _) => refused.into(),
        // This query was within its limits; other work uses the memory of the process.
        (None, ReadError::Fault(StoreFault::Memory(text))) => ReadError::Overloaded(text),
        (None, error) => error,
    }
}

/// Fails if the query was refused something and SQLite, or one of its functions, continued without an error. The rows
/// may then be wrong.
pub(crate) fn check() -> Result<(), ReadError> {
    take().map_or(Ok(()), |refused| Err(refused.into()))
}

impl From<Refused> for ReadError {
    fn from(refused: Refused) -> Self {
        let text = refused.to_string();
        match refused.refusal {
            Refusal::Time(max) => Self::Timeout(max),
            Refusal::Memory(_) | Refusal::Moved(_) | Refusal::Temp(_) => {
                Self::Failed(Failure::new(FailureKind::TooBig, text))
            }
            Refusal::MemoryOfReads | Refusal::System | Refusal::TempOfReads(_) | Refusal::TempReserve(_) => {
                Self::Overloaded(text)
            }
            Refusal::TempFile(code) if code & 0xff == ffi::SQLITE_FULL => Self::Overloaded(text),
            Refusal::TempFile(_) => Self::Fault(StoreFault::Io(text)),
        }
    }
}

impl From<Refused> for StoreFault {
    fn from(refused: Refused) -> Self {
        let text = refused.to_string();
        match refused.refusal {
            Refusal::Time(_) => Self::Slow(text),
            Refusal::Memory(_) | Refusal::Moved(_) | Refusal::Temp(_) => Self::TooMuch(text),
            Refusal::MemoryOfReads
            | Refusal::System
            | Refusal::TempOfReads(_)
            | Refusal::TempReserve(_)
            | Refusal::TempFile(_) => Self::Memory(text),
        }
    }
}

/// Returns the fault of the node behind an error of an entry's statement, if the statement was refused something. Such
/// an error is never an outcome: how much memory and temporary space a statement needs depends on the node's caches.
pub(crate) fn fault(error: &rusqlite::Error) -> Option<StoreFault> {
    let code = error.sqlite_error()?.extended_code & 0xff;
    if ![ffi::SQLITE_FULL, ffi::SQLITE_NOMEM, ffi::SQLITE_IOERR, ffi::SQLITE_CANTOPEN].contains(&code) {
        return None;
    }
    Some(take()?.into())
}

/// Sets whether the next entry's memory limit is doubled. It is doubled if this node could not apply the entry before,
/// because another node, whose process has a little more memory, perhaps could.
pub(crate) fn be_generous(is_generous: bool) {
    HERE.with(|here| here.is_generous.set(is_generous));
}

/// Clears the refusal of earlier statements of this thread. To be called before each entry.
pub(crate) fn forget() {
    HERE.with(|here| here.refusal.set(None));
}

/// Returns a fault of the node if the entry was refused something and SQLite, or one of its functions, continued
/// without an error. The outcome of the entry may then differ from that on other nodes.
pub(crate) fn swallowed() -> Option<StoreFault> {
    take().map(StoreFault::from)
}
