//! Opens connections to a generation's database, each for one purpose and with all settings that the store relies on.
//!
//! Invariants, for every connection: no automatic checkpoint and none on close, because a checkpoint outside of the
//! gate could destroy an image; no STAT4, and the query planner stability guarantee, because plans must not depend on
//! this node; SQLite's defensive mode; the limits of [`quorate_model::limits`]. No connection outlives its
//! [`Generation`].

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
use crate::events::function as notify;
use crate::ffi::control;
use crate::functions;
use crate::generation::Generation;

/// How long a connection waits for a lock that another process holds, such as a `sqlite3` that writes (the writer
/// waits) or recovers the `-wal` (readers wait).
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns the version of the built-in SQLite.
pub fn sqlite_version() -> &'static str {
    rusqlite::version()
}

/// A connection together with the generation that it reads.
#[derive(Debug)]
pub struct Attached {
    // Must be declared before the generation: fields are dropped in this order, and the generation's handle of the main
    // file must be closed last.
    conn: Connection,
    generation: Arc<Generation>,
}

impl Attached {
    /// Returns the generation that the connection belongs to.
    pub fn generation(&self) -> &Arc<Generation> {
        &self.generation
    }

    /// Returns the connection and its generation; the connection must be dropped first.
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

/// Opens the write connection. The caller must keep the generation longer than the connection. The applier installs the
/// deterministic functions, the extensions and the authorizer.
pub fn open_writer(generation: &Generation, cache_bytes: u32) -> Result<Connection, OpenError> {
    let path = generation.path();
    let conn = open(generation.vfs(), &path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let mode: String = conn.query_row("PRAGMA journal_mode", [], |row| row.get(0)).map_err(OpenError::sqlite(&path))?;
    if mode != "wal" {
        return Err(OpenError::layout(
            &path,
            format!("its journal mode is {mode}, not wal; another program changed it"),
        ));
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
    let set = || {
        set_cache(&conn, cache_bytes)?;
        notify::install_refusal(&conn)
    };
    set().map_err(OpenError::sqlite(&path))?;
    Ok(Attached { conn, generation: Arc::clone(generation) })
}

/// Opens the connection that runs checkpoints in parallel with the writer.
pub fn open_checkpointer(generation: &Arc<Generation>) -> Result<Attached, OpenError> {
    let conn = open(generation.vfs(), &generation.path(), OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    Ok(Attached { conn, generation: Arc::clone(generation) })
}

/// Opens a database that belongs to no store, with only those of a store's settings on which outcomes depend; for
/// [`plain`](crate::plain).
pub fn open_plain(vfs: &str, path: &Path) -> Result<Connection, OpenError> {
    let open = || {
        let conn = Connection::open_with_flags_and_vfs(path, OpenFlags::default(), vfs)?;
        conn.execute_batch("PRAGMA foreign_keys = ON; PRAGMA synchronous = OFF")?;
        math::install(&conn)?;
        functions::install(&conn, &functions::unmetered())?;
        notify::install_without_effect(&conn)?;
        control::disable_stat4(&conn);
        Ok(conn)
    };
    open().map_err(OpenError::sqlite(path))
}

/// Opens a database file that is not being written, such as an image, without its `-wal` and without locks. The caller
/// must close the connection before the file is written.
pub(crate) fn open_immutable(vfs: &str, path: &Path) -> Result<Connection, OpenError> {
    let uri = format!("file:{}?immutable=1", escaped(path)?);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags_and_vfs(uri, flags, vfs).map_err(OpenError::sqlite(path))?;
    prepare(&conn, path)?;
    Ok(conn)
}

/// Opens, for writing, a database that is not open elsewhere and is not part of the current generation.
pub(crate) fn open_alone(vfs: &str, path: &Path) -> Result<Connection, OpenError> {
    open(vfs, path, OpenFlags::SQLITE_OPEN_READ_WRITE)
}

/// Opens, for writing, a database that is not open elsewhere and that is lost if the process ends: nothing is synced,
/// and what a transaction needs for its rollback is in a journal, so that no `-wal` grows.
pub(crate) fn open_replay(vfs: &str, path: &Path, cache_bytes: u32) -> Result<Connection, OpenError> {
    let conn = open_alone(vfs, path)?;
    set_journal_mode(&conn, path, "truncate")?;
    let run = || {
        conn.pragma_update(None, "synchronous", "OFF")?;
        set_cache(&conn, cache_bytes)
    };
    run().map_err(OpenError::sqlite(path))?;
    Ok(conn)
}

/// Changes the journal mode of a database that is not open elsewhere. Once the connection is closed, no journal or
/// `-wal` with content is left next to the file.
pub(crate) fn set_journal_mode(conn: &Connection, path: &Path, mode: &str) -> Result<(), OpenError> {
    let set = conn.pragma_update_and_check(None, "journal_mode", mode, |row| row.get::<_, String>(0));
    match set.map_err(OpenError::sqlite(path))?.as_str() {
        found if found == mode => Ok(()),
        found => Err(OpenError::layout(path, format!("its journal mode stays {found}; another program has it open"))),
    }
}

/// Creates an empty database in the empty file `path`. This fixes its page size, encoding and vacuum mode.
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

/// Makes the settings that all connections share.
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
    // A negative number is in KiB, a positive one in pages.
    conn.pragma_update(None, "cache_size", -i64::from(bytes / 1024))
}

fn as_limit(value: usize) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

/// Escapes a path for use in a URI of SQLite.
fn escaped(path: &Path) -> Result<String, OpenError> {
    let text = path.to_str().ok_or_else(|| OpenError::layout(path, "the path is not UTF-8; choose another"))?;
    Ok(text.replace('%', "%25").replace('?', "%3f").replace('#', "%23"))
}

#[cfg(test)]
mod tests;
