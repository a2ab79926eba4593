//! The reader returns what the writer has written, and a merge has the same pages as a map to which the files were
//! applied one after another.

#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

mod common;

use std::collections::BTreeSet;

use common::{Pages, header, noise, read, write};
use proptest::prelude::*;
use quorate_archive::ltx::{Checksum, DatabaseChecksum, Fault, Header, Merge, PageSize, Reader, Txids, Writer, merge};

/// SQLite's page sizes.
fn page_sizes() -> impl Strategy<Value = u32> {
    (9..=16_u32).prop_map(|exponent| 1 << exponent)
}

/// Returns a page of one of the kinds that databases have: empty, half empty, text, or without any structure.
fn page(page_size: u32, seed: u64) -> Vec<u8> {
    let length = page_size as usize;
    let mut page = match seed % 4 {
        0 => vec![0; length],
        1 => noise(length / 2, seed),
        2 => format!("row {seed} ").into_bytes().into_iter().cycle().take(length).collect(),
        _ => noise(length, seed),
    };
    page.resize(length, 0);
    page
}

/// Any file that is not a snapshot: its pages lie anywhere, many of them around the lock page and at the end.
fn changes() -> impl Strategy<Value = (Header, Pages)> {
    let near = |number: u32| number.saturating_sub(3)..=number.saturating_add(3);
    let pages = page_sizes().prop_flat_map(move |page_size| {
        let lock_page = PageSize::new(page_size).unwrap().lock_page();
        let number = prop_oneof![1..50_u32, near(lock_page), near(u32::MAX - 3), 1..=u32::MAX];
        (Just(page_size), prop::collection::btree_map(number, any::<u64>(), 0..12), any::<u32>())
    });
    let header_fields = (2..=u64::MAX, any::<u32>(), any::<i64>(), any::<u64>(), any::<[u8; 20]>());
    (pages, header_fields).prop_map(|((page_size, seeds, slack), (min, width, timestamp, node, note))| {
        let lock_page = PageSize::new(page_size).unwrap().lock_page();
        let pages = seeds.into_iter().filter(|(number, _)| *number != lock_page);
        let pages: Pages = pages.map(|(number, seed)| (number, page(page_size, seed))).collect();
        let last = pages.keys().next_back().copied().unwrap_or(1);
        let max = min.saturating_add(width.into());
        let header = Header { timestamp, node, note, ..header(page_size, last.saturating_add(slack % 5), min, max) };
        (header, pages)
    })
}

/// A database after each of some transactions: the number of its pages, and which of them the transaction wrote.
fn histories() -> impl Strategy<Value = Vec<(u32, BTreeSet<u32>)>> {
    prop::collection::vec((1..20_u32, prop::collection::btree_set(1..20_u32, 0..8)), 1..10)
}

/// The database after each transaction, and the pages that the transaction wrote. A database that grows writes all new
/// pages.
fn replay(history: &[(u32, BTreeSet<u32>)]) -> Vec<(Pages, BTreeSet<u32>)> {
    let mut database = Pages::new();
    let mut states = Vec::new();
    for (transaction, (commit, written)) in history.iter().enumerate() {
        let grown = (1..=*commit).filter(|number| !database.contains_key(number));
        let written: BTreeSet<u32> = written.iter().copied().filter(|number| number <= commit).chain(grown).collect();
        for number in &written {
            database.insert(*number, page(512, (transaction as u64) << 16 | u64::from(*number)));
        }
        database.retain(|number, _| number <= commit);
        states.push((database.clone(), written));
    }
    states
}

/// Returns the header and the pages of a file for the transactions `min` to `max`: the pages that they wrote, in their
/// last state.
fn capture(states: &[(Pages, BTreeSet<u32>)], min: usize, max: usize) -> (Header, Pages) {
    let database = &states.get(max - 1).unwrap().0;
    let written = states.get(min - 1..max).unwrap().iter().flat_map(|(_, written)| written);
    let pages = written.filter_map(|number| Some((*number, database.get(number)?.clone()))).collect();
    let header = header(512, u32::try_from(database.len()).unwrap(), min as u64, max as u64);
    (Header { timestamp: max as i64 * 1000, ..header }, pages)
}

/// Splits the transactions into ranges that continue each other, some of which overlap.
fn ranges(count: usize, cuts: &[(usize, usize)]) -> Vec<(usize, usize)> {
    let mut ranges = Vec::new();
    let mut end: usize = 0;
    for (length, overlap) in cuts {
        let begin = if end == 0 { 1 } else { (end + 1).saturating_sub(*overlap).max(2) };
        if end < count {
            end = (end + length).min(count);
            ranges.push((begin, end));
        }
    }
    ranges
}

fn merged(files: &[Vec<u8>]) -> Vec<u8> {
    merge(files.iter().map(|file| Reader::new(file.as_slice()).unwrap()).collect(), Vec::new()).unwrap().0
}

