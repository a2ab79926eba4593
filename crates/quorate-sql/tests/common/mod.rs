//! A store whose captures are compared with an independent copy of its database.
//!
//! An image file is built from the pages of boundaries only. At each boundary, another process copies the database and
//! its `-wal`, and plain SQLite recovers that copy; the two must be equal byte by byte.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use quorate_env::Env;
use quorate_model::{
    Entry, Epoch, GroupId, LogId, NodeId, Payload, Proposal, SqlCommand, Stamp, StateMachine, Statement, StoreFault,
    StoreIdentity, codec,
};
use quorate_sql::capture::{Boundary, Capture, Changed};
use quorate_sql::{OpenError, SqlStore, StoreOptions, connection};
use rusqlite::Connection;

/// The time limit of every wait in these tests.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What happens to a store.
#[derive(Clone, Debug)]
pub enum Event {
    /// Entries are applied in one batch.
    Apply(Vec<Sql>),
    /// An entry is run ahead of its commit, and then another takes its place.
    Ahead(Sql),
    /// A checkpoint of this mode is run.
    Checkpoint(&'static str),
    /// The database is rewritten without its free pages.
    Vacuum,
    /// An image is installed.
    Install,
    /// The store is closed and opened again.
    Reopen,
    /// The store is killed and its files are opened again.
    Kill,
}

/// The statement of an entry; the numbers choose rows and sizes.
#[derive(Clone, Copy, Debug)]
pub struct Sql {
    kind: u8,
    number: u64,
    bytes: u64,
}

/// A boundary: what happens between it and the reading of its pages, and whether it is kept.
#[derive(Clone, Debug)]
pub struct Step {
    before: Vec<Event>,
    during: Vec<Event>,
    is_kept: bool,
}

pub fn sql() -> impl Strategy<Value = Sql> {
    (0..8_u8, 1..25_u64, 0..9_000_u64).prop_map(|(kind, number, bytes)| Sql { kind, number, bytes })
}

fn quiet() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => prop::collection::vec(sql(), 1..4).prop_map(Event::Apply),
        1 => sql().prop_map(Event::Ahead),
        3 => prop::sample::select(vec!["PASSIVE", "FULL", "RESTART", "TRUNCATE"]).prop_map(Event::Checkpoint),
        1 => Just(Event::Vacuum),
    ]
}

fn any_event() -> impl Strategy<Value = Event> {
    let rare = prop::sample::select(vec![Event::Install, Event::Reopen, Event::Kill]);
    prop_oneof![12 => quiet(), 1 => rare]
}

pub fn steps() -> impl Strategy<Value = Vec<Step>> {
    let events = |max| prop::collection::vec(quiet(), 0..max);
    let before = prop::collection::vec(any_event(), 0..5);
    let step = (before, events(4), prop::bool::weighted(0.7));
    let step = step.prop_map(|(before, during, is_kept)| Step { before, during, is_kept });
    prop::collection::vec(step, 1..7)
}

pub fn options() -> StoreOptions {
    let identity = StoreIdentity { cluster: 7, epoch: Epoch(1), group: GroupId::MAIN };
    // The events run all checkpoints, and the small cache makes transactions write pages before they commit.
    StoreOptions {
        writer_cache_bytes: 24 << 10,
        checkpoint_bytes: 1 << 40,
        idle_after: Duration::from_secs(3_600),
        ..StoreOptions::new(identity)
    }
}

pub fn open(dir: &Path, options: &StoreOptions) -> SqlStore {
    let begun = Instant::now();
    loop {
        match SqlStore::open(&Env::real(), dir, options.clone()) {
            Err(OpenError::InUse(_)) if begun.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(1)),
            other => return other.unwrap(),
        }
    }
}

pub fn entry(index: u64, sql: &str) -> Entry {
    let statement = Statement { sql: sql.to_owned().into(), params: Vec::new(), names: Vec::new() };
    let proposal = Proposal::new(None, vec![SqlCommand::Statement(statement).into()]);
    let log_id = LogId { term: 1, node: NodeId(1), index };
    let stamp = Stamp { now: 1_700_000_000_000_000_000 + index, seed: index };
    Entry { log_id, payload: Payload::Proposal(stamp, codec::encode_proposal(&proposal).unwrap()) }
}

