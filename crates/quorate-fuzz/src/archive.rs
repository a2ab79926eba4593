//! LTX files: how readers, the index and merges handle files that no writer has written.
//!
//! The files are assembled as `docs/archive-format.md` says, from contents that the fuzzer chooses, or are the input
//! itself. The checksum of a file is repaired if it is all that is wrong, so that what lies behind it is reached.

use std::collections::BTreeMap;

use quorate_archive::ltx::{Error, Fault, FileName, Header, Merge, Pages, Reader, Summary, Writer};

use crate::input::Input;

mod made;

/// What a reader has found: the header, the pages, and what it knows at the end.
type Found = (Header, BTreeMap<u32, Vec<u8>>, Summary);

/// Checks the files of an input one by one, and then their merge.
pub fn ltx(data: &[u8]) {
    let mut input = Input(data);
    match input.u8() % 8 {
        0 => drop(file(input.0.to_vec(), 0)),
        1 => name(&String::from_utf8_lossy(input.0)),
        _ => {
            let mut files = Vec::new();
            let mut after = 0;
            while !input.is_empty() && files.len() < made::FILES_MAX {
                let (bytes, place) = (made::file(&mut input, &mut after), usize::from(input.u16()));
                files.extend(file(bytes, place));
            }
            merge(&files);
        }
    }
}

/// Checks that a text is a name in exactly one way.
fn name(text: &str) {
    if let Ok(name) = text.parse::<FileName>() {
        assert_eq!(name.to_string(), text, "two texts for a name");
    }
}

/// Checks a file. If the reader accepts it, the index must find the same pages, and a file that the writer makes of
/// them must read the same; if a reader does not notice a flipped bit, it must still return the same pages. Returns the
/// bytes and the pages if the reader accepts the file.
fn file(mut bytes: Vec<u8>, place: usize) -> Option<(Vec<u8>, Found)> {
    repair(&mut bytes);
    let found = match read(&bytes) {
        Ok(found) => found,
        Err(Error::Damaged { offset, .. }) => {
            assert!(offset <= bytes.len() as u64, "the damage is after the end");
            return None;
        }
        Err(error) => unreachable!("bytes in memory can only be damaged: {error}"),
    };
    assert_eq!(found.2.length, bytes.len() as u64, "a whole file is longer");
    by_index(&bytes, Some(&found));
    let again = write(&found);
    let (header, pages, _) = read(&again).unwrap_or_else(|error| unreachable!("a written file is damaged: {error}"));
    assert_eq!((&header, &pages), (&found.0, &found.1), "a file changed when it was written again");

    let mut damaged = bytes.clone();
    let (at, bit) = (place / 8 % bytes.len(), place % 8);
    damaged.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << bit);
    by_index(&damaged, None);
    if let Ok((_, pages, _)) = read(&damaged) {
        assert_eq!(pages, found.1, "a flipped bit at byte {at} gives other pages");
    }
    Some((bytes, found))
}

/// Puts the right checksum at the end of a file if nothing else is wrong.
fn repair(bytes: &mut [u8]) {
    if let Err(Error::Damaged { source: Fault::FileChecksum { computed, .. }, offset }) = read(bytes) {
        let end = usize::try_from(offset).unwrap_or(usize::MAX);
        let stored = bytes.get_mut(end.saturating_sub(8)..end).unwrap_or_default();
        stored.iter_mut().zip(computed.to_u64().to_be_bytes()).for_each(|(byte, right)| *byte = right);
    }
}

fn read(bytes: &[u8]) -> Result<Found, Error> {
    let mut reader = Reader::new(bytes)?;
    let mut pages = BTreeMap::new();
    while let Some((number, page)) = reader.next_page()? {
        assert!(pages.insert(number, page.to_vec()).is_none(), "page {number} occurs twice");
    }
    Ok((reader.header().clone(), pages, reader.finish()?))
}

/// Reads each page by the index. It must find exactly the pages of a whole file.
fn by_index(bytes: &[u8], whole: Option<&Found>) {
    let opened = Pages::open(bytes);
    let Some((header, pages, _)) = whole else {
        let Ok(opened) = opened else { return };
        opened.index().entries().iter().for_each(|entry| drop(opened.read(entry.number)));
        return;
    };
    let opened = opened.unwrap_or_else(|error| unreachable!("the index of a whole file is damaged: {error}"));
    assert_eq!(opened.header(), header, "the index is opened with another header");
    assert!(opened.index().entries().iter().map(|entry| &entry.number).eq(pages.keys()), "the index has other pages");
    for (number, page) in pages {
        let read = opened.read(*number);
        assert_eq!(
            read.as_ref().ok(),
            Some(&Some(page.clone())),
            "by the index, page {number} is another one: {read:?}"
        );
    }
}

fn write((header, pages, _): &Found) -> Vec<u8> {
    let written = Writer::new(Vec::new(), header.clone()).and_then(|mut writer| {
        pages.iter().try_for_each(|(number, page)| writer.write_page(*number, page))?;
        writer.finish()
    });
    written.unwrap_or_else(|error| unreachable!("what was read can't be written: {error}")).0
}

/// Checks that a merge of files that continue each other gives what they give one after another.
fn merge(files: &[(Vec<u8>, Found)]) {
    let readers = files.iter().map(|(bytes, _)| Reader::new(bytes.as_slice())).collect::<Result<Vec<_>, _>>();
    let readers = readers.unwrap_or_else(|error| unreachable!("a file was whole, and is damaged now: {error}"));
    let mut merge = match Merge::new(readers) {
        Ok(merge) => merge,
        Err(Error::NoInputs | Error::Gap { .. } | Error::PageSizes { .. }) => return,
        Err(error) => unreachable!("whole files can't be merged: {error}"),
    };
    let mut model = BTreeMap::new();
    for (_, (header, pages, _)) in files {
        model.extend(pages.iter().map(|(number, page)| (*number, page.as_slice())));
        model.retain(|number, _| *number <= header.commit.get());
    }
    let mut merged = BTreeMap::new();
    loop {
        match merge.next_page() {
            Ok(Some((number, page))) => drop(merged.insert(number, page.to_vec())),
            Ok(None) => break,
            // A file did not have a page by which the database grew.
            Err(Error::Refused(Fault::Missing(number))) => {
                assert!(!model.contains_key(&number), "page {number} is lost");
                return;
            }
            Err(error) => unreachable!("whole files can't be merged: {error}"),
        }
    }
    assert!(merged.iter().map(|(number, page)| (*number, page.as_slice())).eq(model), "a merge has other pages");
}
