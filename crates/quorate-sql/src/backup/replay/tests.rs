//! A replay from any entry to any later one gives what a node held there, and a backup that can be restored.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests"
)]

use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;
use quorate_env::Env;
use quorate_model::{ControlCommand, LogId, Origin, Proposal, RequestKey, SessionId, Stamp, StateMachine as _};
use rusqlite::ffi;
use tempfile::TempDir;

use super::*;
use crate::backup::{BESIDE, BackupFile, Take, inspect, restore};
use crate::logical_hash;
use crate::machine::tests::equal::{a_program, a_setup, cases};
use crate::machine::tests::{IDENTITY, Node, command, entry, log_id, open_session, single};
use crate::records::applied_row;
use crate::store::tests::{self as store, home, open, options, rows};

fn disk() -> Arc<dyn Disk> {
    Arc::clone(Env::real().disk())
}

/// A directory with a file of this content, and its path.
fn file(bytes: &[u8]) -> (TempDir, PathBuf) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("a.db");
    std::fs::write(&path, bytes).unwrap();
    (dir, path)
}

fn replay(path: &Path) -> Replay {
    Replay::open(&disk(), path, &Extensions::default()).unwrap()
}

/// Why a file can't be opened.
fn refused(bytes: &[u8], extensions: &Extensions) -> FileError {
    let (dir, path) = file(bytes);
    let error = Replay::open(&disk(), &path, extensions).err().unwrap();
    assert_eq!(names(dir.path()), ["a.db"]);
    error
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(dir).unwrap().map(|item| item.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// What a database holds: the applied row, the user's data, and what the store keeps.
type Contents = (quorate_apply::AppliedRow, u128, u128);

fn contents(conn: &rusqlite::Connection) -> Contents {
    let row = applied_row::read(conn).unwrap().unwrap();
    (row, logical_hash::user(conn).unwrap(), logical_hash::reserved(conn).unwrap())
}

fn contents_of(path: &Path) -> Contents {
    let vfs = vfs_of(disk().as_ref(), path).unwrap();
    contents(&connection::open_immutable(&vfs, path).unwrap())
}

fn rejected(entry: Entry) -> Entry {
    match entry.payload {
        Payload::Proposal(stamp, bytes) => Entry { payload: Payload::Rejected(stamp, bytes), ..entry },
        _ => entry,
    }
}

/// How a proposal is made: in a session, with a key, rejected.
#[derive(Clone, Copy, Debug)]
struct Manner {
    session: u64,
    sequence: u64,
    key: Option<u8>,
    is_rejected: bool,
}

fn a_manner() -> impl Strategy<Value = Manner> {
    let key = prop::option::weighted(0.2, 0..6_u8);
    (0..4_u64, 1..30_u64, key, prop::bool::weighted(0.1)).prop_map(|(session, sequence, key, is_rejected)| Manner {
        session,
        sequence,
        key,
        is_rejected,
    })
}

/// Entries from the first on: the setup, sessions, the program, and some that hold no statements.
fn history(setup: &[&str], program: &[Proposal], manners: &[Manner]) -> Vec<Entry> {
    const KEYS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
    let mut payloads: Vec<Payload> = Vec::new();
    let mut push = |proposal: &Proposal, is_rejected: bool| {
        let index = payloads.len() as u64 + 1;
        let entry = entry(index, proposal);
        payloads.push(if is_rejected { rejected(entry).payload } else { entry.payload });
    };
    setup.iter().for_each(|sql| push(&single(sql), false));
    let opened = setup.len() as u64;
    (0..3).for_each(|_| push(&open_session(), false));
    for (proposal, manner) in program.iter().zip(manners.iter().cycle()) {
        let Manner { session, sequence, key, is_rejected } = *manner;
        let session = SessionId(opened + session);
        let origin = (session.0 > opened).then_some(Origin { session, sequence, floor: 0 });
        let proposal = Proposal { origin, ..proposal.clone() };
        let proposal = match key {
            Some(key) if proposal.read_checks.is_empty() => {
                proposal.with_key(RequestKey::new(KEYS[usize::from(key)], [key / 2; 32]).unwrap())
            }
            _ => proposal,
        };
        push(&proposal, is_rejected);
    }
    push(&Proposal::new(None, vec![SqlCommand::Vacuum.into()]), false);
    push(&Proposal::new(None, vec![ControlCommand::Verify.into()]), false);
    payloads.extend([Payload::Blank, Payload::Membership(b"members".as_slice().into()), Payload::Reject(5)]);
    (1..).zip(payloads).map(|(index, payload)| Entry { log_id: log_id(index), payload }).collect()
}

proptest! {
    #![proptest_config(cases(16))]

    #[test]
    fn a_replay_gives_what_a_node_held(
        setup in a_setup(),
        program in a_program(),
        manners in prop::collection::vec(a_manner(), 60),
        boundary in any::<prop::sample::Index>(),
        ends in prop::collection::vec(any::<prop::sample::Index>(), 3),
        sizes in prop::collection::vec(1..20_usize, 1..6),
        again in 0..3_usize,
    ) {
        let entries = history(&setup, &program, &manners);
        let boundary = boundary.index(entries.len() + 1);
        let mut node = Node::new();
        let mut held = vec![contents(node.conn())];
        let mut base = Vec::new();
        for count in 0..=entries.len() {
            if count > 0 {
                node.apply(&entries[count - 1..count]);
                held.push(contents(node.conn()));
            }
            if count == boundary {
                base = node.file();
            }
        }
        for end in ends.into_iter().map(|end| boundary + end.index(entries.len() + 1 - boundary)) {
            let (dir, path) = file(&base);
            let mut replay = replay(&path);
            prop_assert_eq!(replay.applied().index(), boundary as u64);
            // Some of the entries are in the file already.
            let mut left = &entries[boundary.saturating_sub(again)..end];
            for size in sizes.iter().cycle() {
                let (now, later) = left.split_at(left.len().min(*size));
                replay.apply(now).unwrap();
                left = later;
                if left.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(replay.outcome_hash(), held[end].0.outcome_hash);
            prop_assert_eq!(replay.applied(), &held[end].0.applied);
            let backup = if end % 4 == 0 { replay.finish_unsealed() } else { replay.finish() }.unwrap();
            prop_assert_eq!(&backup.applied, &held[end].0.applied);
            prop_assert_eq!(inspect(disk().as_ref(), &path), Ok(backup));
            prop_assert_eq!(contents_of(&path), held[end].clone());
            prop_assert_eq!(names(dir.path()), ["a.db"]);
        }
    }
}

#[test]
fn a_backup_can_be_replayed_and_the_result_restored() {
    let (home, dir) = (home(), TempDir::new().unwrap());
    let live = open(&home.dir, options());
    store::apply(&live, vec![store::create_table()]).unwrap();
    store::apply(&live, (2..=20).map(|index| store::insert(index, 3_000)).collect()).unwrap();
    let path = dir.path().join("a.db");
    let mut backup = BackupFile::create(&disk(), &path, false).unwrap();
    let mut source = live.send_image().unwrap();
    std::iter::from_fn(|| source.next().unwrap()).for_each(|piece| backup.write(&piece).unwrap());
    backup.finish().unwrap();
    let base = std::fs::read(&path).unwrap();

    let restored = |path: &Path, applied: &Applied| {
        let data = dir.path().join(format!("data{}", applied.index()));
        restore(&disk(), &data, (path, Take::Copy), IDENTITY, applied).unwrap();
        rows(&open(&data, options()))
    };
    let (_other, unchanged) = file(&base);
    let backup = replay(&unchanged).finish().unwrap();
    assert_eq!(std::fs::metadata(&unchanged).unwrap().len(), backup.bytes);
    assert_eq!(restored(&unchanged, &backup.applied), 19);

    let mut replay = replay(&path);
    replay.apply(&(21..=300).map(|index| store::insert(index, 3_000)).collect::<Vec<_>>()).unwrap();
    let backup = replay.finish().unwrap();
    assert_eq!((backup.identity, backup.applied.index()), (store::IDENTITY, 300));
    assert_eq!(restored(&path, &backup.applied), 299);
    let conn = rusqlite::Connection::open_with_flags(&path, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    assert_eq!(conn.query_row("PRAGMA journal_mode", [], |row| row.get(0)), Ok("delete".to_owned()));
}

#[test]
fn entries_that_do_not_follow_are_errors() {
    let (_dir, path) = file(&Node::with(&["CREATE TABLE t (a)"]).file());
    let mut replay = replay(&path);
    let insert = |index| entry(index, &single("INSERT INTO t VALUES (1)"));
    let gap = |after, found| Err(FileError::Gap { path: path.clone(), after, found });
    assert_eq!(replay.apply(&[insert(3)]), gap(1, 3));
    assert_eq!(replay.apply(&[insert(2), insert(3), insert(5)]), gap(3, 5));
    assert_eq!(replay.apply(&[insert(2), insert(2)]), gap(2, 2));
    let of_another_term = Entry { log_id: LogId { term: 2, ..log_id(1) }, ..insert(1) };
    assert!(matches!(replay.apply(&[of_another_term]), Err(FileError::Foreign { .. })));
    assert_eq!(replay.applied().index(), 1);
    assert_eq!(replay.apply(&[insert(2), insert(3)]), Ok(()));
    assert_eq!(replay.apply(&[insert(2), insert(3)]), Ok(()));
    assert_eq!(replay.finish().unwrap().applied.log_id, Some(log_id(3)));
}

#[test]
fn damage_is_an_error() {
    let mut node = Node::with(&["CREATE TABLE t (a)"]);
    (0..30).for_each(|_| drop(node.ok("INSERT INTO t VALUES (randomblob(3000))")));
    let whole = node.file();
    let none = Extensions::default();
    assert!(matches!(refused(b"no database", &none), FileError::Foreign { .. }));
    assert!(matches!(refused(&[0; 9_000], &none), FileError::Foreign { .. }));
    assert!(matches!(Replay::open(&disk(), Path::new("/missing"), &none), Err(FileError::Disk { .. })));
    // Pages are missing, or are those of something else: found at once, or when the whole file is read.
    let cut = &whole[..whole.len() / 2];
    let mut other = whole.clone();
    other[whole.len() / 2..][..20_000].fill(0xa5);
    for bytes in [cut, &other] {
        let (dir, path) = file(bytes);
        let done = Replay::open(&disk(), &path, &none).and_then(|mut replay| {
            replay.apply(&[entry(32, &single("DELETE FROM t"))])?;
            replay.finish()
        });
        assert!(matches!(done, Err(FileError::Damaged { .. })), "{done:?}");
        assert!(!names(dir.path()).contains(&"a.db.replay".to_owned()));
    }
    for beside in BESIDE {
        let (_dir, path) = file(&whole);
        std::fs::write(with_suffix(&path, beside), "of another database").unwrap();
        assert!(matches!(Replay::open(&disk(), &path, &none), Err(FileError::Beside(_))));
    }
}

#[test]
fn what_a_later_version_wrote_is_an_error() {
    let node = Node::with(&["CREATE TABLE t (a)"]);
    let (_dir, path) = file(&node.file());
    let unknown = Proposal { level: FORMAT_LEVEL + 1, ..Proposal::new(None, vec![]) };
    let mut replay = replay(&path);
    assert!(matches!(replay.apply(&[entry(2, &unknown)]), Err(FileError::Newer { .. })));
    let garbage = Payload::Proposal(Stamp::default(), b"\xfa\x01\x00".as_slice().into());
    assert!(matches!(replay.apply(&[Entry { log_id: log_id(2), payload: garbage }]), Err(FileError::Newer { .. })));
    assert_eq!(replay.finish().unwrap().applied.index(), 1);
    node.conn().execute_batch("UPDATE _quorate_applied SET level = 99").unwrap();
    assert!(matches!(refused(&node.file(), &Extensions::default()), FileError::Newer { .. }));
}

#[test]
fn missing_extensions_are_an_error() {
    let half = |arguments: &[quorate_model::ValueRef<'_>]| match arguments {
        [quorate_model::ValueRef::Integer(value)] => Ok((value / 2).into()),
        _ => Ok(quorate_model::Value::Null),
    };
    let extensions = Extensions::default().with_function("half", 1, half);
    let (_dir, path) = file(&Node::with(&["CREATE TABLE t (a)"]).file());
    let extend = entry(2, &Proposal::new(None, vec![SqlCommand::Extend(vec!["half/1".to_owned()]).into()]));
    let mut without = replay(&path);
    let error = without.apply(std::slice::from_ref(&extend)).unwrap_err();
    assert!(matches!(error, FileError::Extensions { .. }) && error.to_string().contains("half/1"), "{error}");
    without.finish_unsealed().unwrap();

    let mut with = Replay::open(&disk(), &path, &extensions).unwrap();
    with.apply(&[extend, entry(3, &single("INSERT INTO t VALUES (half(14))"))]).unwrap();
    with.finish_unsealed().unwrap();
    let conn = rusqlite::Connection::open(&path).unwrap();
    assert_eq!(conn.query_row("SELECT a FROM t", [], |row| row.get(0)), Ok(7));
    drop(conn);
    let error = refused(&std::fs::read(&path).unwrap(), &Extensions::default());
    assert!(matches!(error, FileError::Extensions { .. }) && error.to_string().contains("half/1"), "{error}");
}

/// A machine may be slower than the node that has applied an entry, so the entry gets more time and memory.
#[test]
fn an_entry_that_needs_more_is_tried_again() {
    for (failures, is_enough) in [(2, true), (u32::MAX, false)] {
        let calls = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&calls);
        let ails = move |_: &[quorate_model::ValueRef<'_>]| {
            (counter.fetch_add(1, Ordering::Relaxed) < failures).then_some(ffi::SQLITE_NOMEM)
        };
        let extensions = Extensions::default().with_ailment("ails", 0, ails);
        let (_dir, path) = file(&Node::with(&["CREATE TABLE t (a)"]).file());
        let mut replay = Replay::open(&disk(), &path, &extensions).unwrap();
        let extend = Proposal::new(None, vec![SqlCommand::Extend(vec!["ails/0".to_owned()]).into()]);
        let insert = Proposal::new(None, vec![command("INSERT INTO t VALUES (ails())")]);
        let entries = [entry(2, &extend), entry(3, &single("INSERT INTO t VALUES (5)")), entry(4, &insert)];
        let done = replay.apply(&entries);
        assert!(if is_enough { done.is_ok() } else { matches!(done, Err(FileError::Entry { index: 4, .. })) });
        assert!(calls.load(Ordering::Relaxed) > 2);
        assert_eq!(replay.applied().index(), if is_enough { 4 } else { 3 });
        // Whoever rejects the entry can go on.
        replay.apply(&[rejected(entries[2].clone())]).unwrap();
        assert_eq!(replay.finish().unwrap().applied.index(), 4);
    }
}
