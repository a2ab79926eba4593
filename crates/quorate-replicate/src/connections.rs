//! The connections of a follower: those that hold read transactions, and one that asks for the state of the `-wal` and
//! makes checkpoints.
//!
//! Invariants:
//! - None of them writes, makes a checkpoint unasked, or removes the `-wal` when it is closed.
//! - A transaction that can't be ended ends with its connection.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::error::ReplicateError;
use crate::wal::Header;

/// How often SQLite asks for a lock, and how long it waits in between: half a second in all. The waits are much shorter
/// than those of SQLite itself, because an application that commits all the time leaves the lock only for moments. The
/// writer's lock is asked for again later.
const LOCK_TRIES_MAX: i32 = 2500;
const LOCK_PAUSE: Duration = Duration::from_micros(200);

/// What the application sees of a connection: nothing is cached, because nothing but the header is read.
const SETTINGS: &str = "PRAGMA wal_autocheckpoint = 0; PRAGMA cache_size = 8; PRAGMA mmap_size = 0";

/// Fixes what a transaction sees. This pragma reads a number of the database's header.
const FIX: &str = "BEGIN; PRAGMA schema_version";

const WAL_MODE: &str = "wal";

/// The connections to one database.
pub struct Connections {
    path: PathBuf,
    control: Connection,
    idle: Vec<Connection>,
    /// Those with a transaction, the oldest first.
    held: VecDeque<Connection>,
}

/// A kind of transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// One that only reads.
    Read,
    /// One that also keeps everybody from writing.
    Write,
}

/// What became of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checkpointed {
    /// What nobody reads any more was copied.
    Done,
    /// Somebody else makes one.
    Busy,
}

/// The state of the `-wal`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The frames that are committed.
    pub frames: u32,
    /// How many of them are copied into the main file.
    pub copied: u32,
    /// The header of the file.
    pub header: Option<Header>,
}

impl Connections {
    /// Opens a database that exists, and switches it to WAL mode.
    pub fn open(path: &Path) -> Result<Self, ReplicateError> {
        let control = connect(path)?;
        let mode: String = ask(&control, "PRAGMA journal_mode", "read the journal mode")?;
        if mode != WAL_MODE {
            let mode: String = ask(&control, "PRAGMA journal_mode = WAL", "switch the database to WAL mode")?;
            if mode != WAL_MODE {
                return Err(ReplicateError::NotWal(mode));
            }
        }
        Ok(Self { path: path.to_owned(), control, idle: Vec::new(), held: VecDeque::new() })
    }

    /// Opens a transaction beside those that are held. Returns `false` if it can't write because somebody else does.
    pub fn hold(&mut self, hold: Hold) -> Result<bool, ReplicateError> {
        let connection = match self.idle.pop() {
            Some(connection) => connection,
            None => connect(&self.path)?,
        };
        let begun = connection.execute_batch(match hold {
            Hold::Read => FIX,
            Hold::Write => "BEGIN IMMEDIATE",
        });
        match begun {
            Ok(()) => self.held.push_back(connection),
            Err(error) if hold == Hold::Write && error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {
                self.idle.push(connection);
                return Ok(false);
            }
            Err(error) => return Err(ReplicateError::sqlite("read the database")(error)),
        }
        Ok(true)
    }

    /// Ends the transactions before the newest.
    pub fn release_older(&mut self) {
        while self.held.len() > 1 {
            let oldest = self.held.pop_front();
            self.release(oldest);
        }
    }

    /// Ends the newest transaction.
    pub fn release_newest(&mut self) {
        let newest = self.held.pop_back();
        self.release(newest);
    }

    fn release(&mut self, connection: Option<Connection>) {
        // One that can't be rolled back is closed.
        self.idle.extend(connection.filter(|connection| connection.execute_batch("ROLLBACK").is_ok()));
    }

    /// Returns the number of committed frames in the `-wal`, and how many of them are copied into the main file.
    pub fn frames(&self) -> Result<(u32, u32), ReplicateError> {
        let during = "ask for the length of the -wal";
        // This mode copies nothing. It is busy while somebody else begins the `-wal` anew.
        let ask = || {
            let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
            self.control.query_row("PRAGMA wal_checkpoint(NOOP)", [], row).map_err(ReplicateError::sqlite(during))
        };
        let (mut is_busy, mut frames, mut copied): (bool, i64, i64) = ask()?;
        for tries in 0..LOCK_TRIES_MAX {
            if !is_busy || !wait(tries) {
                break;
            }
            (is_busy, frames, copied) = ask()?;
        }
        if is_busy {
            // Another process may stand still while it changes the index of the `-wal`.
            return Err(ReplicateError::Unsteady);
        }
        let not_wal = |_| ReplicateError::NotWal("unknown".to_owned());
        Ok((u32::try_from(frames).map_err(not_wal)?, u32::try_from(copied).map_err(not_wal)?))
    }

    /// Copies frames into the main file, without waiting for anybody.
    pub fn checkpoint(&self) -> Result<Checkpointed, ReplicateError> {
        let during = "make a checkpoint";
        let is_busy: bool = ask(&self.control, "PRAGMA wal_checkpoint(PASSIVE)", during)?;
        Ok(if is_busy { Checkpointed::Busy } else { Checkpointed::Done })
    }

    /// Returns the size of a page, and the number of pages in the newest transaction.
    pub fn size(&self) -> Result<(u32, u32), ReplicateError> {
        let during = "read the size of the database";
        let newest = self.held.back().unwrap_or(&self.control);
        Ok((ask(newest, "PRAGMA page_size", during)?, ask(newest, "PRAGMA page_count", during)?))
    }
}

/// Waits before the next try to take a lock. Returns whether there is to be one.
fn wait(tries: i32) -> bool {
    thread::park_timeout(LOCK_PAUSE);
    tries < LOCK_TRIES_MAX
}

fn connect(path: &Path) -> Result<Connection, ReplicateError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let failed = ReplicateError::sqlite("open the database");
    let mut connection = Connection::open_with_flags(path, flags).map_err(&failed)?;
    connection.busy_handler(Some(wait)).map_err(&failed)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(&failed)?;
    connection.execute_batch(SETTINGS).map_err(&failed)?;
    Ok(connection)
}

fn ask<T: rusqlite::types::FromSql>(
    connection: &Connection,
    sql: &str,
    during: &'static str,
) -> Result<T, ReplicateError> {
    connection.query_row(sql, [], |row| row.get(0)).map_err(ReplicateError::sqlite(during))
}
