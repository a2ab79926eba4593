//! What the format forbids is refused, and errors say what happened.

#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

mod common;

use std::error::Error as _;
use std::io::{self, Read, Write};

use common::{Pages, header, read, write};
use quorate_archive::ltx::{Error, Fault, FileName, Level, Merge, PageSize, Reader, Txids, Writer, merge};

const PAGE: [u8; 512] = [7; 512];

fn writer(commit: u32, min: u64) -> Writer<Vec<u8>> {
    Writer::new(Vec::new(), header(512, commit, min, min + 1)).unwrap()
}

/// Returns a file without pages, with these transactions.
fn empty(page_size: u32, min: u64, max: u64) -> Vec<u8> {
    write(&header(page_size, 9, min, max), &Pages::new()).0
}

/// Returns the fault for which a page is refused.
fn fault(result: Result<(), Error>) -> Fault {
    match result {
        Err(Error::Refused(fault)) => fault,
        other => unreachable!("{other:?}"),
    }
}

#[test]
fn a_writer_refuses_what_the_format_forbids_and_goes_on() {
    let mut file = writer(3_000_000, 2);
    assert!(matches!(fault(file.write_page(0, &PAGE)), Fault::Order { previous: 0, number: 0 }));
    file.write_page(5, &PAGE).unwrap();
    for number in [5, 4, 0] {
        assert!(matches!(fault(file.write_page(number, &PAGE)), Fault::Order { previous: 5, .. }));
    }
    let lock_page = PageSize::new(512).unwrap().lock_page();
    assert!(matches!(fault(file.write_page(lock_page, &PAGE)), Fault::LockPage(2_097_153)));
    assert!(matches!(fault(file.write_page(3_000_001, &PAGE)), Fault::BeyondCommit { commit: 3_000_000, .. }));
    assert!(matches!(fault(file.write_page(6, &[])), Fault::PageLength { number: 6, length: 0, expected: 512 }));
    file.write_page(3_000_000, &PAGE).unwrap();
    let pages = read(&file.finish().unwrap().0).unwrap().1;
    assert_eq!(pages.into_keys().collect::<Vec<_>>(), [5, 3_000_000]);
}

#[test]
fn a_snapshot_has_every_page() {
    let mut snapshot = writer(3, 1);
    assert!(matches!(fault(snapshot.write_page(2, &PAGE)), Fault::Missing(1)));
    snapshot.write_page(1, &PAGE).unwrap();
    assert!(matches!(fault(snapshot.write_page(3, &PAGE)), Fault::Missing(2)));
    snapshot.write_page(2, &PAGE).unwrap();
    assert!(matches!(fault(snapshot.finish().map(drop)), Fault::Missing(3)));
}

#[test]
fn only_valid_sizes_and_ranges_exist() {
    for bytes in [0, 1, 256, 513, 131_072, u32::MAX] {
        assert!(matches!(PageSize::new(bytes), Err(Fault::PageSize(_))), "{bytes}");
    }
    for (min, max) in [(0, 0), (0, 5), (6, 5)] {
        assert!(matches!(Txids::new(min, max), Err(Fault::Txids { .. })), "{min}-{max}");
    }
}

#[test]
fn names_have_one_form() {
    let name = FileName(Txids::new(1, 0xABC).unwrap());
    assert_eq!(name.to_string(), "0000000000000001-0000000000000abc.ltx");
    assert_eq!(name.to_string().parse::<FileName>().unwrap(), name);
    let wrong = [
        "0000000000000001-0000000000000ABC.ltx",
        "0000000000000001-0000000000000abc.ltx.tmp",
        "0000000000000001-0000000000000abc",
        "1-abc.ltx",
        "+000000000000001-0000000000000abc.ltx",
        "0000000000000000-0000000000000abc.ltx",
        "0000000000000abc-0000000000000001.ltx",
        "",
    ];
    for text in wrong {
        assert!(matches!(text.parse::<FileName>(), Err(Error::Name(name)) if name == text), "{text}");
    }
    assert_eq!((Level::SNAPSHOTS.to_string(), Level::SNAPSHOTS.folder()), ("0009".into(), "ltx/9".into()));
    assert_eq!("0000".parse::<Level>().unwrap(), Level::CAPTURED);
    assert!("000a".parse::<Level>().is_err() && "9".parse::<Level>().is_err() && Level::new(10).is_none());
}