proptest! {
    #[test]
    fn what_was_written_is_read((header, pages) in changes()) {
        let (bytes, summary) = write(&header, &pages);
        prop_assert_eq!(summary.length, bytes.len() as u64);
        let by_index = quorate_archive::ltx::Pages::open(&bytes).unwrap();
        prop_assert_eq!(by_index.index().entries().len(), pages.len());
        for (number, page) in &pages {
            prop_assert_eq!(by_index.read(*number).unwrap(), Some(page.clone()));
        }
        prop_assert_eq!(Reader::new(bytes.as_slice()).unwrap().finish().unwrap(), summary);
        prop_assert_eq!(read(&bytes).unwrap(), (header, pages, summary));
    }

    #[test]
    fn a_merge_is_what_the_files_give_one_after_another(
        history in histories(),
        cuts in prop::collection::vec((1..4_usize, 0..3_usize), 10),
        split in any::<prop::sample::Index>(),
    ) {
        let states = replay(&history);
        let ranges = ranges(states.len(), &cuts);
        let files: Vec<_> = ranges.iter().map(|(min, max)| {
            let (header, pages) = capture(&states, *min, *max);
            write(&header, &pages).0
        }).collect();
        let end = ranges.last().unwrap().1;

        let whole = merged(&files);
        let (header, pages, _) = read(&whole).unwrap();
        prop_assert_eq!(&pages, &states.get(end - 1).unwrap().0);
        let newest = read(files.last().unwrap()).unwrap().0;
        prop_assert_eq!(header, Header { txids: Txids::new(1, end as u64).unwrap(), node: 0, ..newest });

        // It does not matter which files are merged first.
        let (older, newer) = files.split_at(split.index(files.len()));
        let parts: Vec<_> = [older, newer].into_iter().filter(|part| !part.is_empty()).map(merged).collect();
        prop_assert_eq!(merged(&parts), whole);
    }

    #[test]
    fn a_merge_of_any_files_is_what_they_give_one_after_another(
        files in prop::collection::vec((1..30_u32, prop::collection::btree_map(1..30_u32, any::<u64>(), 0..10)), 1..6),
    ) {
        let mut model = Pages::new();
        let mut written = Vec::new();
        for (transaction, (commit, seeds)) in (2..).zip(files) {
            let pages = seeds.into_iter().filter(|(number, _)| *number <= commit);
            let pages: Pages = pages.map(|(number, seed)| (number, page(512, seed))).collect();
            model.extend(pages.clone());
            model.retain(|number, _| *number <= commit);
            written.push(write(&header(512, commit, transaction, transaction), &pages).0);
        }
        prop_assert_eq!(read(&merged(&written)).unwrap().1, model);
    }

    #[test]
    fn the_checksum_of_a_database_follows_its_pages(history in histories()) {
        let page_size = PageSize::new(512).unwrap();
        let of = |pages: &Pages| {
            let mut whole = DatabaseChecksum::new(page_size);
            pages.iter().for_each(|(number, page)| whole.add(*number, Checksum::of_page(*number, page)));
            whole
        };
        let (mut running, mut before) = (DatabaseChecksum::new(page_size), Pages::new());
        for (database, _) in replay(&history) {
            let numbers: BTreeSet<u32> = before.keys().chain(database.keys()).copied().collect();
            for number in numbers {
                let [old, new] = [&before, &database].map(|pages| pages.get(&number));
                if old != new {
                    old.inspect(|page| running.remove(number, Checksum::of_page(number, page)));
                    new.inspect(|page| running.add(number, Checksum::of_page(number, page)));
                }
            }
            prop_assert_eq!(running, of(&database));
            before = database;
        }
    }
}

#[test]
fn the_checksum_of_a_database_leaves_out_the_lock_page() {
    let page_size = PageSize::new(65_536).unwrap();
    let mut database = DatabaseChecksum::new(page_size);
    database.add(page_size.lock_page(), Checksum::of_page(1, &[1]));
    assert_eq!(database.value().to_u64(), 1 << 63);
    database.add(page_size.lock_page() + 1, Checksum::of_page(1, &[1]));
    assert_eq!(database.value(), Checksum::of_page(1, &[1]));
}

/// The smallest database that reaches beyond the lock page has 1 GiB.
#[test]
fn a_snapshot_leaves_out_the_lock_page() {
    let header = header(65_536, 16_386, 1, 9);
    let lock_page = header.page_size.lock_page();
    assert_eq!(lock_page, 16_385);
    let page = vec![0; 65_536];
    let mut writer = Writer::new(Vec::new(), header).unwrap();
    (1..lock_page).for_each(|number| writer.write_page(number, &page).unwrap());
    let refused = writer.write_page(lock_page, &page);
    assert!(matches!(refused, Err(quorate_archive::ltx::Error::Refused(Fault::LockPage(16_385)))), "{refused:?}");
    writer.write_page(lock_page + 1, &page).unwrap();
    let (bytes, summary) = writer.finish().unwrap();

    let mut merge = Merge::new(vec![Reader::new(bytes.as_slice()).unwrap()]).unwrap();
    let mut expected = (1..).filter(|number| *number != lock_page);
    while let Some((number, read)) = merge.next_page().unwrap() {
        assert!(Some(number) == expected.next() && read == page);
    }
    assert_eq!((expected.next(), summary.pages), (Some(16_387), 16_385));
}
