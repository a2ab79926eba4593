//! Databases on a simulated disk: committed and synced data survive, and a life that has ended touches no files.

#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use std::path::Path;
use std::sync::Arc;

use quorate_env::Rng;
use quorate_env::disk::Disk;
use quorate_env_sim::{SimDisk, SimWorld};
use rusqlite::{Connection, OpenFlags, ffi};

use super::life::Life;
use super::{Slot, bind};

const PATH: &str = "/data/test.db";

fn life(disk: &SimDisk) -> Slot {
    disk.create_dir_all(Path::new("/data")).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    bind(disk, Arc::new(SimWorld::new(1).clock("node")), Rng::from_seed(1)).unwrap()
}

fn open(disk: &SimDisk) -> Connection {
    open_through(&disk.sqlite_vfs().unwrap())
}

fn open_through(vfs: &str) -> Connection {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let conn = Connection::open_with_flags_and_vfs(PATH, flags, vfs).unwrap();
    let mode: String = conn.query_row("PRAGMA journal_mode = wal", [], |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
    conn.execute_batch("PRAGMA synchronous = FULL").unwrap();
    conn
}

fn count(conn: &Connection) -> i64 {
    conn.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
}

#[test]
fn committed_rows_survive_every_power_failure() {
    for seed in 0..40 {
        let mut disk = SimDisk::new(seed);
        for round in 0..4_i64 {
            let slot = life(&disk);
            let conn = open(&disk);
            conn.execute_batch("CREATE TABLE IF NOT EXISTS t (x)").unwrap();
            assert_eq!(count(&conn), round * 20, "seed {seed}");
            for number in 0..20 {
                conn.execute("INSERT INTO t VALUES (?)", [number]).unwrap();
                if number == 7 && round % 2 == 0 {
                    conn.execute_batch("PRAGMA wal_checkpoint").unwrap();
                }
            }
            let check: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
            assert_eq!(check, "ok");
            let next = disk.crash();
            assert!(conn.execute("INSERT INTO t VALUES (99)", []).is_err(), "the life has ended");
            drop((conn, slot));
            disk = next;
        }
    }
}

#[test]
fn connections_see_commits_and_do_not_wait_for_locks() {
    let disk = SimDisk::new(1);
    let _slot = life(&disk);
    let (first, second) = (open(&disk), open(&disk));
    first.execute_batch("CREATE TABLE t (x); BEGIN IMMEDIATE; INSERT INTO t VALUES (1)").unwrap();
    assert_eq!(count(&second), 0);
    assert!(second.execute("INSERT INTO t VALUES (2)", []).is_err(), "only one connection writes at a time");
    first.execute_batch("COMMIT").unwrap();
    assert_eq!(count(&second), 1);
    second.execute("INSERT INTO t VALUES (2)", []).unwrap();
    assert_eq!(count(&first), 2);
}

#[test]
fn an_ended_life_opens_nothing() {
    let disk = SimDisk::new(1);
    let slot = life(&disk);
    let name = disk.sqlite_vfs().unwrap();
    let kept = open(&disk);
    kept.execute_batch("CREATE TABLE t (x)").unwrap();
    drop(slot);
    let opened = Connection::open_with_flags_and_vfs(PATH, OpenFlags::SQLITE_OPEN_READ_ONLY, name.as_str());
    assert!(opened.is_err());
    let next = disk.kill();
    let _next = life(&next);
    assert_ne!(next.sqlite_vfs().unwrap(), name, "a file of the former life is still open");
}

#[test]
fn temporary_files_of_a_killed_life_do_not_conflict() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
    let life =
        |seed| Arc::new(Life::new(Arc::clone(&disk), Arc::new(SimWorld::new(1).clock("node")), Rng::from_seed(seed)));
    let flags = ffi::SQLITE_OPEN_READWRITE | ffi::SQLITE_OPEN_CREATE;
    let flags = flags | ffi::SQLITE_OPEN_EXCLUSIVE | ffi::SQLITE_OPEN_DELETEONCLOSE;
    std::mem::forget(life(1).open(None, flags).map_err(|code| assert_eq!(code, 0)));
    assert!(life(2).open(None, flags).is_ok());
}

#[test]
fn no_room_for_the_shm_is_reported_as_a_full_disk() {
    const ROOM: u64 = 30_000;
    let disk = SimDisk::new(1);
    let _slot = life(&disk);
    let conn = open_through(&quorate_sql::vfs::over(disk.sqlite_vfs().as_deref()).unwrap());
    conn.execute_batch("PRAGMA wal_autocheckpoint = 0; PRAGMA synchronous = OFF; CREATE TABLE t (a)").unwrap();
    // The disk always has room for the frames of a row, but never for another region of the -shm.
    let insert = || {
        disk.set_capacity(Some(disk.used() + ROOM));
        conn.execute("INSERT INTO t VALUES (zeroblob(3000))", ())
    };
    let error = (0..5_000).find_map(|_| insert().err()).unwrap();
    assert_eq!(error.sqlite_error().unwrap().extended_code, rusqlite::ffi::SQLITE_FULL);
    disk.set_capacity(None);
    conn.execute("INSERT INTO t VALUES (zeroblob(3000))", ()).unwrap();
}
