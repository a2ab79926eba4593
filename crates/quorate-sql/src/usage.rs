//! What a caller's statement uses: memory, temporary files, and time within single steps.
//!
//! While a statement runs, its thread is in a [`Scope`] that says how much it may have. SQLite's allocator
//! ([`memory`](crate::ffi::memory)) and the VFS layer ask here before they grow anything, and note why they refused, so
//! that the error can say it.
//!
//! For a statement of an entry the bytes that it moves are counted too: through large blocks and temporary files,
//! whether they were given back or not. This count shows sooner than a clock that a statement takes too long, and does
//! not depend on how busy the machine is.
//!
//! Only blocks of [`LARGE`] bytes and more are counted. Small ones belong to what other limits bound: page caches,
//! parsed statements, rows. But with every so many blocks of any size the time of the statement is looked at: SQLite
//! looks at it between two steps of its virtual machine, and FTS5 can take minutes within one.
//!
//! Invariant: what is counted for all reads is the sum of what the scopes of reads have counted, so it is 0 when none
//! is open.

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

pub(crate) use buffer::{Buffer, NoMemory, copy, push};
pub use temp::{TEMP_BYTES_DEFAULT, TEMP_BYTES_PER_QUERY_DEFAULT, TempOptions};
pub(crate) use temp::{Temp, TempFile, TempSpace};

/// Bytes of the smallest block of memory that is counted.
pub(crate) const LARGE: usize = 128 << 10;

/// Bytes of counted memory that a query may have, besides its page cache. Where the process or its container has a
/// limit of memory, this and the next two are at most an eighth of what was left of it at the first statement.
pub const QUERY_MEMORY_MAX: usize = 256 << 20;

/// Bytes of counted memory that all queries of the process may have together.
pub const QUERIES_MEMORY_MAX: usize = 1 << 30;

/// Bytes of counted memory that a statement of an entry may have, besides its page cache.
pub const WRITER_MEMORY_MAX: usize = 512 << 20;

/// Blocks that SQLite asks for between two looks at the clock. FTS5 reads a page of its index into each, so this is
/// some 10 ms of its work. A block counts once more for each [`LOOK_BYTES`] of it.
const LOOK_EVERY: usize = 1024;

/// See [`LOOK_EVERY`].
const LOOK_BYTES: usize = 4096;

/// The divisor of the memory that the process may still get: a query, all queries, and the writer may each have one
/// such part. The process needs the rest for page caches, threads, the log and the network.
const PART: usize = 8;

/// Bytes of counted memory that all queries of the process have.
static READS: AtomicUsize = AtomicUsize::new(0);

/// How much memory statements may have in this process.
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

/// What this thread's statement may use, and has used.
struct Here {
    /// Bytes of memory; 0 where no scope is open.
    memory_max: Cell<usize>,
    /// Whether it may be twice that.
    is_generous: Cell<bool>,
    memory: Cell<usize>,
    /// Bytes that the running statement may move; without bound where none is watched.
    moved_max: Cell<u64>,
    moved: Cell<u64>,
    /// Blocks that SQLite has asked for.
    asked: Cell<usize>,
    /// How long the running statement may go on; without bound where none is watched. That counts from its beginning,
    /// or, where nobody has looked at the clock by then, from the first look.
    time_max: Cell<Duration>,
    begun: Cell<Option<Instant>>,
    /// How long until it is interrupted, and by what.
    interrupt: RefCell<Option<(Duration, Arc<InterruptHandle>)>>,
    is_read: Cell<bool>,
    /// The number of whose temporary files it makes.
    temp: Cell<u64>,
    refusal: Cell<Option<Refusal>>,
}

/// Why something was not given to a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It needs more memory than this.
    Memory(usize),
    /// It moves more bytes than this.
    Moved(u64),
    /// It takes longer than this.
    Time(Duration),
    /// All queries together have as much memory as they may.
    MemoryOfReads,
    /// The process has no more memory.
    System,
    /// Its temporary files would take more than this.
    Temp(u64),
    /// The temporary files of all queries would take more than this.
    TempOfReads(u64),
    /// The disk has only so much left.
    TempReserve(u64),
    /// The system could not make or write a temporary file, with SQLite's code.
    TempFile(i32),
}

/// Lets this thread's statement use some. Dropped, it ends.
pub(crate) struct Scope(());

impl Scope {
    /// For a query: the memory of one and of its page cache, temporary files there, and so much time.
    pub(crate) fn read(cache_bytes: u32, temp: &Arc<Temp>, time_max: Duration) -> Self {
        let scope = Self::enter(Bounds::get().query.saturating_add(cache_bytes as usize), true, temp);
        watch(u64::MAX, None, time_max);
        scope
    }

    /// For what an entry does.
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
            asked: Cell::new(0),
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

