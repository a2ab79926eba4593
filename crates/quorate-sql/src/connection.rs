//! Opens connections to a generation's database, each for one purpose and with everything set that this store relies
//! on.
//!
//! Invariants, for every connection: no automatic checkpoint and none on close, since a checkpoint outside of the gate
//! could destroy an image; no STAT4 and a stable planner, since plans must not depend on this node; SQLite's defensive
//! mode; the limits of [`quorate_model::limits`]. No connection outlives its [`Generation`].

use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use quorate_model::limits::{FUNCTION_ARGUMENTS_MAX, PARAMETERS_MAX, PARSER_DEPTH_MAX, SQL_BYTES_MAX, VALUE_BYTES_MAX};
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags};

use crate::determinism::math;
use crate::error::OpenError;
use crate::ffi::control;
use crate::functions;
use crate::generation::Generation;

/// How long a connection waits for a lock that another process holds: the writer for an outside `sqlite3` that writes,
/// a reader for one that recovers.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

/// The version of the SQLite that is built in.
pub fn sqlite_version() -> &'static str {
    rusqlite::version()
}

/// A connection together with the generation that it reads.
#[derive(Debug)]
pub struct Attached {
    // Before the generation: fields are dropped in this order, and the main file's handle must be closed last.
    conn: Connection,
    generation: Arc<Generation>,
}

impl Attached {
    /// The generation that it belongs to.
    pub fn generation(&self) -> &Arc<Generation> {
        &self.generation
    }

    /// The two; the connection must be dropped first.
    pub(crate) fn into_parts(self) -> (Connection, Arc<Generation>) {
        (self.conn, self.generation)
    }
}

impl Deref for Attached {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.conn
    }
}

impl DerefMut for Attached {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.conn
    }
}

