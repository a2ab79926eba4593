//! How the rows of a result are printed: one module for each mode, behind one trait.
//!
//! Invariants:
//! - NULL, the empty text and the text `NULL` look different in every mode but `list`.
//! - No mode but the table holds more than one row; the table holds a bounded number, to find its widths.

mod csv;
mod json;
mod line;
pub mod literal;
mod markdown;
mod mode;
mod plain;
mod table;
pub mod visible;

use quorate::Value;

pub use mode::{MODES, Mode};

/// What a write did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Statements that were done.
    pub statements: usize,
    /// Rows inserted, updated or deleted.
    pub changes: u64,
    /// The rowid of the last row that was inserted; 0 if none.
    pub last_insert_rowid: i64,
    /// Where it stands in the history.
    pub position: String,
}

/// What people may choose about results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Style {
    /// How rows are laid out.
    pub mode: Mode,
    /// Whether the names of the columns are printed.
    pub headers: bool,
    /// What stands for NULL, if it is not what the mode has for it.
    pub null: Option<String>,
    /// Widths of a table's columns: 0 for what they need, below 0 for the right edge.
    pub widths: Vec<i16>,
}

impl Default for Style {
    fn default() -> Self {
        Self { mode: Mode::Table, headers: true, null: None, widths: Vec::new() }
    }
}

/// Lays out one result.
trait Layout {
    /// What comes before the rows.
    fn begin(&mut self, _columns: &[String], _out: &mut String) {}

    /// One row.
    fn row(&mut self, row: &[Value], out: &mut String);

    /// What comes after the rows.
    fn end(&mut self, _out: &mut String) {}
}

/// Prints one result as its rows come.
pub struct Printer(Box<dyn Layout>);

impl Printer {
    /// For a result with these columns, on a terminal of `width` columns if it is one; and what comes first.
    pub fn new(style: &Style, width: Option<usize>, columns: &[String]) -> (Self, String) {
        let null = |default: &str| style.null.clone().unwrap_or_else(|| default.to_owned());
        let mut layout: Box<dyn Layout> = match &style.mode {
            Mode::Table => Box::new(table::Table::new(style, null("NULL"), width)),
            Mode::Line => Box::new(line::Line::new(null("NULL"))),
            Mode::List => Box::new(plain::List::new(style.headers, null("NULL"))),
            Mode::Csv => Box::new(csv::Csv::new(style.headers, null(""))),
            Mode::Tsv => Box::new(plain::Tsv::new(style.headers, null("\\N"))),
            Mode::Json => Box::new(json::Json::default()),
            Mode::Ndjson => Box::new(json::Ndjson::default()),
            Mode::Markdown => Box::new(markdown::Markdown::new(null("NULL"))),
            Mode::Quote => Box::new(plain::Quote::new(style.headers)),
            Mode::Insert(table) => Box::new(plain::Insert::new(table, style.headers)),
        };
        let mut out = String::new();
        layout.begin(columns, &mut out);
        (Self(layout), out)
    }

    /// The text of these rows, or of those before, as far as it is decided.
    pub fn rows<'a>(&mut self, rows: impl Iterator<Item = &'a [Value]>) -> String {
        let mut out = String::new();
        rows.for_each(|row| self.0.row(row, &mut out));
        out
    }

    /// The rest.
    pub fn end(mut self) -> String {
        let mut out = String::new();
        self.0.end(&mut out);
        out
    }
}

/// The text for a write that returned no rows: nothing in the modes that programs read, but for JSON.
pub fn written(written: &Written, mode: &Mode) -> String {
    let Written { statements, changes, last_insert_rowid, position } = written;
    match mode {
        Mode::Table | Mode::Line => {
            let statements = if *statements == 1 { String::new() } else { format!("{statements} statements, ") };
            format!("OK, {statements}{changes} {} changed, position {position}\n", plural(*changes, "row"))
        }
        Mode::Json | Mode::Ndjson => {
            let position = json::string(position);
            format!("{{\"changes\":{changes},\"last_insert_rowid\":{last_insert_rowid},\"position\":{position}}}\n")
        }
        _ => String::new(),
    }
}

/// A word in the number that a count asks for.
pub fn plural(count: u64, word: &str) -> String {
    if count == 1 { word.to_owned() } else { format!("{word}s") }
}

/// A table of texts without limits on its width.
pub fn aligned(header: &[&str], rows: &[Vec<String>]) -> String {
    table::aligned(header, rows)
}

/// Names side by side, as many as fit into the width; one a line where there is none.
pub fn side_by_side(names: &[String], width: Option<usize>) -> String {
    table::side_by_side(names, width)
}

/// Bytes for people.
pub fn size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match UNITS.into_iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => {
            let tenths = bytes.saturating_mul(10) / unit;
            format!("{}.{} {name}", tenths / 10, tenths % 10)
        }
        None => format!("{bytes} B"),
    }
}

/// How many columns the terminal has that is the standard output; `None` if it is none.
pub fn terminal_width() -> Option<usize> {
    rustix::termios::tcgetwinsize(std::io::stdout())
        .ok()
        .map(|size| usize::from(size.ws_col))
        .filter(|&width| width > 0)
}

#[cfg(test)]
mod tests;