pub fn apply(store: &SqlStore, entries: Vec<Entry>) {
    let (sender, receiver) = mpsc::channel();
    let count = entries.len();
    store.apply(entries, true, Box::new(move |part| sender.send(part.map(|part| part.len())).unwrap_or(())));
    let mut done = 0;
    while done < count {
        done += receiver.recv_timeout(PATIENCE).unwrap().unwrap();
    }
}

/// A store, its capture, and the copy that is made of it.
pub struct Model {
    _temp: tempfile::TempDir,
    home: PathBuf,
    kills: u32,
    store: Option<SqlStore>,
    capture: Option<Capture>,
    index: u64,
    image: Vec<u8>,
}

impl Model {
    pub fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().join("node0");
        let store = open(&home, &options());
        apply(&store, vec![entry(1, "CREATE TABLE t (i INTEGER PRIMARY KEY, v BLOB UNIQUE)")]);
        let capture = Some(store.capture().unwrap());
        Self { _temp: temp, home, kills: 0, store: Some(store), capture, index: 1, image: Vec::new() }
    }

    /// Runs all steps. Returns what is wrong at the first boundary whose copy differs.
    pub fn run(&mut self, steps: &[Step]) -> Result<(), String> {
        steps.iter().try_for_each(|step| self.step(step))
    }

    fn store(&self) -> &SqlStore {
        self.store.as_ref().unwrap()
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        step.before.iter().for_each(|event| self.happen(event));
        let boundary = self.capture.as_mut().unwrap().boundary().map_err(|fault| fault.to_string())?;
        let (expected, index) = (self.recovered(), self.index);
        step.during.iter().for_each(|event| self.happen(event));
        let mut copy = std::mem::take(&mut self.image);
        let before = if step.is_kept { Vec::new() } else { copy.clone() };
        add(&mut copy, &boundary).map_err(|fault| fault.to_string())?;
        if boundary.applied().index() != index {
            return Err(format!("{:?} is not entry {index}", boundary.applied()));
        }
        let page_size = usize::try_from(boundary.page_size()).unwrap();
        let differs = |number: usize| copy.chunks(page_size).nth(number) != expected.chunks(page_size).nth(number);
        let pages = copy.len().max(expected.len()) / page_size;
        if let Some(number) = (0..pages).find(|number| differs(*number)) {
            return Err(format!("page {} of {pages} differs; {:?}", number + 1, boundary.changed()));
        }
        self.check(&copy)?;
        if step.is_kept {
            boundary.kept();
        }
        self.image = if step.is_kept { copy } else { before };
        Ok(())
    }

    fn happen(&mut self, event: &Event) {
        match event {
            Event::Apply(all) => {
                let entries = all.iter().map(|sql| self.next(*sql)).collect();
                apply(self.store(), entries);
            }
            Event::Ahead(sql) => {
                let ahead = self.next(*sql);
                self.index -= 1;
                self.store().prefetch(vec![ahead]);
                // Long enough for most of them to have run.
                std::thread::sleep(Duration::from_millis(2));
            }
            Event::Checkpoint(mode) => self.maintain(&format!("PRAGMA wal_checkpoint({mode})")),
            Event::Vacuum => self.maintain("VACUUM"),
            Event::Install => self.install(),
            Event::Reopen => {
                self.capture = None;
                let store = self.store.take().unwrap();
                tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(store.close());
                drop(store);
                self.reopen();
            }
            Event::Kill => {
                self.kills += 1;
                let next = self.home.with_file_name(format!("node{}", self.kills));
                copy_by_process(&[&self.home], &next);
                (self.capture, self.store) = (None, None);
                self.home = next;
                self.reopen();
            }
        }
    }

    fn reopen(&mut self) {
        let store = open(&self.home, &options());
        self.capture = Some(store.capture().unwrap());
        self.store = Some(store);
    }

    /// Runs a statement on another connection. It is not run if the writer or a reader is in its way.
    fn maintain(&self, sql: &str) {
        let conn = connection::open_checkpointer(&self.store().generation()).unwrap();
        conn.busy_timeout(Duration::ZERO).unwrap();
        match conn.execute_batch(sql) {
            Err(error) if error.sqlite_error_code() != Some(rusqlite::ErrorCode::DatabaseBusy) => panic!("{error}"),
            _ => {}
        }
    }

    fn install(&self) {
        let mut source = self.store().send_image().unwrap();
        let mut sink = self.store().receive_image().unwrap();
        while let Some(piece) = source.next().unwrap() {
            if !piece.is_empty() {
                sink.write(piece).unwrap();
            }
        }
        drop(source);
        sink.finish().unwrap().install().unwrap();
    }

    fn next(&mut self, Sql { kind, number, bytes }: Sql) -> Entry {
        self.index += 1;
        let one = number % 7;
        let sql = match kind {
            0..=2 => format!(
                "INSERT INTO t (v) WITH n(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM n WHERE k < {number}) \
                 SELECT randomblob({bytes} * k / {number} + 8) FROM n"
            ),
            3 => format!("DELETE FROM t WHERE i % 7 = {one}"),
            4 => format!("UPDATE t SET v = randomblob({bytes}) WHERE i = {number}"),
            5 => "CREATE TABLE IF NOT EXISTS u AS SELECT * FROM t".to_owned(),
            6 => "DROP TABLE IF EXISTS u".to_owned(),
            // Fails at its last row, if there are two.
            _ => format!(
                "UPDATE t SET v = CASE WHEN i < (SELECT max(i) FROM t) THEN randomblob({bytes} + 9) ELSE \
                 (SELECT v FROM t WHERE i = (SELECT min(i) FROM t)) END, i = CASE WHEN i = (SELECT max(i) FROM t) \
                 THEN (SELECT min(i) FROM t) ELSE i END"
            ),
        };
        entry(self.index, &sql)
    }

    /// The present database, as plain SQLite recovers it from a copy of its files.
    fn recovered(&self) -> Vec<u8> {
        let temp = tempfile::tempdir_in(self.home.parent().unwrap()).unwrap();
        let main = self.store().generation().path();
        let wal = main.with_file_name("quorate.db-wal");
        let files: Vec<&Path> = [main.as_path(), &wal].into_iter().filter(|path| path.exists()).collect();
        copy_by_process(&files, temp.path());
        let copy = temp.path().join("quorate.db");
        let conn = Connection::open(&copy).unwrap();
        conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        drop(conn);
        std::fs::read(copy).unwrap()
    }

    fn check(&self, image: &[u8]) -> Result<(), String> {
        let temp = tempfile::tempdir_in(self.home.parent().unwrap()).unwrap();
        let path = temp.path().join("image.db");
        std::fs::write(&path, image).unwrap();
        let found = Connection::open(&path)
            .and_then(|conn| conn.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0)));
        if found.as_deref() == Ok("ok") { Ok(()) } else { Err(format!("{found:?}")) }
    }
}

/// Adds the pages of a boundary to a copy of the database.
pub fn add(image: &mut Vec<u8>, boundary: &Boundary) -> Result<(), StoreFault> {
    let size = usize::try_from(boundary.page_size()).unwrap();
    if *boundary.changed() == Changed::All {
        image.clear();
    }
    image.resize(usize::try_from(boundary.pages()).unwrap() * size, 0);
    for number in boundary.numbers() {
        let at = (usize::try_from(number).unwrap() - 1) * size;
        boundary.read(number, &mut image[at..at + size])?;
    }
    Ok(())
}

/// Copies files or a directory in another process, because this one must not open and close SQLite's files.
fn copy_by_process(from: &[&Path], to: &Path) {
    assert!(Command::new("cp").arg("-r").args(from).arg(to).status().unwrap().success());
}
