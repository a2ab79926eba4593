//! The inputs that users give to commands: files to import, and scripts.

use quorate_import::fuzzing::{self, File, Imported};
use quorate_shell::fuzzing::script as items_of;

use crate::input::Input;

/// The delimiters, and the texts that stand for NULL.
const DELIMITERS: &[u8] = b",\t;| a";
const NULLS: [&str; 3] = ["", "NULL", "\\N"];
/// The end of the message for a value that does not fit the type that was inferred for its column.
const LOSSY: &str = "make the column TEXT first";
/// A block size that holds any input as a whole.
const WHOLE: usize = 1 << 16;

/// Checks that a CSV file gives the same rows however many bytes are read at a time, that the inferred column types
/// change none of its values, and that its records, when quoted, read back as themselves.
pub fn csv(data: &[u8]) {
    let mut input = Input(data);
    let (options, block) = (usize::from(input.u8()), usize::from(input.u8()) % 32 + 3);
    let file = File {
        bytes: input.0,
        is_ndjson: false,
        delimiter: DELIMITERS.get(options % DELIMITERS.len()).copied().unwrap_or(b','),
        no_header: options & 64 != 0,
        null: NULLS.get(options / 8 % NULLS.len()).copied().unwrap_or_default(),
        block: WHOLE,
    };
    import(&file, block);
    let records = fuzzing::records(&file);
    assert_eq!(fuzzing::records(&File { block, ..file }), records, "read {block} bytes at a time");
    for record in records.iter().flatten() {
        let fields: Vec<String> = record.iter().map(|field| quoted(field.as_deref(), file.null)).collect();
        let text = fields.join(&char::from(file.delimiter).to_string());
        let again = fuzzing::records(&File { bytes: text.as_bytes(), ..file });
        assert_eq!(again.as_deref(), Some(&[record.clone()][..]), "{text:?}");
    }
}

fn quoted(field: Option<&str>, null: &str) -> String {
    field.map_or_else(|| null.to_owned(), |text| format!("\"{}\"", text.replace('"', "\"\"")))
}

/// Checks the first two properties for NDJSON.
pub fn ndjson(data: &[u8]) {
    let mut input = Input(data);
    let block = usize::from(input.u8()) % 32 + 3;
    let file = File { bytes: input.0, is_ndjson: true, delimiter: b',', no_header: false, null: "", block: WHOLE };
    import(&file, block);
}

fn import(file: &File<'_>, block: usize) {
    let whole = fuzzing::import(file);
    assert_eq!(fuzzing::import(&File { block, ..*file }), whole, "read {block} bytes at a time");
    let Some(Imported { rows, lines, bad, .. }) = whole else { return };
    assert_eq!(lines.len(), rows.len(), "a row has no line number");
    assert!(lines.is_sorted_by(|a, b| a < b) && bad.is_sorted_by(|a, b| a.0 < b.0), "lines out of order");
    let lossy = bad.iter().find(|(_, reason)| reason.ends_with(LOSSY));
    assert_eq!(lossy, None, "an inferred type changes a value that was seen");
}

/// Checks that a script gives the same statements line by line or all at once, that line numbers rise, and that each
/// statement occurs in the text.
pub fn script(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let items = items_of(text.split_inclusive('\n'));
    assert!(items.is_sorted_by(|(_, a), (_, b)| a <= b), "lines out of order: {items:?}");
    let lines = text.split('\n').count();
    for (item, line) in &items {
        assert!(text.contains(item.as_str()), "{item:?} does not occur in the text");
        assert!((1..=lines).contains(&usize::try_from(*line).unwrap_or(0)), "line {line} of {lines}");
    }
    // A command is recognized at the beginning of a line. Without commands, line boundaries do not matter.
    if !text.contains(['.', '\\']) {
        assert_eq!(items_of([text]), items, "at once");
    }
}
