//! A copy of a database, which other processes read while it is changed.
//!
//! The copy is a database in rollback mode. Whoever reads it holds SQLite's shared lock, and it is changed under
//! SQLite's exclusive lock, with SQLite's rollback journal. So a reader sees the pages of one position, never a
//! mixture, and a change that was interrupted is undone by whoever opens the copy next.
//!
//! A copy differs from its origin in 14 bytes of the first page: that the database is not in WAL mode (18, 19), the
//! counter of changes (24 to 27, 92 to 95), and the number of pages (28 to 31), which some programs leave wrong.
//!
//! # Invariants
//!
//! - Bytes of the copy change only while the exclusive lock is held and the journal is durable.
//! - SQLite drops the locks of a process on a file when any handle on it is closed. So the handle here is open before
//!   the connection that takes the locks, and is closed after it.
//! - What another program has changed is never overwritten: the counter in the header is none of the note then.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use quorate_env::Env;
use quorate_env::disk::{File, OpenMode};
use rusqlite::{Connection, OpenFlags};

use crate::changes::Difference;
use crate::error::ReplicateError;
use crate::origin::Origin;
use crate::restore::Part;
use crate::spool::{beside, dir_of};

mod journal;
mod note;
#[cfg(test)]
mod tests;

use self::journal::{Before, Journal};
use self::note::Note;
pub use self::note::{Position, State};

/// How long a change waits for readers to end. Meanwhile no new reader begins.
const READERS_MAX: Duration = Duration::from_millis(500);
/// The bytes of a database's header.
const HEADER_BYTES: usize = 100;
/// SQLite locks bytes from here on, and the page that holds them has no content.
const LOCK_OFFSET: u32 = 0x4000_0000;
/// The end of the name of a note.
const NOTE_SUFFIX: &str = "-position";
/// The ends of the names of files that SQLite would take for a part of the database.
const COMPANIONS: [&str; 2] = ["-journal", "-wal"];
/// What a database begins with.
const MAGIC: &[u8] = b"SQLite format 3\0";

/// New content of pages.
pub trait Change {
    /// The size of a page.
    fn page_size(&self) -> u32;

    /// The number of pages that the database has afterwards.
    fn pages(&self) -> u32;

    /// The numbers of the pages that it has, ascending.
    fn numbers(&self) -> &[u32];

    /// Reads one of them.
    fn read(&self, number: u32) -> Result<Vec<u8>, ReplicateError>;
}

/// A copy that only this process changes.
pub struct Copy {
    /// Takes the locks. It is closed before the file is.
    connection: Connection,
    file: Arc<dyn File>,
    env: Env,
    path: PathBuf,
    identity: Option<(u64, u64)>,
    origin: Origin,
    state: State,
}

impl Copy {
    /// Makes a restored database that nobody reads yet a copy, which then appears as `path`.
    pub fn create(
        env: &Env,
        restored: &Path,
        path: &Path,
        origin: Origin,
        position: Position,
    ) -> Result<Self, ReplicateError> {
        let disk = env.disk();
        for companion in COMPANIONS.map(|suffix| beside(path, suffix)) {
            if disk.exists(&companion).map_err(ReplicateError::io("look for files of another database"))? {
                return Err(ReplicateError::Companion(companion));
            }
        }
        let make = || {
            let file = disk.open(restored, OpenMode::ReadWrite)?;
            let mut header = header(&*file)?;
            let page_size = page_size(&header);
            let counter = draw(env, 0);
            mark(&mut header, counter, pages(&*file, page_size)?);
            file.write_at(&header, 0)?;
            file.sync_data()?;
            drop(file);
            Note { origin, states: vec![(counter, position)] }.write(&**disk, &beside(path, NOTE_SUFFIX))?;
            disk.rename(restored, path)?;
            disk.sync_dir(dir_of(path))
        };
        make().map_err(ReplicateError::io("make the restored database a copy"))?;
        Self::open(env, path)?.ok_or(ReplicateError::NoCopy)
    }