/// Opens the write connection. The caller keeps the generation longer than it. Deterministic functions, extensions and
/// the authorizer are installed by whoever applies with it.
pub fn open_writer(generation: &Generation, cache_bytes: u32) -> Result<Connection, OpenError> {
    let path = generation.path();
    let conn = open(generation.vfs(), &path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let mode: String = conn.query_row("PRAGMA journal_mode", [], |row| row.get(0)).map_err(OpenError::sqlite(&path))?;
    if mode != "wal" {
        return Err(OpenError::layout(&path, format!("its journal mode is {mode}, not wal; an outsider changed it")));
    }
    set_cache(&conn, cache_bytes).map_err(OpenError::sqlite(&path))?;
    Ok(conn)
}

/// Opens a connection that can only read, with all extensions.
pub fn open_reader(generation: &Arc<Generation>, cache_bytes: u32) -> Result<Attached, OpenError> {
    let reader = open_bare_reader(generation, cache_bytes)?;
    generation.extensions().register_all(&reader).map_err(OpenError::sqlite(&generation.path()))?;
    Ok(reader)
}

/// Opens a connection that can only read, without extensions.
pub(crate) fn open_bare_reader(generation: &Arc<Generation>, cache_bytes: u32) -> Result<Attached, OpenError> {
    let path = generation.path();
    let conn = open(generation.vfs(), &path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    set_cache(&conn, cache_bytes).map_err(OpenError::sqlite(&path))?;
    Ok(Attached { conn, generation: Arc::clone(generation) })
}

/// Opens the connection that runs checkpoints beside the writer.
pub fn open_checkpointer(generation: &Arc<Generation>) -> Result<Attached, OpenError> {
    let conn = open(generation.vfs(), &generation.path(), OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    Ok(Attached { conn, generation: Arc::clone(generation) })
}

/// Opens a database of which no store knows, with nothing of a store's but what an outcome depends on: for
/// [`plain`](crate::plain).
pub(crate) fn open_plain(vfs: &str, path: &Path) -> Result<Connection, OpenError> {
    let open = || {
        let conn = Connection::open_with_flags_and_vfs(path, OpenFlags::default(), vfs)?;
        conn.execute_batch("PRAGMA foreign_keys = ON; PRAGMA synchronous = OFF")?;
        math::install(&conn)?;
        functions::install(&conn, &functions::unmetered())?;
        control::disable_stat4(&conn);
        Ok(conn)
    };
    open().map_err(OpenError::sqlite(path))
}

/// Opens a database file that nobody writes, without its `-wal` and without locks: what an image holds. It must be
/// closed before anybody writes the file.
pub(crate) fn open_immutable(vfs: &str, path: &Path) -> Result<Connection, OpenError> {
    let uri = format!("file:{}?immutable=1", escaped(path)?);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags_and_vfs(uri, flags, vfs).map_err(OpenError::sqlite(path))?;
    prepare(&conn, path)?;
    Ok(conn)
}

/// Opens a database that nobody else has open and that is in no generation in force, to change it.
pub(crate) fn open_alone(vfs: &str, path: &Path) -> Result<Connection, OpenError> {
    open(vfs, path, OpenFlags::SQLITE_OPEN_READ_WRITE)
}

/// Changes how a database that nobody else has open keeps its journal. Once the connection is closed nothing with
/// content lies beside the file.
pub(crate) fn set_journal_mode(conn: &Connection, path: &Path, mode: &str) -> Result<(), OpenError> {
    let set = conn.pragma_update_and_check(None, "journal_mode", mode, |row| row.get::<_, String>(0));
    match set.map_err(OpenError::sqlite(path))?.as_str() {
        found if found == mode => Ok(()),
        found => Err(OpenError::layout(path, format!("its journal mode stays {found}; somebody else has it open"))),
    }
}

/// Makes an empty database in the empty file `path`: its page size, encoding and vacuum mode are fixed from here on.
pub(crate) fn create_database(vfs: &str, path: &Path, page_size: u32) -> Result<(), OpenError> {
    let conn = open(vfs, path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let run = || {
        conn.pragma_update(None, "page_size", page_size)?;
        conn.pragma_update(None, "auto_vacuum", 0)?;
        conn.pragma_update(None, "encoding", "UTF-8")?;
        conn.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get::<_, String>(0))
    };
    run().map_err(OpenError::sqlite(path))?;
    Ok(())
}

fn open(vfs: &str, path: &Path, flags: OpenFlags) -> Result<Connection, OpenError> {
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_PRIVATE_CACHE;
    let conn = Connection::open_with_flags_and_vfs(path, flags, vfs).map_err(OpenError::sqlite(path))?;
    prepare(&conn, path)?;
    Ok(conn)
}

/// What all connections have in common.
fn prepare(conn: &Connection, path: &Path) -> Result<(), OpenError> {
    let run = || {
        conn.busy_timeout(BUSY_TIMEOUT)?;
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, true)?;
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        conn.set_limit(Limit::SQLITE_LIMIT_LENGTH, as_limit(VALUE_BYTES_MAX))?;
        conn.set_limit(Limit::SQLITE_LIMIT_SQL_LENGTH, as_limit(SQL_BYTES_MAX))?;
        conn.set_limit(Limit::SQLITE_LIMIT_VARIABLE_NUMBER, as_limit(PARAMETERS_MAX))?;
        conn.set_limit(Limit::SQLITE_LIMIT_FUNCTION_ARG, as_limit(FUNCTION_ARGUMENTS_MAX))?;
        control::limit_parser_depth(conn, PARSER_DEPTH_MAX);
        conn.set_limit(Limit::SQLITE_LIMIT_WORKER_THREADS, 0)?;
        math::install(conn)?;
        functions::install(conn, &functions::unmetered())?;
        conn.pragma_update(None, "synchronous", "NORMAL")?;
        conn.pragma_update_and_check(None, "wal_autocheckpoint", 0, |row| row.get::<_, i64>(0))
    };
    run().map_err(OpenError::sqlite(path))?;
    control::disable_stat4(conn);
    if !control::stat4_is_disabled(conn) {
        return Err(OpenError::Unsuitable("it does not let STAT4 be turned off".to_owned()));
    }
    Ok(())
}

fn set_cache(conn: &Connection, bytes: u32) -> rusqlite::Result<()> {
    // Negative: in KiB rather than in pages.
    conn.pragma_update(None, "cache_size", -i64::from(bytes / 1024))
}

fn as_limit(value: usize) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

/// A path as SQLite's URIs want it.
fn escaped(path: &Path) -> Result<String, OpenError> {
    let text = path.to_str().ok_or_else(|| OpenError::layout(path, "the path is not UTF-8; choose another"))?;
    Ok(text.replace('%', "%25").replace('?', "%3f").replace('#', "%23"))
}

#[cfg(test)]
mod tests;
