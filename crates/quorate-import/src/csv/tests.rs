//! The reader against the writer of the `csv` crate, and examples of what that writer never writes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests stop at the first surprise")]

use std::io::Cursor;

use proptest::prelude::*;
use quorate::Value;

use super::*;

/// All records, each with its line: as texts and NULLs, or the reason why it is bad.
fn read(text: impl Into<Vec<u8>>, width: usize, block: usize) -> Vec<(u64, Result<Vec<Value>, String>)> {
    let window = Window::new(Cursor::new(text.into())).with_block(block);
    let (mut csv, rules) = (Csv::new(window, b',').unwrap(), vec![Some(Rule::Keep); width]);
    let mut records = Vec::new();
    loop {
        let mut row = RowPacker::new(width);
        match csv.next(&rules, "", &mut row).unwrap() {
            Read::Row(line) => {
                row.end_row().unwrap();
                records.push((line, Ok(row.finish().values().map(Value::from).collect())));
            }
            Read::Bad(bad) => records.push((bad.line, Err(bad.reason))),
            Read::End => return records,
        }
    }
}

fn texts(values: &[&str]) -> Result<Vec<Value>, String> {
    Ok(values.iter().map(|text| if text.is_empty() { Value::Null } else { (*text).into() }).collect())
}

proptest! {
    #[test]
    fn what_the_writer_wrote_is_read_back(
        rows in prop::collection::vec(prop::collection::vec("[a,\"\r\n é]{0,6}", 3), 0..20),
        crlf in any::<bool>(),
        block in 3..20_usize,
    ) {
        let end = if crlf { csv::Terminator::CRLF } else { csv::Terminator::Any(b'\n') };
        let mut writer = csv::WriterBuilder::new().terminator(end).from_writer(Vec::new());
        for row in &rows {
            writer.write_record(row).unwrap();
        }
        let found = read(writer.into_inner().unwrap(), 3, block);
        let mut line = 1;
        for ((at, found), row) in found.iter().zip(&rows) {
            prop_assert_eq!(*at, line);
            // The writer does not quote the empty fields of a record with three fields.
            let expected: Vec<&str> = row.iter().map(String::as_str).collect();
            prop_assert_eq!(found, &texts(&expected));
            line += 1 + row.iter().map(|field| field.matches('\n').count() as u64).sum::<u64>();
        }
        prop_assert_eq!(found.len(), rows.len());
    }

    /// No bytes stop the reader, and its line numbers only grow.
    #[test]
    fn no_bytes_stop_it(
        bytes in prop::collection::vec(prop::sample::select(&b"a,\"\r\n\xff"[..]), 0..60),
        block in 3..20_usize,
    ) {
        let found = read(bytes, 2, block);
        prop_assert!(found.windows(2).all(|pair| pair.first().unwrap().0 < pair.last().unwrap().0));
    }
}

#[test]
fn quotes_distinguish_an_empty_text_from_null() {
    let found = read("\u{feff}a,\"\"\n,\"b\"\"c\"\n\r\n\n\"d\ne\",f\"g\"", 2, 3);
    let empty = Ok(vec!["a".into(), "".into()]);
    let expected = [(1, empty), (2, texts(&["", "b\"c"])), (5, texts(&["d\ne", "f\"g\""]))];
    assert_eq!(found, expected);
}

#[test]
fn bad_lines_are_reported_and_the_next_ones_read() {
    let found = read(b"a,b\nc\n\"d\"e,f\ng,\xff\n1,2,3\nh,\"open\ni,j\n".as_slice(), 2, 7);
    let reported: Vec<(u64, Result<Vec<Value>, &str>)> =
        found.iter().map(|(line, row)| (*line, row.as_ref().map_err(String::as_str).cloned())).collect();
    let good = |values: &[&str]| texts(values).map_err(|_| "");
    let expected = [
        (1, good(&["a", "b"])),
        (2, Err("1 fields, not 2")),
        (3, Err("text between a closing quote and the next delimiter")),
        (4, Err("not UTF-8 at byte 3 of the record")),
        (5, Err("3 fields, not 2")),
        (6, Err("a quoted field that is open at the end of the file")),
        (7, good(&["i", "j"])),
    ];
    assert_eq!(reported, expected);
}

#[test]
fn a_record_that_is_too_large_is_one_bad_line() {
    let long = "x".repeat(crate::window::RECORD_BYTES_MAX);
    let found = read(format!("a,b\n{long},y\nc,d\n\"open,\n{long}\ne,f\n"), 2, 1 << 20);
    let lines: Vec<(u64, bool)> = found.iter().map(|(line, row)| (*line, row.is_ok())).collect();
    assert_eq!(lines, [(1, true), (2, false), (3, true), (4, false), (5, false), (6, true)]);
}