    /// Opens a copy; `None` if there is no such file. A change that was interrupted is undone.
    pub fn open(env: &Env, path: &Path) -> Result<Option<Self>, ReplicateError> {
        let failed = ReplicateError::io("open the copy");
        let disk = env.disk();
        if !disk.exists(path).map_err(&failed)? {
            return Ok(None);
        }
        let note = Note::read(&**disk, &beside(path, NOTE_SUFFIX)).map_err(ReplicateError::io("read the note"))?;
        let note = note.ok_or(ReplicateError::NoCopy)?;
        let file = disk.open(path, OpenMode::ReadWrite).map_err(&failed)?;
        let identity = disk.identity(path).map_err(&failed)?;
        let connection = connect(path)?;
        lock(&connection)?;
        let counter = header(&*file).map(|header| counter(&header)).map_err(&failed);
        unlock(&connection)?;
        let counter = counter?;
        let position = note.position(counter).ok_or(ReplicateError::NoCopy)?;
        let (env, path) = (env.clone(), path.to_owned());
        Ok(Some(Self { connection, file, env, path, identity, origin: note.origin, state: (counter, position) }))
    }

    /// Returns what it is a copy of.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Returns the position whose pages it has.
    pub fn position(&self) -> Position {
        self.state.1
    }

    /// Changes the pages and the position, as one transaction.
    ///
    /// # Errors
    ///
    /// If readers do not end in time, the error is retryable. After an error the copy is as it was, for everybody.
    pub fn apply(&mut self, change: &dyn Change, position: Position) -> Result<(), ReplicateError> {
        let identity = self.env.disk().identity(&self.path).map_err(ReplicateError::io("find the copy"))?;
        if identity != self.identity {
            return Err(ReplicateError::NoCopy);
        }
        lock(&self.connection)?;
        let written = self.write(change, position);
        // If there is a journal, the next lock finds it and undoes the change.
        let unlocked = unlock(&self.connection);
        self.state = written?;
        unlocked
    }

    /// Gives the copy the pages of a database that was restored.
    pub fn become_like(&mut self, restored: &Part, position: Position) -> Result<(), ReplicateError> {
        let failed = ReplicateError::io("compare the copy with what was restored");
        let compare = || {
            let restored = self.env.disk().open(restored.path(), OpenMode::Read)?;
            let page_size = page_size(&header(&*restored)?);
            Difference::between(&*self.file, restored, page_size)
        };
        let difference = compare().map_err(failed)?;
        self.apply(&difference, position)
    }

    /// Writes the pages under the lock, and returns the new state.
    fn write(&self, change: &dyn Change, position: Position) -> Result<State, ReplicateError> {
        let failed = ReplicateError::io("write the copy");
        let (disk, file) = (self.env.disk(), &*self.file);
        let old = header(file).map_err(&failed)?;
        if counter(&old) != self.state.0 {
            return Err(ReplicateError::NoCopy);
        }
        if page_size(&old) != change.page_size() {
            return Err(ReplicateError::PageSize { copy: page_size(&old), origin: change.page_size() });
        }
        let before = Before { file, page_size: page_size(&old), pages: pages(file, page_size(&old)).map_err(&failed)? };
        let nonce = draw(&self.env, 0);
        let kept = kept(change, before.pages);
        let journal = Journal::write(disk, &self.path, &before, kept, nonce).map_err(&failed)?;
        let state = (draw(&self.env, self.state.0), position);
        write_pages(file, change, state.0)?;
        file.sync_data().map_err(&failed)?;
        let note = Note { origin: self.origin, states: vec![self.state, state] };
        note.write(&**disk, &beside(&self.path, NOTE_SUFFIX)).map_err(&failed)?;
        journal.remove().map_err(&failed)?;
        Ok(state)
    }
}

