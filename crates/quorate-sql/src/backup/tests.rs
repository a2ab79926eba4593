//! Backups are complete under their final name or do not exist, and differ from every other kind of file.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests"
)]

use std::os::unix::fs::{FileExt as _, PermissionsExt as _};

use quorate_env::Env;
use quorate_model::StateMachine as _;
use tempfile::TempDir;

use super::*;
use crate::store::SqlStore;
use crate::store::tests::{Home, IDENTITY, apply, appoint, create_table, home, insert, open, options};

const ROWS: u64 = 300;

/// A store with some of its rows only in the `-wal`, and the pieces of its image.
fn imaged() -> (Home, SqlStore, Vec<Bytes>) {
    let home = home();
    let store = open(&home.dir, options());
    apply(&store, vec![create_table()]).unwrap();
    apply(&store, (2..2 + ROWS).map(|index| insert(index, 3_000)).collect()).unwrap();
    let mut source = store.send_image().unwrap();
    // An empty piece says that the sender has to wait.
    let pieces = std::iter::from_fn(|| source.next().unwrap()).filter(|piece| !piece.is_empty()).collect();
    (home, store, pieces)
}

fn disk() -> Arc<dyn Disk> {
    Arc::clone(Env::real().disk())
}

fn write(path: &Path, replaces: bool, pieces: &[Bytes]) -> Result<Backup, FileError> {
    let mut file = BackupFile::create(&disk(), path, replaces)?;
    pieces.iter().try_for_each(|piece| file.write(piece))?;
    file.finish()
}

/// A directory with one good backup in it.
fn backed_up() -> (TempDir, PathBuf, Backup) {
    let (_home, _store, pieces) = imaged();
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("a.db");
    let backup = write(&path, false, &pieces).unwrap();
    (dir, path, backup)
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(dir).unwrap().map(|item| item.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn changed_bytes_in_a_backup_are_detected() {
    let (_dir, file, _) = backed_up();
    let disk = disk();
    let whole = std::fs::read(&file).unwrap();
    // In the middle of a row, at the end of the database, and in each part of the trailer.
    for at in [whole.len() / 2, whole.len() - 60, whole.len() - 48, whole.len() - 30, whole.len() - 20, whole.len() - 3]
    {
        let mut bytes = whole.clone();
        bytes[at..at + 3].iter_mut().for_each(|byte| *byte ^= 0x55);
        std::fs::write(&file, bytes).unwrap();
        assert!(matches!(inspect(&*disk, &file), Err(FileError::Damaged { .. })), "{at}");
    }
    std::fs::write(&file, &whole[..whole.len() - 1]).unwrap();
    assert!(matches!(inspect(&*disk, &file), Err(FileError::Damaged { .. })));
}

/// A disk may return other bytes when a file is read a second time.
#[test]
fn a_copy_that_differs_from_the_backup_is_not_restored() {
    let (_dir, file, backup) = backed_up();
    let applied = Applied { log_id: backup.applied.log_id, ..Applied::default() };
    let restored = |dir: &TempDir| restore(&disk(), dir.path(), (&file, Take::Copy), IDENTITY, &applied);
    let (first, second) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    restored(&first).unwrap();
    // In the bytes of a row, where no check of the page structure detects it.
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 3].iter_mut().for_each(|byte| *byte ^= 0x55);
    std::fs::write(&file, bytes).unwrap();
    let error = restored(&second).unwrap_err();
    assert!(error.to_string().contains("does not match the backup's checksum"), "{error}");
    assert!(names(&second.path().join("db")).is_empty());
}

/// A restored cluster must not write to the archive of the cluster that the backup is of.
#[test]
fn a_restored_database_has_no_archiver() {
    let (_home, store, _) = imaged();
    apply(&store, vec![appoint(2 + ROWS, 7)]).unwrap();
    let mut source = store.send_image().unwrap();
    let pieces: Vec<Bytes> = std::iter::from_fn(|| source.next().unwrap()).collect();
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("a.db");
    let backup = write(&file, false, &pieces).unwrap();
    assert_eq!(store.archiver().map(|archiver| archiver.token), Some(2 + ROWS));
    let applied = Applied { log_id: backup.applied.log_id, ..Applied::default() };
    restore(&disk(), dir.path(), (&file, Take::Copy), IDENTITY, &applied).unwrap();
    let restored = open(dir.path(), options());
    assert_eq!((restored.archiver(), restored.applied().index()), (None, 2 + ROWS));
}

#[test]
fn a_backup_is_one_plain_self_describing_file() {
    let (dir, path, backup) = backed_up();
    assert_eq!((backup.identity, backup.applied.index()), (IDENTITY, 1 + ROWS));
    assert_eq!(backup.bytes, std::fs::metadata(&path).unwrap().len());
    assert_eq!(inspect(disk().as_ref(), &path), Ok(backup));

    // Read it from a directory without write permission, like a medium of another machine.
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o500)).unwrap();
    let conn = Connection::open_with_flags(&path, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let count = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap().cast_unsigned();
    assert_eq!(count("SELECT count(*) FROM t"), ROWS);
    assert_eq!(count("SELECT \"index\" FROM _quorate_applied"), 1 + ROWS);
    assert_eq!(conn.query_row("PRAGMA journal_mode", [], |row| row.get(0)), Ok("delete".to_owned()));
    drop(conn);
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(names(dir.path()), ["a.db"]);
}