#[test]
fn a_merge_refuses_files_that_do_not_follow_each_other() {
    let merge = |ranges: &[(u64, u64)]| {
        let files: Vec<_> = ranges.iter().map(|(min, max)| empty(512, *min, *max)).collect();
        merge(files.iter().map(|file| Reader::new(file.as_slice()).unwrap()).collect(), Vec::new()).map(drop)
    };
    assert!(matches!(merge(&[]), Err(Error::NoInputs)));
    assert!(merge(&[(5, 9), (10, 10), (8, 20), (2, 21)]).is_ok());
    for ranges in [[(5, 9), (11, 12)], [(5, 9), (5, 9)], [(5, 9), (9, 9)], [(5, 9), (2, 4)]] {
        let error = merge(&ranges).unwrap_err();
        assert!(matches!(error, Error::Gap { .. }), "{ranges:?}: {error}");
    }
    let (small, large) = (empty(512, 2, 2), empty(1024, 3, 3));
    let readers = [&small, &large].map(|file| Reader::new(file.as_slice()).unwrap());
    assert!(matches!(Merge::new(readers.into()).map(drop), Err(Error::PageSizes { .. })));
}

#[test]
fn a_merge_names_the_damaged_input() {
    let (older, mut newer) = (empty(512, 2, 2), empty(512, 3, 3));
    *newer.last_mut().unwrap() ^= 1;
    let readers = [&older, &newer].map(|file| Reader::new(file.as_slice()).unwrap());
    let mut merge = Merge::new(readers.into()).unwrap();
    let error = merge.next_page().map(drop).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("the file of the transactions 3-3 can't be merged: the LTX file is damaged"), "{text}");
    let source = error.source().unwrap();
    assert!(text.contains(&source.to_string()) && source.source().unwrap().is::<Fault>());
    assert!(matches!(merge.next_page(), Err(Error::Abandoned)));
}

#[test]
fn files_that_litestream_does_not_write_are_refused() {
    let refused = |at: usize, bytes: &[u8]| {
        let mut file = empty(512, 2, 2);
        file.splice(at..at + bytes.len(), bytes.iter().copied());
        match Reader::new(file.as_slice()).map(drop) {
            Err(Error::Damaged { offset: 100, source }) => source,
            other => unreachable!("{other:?}"),
        }
    };
    assert!(matches!(refused(0, b"LTX2"), Fault::Magic));
    assert!(matches!(refused(7, &[0]), Fault::Flags(0)));
    assert!(matches!(refused(8, &1_u32.to_be_bytes()), Fault::PageSize(1)));
    assert!(matches!(refused(12, &[0; 4]), Fault::NoPages));
    assert!(matches!(refused(16, &[0; 8]), Fault::Txids { .. }));
    assert!(matches!(refused(40, &[1]), Fault::DatabaseChecksum(_)));
    assert!(matches!(refused(63, &[1]), Fault::WalSource), "a length without an offset");
    assert!(matches!(refused(64, &[1]), Fault::WalSource), "a salt without an offset");
    assert!(matches!(refused(48, &[0x80]), Fault::WalSource), "a negative offset");
}

/// A source or a sink that fails after some bytes.
struct Failing(usize);

impl Write for Failing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::ConnectionReset.into())
    }
}

#[test]
fn a_failing_sink_or_source_is_named_and_ends_the_file() {
    let mut file = Writer::new(Failing(500), header(512, 3, 2, 2)).unwrap();
    let error = (1..=3).find_map(|number| file.write_page(number, &common::noise(512, 1)).err()).unwrap();
    assert!(matches!(error, Error::Io { action: "write", offset: 100, .. }) && error.is_retryable(), "{error}");
    assert!(matches!(file.finish().map(drop), Err(Error::Abandoned)));

    let file = empty(512, 2, 2);
    let mut reader = Reader::new(file.split_at(103).0.chain(Failing(0))).unwrap();
    let error = reader.next_page().map(drop).unwrap_err();
    assert!(matches!(error, Error::Io { action: "read", .. }), "{error}");
    assert!(matches!(reader.next_page(), Err(Error::Abandoned)));
    assert!(matches!(reader.finish(), Err(Error::Abandoned)));
}
