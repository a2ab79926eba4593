//! The output modes: how the rows of a result are printed.
//!
//! Each mode is a module with a type that implements one trait. [`aligned`], [`size`] and [`visible`] are for the other
//! things that commands print.
//!
//! # Invariants
//!
//! - NULL, the empty text and the text `NULL` look different in every mode but `list`.
//! - No mode but the table holds more than one row; the table holds a bounded number to find its widths.

mod csv;
mod json;
mod line;
pub(crate) mod literal;
mod markdown;
mod mode;
mod plain;
mod table;
pub mod visible;

use quorate::Value;

pub(crate) use mode::MODES;
pub use mode::Mode;

/// The result of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// The number of statements.
    pub statements: usize,
    /// Rows inserted, updated or deleted.
    pub changes: u64,
    /// The rowid of the last row that was inserted; 0 if none.
    pub last_insert_rowid: i64,
    /// Its position in the log.
    pub position: String,
}

/// The settings of the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    /// How rows are laid out.
    pub mode: Mode,
    /// Whether the names of the columns are printed.
    pub headers: bool,
    /// The text for NULL; `None` for the one of the mode.
    pub null: Option<String>,
    /// The widths of a table's columns: 0 for as wide as needed; a negative width aligns to the right.
    pub widths: Vec<i16>,
}

impl Default for Style {
    fn default() -> Self {
        Self { mode: Mode::Table, headers: true, null: None, widths: Vec::new() }
    }
}

/// Lays out one result.
trait Layout {
    /// The text before the rows.
    fn begin(&mut self, _columns: &[String], _out: &mut String) {}

    /// The text of a row.
    fn row(&mut self, row: &[Value], out: &mut String);

    /// The text after the rows.
    fn end(&mut self, _out: &mut String) {}
}

/// Prints one result as its rows arrive.
pub(crate) struct Printer(Box<dyn Layout>);

impl Printer {
    /// A printer for a result with these columns, and the text before the rows. `width` is that of the terminal, if the
    /// output is one.
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

    /// The text of these rows and of earlier ones that were held back.
    pub fn rows<'a>(&mut self, rows: impl Iterator<Item = &'a [Value]>) -> String {
        let mut out = String::new();
        rows.for_each(|row| self.0.row(row, &mut out));
        out
    }

    /// The remaining text.
    pub fn end(mut self) -> String {
        let mut out = String::new();
        self.0.end(&mut out);
        out
    }
}

/// The text for a write that returned no rows: empty in the modes for programs, except JSON.
pub(crate) fn written(written: &Written, mode: &Mode) -> String {
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

/// A word in the singular or the plural, as the count requires.
pub(crate) fn plural(count: u64, word: &str) -> String {
    if count == 1 { word.to_owned() } else { format!("{word}s") }
}

/// A table of texts with a header, in aligned columns as wide as needed.
pub fn aligned(header: &[&str], rows: &[Vec<String>]) -> String {
    table::aligned(header, rows)
}

/// Names side by side, as many as fit into the width; one a line without a width.
pub(crate) fn side_by_side(names: &[String], width: Option<usize>) -> String {
    table::side_by_side(names, width)
}

/// A number of bytes in a unit that suits it, as `1.5 KiB`.
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

/// The lines of the terminal, 0 if that is not known, and its width; `None` if the standard output is not a terminal.
pub(crate) fn terminal_size() -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    Some((size.ws_row.into(), size.ws_col.into())).filter(|&(_, width)| width > 0)
}

#[cfg(test)]
mod tests;
