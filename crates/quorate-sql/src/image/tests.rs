//! Images of a store under load: correct at their position, or refused without a trace.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests"
)]

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use quorate_env::Rng;
use quorate_model::limits::FORMAT_LEVEL;
use quorate_model::{
    Archiver, ControlCommand, Entry, ImageSource, NodeId, Payload, Proposal, Stamp, StateMachine, StoreFault,
    StoreIdentity, Value, codec,
};
use rusqlite::Connection;
use xxhash_rust::xxh3::xxh3_64;

use super::piece;
use crate::connection;
use crate::options::StoreOptions;
use crate::store::SqlStore;
use crate::store::tests::{
    Home, IDENTITY, apply, appoint, create_table, entry, home, insert, open, options, rows, until,
};
use crate::vfs::marks::BLOCK;

/// The contents of the table: a length and a byte for each key.
type Model = BTreeMap<i64, (usize, u8)>;

/// Creates entries, and records the contents of the table after each.
struct Ledger {
    rng: Rng,
    model: Model,
    entries: Vec<Entry>,
    /// The hash of the table after entry number `index`, by index.
    hashes: Vec<u64>,
}

impl Ledger {
    fn new(seed: u64) -> Self {
        let empty = hash(&Model::new());
        Self { rng: Rng::from_seed(seed), model: Model::new(), entries: vec![create_table()], hashes: vec![empty; 2] }
    }

    fn next(&mut self) -> Entry {
        let index = self.hashes.len() as u64;
        let key = i64::try_from(self.rng.below(3_000)).unwrap();
        let (len, byte) = (usize::try_from(self.rng.below(3_000)).unwrap(), u8::try_from(self.rng.below(256)).unwrap());
        let (key_value, blob) = (Value::Integer(key), Value::from(vec![byte; len]));
        let entry = match self.rng.below(40) {
            0 => {
                self.model.retain(|at, _| at % 7 != key % 7);
                entry(index, "DELETE FROM t WHERE i % 7 = ?1 % 7", vec![key_value])
            }
            1..=6 => {
                self.model.remove(&key);
                entry(index, "DELETE FROM t WHERE i = ?1", vec![key_value])
            }
            7 => entry(index, "CREATE TABLE IF NOT EXISTS other AS SELECT * FROM t", Vec::new()),
            8 => entry(index, "DROP TABLE IF EXISTS other", Vec::new()),
            _ => {
                self.model.insert(key, (len, byte));
                entry(index, "INSERT INTO t VALUES (?1, ?2) ON CONFLICT DO UPDATE SET v = ?2", vec![key_value, blob])
            }
        };
        self.hashes.push(hash(&self.model));
        self.entries.push(entry.clone());
        entry
    }
}

fn hash(model: &Model) -> u64 {
    let rows = model.iter().map(|(key, (len, byte))| (*key, vec![*byte; *len]));
    hash_rows(rows)
}

fn hash_rows(rows: impl Iterator<Item = (i64, Vec<u8>)>) -> u64 {
    let mut all = Vec::new();
    for (key, value) in rows {
        all.extend(key.to_le_bytes());
        all.extend(value.len().to_le_bytes());
        all.extend(value.first());
        assert!(value.iter().all(|byte| Some(byte) == value.first()));
    }
    xxh3_64(&all)
}

fn hash_of(conn: &Connection) -> u64 {
    let mut statement = conn.prepare("SELECT i, v FROM t ORDER BY i").unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    hash_rows(rows.map(Result::unwrap))
}

fn hash_of_store(store: &SqlStore) -> u64 {
    let generation = store.shared().generations.current();
    hash_of(&connection::open_reader(&generation, 1 << 20).unwrap())
}

/// Returns all pieces, without the empty ones, by which a sender says that it has to wait.
fn pieces(source: &mut dyn ImageSource) -> Vec<Bytes> {
    std::iter::from_fn(|| source.next().unwrap()).filter(|piece| !piece.is_empty()).collect()
}

