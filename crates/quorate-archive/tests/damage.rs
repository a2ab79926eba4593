//! Damaged files: an error, or the pages that were written, but never a panic and never other pages.
//!
//! A few bits of a file have no meaning, so that flipping one leaves the pages as they are: some of the distances of
//! LZ4, where the same bytes are repeated.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests stop at the first surprise")]
#![allow(clippy::disallowed_methods, reason = "golden files are real files")]

mod common;

use std::path::Path;

use common::{Pages, header, noise, read, write};
use proptest::prelude::*;
use quorate_archive::ltx::{Error, Fault};

/// A file with pages of all kinds: one that LZ4 can't make shorter, one that it can, and an empty one.
fn file() -> (Vec<u8>, Pages) {
    let text = b"select * from sqlite_schema; ".iter().copied().cycle().take(512).collect();
    let pages: Pages = [(1, noise(512, 1)), (2, text), (3, vec![0; 512])].into();
    (write(&header(512, 3, 1, 42), &pages).0, pages)
}

/// A file with LZ4 frames.
fn legacy() -> Vec<u8> {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/litestream-0.5.5");
    std::fs::read(golden.join("0000000000000002-0000000000000002.ltx")).unwrap()
}

/// Checks that damaged bytes give an error or the right pages, by a reader, and that nothing panics by the index.
fn check(bytes: &[u8], pages: &Pages) -> bool {
    if let Ok(by_index) = quorate_archive::ltx::Pages::open(bytes) {
        pages.keys().for_each(|number| drop(by_index.read(*number)));
    }
    match read(bytes) {
        Ok((_, found, _)) => {
            assert!(&found == pages, "damage gives other pages");
            false
        }
        Err(error) => {
            assert!(matches!(error, Error::Damaged { .. }) && !error.is_retryable(), "{error}");
            true
        }
    }
}

#[test]
fn every_flipped_bit_is_an_error_or_changes_no_page() {
    for (bytes, harmless_max) in [(file().0, 16), (legacy(), 500)] {
        let pages = read(&bytes).unwrap().1;
        let flips = (0..bytes.len()).flat_map(|at| (0..8).map(move |bit| (at, 1_u8 << bit)));
        let is_harmless = |(at, bit): &(usize, u8)| {
            let mut bytes = bytes.clone();
            bytes[*at] ^= bit;
            !check(&bytes, &pages)
        };
        let harmless = flips.filter(is_harmless).count();
        assert!(harmless <= harmless_max, "{harmless} flipped bits are not noticed");
    }
}

#[test]
fn every_cut_file_is_an_error() {
    for bytes in [file().0, legacy()] {
        let pages = read(&bytes).unwrap().1;
        for length in 0..bytes.len() {
            assert!(check(&bytes[..length], &pages), "cut to {length} bytes");
        }
        let longer = [bytes.as_slice(), &[0]].concat();
        assert!(matches!(read(&longer), Err(Error::Damaged { source: Fault::Trailing, .. })));
    }
}

/// Returns the fault that a reader finds.
fn fault(bytes: &[u8]) -> Fault {
    match read(bytes) {
        Err(Error::Damaged { source, .. }) => source,
        other => unreachable!("{other:?}"),
    }
}

#[test]
fn the_index_must_be_that_of_the_pages() {
    let (bytes, _) = file();
    let index = bytes.len() - 24 - usize::from(bytes[bytes.len() - 17]);
    assert_eq!(bytes[index..index + 2], [1, 100], "the first page is right after the header");
    // The page, its offset, its length, and the length of the index.
    for at in [index, index + 1, index + 2, bytes.len() - 17] {
        let mut bytes = bytes.clone();
        bytes[at] ^= 2;
        assert!(matches!(fault(&bytes), Fault::Index), "byte {at}");
        let error = quorate_archive::ltx::Pages::open(&bytes).map(drop).unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "byte {at}: {error}");
    }
}

#[test]
fn a_page_by_index_must_have_the_number_that_the_index_says() {
    let (mut bytes, _) = file();
    bytes[103] = 2;
    let read = quorate_archive::ltx::Pages::open(&bytes).unwrap().read(1);
    assert!(matches!(read, Err(Error::Damaged { source: Fault::Index, .. })), "{read:?}");
}

#[test]
fn a_snapshot_without_its_last_page_is_damaged() {
    let (mut bytes, _) = file();
    bytes[15] = 4;
    assert!(matches!(fault(&bytes), Fault::Missing(4)));
    let opened = quorate_archive::ltx::Pages::open(&bytes).map(drop);
    assert!(matches!(opened, Err(Error::Damaged { source: Fault::Missing(4), .. })), "{opened:?}");
}

proptest! {
    #[test]
    fn any_bytes_are_an_error(bytes in prop::collection::vec(any::<u8>(), 0..400), keep in 0..200_usize) {
        // With the beginning of a file, so that not only the header is reached.
        let (file, pages) = file();
        check(&[&file[..keep], &bytes].concat(), &pages);
        let opened = quorate_archive::ltx::Pages::open([&bytes, &file[keep..]].concat()).map(drop);
        prop_assert!(matches!(opened, Ok(()) | Err(Error::Damaged { .. })), "{opened:?}");
    }
}
