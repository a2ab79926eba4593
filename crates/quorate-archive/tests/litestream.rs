//! Stock Litestream as an oracle, in both directions: it restores what this crate writes, and this crate restores what
//! it writes, byte by byte.
//!
//! `.ci/litestream` installs it. If it is not installed, the tests are skipped with a message, but in CI they fail.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "tests stop at the first surprise")]
#![allow(clippy::disallowed_methods, reason = "a test that starts another program on real files")]

mod common;
#[path = "litestream/stock.rs"]
mod stock;

use std::sync::Arc;

use common::{header, write};
use quorate_archive::ltx::{FileName, Level, Merge, Reader, merge};
use quorate_archive::objects::Memory;
use quorate_archive::{Archiver, Changed, Identity, PageSource};
use quorate_env::Env;
use rusqlite::Connection;
use stock::{Archive, Stock};

/// The states of a database: the bytes of its file after each of some transactions.
struct History {
    page_size: u32,
    states: Vec<Vec<u8>>,
}

impl History {
    /// A database that grows, changes here and there, changes nothing at all, and shrinks by VACUUM.
    fn of(page_size: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("database");
        let database = Connection::open(&path).unwrap();
        database.pragma_update(None, "page_size", page_size).unwrap();
        database.execute_batch("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)").unwrap();
        let grow = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60)
            INSERT INTO t (v) SELECT hex(randomblob(300)) || replace(hex(zeroblob(900)), '0', 'x') FROM n";
        let steps = [
            grow,
            grow,
            "UPDATE t SET v = v || id WHERE id % 40 = 0",
            "",
            grow,
            "DELETE FROM t WHERE id > 100",
            "VACUUM",
        ];
        let step = |step: &&str| {
            database.execute_batch(step).unwrap();
            std::fs::read(&path).unwrap()
        };
        Self { page_size, states: steps.iter().map(step).collect() }
    }

    /// Returns the LTX file that turns one state into another: the pages that differ. It holds the transactions `min`
    /// to `max`.
    fn file(&self, before: Option<usize>, after: usize, (min, max): (u64, u64)) -> Vec<u8> {
        let pages = |state: usize| self.states.get(state).unwrap().chunks(self.page_size as usize);
        let mut old = before.map(pages).into_iter().flatten();
        let changed = (1..).zip(pages(after)).filter(|(_, page)| old.next() != Some(page));
        let changed = changed.map(|(number, page)| (number, page.to_vec())).collect();
        let commit = u32::try_from(pages(after).len()).unwrap();
        write(&header(self.page_size, commit, min, max), &changed).0
    }

    /// Returns the LTX files that lead from each state to the next, with these transactions.
    fn files(&self, ranges: &[(u64, u64)]) -> Vec<Vec<u8>> {
        assert_eq!(ranges.len(), self.states.len());
        (0..).zip(ranges).map(|(state, range)| self.file(usize::checked_sub(state, 1), state, *range)).collect()
    }

    fn last(&self) -> &[u8] {
        self.states.last().unwrap()
    }
}

const CONTIGUOUS: [(u64, u64); 7] = [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 6), (7, 7)];
const RANGED: [(u64, u64); 7] =
    [(1, 17), (18, 57), (58, 58), (59, 1000), (1001, 5000), (5001, 123_456), (123_457, 1 << 40)];

/// Restores a database from LTX files, the oldest first, as a restore will do it.
fn restore(files: &[Vec<u8>]) -> Vec<u8> {
    let mut merge = Merge::new(files.iter().map(|file| Reader::new(file.as_slice()).unwrap()).collect()).unwrap();
    let mut database = Vec::new();
    while let Some((_, page)) = merge.next_page().unwrap() {
        database.extend_from_slice(page);
    }
    database
}

fn merged(files: &[Vec<u8>]) -> Vec<u8> {
    merge(files.iter().map(|file| Reader::new(file.as_slice()).unwrap()).collect(), Vec::new()).unwrap().0
}

#[test]
fn litestream_restores_our_files_to_any_of_their_ends() {
    let Some(stock) = Stock::installed() else { return };
    for page_size in [4096, 16_384] {
        let history = History::of(page_size);
        for ranges in [CONTIGUOUS, RANGED] {
            let archive = Archive::new();
            history.files(&ranges).iter().for_each(|file| archive.put(Level::CAPTURED, file));
            assert!(stock.restore(&archive, None).unwrap() == history.last(), "{page_size}: {ranges:?}");
            for ((_, max), state) in ranges.iter().zip(&history.states) {
                assert!(&stock.restore(&archive, Some(*max)).unwrap() == state, "{page_size}: up to {max}");
            }
        }
    }
}

#[test]
fn litestream_restores_no_transaction_inside_of_a_file() {
    let Some(stock) = Stock::installed() else { return };
    let archive = Archive::new();
    History::of(4096).files(&RANGED).iter().for_each(|file| archive.put(Level::CAPTURED, file));
    let refused = stock.restore(&archive, Some(60)).unwrap_err();
    assert!(refused.contains("no matching backup files"), "{refused}");
}

#[test]
fn litestream_restores_our_files_from_several_levels() {
    let Some(stock) = Stock::installed() else { return };
    let history = History::of(4096);
    let archive = Archive::new();
    let levels = [9, 1, 1, 0, 0, 0, 0].map(|level| Level::new(level).unwrap());
    history.files(&RANGED).iter().zip(levels).for_each(|(file, level)| archive.put(level, file));
    assert!(stock.restore(&archive, None).unwrap() == history.last());
}