/// Sends an image of one store to another, sleeping for `pause` after each piece.
fn transfer(from: &SqlStore, to: &SqlStore, pause: Duration) -> Result<u64, StoreFault> {
    let mut source = from.send_image()?;
    let mut sink = to.receive_image()?;
    let begun_at = source.begun_at().index();
    while let Some(piece) = source.next()? {
        assert!(piece.len() < 2 << 20);
        sink.write(piece)?;
        std::thread::sleep(pause);
    }
    let applied = sink.finish()?.install()?.index();
    assert!(applied >= begun_at);
    Ok(applied)
}

/// Runs `test` while a ledger's entries are applied and readers hold short and long transactions.
fn under_load<T>(store: &SqlStore, seed: u64, test: impl FnOnce(&Mutex<Ledger>) -> T) -> T {
    let ledger = Mutex::new(Ledger::new(seed));
    apply(store, vec![create_table()]).unwrap();
    let over = AtomicBool::new(false);
    let (over, ledger_ref) = (&over, &ledger);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let sizes = Rng::from_seed(seed);
            while !over.load(Ordering::Acquire) {
                let batch = {
                    let mut ledger = ledger_ref.lock().unwrap();
                    (0..=sizes.below(30)).map(|_| ledger.next()).collect()
                };
                apply(store, batch).unwrap();
            }
        });
        // The last one often outlasts the wait of a hold, but not so often that a hold fails as long as it is tried.
        for lasts in [0, 1, 25] {
            scope.spawn(move || {
                let reader = connection::open_reader(&store.shared().generations.current(), 1 << 20).unwrap();
                while !over.load(Ordering::Acquire) {
                    reader.execute_batch("BEGIN; SELECT count(*) FROM t").unwrap();
                    std::thread::sleep(Duration::from_millis(lasts));
                    reader.execute_batch("COMMIT").unwrap();
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
        }
        let end = OnDrop(over);
        let result = test(&ledger);
        drop(end);
        result
    })
}

struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

    #[test]
    fn an_image_under_load_is_the_state_at_its_position(seed: u64, pause in 0_u64..8) {
        let (home, other_home) = (home(), home());
        let store = open(&home.dir, StoreOptions { checkpoint_bytes: 128 << 10, ..options() });
        let other = open(&other_home.dir, options());
        let ledger = under_load(&store, seed, |ledger| {
            for _ in 0..4 {
                std::thread::sleep(Duration::from_millis(20));
                let index = transfer(&store, &other, Duration::from_millis(pause)).unwrap();
                assert_eq!(other.applied().index(), index);
                let ledger = ledger.lock().unwrap();
                assert_eq!(hash_of_store(&other), ledger.hashes[usize::try_from(index).unwrap()]);
            }
            let taken = std::mem::replace(&mut *ledger.lock().unwrap(), Ledger::new(0));
            Ledger { rng: Rng::from_seed(0), model: Model::new(), ..taken }
        });
        // Applying the rest of the log makes the two stores equal.
        let rest = ledger.entries[usize::try_from(other.applied().index()).unwrap()..].to_vec();
        let rest: Vec<Entry> = rest.into_iter().filter(|entry| entry.log_id.index <= store.applied().index()).collect();
        apply(&other, rest).unwrap();
        prop_assert_eq!(other.applied(), store.applied());
        prop_assert_eq!(hash_of_store(&other), hash_of_store(&store));
    }
}

/// A store with some rows, and its image.
fn imaged(options: StoreOptions) -> (Home, SqlStore, Vec<Bytes>) {
    let home = home();
    let store = open(&home.dir, options);
    apply(&store, vec![create_table()]).unwrap();
    apply(&store, (2..600).map(|index| insert(index, 5_000)).collect()).unwrap();
    let pieces = pieces(store.send_image().unwrap().as_mut());
    (home, store, pieces)
}

/// Options of a store whose checkpointer has nothing to do, so that only images take the pass.
fn without_checkpoints() -> StoreOptions {
    StoreOptions { idle_after: Duration::from_secs(3_600), ..options() }
}

/// A store with one row, and all pieces of an image of another one.
fn store_and_image() -> (Home, SqlStore, Vec<Bytes>) {
    let (_home, _store, pieces) = imaged(options());
    let home = home();
    let store = open(&home.dir, options());
    apply(&store, vec![create_table(), insert(2, 1)]).unwrap();
    (home, store, pieces)
}

