//! What users give to the commands: files to import, and scripts.

use quorate_import::fuzzing::{self, File, Imported};
use quorate_shell::fuzzing::script as items_of;

use crate::input::Input;

/// Delimiters and texts that stand for NULL.
const DELIMITERS: &[u8] = b",\t;| a";
const NULLS: [&str; 3] = ["", "NULL", "\\N"];
/// What is said of a value that does not go into a column of the type that was chosen for it.
const LOSSY: &str = "make the column TEXT first";
/// Bytes of a block that hold any input whole.
const WHOLE: usize = 1 << 16;

/// A file of CSV is the same however it is read; its columns change none of its values; its records, quoted, read as
/// themselves.
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

/// The same of NDJSON, but for the last.
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
    assert_eq!(lines.len(), rows.len(), "a row without a line");
    assert!(lines.is_sorted_by(|a, b| a < b) && bad.is_sorted_by(|a, b| a.0 < b.0), "lines out of order");
    let lossy = bad.iter().find(|(_, reason)| reason.ends_with(LOSSY));
    assert_eq!(lossy, None, "a type was chosen that changes what was seen");
}

/// A script is the same whether it comes line by line or at once, its lines count up, and a statement stands in it.
pub fn script(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let items = items_of(text.split_inclusive('\n'));
    assert!(items.is_sorted_by(|(_, a), (_, b)| a <= b), "lines out of order: {items:?}");
    let lines = text.split('\n').count();
    for (item, line) in &items {
        assert!(text.contains(item.as_str()), "{item:?} does not stand there");
        assert!((1..=lines).contains(&usize::try_from(*line).unwrap_or(0)), "line {line} of {lines}");
    }
    // A command is known by where its line begins; without any the lines do not matter.
    if !text.contains(['.', '\\']) {
        assert_eq!(items_of([text]), items, "at once");
    }
}
