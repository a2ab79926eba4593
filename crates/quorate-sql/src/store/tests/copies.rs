//! The copies that a store makes of its database, for tests of what these hold.

use std::path::PathBuf;
use std::sync::Arc;

use quorate_env::Env;
use quorate_model::{Applied, LogId, StateMachine};
use rusqlite::Connection;
use tempfile::TempDir;

use super::{SqlStore, open};
use crate::backup::{BackupFile, Take, restore};
use crate::options::StoreOptions;

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

/// Replaces the database of a store by that of another one.
pub(crate) fn send_image(from: &SqlStore, to: &SqlStore) {
    let (mut source, mut sink) = (from.send_image().unwrap(), to.receive_image().unwrap());
    while let Some(piece) = source.next().unwrap() {
        sink.write(piece).unwrap();
    }
    drop(source);
    sink.finish().unwrap().install().unwrap();
}

/// A backup of a store.
pub(crate) struct Backup {
    dir: TempDir,
    file: PathBuf,
    log_id: Option<LogId>,
}

impl Backup {
    pub(crate) fn of(store: &SqlStore) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.db");
        let mut backup = BackupFile::create(Env::real().disk(), &file, false).unwrap();
        let mut source = store.send_image().unwrap();
        std::iter::from_fn(|| source.next().unwrap()).for_each(|piece| backup.write(&piece).unwrap());
        let log_id = backup.finish().unwrap().applied.log_id;
        Self { dir, file, log_id }
    }

    /// Opens it as any program does.
    pub(crate) fn plain(&self) -> Connection {
        Connection::open_with_flags(&self.file, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap()
    }

    /// Restores it, and opens a store on the result.
    pub(crate) fn restored(&self, options: StoreOptions) -> SqlStore {
        let applied = Applied { log_id: self.log_id, ..Applied::default() };
        let disk = Arc::clone(Env::real().disk());
        restore(&disk, self.dir.path(), (&self.file, Take::Copy), options.identity, &applied).unwrap();
        open(self.dir.path(), options)
    }
}

/// Writes the pages of a capture to a file, and opens that.
pub(crate) fn captured(store: &SqlStore) -> (TempDir, Connection) {
    let mut capture = store.capture().unwrap();
    let boundary = capture.boundary().unwrap();
    let mut page = vec![0; usize::try_from(boundary.page_size()).unwrap()];
    let mut pages = Vec::new();
    for number in boundary.numbers() {
        boundary.read(number, &mut page).unwrap();
        pages.extend_from_slice(&page);
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("copy.db");
    std::fs::write(&file, pages).unwrap();
    let copy = Connection::open(&file).unwrap();
    (dir, copy)
}