#[test]
fn running_readers_keep_the_old_state() {
    let (home, other, pieces) = store_and_image();
    let old_dir = other.shared().generations.current().dir().to_path_buf();
    let reader = connection::open_reader(&other.shared().generations.current(), 1 << 20).unwrap();
    let mut sink = other.receive_image().unwrap();
    pieces.into_iter().for_each(|piece| sink.write(piece).unwrap());
    let applied = sink.finish().unwrap().install().unwrap();
    assert_eq!((other.applied(), other.durable()), (applied.clone(), applied));
    assert_eq!(rows(&other), 598);
    assert_eq!(reader.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0)), Ok(1));
    assert!(old_dir.exists());
    drop(reader);
    until("the old generation goes", || !old_dir.exists());
    apply(&other, vec![insert(600, 1)]).unwrap();
    drop(other);
    let again = open(&home.dir, options());
    assert_eq!((again.applied().index(), rows(&again)), (600, 599));
}

/// Who watches the archiver sees a change by an entry, and one by an image.
#[test]
fn the_archiver_is_published_and_is_part_of_an_image() {
    let (_home, store, _) = imaged(options());
    let seen = store.watch_archiver();
    assert_eq!(*seen.borrow(), None);
    apply(&store, vec![appoint(600, 7)]).unwrap();
    let appointed = Some(Archiver { node: NodeId(7), token: 600 });
    assert_eq!((*seen.borrow(), store.archiver()), (appointed, appointed));
    let home = home();
    let other = open(&home.dir, options());
    apply(&other, vec![create_table(), insert(2, 1)]).unwrap();
    let mut seen = other.watch_archiver();
    transfer(&store, &other, Duration::ZERO).unwrap();
    assert_eq!((seen.has_changed().unwrap(), *seen.borrow_and_update()), (true, appointed));
    apply(&other, vec![insert(601, 1)]).unwrap();
    assert!(!seen.has_changed().unwrap(), "no other entry changes it");
    drop(other);
    assert_eq!(*open(&home.dir, options()).watch_archiver().borrow(), appointed);
}

/// The node keeps its own data, and says why.
#[test]
fn an_image_of_a_newer_format_level_is_refused() {
    let (_home, newer, _) = imaged(options());
    let raise = Proposal::new(None, vec![ControlCommand::Raise(FORMAT_LEVEL).into()]);
    let payload = Payload::Proposal(Stamp::default(), codec::encode_proposal(&raise).unwrap());
    apply(&newer, vec![Entry { payload, ..insert(600, 0) }]).unwrap();
    let home = home();
    let older = open(&home.dir, StoreOptions { level: FORMAT_LEVEL - 1, ..options() });
    apply(&older, vec![create_table(), insert(2, 1)]).unwrap();
    let fault = transfer(&newer, &older, Duration::ZERO).unwrap_err();
    assert!(matches!(fault, StoreFault::Unsupported(_)), "{fault}");
    assert_eq!((older.fault(), older.applied().index(), rows(&older)), (None, 2, 1));
}

#[test]
fn an_incomplete_or_foreign_image_is_refused() {
    let (home, other, pieces) = store_and_image();
    let generations = || std::fs::read_dir(home.dir.join("db")).unwrap().count();
    let before = generations();
    let take = |pieces: &[Bytes]| {
        let mut sink = other.receive_image()?;
        pieces.iter().try_for_each(|piece| sink.write(piece.clone()))?;
        sink.finish()?.install()
    };
    // Most of the last pieces are sent only once.
    for without in [0, pieces.len() - 2, pieces.len() - 1] {
        let mut some = pieces.clone();
        some.remove(without);
        assert!(matches!(take(&some), Err(StoreFault::ImageLost(_))), "without piece {without}");
    }
    let mut damaged = pieces.clone();
    let mut piece = damaged[2].to_vec();
    piece[30] ^= 1;
    damaged[2] = piece.into();
    assert!(matches!(take(&damaged), Err(StoreFault::ImageLost(_))));
    // A block at the end of the largest possible database: the blocks before it would take 2 GiB of memory.
    let far = piece::Runs { runs: vec![(super::IMAGE_BYTES_MAX / BLOCK - 1, 1)], bytes: vec![7; BLOCK as usize] };
    let far = piece::Piece::Blocks(far).encode().unwrap();
    assert!(matches!(take(&[pieces[0].clone(), far]), Err(StoreFault::ImageLost(_))));
    let (_foreign_home, _foreign, foreign) = imaged(StoreOptions::new(StoreIdentity { cluster: 99, ..IDENTITY }));
    assert!(matches!(take(&foreign), Err(StoreFault::ImageLost(_))));
    assert_eq!(generations(), before);
    assert_eq!((other.fault(), rows(&other)), (None, 1));
    take(&pieces).unwrap();
}