#[test]
fn an_incomplete_backup_leaves_no_file() {
    let (_home, _store, pieces) = imaged();
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("a.db");
    for without in [0, pieces.len() - 2, pieces.len() - 1] {
        let mut some = pieces.clone();
        some.remove(without);
        assert!(matches!(write(&path, false, &some), Err(FileError::Lost(_))), "without piece {without}");
        assert_eq!(names(dir.path()), [""; 0]);
    }
    let mut file = BackupFile::create(&disk(), &path, false).unwrap();
    pieces[..2].iter().for_each(|piece| file.write(piece).unwrap());
    assert!(file.bytes() > 0);
    assert_eq!(names(dir.path()), ["a.db.partial"]);
    drop(file);
    assert_eq!(names(dir.path()), [""; 0]);
}

#[test]
fn an_existing_file_is_not_overwritten_by_default() {
    let (_home, _store, pieces) = imaged();
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("a.db");
    std::fs::write(&path, "precious").unwrap();
    assert_eq!(write(&path, false, &pieces), Err(FileError::Exists(path.clone())));
    // A transfer that breaks off replaces nothing either.
    assert!(write(&path, true, &pieces[..3]).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    // The files of an earlier, killed backup are no obstacle.
    for left in ["a.db.partial", "a.db.partial-journal", "a.db.partial-wal"] {
        std::fs::write(dir.path().join(left), "left over").unwrap();
    }
    write(&path, true, &pieces).unwrap();
    assert_eq!(names(dir.path()), ["a.db"]);
    inspect(disk().as_ref(), &path).unwrap();
}

#[test]
fn a_wal_or_journal_next_to_a_backup_is_refused() {
    let (_home, _store, pieces) = imaged();
    let (dir, path, _) = backed_up();
    for name in ["a.db-wal", "a.db-journal"] {
        let beside = dir.path().join(name);
        std::fs::write(&beside, "of another database").unwrap();
        assert_eq!(write(&path, true, &pieces), Err(FileError::Beside(beside.clone())));
        assert_eq!(inspect(disk().as_ref(), &path), Err(FileError::Beside(beside.clone())));
        std::fs::remove_file(beside).unwrap();
    }
    inspect(disk().as_ref(), &path).unwrap();
}

#[test]
fn other_files_are_classified() {
    let (dir, path, backup) = backed_up();
    let kind = |path: &Path| match inspect(disk().as_ref(), path).unwrap_err() {
        FileError::Foreign { .. } => "foreign",
        FileError::Damaged { .. } => "damaged",
        FileError::Newer { .. } => "newer",
        FileError::Disk { .. } => "disk",
        error => panic!("{error}"),
    };
    assert_eq!(kind(&dir.path().join("missing")), "disk");
    let text = dir.path().join("text");
    std::fs::write(&text, "no database at all, but long enough for a header of one hundred bytes".repeat(9)).unwrap();
    assert_eq!(kind(&text), "foreign");
    let plain = dir.path().join("plain");
    Connection::open(&plain).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    assert_eq!(kind(&plain), "foreign");

    let altered = dir.path().join("altered");
    let alter = |change: &dyn Fn(&std::fs::File, &Path)| {
        std::fs::copy(&path, &altered).unwrap();
        change(&std::fs::OpenOptions::new().write(true).open(&altered).unwrap(), &altered);
        kind(&altered)
    };
    let half = backup.bytes / 2;
    assert_eq!(alter(&|file, _| file.set_len(half).unwrap()), "damaged");
    assert_eq!(alter(&|file, _| file.write_all_at(&[0xa5; 40_000], half).unwrap()), "damaged");
    let sql = |sql: &'static str| {
        move |_: &std::fs::File, path: &Path| Connection::open(path).unwrap().execute_batch(sql).unwrap()
    };
    assert_eq!(alter(&sql("DELETE FROM _quorate_applied")), "damaged");
    assert_eq!(alter(&sql("DROP TABLE _quorate_outcomes")), "damaged");
    assert_eq!(alter(&sql("UPDATE _quorate_applied SET level = 99")), "newer");
}