/// Returns the pages whose old content a change replaces or cuts off: the first one in any case.
fn kept(change: &dyn Change, before: u32) -> impl Iterator<Item = u32> {
    let lock_page = (LOCK_OFFSET / change.page_size()).saturating_add(1);
    let replaced =
        change.numbers().iter().copied().filter(move |number| *number > 1 && *number <= before.min(change.pages()));
    let cut = change.pages().saturating_add(1)..=before;
    std::iter::once(1).chain(replaced).chain(cut).filter(move |number| *number != lock_page)
}

fn write_pages(file: &dyn File, change: &dyn Change, counter: u32) -> Result<(), ReplicateError> {
    let failed = ReplicateError::io("write the copy");
    for number in change.numbers() {
        let mut page = change.read(*number)?;
        if *number == 1 {
            mark(&mut page, counter, change.pages());
        }
        let at = u64::from(number.saturating_sub(1)).saturating_mul(change.page_size().into());
        file.write_at(&page, at).map_err(&failed)?;
    }
    if change.numbers().first() != Some(&1) {
        let mut header = header(file).map_err(&failed)?;
        mark(&mut header, counter, change.pages());
        file.write_at(&header, 0).map_err(&failed)?;
    }
    let length = u64::from(change.pages()).saturating_mul(change.page_size().into());
    file.set_len(length).map_err(&failed)
}

/// Sets what differs between a copy and its origin in the first page.
fn mark(page: &mut [u8], counter: u32, pages: u32) {
    let mut put = |at: usize, bytes: &[u8]| {
        page.iter_mut().skip(at).zip(bytes).for_each(|(to, from)| *to = *from);
    };
    put(18, &[1, 1]);
    put(24, &counter.to_be_bytes());
    put(28, &pages.to_be_bytes());
    put(92, &counter.to_be_bytes());
}

/// Reads the header of a database.
fn header(file: &dyn File) -> io::Result<[u8; HEADER_BYTES]> {
    let mut header = [0; HEADER_BYTES];
    file.read_exact_at(&mut header, 0)?;
    let is_database = header.starts_with(MAGIC) && page_size(&header).is_power_of_two();
    let other = || io::Error::new(io::ErrorKind::InvalidData, "it is not a database of SQLite");
    if is_database { Ok(header) } else { Err(other()) }
}

fn page_size(header: &[u8; HEADER_BYTES]) -> u32 {
    let [.., high, low] = header.first_chunk::<18>().copied().unwrap_or_default();
    // 65,536 does not fit, and is 1.
    match u32::from(u16::from_be_bytes([high, low])) {
        1 => 65_536,
        size => size,
    }
}

fn counter(header: &[u8; HEADER_BYTES]) -> u32 {
    header.get(24..).and_then(<[u8]>::first_chunk).copied().map_or(0, u32::from_be_bytes)
}

fn pages(file: &dyn File, page_size: u32) -> io::Result<u32> {
    u32::try_from(file.len()? / u64::from(page_size.max(1))).map_err(io::Error::other)
}

/// Draws a number that differs from this one.
fn draw(env: &Env, other: u32) -> u32 {
    let drawn = u32::try_from(env.rng().below(u32::MAX.into())).unwrap_or(0);
    if drawn == other { u32::MAX } else { drawn }
}

fn connect(path: &Path) -> Result<Connection, ReplicateError> {
    let failed = ReplicateError::sqlite("open the copy");
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(&failed)?;
    connection.busy_timeout(READERS_MAX).map_err(&failed)?;
    connection.execute_batch("PRAGMA mmap_size = 0; PRAGMA cache_size = 8").map_err(&failed)?;
    Ok(connection)
}

/// Takes the exclusive lock. Before that, SQLite undoes a change that was interrupted.
fn lock(connection: &Connection) -> Result<(), ReplicateError> {
    connection.execute_batch("BEGIN EXCLUSIVE").map_err(ReplicateError::sqlite("lock the copy"))
}

fn unlock(connection: &Connection) -> Result<(), ReplicateError> {
    connection.execute_batch("ROLLBACK").map_err(ReplicateError::sqlite("unlock the copy"))
}