#[test]
fn an_image_corrupted_on_disk_is_not_installed() {
    let (home, other, pieces) = store_and_image();
    let mut sink = other.receive_image().unwrap();
    pieces.iter().for_each(|piece| sink.write(piece.clone()).unwrap());
    let staged = home.dir.join("db/00000002.new/quorate.db");
    let mut bytes = std::fs::read(&staged).unwrap();
    // In the middle of a blob, where SQLite can't detect it.
    let at = bytes.windows(64).rposition(|window| window == [7; 64]).unwrap();
    bytes[at] ^= 1;
    std::fs::write(&staged, bytes).unwrap();
    assert!(matches!(sink.finish().map(drop), Err(StoreFault::ImageLost(_))));
    assert_eq!((other.fault(), rows(&other)), (None, 1));
}

#[test]
fn an_image_repairs_a_store_that_stopped_applying() {
    let (_home, _store, pieces) = imaged(options());
    let home = home();
    let other = open(&home.dir, options());
    apply(&other, vec![create_table()]).unwrap();
    other.shared().report(&StoreFault::Damaged("by the test".to_owned()));
    assert!(apply(&other, vec![insert(2, 1)]).is_err());
    let mut sink = other.receive_image().unwrap();
    pieces.into_iter().for_each(|piece| sink.write(piece).unwrap());
    sink.finish().unwrap().install().unwrap();
    assert_eq!(other.fault(), None);
    apply(&other, vec![insert(600, 1)]).unwrap();
}

#[test]
fn an_image_carries_anything_that_statements_create() {
    let made = [
        "CREATE TABLE c (a)",
        // An index that differs from its content table, and indexes whose content table is missing or has changed.
        "CREATE VIRTUAL TABLE stale USING fts5(a, content = 'c')",
        "INSERT INTO stale (rowid, a) VALUES (1, 'one'), (2, 'two')",
        "CREATE VIRTUAL TABLE alone USING fts5(a, content = 'nowhere')",
        "INSERT INTO alone (rowid, a) VALUES (1, 'one')",
        "CREATE TABLE d (a, b)",
        "CREATE VIRTUAL TABLE changed USING fts5(b, content = 'd')",
        "INSERT INTO changed (rowid, b) VALUES (1, 'one')",
        "ALTER TABLE d DROP COLUMN b",
        // An index whose own check fails: its content has no such column.
        "CREATE VIRTUAL TABLE odd USING fts5(a, content_rowid = b)",
        "CREATE VIRTUAL TABLE box USING rtree(id, low, high)",
        "INSERT INTO box VALUES (1, 2, 3)",
        // A value that can't be computed.
        "CREATE TABLE g (a)",
        "INSERT INTO g VALUES ('no JSON')",
        "ALTER TABLE g ADD COLUMN b AS (json(a))",
        "CREATE VIEW v AS SELECT * FROM nowhere",
    ];
    let (home_of_sender, home_of_receiver) = (home(), home());
    let (from, to) = (open(&home_of_sender.dir, options()), open(&home_of_receiver.dir, options()));
    for (index, sql) in (1..).zip(made) {
        let outcomes = apply(&from, vec![entry(index, sql, Vec::new())]).unwrap();
        assert!(matches!(outcomes[..], [Some(Ok(_))]), "{sql}: {outcomes:?}");
    }
    assert_eq!(transfer(&from, &to, Duration::ZERO), Ok(made.len() as u64));
    apply(&to, vec![entry(made.len() as u64 + 1, "INSERT INTO stale (rowid, a) VALUES (3, 'three')", vec![])]).unwrap();
}