    /// SQLite asks for a block. Says whether the statement may go on.
    fn ask(&self, bytes: usize) -> bool {
        let before = self.asked.get();
        let asked = before.wrapping_add(1 + bytes / LOOK_BYTES);
        self.asked.set(asked);
        before / LOOK_EVERY == asked / LOOK_EVERY || self.is_in_time()
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

    /// Whose temporary files a statement of this moment makes.
    fn temp(&self) -> Option<Arc<Temp>> {
        (self.memory_max.get() > 0).then(|| temp::find(self.temp.get())).flatten()
    }

    /// A block from before the scope may be given back in it: nothing is counted below 0.
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

/// Asks for a large block of memory, or for so much more of one; `false` where the statement may not have it.
pub(crate) fn grow(bytes: usize) -> bool {
    let grown = HERE.try_with(|here| here.grow(bytes).inspect_err(|refusal| here.refusal.set(Some(*refusal))));
    !matches!(grown, Ok(Err(_)))
}

/// To be called for each block, however small, that SQLite asks for; `false` where the statement may not go on.
pub(crate) fn ask(bytes: usize) -> bool {
    HERE.try_with(|here| here.ask(bytes)).unwrap_or(true)
}

/// Gives memory back.
pub(crate) fn shrink(bytes: usize) {
    // A thread that ends has no scope.
    let _ = HERE.try_with(|here| here.shrink(bytes));
}

/// Sets how many bytes this thread's statement may move, and how long it may take from its beginning, or from the first
/// look at the clock. The greatest values stand for no limit.
pub(crate) fn watch(moved_max: u64, begun: Option<Instant>, time_max: Duration) {
    HERE.with(|here| {
        here.moved.set(0);
        here.moved_max.set(moved_max);
        here.begun.set(begun);
        here.time_max.set(time_max);
    });
}

/// Has this thread's query interrupted once it has taken so long. Where SQLite finds no memory it rolls the transaction
/// back, and a snapshot would be lost; where it is interrupted it does not.
pub(crate) fn interrupt_after(time: Duration, handle: &Arc<InterruptHandle>) {
    HERE.with(|here| here.interrupt.replace(Some((time, Arc::clone(handle)))));
}

/// Ends the watch over a statement.
pub(crate) fn unwatch() {
    watch(u64::MAX, None, Duration::MAX);
}

/// Counts bytes by which a temporary file grows.
fn carry(bytes: u64) -> Result<(), Refusal> {
    HERE.try_with(|here| here.carry(bytes)).unwrap_or(Ok(()))
}

/// A new temporary file of this thread's statement, if a scope is open.
pub(crate) fn temp_file() -> Option<Box<TempFile>> {
    HERE.try_with(Here::temp).ok().flatten().map(|temp| temp.file())
}

/// Notes why something was refused.
pub(crate) fn refused(refusal: Refusal) {
    let _ = HERE.try_with(|here| here.refusal.set(Some(refusal)));
}

/// Runs what reads rows of SQLite. Where SQLite finds no memory to end a text with a NUL, rusqlite panics.
pub(crate) fn contain<T, E: From<NoMemory>>(read: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|panic| {
        let is_refused = HERE.try_with(|here| here.refusal.get().is_some());
        if is_refused.unwrap_or(false) { Err(NoMemory.into()) } else { resume_unwind(panic) }
    })
}

/// What this thread's statement was refused, with where its temporary files are. Told once.
fn take() -> Option<Refused> {
    HERE.with(|here| {
        let refusal = here.refusal.take()?;
        let temp = temp::find(here.temp.get());
        let dir = temp.map(|temp| temp.dir().display().to_string()).unwrap_or_default();
        Some(Refused { refusal, dir })
    })
}

/// A refusal as people read it.
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
                write!(f, "all queries of the node have {max} bytes of memory, as much as they may")
            }
            Refusal::System => f.write_str("the process has no more memory"),
            Refusal::Temp(max) => write!(
                f,
                "the statement needs more than {max} bytes of temporary files ('sql.temp_bytes_per_query', \
                 'sql.temp_bytes'); sort or group less at once, or give it an index to follow"
            ),
            Refusal::TempOfReads(max) => {
                write!(f, "the temporary files of all queries take {max} bytes, as much as they may ('sql.temp_bytes')")
            }
            Refusal::TempReserve(left) => write!(
                f,
                "only {left} bytes are left on the disk of {dir}: queries make no more temporary files; free some"
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

/// Explains an error of a query by what was refused to it.
pub(crate) fn explain(error: ReadError) -> ReadError {
    let ReadError::Fault(fault) = &error else { return error };
    if !matches!(fault, StoreFault::Full(_) | StoreFault::Io(_) | StoreFault::Memory(_) | StoreFault::Slow(_)) {
        return error;
    }
    match (take(), error) {
        (Some(refused), _) => refused.into(),
        // Others have the memory of the process.
        (None, ReadError::Fault(StoreFault::Memory(text))) => ReadError::Overloaded(text),
        (None, error) => error,
    }
}

/// Fails if something was refused to the query and SQLite, or one of its functions, went on without an error. The rows
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

/// The node's trouble behind an error of an entry's statement, if something was refused to it. It is never an outcome:
/// how much memory and how many temporary files a statement needs depends on the node's caches.
pub(crate) fn fault(error: &rusqlite::Error) -> Option<StoreFault> {
    let code = error.sqlite_error()?.extended_code & 0xff;
    if ![ffi::SQLITE_FULL, ffi::SQLITE_NOMEM, ffi::SQLITE_IOERR, ffi::SQLITE_CANTOPEN].contains(&code) {
        return None;
    }
    Some(take()?.into())
}

/// Gives the entry that follows twice the memory, or what every entry has. Twice where this node could not apply it:
/// another node, whose process has a little more, perhaps could.
pub(crate) fn be_generous(is_generous: bool) {
    HERE.with(|here| here.is_generous.set(is_generous));
}

/// Forgets what was refused to earlier statements of this thread. To be called before each entry.
pub(crate) fn forget() {
    HERE.with(|here| here.refusal.set(None));
}

/// The node's trouble, if something was refused to the entry and SQLite, or one of its functions, went on without an
/// error. The outcome of the entry may then differ from that on other nodes.
pub(crate) fn swallowed() -> Option<StoreFault> {
    take().map(StoreFault::from)
}
