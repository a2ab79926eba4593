//! Generations under crashes, and SQLite's locks against other processes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests"
)]

use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use quorate_env::disk::{DirItem, DirLock, Disk, File, OpenMode, RealDisk, Space};
use quorate_env::{Env, Parts};
use quorate_model::{StateMachine, StoreFault};
use rusqlite::Connection;

use crate::error::OpenError;
use crate::options::StoreOptions;
use crate::store::SqlStore;
use crate::store::tests::{apply, create_table, home, insert, killed_copy, open, options, rows, try_open};

/// A disk that fails after a number of changes: the next change and all later ones fail. It can also fail only the next
/// sync.
#[derive(Clone, Debug)]
struct DyingDisk(Arc<AtomicI64>, Arc<AtomicBool>);

#[derive(Debug)]
struct DyingFile(Arc<dyn File>, DyingDisk);

impl DyingDisk {
    fn change<T>(&self, change: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if self.0.fetch_sub(1, Ordering::AcqRel) > 0 { change() } else { Err(io::Error::other("dead")) }
    }

    fn is_dead(&self) -> bool {
        self.0.load(Ordering::Acquire) < 0
    }
}

impl Disk for DyingDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let open = || RealDisk.open(path, mode);
        let file = if mode == OpenMode::Read { open()? } else { self.change(open)? };
        Ok(Arc::new(DyingFile(file, self.clone())))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.change(|| RealDisk.create_dir_all(path))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirItem>> {
        RealDisk.list(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        RealDisk.exists(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(|| RealDisk.rename(from, to))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.change(|| RealDisk.remove_file(path))
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.change(|| RealDisk.remove_dir_all(path))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.change(|| RealDisk.sync_dir(dir))
    }

    fn lock_dir(&self, dir: &Path) -> io::Result<Box<dyn DirLock>> {
        RealDisk.lock_dir(dir)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        RealDisk.space(path)
    }

    fn boot_id(&self) -> Option<String> {
        RealDisk.boot_id()
    }
}

impl File for DyingFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.1.change(|| self.0.write_at(buf, offset))
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.1.1.swap(false, Ordering::AcqRel) {
            return Err(io::Error::other("not synced"));
        }
        self.1.change(|| self.0.sync_data())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.1.change(|| self.0.set_len(len))
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
}

/// The real environment with a disk that fails after `changes`.
fn dying(changes: i64) -> (Env, DyingDisk) {
    let real = Env::real();
    let disk = DyingDisk(Arc::new(AtomicI64::new(changes)), Arc::default());
    let parts = Parts {
        clock: Arc::new(Epoch),
        disk: Arc::new(disk.clone()),
        net: Arc::clone(real.net()),
        rng: real.rng().clone(),
        host: Arc::clone(real.host()),
    };
    (Env::new(parts), disk)
}

#[derive(Debug)]
struct Epoch;

impl quorate_env::WallClock for Epoch {
    fn unix_nanos(&self) -> u64 {
        0
    }
}