#[test]
fn a_hold_ends_when_the_wal_grows_too_long() {
    let home = home();
    let limits = StoreOptions { checkpoint_bytes: 64 << 10, hold_bytes_max: 256 << 10, ..options() };
    let store = open(&home.dir, StoreOptions { idle_after: Duration::from_millis(20), ..limits.clone() });
    apply(&store, vec![create_table()]).unwrap();
    apply(&store, (2..600).map(|index| insert(index, 5_000)).collect()).unwrap();
    until("the -wal is emptied", || store.sizes().wal_file == 0);
    drop(store);
    // Until the `-wal` is longer, the checkpointer has nothing to do, and only the image takes the pass.
    let store = open(&home.dir, StoreOptions { idle_after: Duration::from_secs(3_600), ..limits });
    apply(&store, vec![insert(600, 5_000)]).unwrap();
    let mut source = store.send_image().unwrap();
    // Continue until the hold: from then on nobody else gets the pass.
    while source.next().unwrap().is_some() && store.shared().gate.try_enter().is_some() {}
    let mut next = 601;
    while store.sizes().wal <= 256 << 10 {
        apply(&store, (next..next + 20).map(|index| insert(index, 5_000)).collect()).unwrap();
        next += 20;
    }
    let error = loop {
        match source.next() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the image came to its end"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StoreFault::ImageLost(_)), "{error}");
    drop(source);
    until("checkpointed", || store.durable().index() == next - 1);
}

#[test]
fn a_dropped_image_releases_everything() {
    let (_home, store, _) = imaged(without_checkpoints());
    for stop_after in [0, 1, 3] {
        let mut sources = [store.send_image().unwrap(), store.send_image().unwrap()];
        assert!(matches!(store.send_image().err(), Some(StoreFault::ImageLost(_))));
        sources.iter_mut().for_each(|source| (0..stop_after).for_each(|_| drop(source.next().unwrap())));
    }
    assert!(store.shared().gate.try_enter().is_some());
    assert!(pieces(store.send_image().unwrap().as_mut()).len() > 3);
}

/// The hold is for checkpoints: no write waits until somebody takes the next piece.
#[test]
fn no_write_waits_until_an_image_is_sent() {
    let home = home();
    let store = open(&home.dir, options());
    apply(&store, vec![create_table()]).unwrap();
    apply(&store, (2..4_000).map(|index| insert(index, 10_000)).collect()).unwrap();
    let (mut source, mut index, mut held) = (store.send_image().unwrap(), 4_000, 0);
    let mut sent = 0;
    while let Some(piece) = source.next().unwrap() {
        sent += piece.len();
        held += usize::from(store.shared().gate.try_enter().is_none());
        apply(&store, vec![insert(index, 1_000)]).unwrap();
        index += 1;
    }
    assert!(sent > 100_000 && held > 0, "{sent} bytes, {held} pieces during the hold");
}

#[test]
fn a_reader_can_delay_the_hold() {
    let (_home, store, _) = imaged(without_checkpoints());
    let generation = store.shared().generations.current();
    let reader = connection::open_reader(&generation, 1 << 20).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM t").unwrap();
    apply(&store, vec![insert(600, 5_000), insert(601, 5_000)]).unwrap();
    let mut source = store.send_image().unwrap();
    let mut sink =
        |times: usize| (0..times).filter(|_| source.next().unwrap().is_some_and(|piece| piece.is_empty())).count();
    assert!(sink(12) > 3, "the hold waits for the reader");
    assert!(store.shared().gate.try_enter().is_some(), "the checkpointer can run in the meantime");
    reader.execute_batch("COMMIT").unwrap();
    let home = home();
    let other = open(&home.dir, options());
    let mut sink = other.receive_image().unwrap();
    // The earlier pieces were discarded, so send another image.
    drop(source);
    pieces(store.send_image().unwrap().as_mut()).into_iter().for_each(|piece| sink.write(piece).unwrap());
    assert_eq!(sink.finish().unwrap().install().unwrap().index(), 601);
}