#[test]
fn litestream_restores_overlapping_files() {
    let Some(stock) = Stock::installed() else { return };
    let history = History::of(4096);
    let archive = Archive::new();
    let files = [(None, 1, (1, 20)), (Some(0), 2, (10, 30)), (Some(2), 6, (31, 40))];
    let files = files.map(|(before, after, range)| history.file(before, after, range));
    files.iter().for_each(|file| archive.put(Level::CAPTURED, file));
    assert!(stock.restore(&archive, None).unwrap() == history.last());
    assert!(restore(&files) == history.last());
}

#[test]
fn litestream_restores_what_we_merged() {
    let Some(stock) = Stock::installed() else { return };
    for page_size in [4096, 16_384] {
        let history = History::of(page_size);
        let files = history.files(&RANGED);
        let (first, rest) = files.split_first().unwrap();
        let (middle, newest) = rest.split_at(3);
        let archive = Archive::new();
        archive.put(Level::SNAPSHOTS, first);
        archive.put(Level::new(1).unwrap(), &merged(middle));
        newest.iter().for_each(|file| archive.put(Level::CAPTURED, file));
        assert!(stock.restore(&archive, None).unwrap() == history.last());
        assert!(&stock.restore(&archive, Some(1000)).unwrap() == history.states.get(3).unwrap());

        let whole = Archive::new();
        whole.put(Level::SNAPSHOTS, &merged(&files));
        assert!(stock.restore(&whole, None).unwrap() == history.last());
    }
}

#[test]
fn litestream_refuses_what_we_refuse() {
    let Some(stock) = Stock::installed() else { return };
    let history = History::of(4096);
    let mut files = history.files(&CONTIGUOUS);
    // In `SQLite format 3`, which LZ4 leaves as it is.
    *files.get_mut(2).unwrap().get_mut(120).unwrap() ^= 1;
    let archive = Archive::new();
    files.iter().for_each(|file| archive.put(Level::CAPTURED, file));
    assert!(Reader::new(files.get(2).unwrap().as_slice()).unwrap().finish().is_err());
    let refused = stock.restore(&archive, None).unwrap_err();
    assert!(refused.contains("checksum mismatch"), "{refused}");
}

#[test]
fn we_restore_and_merge_what_litestream_captures() {
    let Some(stock) = Stock::installed() else { return };
    for page_size in [512, 4096, 16_384] {
        let archive = Archive::new();
        let path = archive.dir().join("database");
        let database = Connection::open(&path).unwrap();
        database.pragma_update(None, "page_size", page_size).unwrap();
        database.pragma_update(None, "journal_mode", "wal").unwrap();
        let grow = "INSERT INTO t (v) SELECT hex(randomblob(200)) FROM pragma_function_list LIMIT 80";
        let steps = [
            "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)",
            grow,
            grow,
            "DELETE FROM t WHERE id > 50",
            "VACUUM",
            grow,
        ];
        for step in steps {
            database.execute_batch(step).unwrap();
            stock.capture(&path, &archive);
        }
        database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        drop(database);

        let files = archive.files(Level::CAPTURED);
        assert!(files.len() >= steps.len(), "{} files", files.len());
        let expected = std::fs::read(&path).unwrap();
        assert!(restore(&files) == expected, "pages of {page_size} bytes");

        let ours = Archive::new();
        ours.put(Level::SNAPSHOTS, &merged(&files));
        assert!(stock.restore(&ours, None).unwrap() == expected, "pages of {page_size} bytes, merged");
        // The name of each file says what is in it.
        for file in &files {
            let reader = Reader::new(file.as_slice()).unwrap();
            assert!(archive.has(Level::CAPTURED, FileName(reader.header().txids)));
        }
    }
}

/// A state as a boundary of a node.
struct Source {
    index: u64,
    page_size: u32,
    state: Vec<u8>,
}

impl PageSource for Source {
    fn index(&self) -> u64 {
        self.index
    }

    fn time(&self) -> i64 {
        1_764_200_000_000
    }

    fn page_size(&self) -> u32 {
        self.page_size
    }

    fn pages(&self) -> u32 {
        u32::try_from(self.state.len()).unwrap() / self.page_size
    }

    fn changed(&self) -> Changed {
        Changed::All
    }

    fn read(&mut self, number: u32, page: &mut [u8]) -> std::io::Result<()> {
        page.copy_from_slice(self.state.chunks(page.len()).nth(number as usize - 1).unwrap());
        Ok(())
    }

    fn kept(self: Box<Self>) {}
}

#[test]
fn stock_litestream_restores_every_boundary_of_an_archiver() {
    let Some(stock) = Stock::installed() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    for page_size in [512, 4096, 65_536] {
        let history = History::of(page_size);
        let memory = Memory::new();
        runtime.block_on(async {
            let identity = Identity { cluster: 1, epoch: 1, node: 1, token: 1 };
            let mut archiver = Archiver::take(&Env::real(), Arc::new(memory.clone()), identity).await.unwrap();
            for (index, state) in (1..).zip(&history.states) {
                let source = Source { index, page_size, state: state.clone() };
                archiver.put_pages(Box::new(source)).await.unwrap();
            }
        });
        let archive = Archive::new();
        for (key, file) in memory.contents() {
            let parts: Vec<_> = key.split('/').collect();
            if let [_, "00000001", level, _] = parts.as_slice()
                && let Ok(level) = level.parse()
            {
                archive.put(level, &file);
            }
        }
        for (txid, state) in (1..).zip(&history.states) {
            assert!(stock.restore(&archive, Some(txid)).unwrap() == *state, "boundary {txid} of pages of {page_size}");
        }
        assert!(stock.restore(&archive, None).unwrap() == history.last());
    }
}