fn entries_of(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(dir).unwrap().map(|item| item.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_crash_during_the_first_start_can_be_recovered() {
    for changes in 0.. {
        let home = home();
        let (env, disk) = dying(changes);
        let opened = SqlStore::open(&env, &home.dir, options()).is_ok();
        if opened && !disk.is_dead() {
            assert!(changes > 5);
            return;
        }
        std::fs::create_dir_all(&home.dir).unwrap();
        let store = open(&home.dir, options());
        apply(&store, vec![create_table(), insert(2, 1)]).unwrap();
        assert_eq!(entries_of(&home.dir.join("db")), ["00000001", "LOCK"]);
    }
}

#[test]
fn a_crash_during_an_install_keeps_old_or_new_state() {
    let (source_home, target_home) = (home(), home());
    let source = open(&source_home.dir, options());
    apply(&source, vec![create_table()]).unwrap();
    apply(&source, (2..300).map(|index| insert(index, 3_000)).collect()).unwrap();
    let mut image = source.send_image().unwrap();
    let pieces: Vec<Bytes> = std::iter::from_fn(|| image.next().unwrap()).collect();
    let target = open(&target_home.dir, options());
    apply(&target, vec![create_table(), insert(2, 1)]).unwrap();
    drop(target);
    drop(open(&target_home.dir, options()));
    let (mut old, mut new) = (0, 0);
    for changes in 0.. {
        let dir = killed_copy(&target_home.dir, &changes.to_string());
        let (env, disk) = dying(i64::MAX);
        let store = SqlStore::open(&env, &dir, options()).unwrap();
        disk.0.store(changes, Ordering::Release);
        let install = || {
            let mut sink = store.receive_image()?;
            pieces.iter().try_for_each(|piece| sink.write(piece.clone()))?;
            sink.finish()?.install()
        };
        let installed = install().is_ok();
        let is_dead = disk.is_dead();
        drop(store);
        let store = open(&dir, options());
        let state = (store.applied().index(), rows(&store));
        assert!(state == (299, 298) || (state == (2, 1) && !installed), "{state:?} after {changes} changes");
        *(if state.0 == 2 { &mut old } else { &mut new }) += 1;
        apply(&store, vec![insert(state.0 + 1, 1)]).unwrap();
        assert_eq!(entries_of(&dir.join("db")).len(), 2);
        if installed && !is_dead {
            break;
        }
    }
    assert!(old > 5 && new > 1, "{old} old, {new} new");
}

#[test]
fn nothing_is_called_durable_after_a_failed_sync() {
    let home = home();
    let (env, disk) = dying(i64::MAX);
    let store = SqlStore::open(&env, &home.dir, options()).unwrap();
    apply(&store, vec![create_table(), insert(2, 1)]).unwrap();
    let mut image = store.send_image().unwrap();
    disk.1.store(true, Ordering::Release);
    let sent = std::iter::from_fn(|| image.next().transpose()).find_map(Result::err);
    assert!(matches!(sent, Some(StoreFault::Io(_))), "{sent:?}");
    assert!(store.shared().final_fault().is_some());
    assert!(apply(&store, vec![insert(3, 1)]).is_err());
    let generation = store.shared().generations.current();
    let (main, wal) = (generation.sync_main(), generation.sync_wal());
    assert!(main.is_err() && wal.is_err());
    drop(image);
    let mut again = store.send_image().unwrap();
    let sent = std::iter::from_fn(|| again.next().transpose()).find_map(Result::err);
    assert!(matches!(sent, Some(StoreFault::Io(_))), "{sent:?}");
}

#[test]
fn a_lost_or_damaged_pointer_is_detected() {
    let home = home();
    let store = open(&home.dir, options());
    apply(&store, vec![create_table(), insert(2, 1)]).unwrap();
    drop(store);
    drop(open(&home.dir, options()));
    let pointer = home.dir.join("CURRENT");
    let whole = std::fs::read(&pointer).unwrap();
    // If there is only one generation, it is the current one.
    std::fs::remove_file(&pointer).unwrap();
    assert_eq!(rows(&open(&home.dir, options())), 1);
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        std::fs::write(&pointer, damaged).unwrap();
        assert_eq!(rows(&open(&home.dir, options())), 1);
        assert_eq!(std::fs::read(&pointer).unwrap(), whole);
    }
    // If there are several, none may be chosen at random.
    std::fs::create_dir(home.dir.join("db/00000002")).unwrap();
    for damaged in [Some("quorate generation 1\n1\n00000000\n"), None] {
        std::fs::remove_file(&pointer).unwrap();
        damaged.into_iter().for_each(|text| std::fs::write(&pointer, text).unwrap());
        let error = try_open(&home.dir, options()).unwrap_err();
        assert!(matches!(error, OpenError::Layout { .. }) && error.is_damage(), "{error}");
        std::fs::write(&pointer, &whole).unwrap();
    }
}

const OUTSIDER: &str = "QUORATE_TEST_OUTSIDER";

/// Not a separate test: the next test runs this in another process, like a call of `sqlite3`.
#[test]
fn outsider() {
    let Ok(path) = std::env::var(OUTSIDER) else { return };
    let conn = Connection::open(&path).unwrap();
    let rows: i64 = conn.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap();
    assert!(rows > 0);
    drop(conn);
    // This process must still hold SQLite's locks. Otherwise the outsider could believe that it is alone, and delete
    // the `-wal`.
    for suffix in ["", "-shm"] {
        let file = std::fs::File::options().read(true).write(true).open(format!("{path}{suffix}")).unwrap();
        let lock = rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive);
        assert!(lock.is_err(), "nobody holds {path}{suffix}");
    }
}

#[test]
fn an_outside_reader_does_not_delete_the_wal() {
    let home = home();
    // An idle store would empty it, and the other process may take long to start.
    let store = open(&home.dir, StoreOptions { idle_after: Duration::from_secs(3_600), ..options() });
    apply(&store, vec![create_table(), insert(2, 1)]).unwrap();
    // Everything that the store does with the main file besides SQLite: reading it for an image, syncing it, measuring
    // it.
    let mut image = store.send_image().unwrap();
    while image.next().unwrap().is_some() {}
    drop(image);
    let generation = store.shared().generations.current();
    generation.sync_main().unwrap();
    generation.sync_wal().unwrap();
    apply(&store, vec![insert(3, 1)]).unwrap();
    let before = generation.wal_file_bytes().unwrap();
    assert!(before > 0);
    let test = "generation::tests::outsider";
    let status = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--quiet"])
        .env(OUTSIDER, generation.path())
        .output()
        .unwrap();
    assert!(status.status.success(), "{status:?}");
    assert_eq!(generation.wal_file_bytes().unwrap(), before);
    apply(&store, vec![insert(4, 1)]).unwrap();
    drop((store, generation));
    assert_eq!(rows(&open(&home.dir, options())), 3);
}
