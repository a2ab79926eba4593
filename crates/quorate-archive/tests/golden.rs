//! Guards the format: files of two versions of Litestream are read, and ours are written with the same bytes as ever.
//!
//! `tests/golden/litestream-*` hold two files that stock Litestream captured of a database, and `database.db`, which it
//! restored from them. Version 0.5.5 wrote each page as an LZ4 frame, later versions as an LZ4 block.
//! `tests/golden/quorate` holds files of this crate, whose pages LZ4 can't make shorter, so that their bytes do not
//! depend on a compressor. To rewrite these after a deliberate change, run the test with `QUORATE_BLESS=1`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests stop at the first surprise")]
#![allow(clippy::disallowed_methods, reason = "golden files are real files")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{Pages, header, noise, read, write};
use quorate_archive::ltx::{Checksum, DatabaseChecksum, FileName, Merge, Reader};

/// The checksums of the databases that Litestream restored, computed by `ChecksumPage` of superfly/ltx 0.5.2.
const LITESTREAM: [(&str, u64); 2] =
    [("litestream-0.5.17", 0xA3FA_CBB4_5806_DCDE), ("litestream-0.5.5", 0xC7A9_131C_1BE9_D301)];
const PAGE_SIZE: usize = 512;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// Returns the files of an archive, in the order of their transactions.
fn files(name: &str) -> Vec<Vec<u8>> {
    let names = fs::read_dir(golden(name)).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<FileName> = names.filter_map(|name| name.parse().ok()).collect();
    names.sort_by_key(|name| name.0.min());
    names.iter().map(|file| fs::read(golden(name).join(file.to_string())).unwrap()).collect()
}

#[test]
fn files_of_litestream_give_the_database_that_litestream_restores() {
    for (name, checksum) in LITESTREAM {
        let files = files(name);
        let readers = files.iter().map(|file| Reader::new(file.as_slice()).unwrap()).collect();
        let mut merge = Merge::new(readers).unwrap();
        let (mut database, mut computed) = (Vec::new(), DatabaseChecksum::new(merge.header().page_size));
        while let Some((number, page)) = merge.next_page().unwrap() {
            assert_eq!(usize::try_from(number).unwrap(), database.len() / PAGE_SIZE + 1);
            database.extend_from_slice(page);
            computed.add(number, Checksum::of_page(number, page));
        }
        assert_eq!(database, fs::read(golden(name).join("database.db")).unwrap(), "{name}");
        assert_eq!(computed.value().to_u64(), checksum, "{name}");
    }
}

#[test]
fn pages_of_litestream_are_found_by_the_index() {
    for (name, _) in LITESTREAM {
        for file in files(name) {
            let (header, pages, _) = read(&file).unwrap();
            let by_index = quorate_archive::ltx::Pages::open(&file).unwrap();
            assert_eq!(by_index.header(), &header);
            for number in 0..=header.commit.get() + 1 {
                assert_eq!(by_index.read(number).unwrap(), pages.get(&number).cloned(), "{name}: page {number}");
            }
        }
    }
}

#[test]
fn our_files_have_the_same_bytes_as_ever() {
    let page = |number: u32| (number, noise(PAGE_SIZE, number.into()));
    let change = |number: u32| (number, noise(PAGE_SIZE, u64::from(number) << 32));
    let cases = [
        (header(512, 3, 1, 17), (1..=3).map(page).collect::<Pages>()),
        (header(512, 70_000, 18, 57), [1, 3, 300, 70_000].map(change).into()),
        // Nothing has changed.
        (header(512, 3, 58, 58), Pages::new()),
    ];
    for (header, pages) in cases {
        let (bytes, summary) = write(&header, &pages);
        let path = golden("quorate").join(FileName(header.txids).to_string());
        if std::env::var_os("QUORATE_BLESS").is_some() {
            fs::create_dir_all(golden("quorate")).unwrap();
            fs::write(&path, &bytes).unwrap();
        }
        assert!(fs::read(&path).unwrap() == bytes, "{} is written with other bytes", path.display());
        assert_eq!(read(&bytes).unwrap(), (header, pages, summary));
    }
}

#[test]
fn checksums_are_those_of_the_ltx_format() {
    // The check value of CRC-64/GO-ISO is the checksum of `123456789`: `1234` is the number of the page.
    let number = u32::from_be_bytes(*b"1234");
    assert_eq!(Checksum::of_page(number, b"56789").to_u64(), 0xB909_56C7_75A4_1001);
    assert_eq!(Checksum::of_page(1, &vec![0; 512]).to_string().len(), 16);
    assert_eq!(Checksum::from_u64(1), None, "bit 63 is not set");
}
