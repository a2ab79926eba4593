//! Tables for people: aligned columns, numbers to the right. On a terminal the widest columns are narrowed until the
//! table fits, and their cells wrap. If they would become unreadable, each value gets a line of its own.
//!
//! Invariant: the widths come from a bounded number of rows. A wider cell in a later row wraps on a terminal, and
//! overflows its column elsewhere.

use quorate::Value;
use unicode_width::UnicodeWidthStr as _;

use super::line::Line;
use super::{Layout, Style, plural, visible};

/// Rows from which the widths are found.
const SAMPLE_ROWS: usize = 1000;
/// Bytes of them.
const SAMPLE_BYTES: usize = 4 << 20;
/// The least width to which a column is narrowed. A table that is too wide even so becomes lines.
const READABLE_WIDTH: usize = 10;
/// Lines of a cell; more are cut.
const CELL_LINES_MAX: usize = 4;
/// The gap between columns.
const GAP: &str = "  ";
/// Marks cut text.
const CUT: char = '…';

/// The text of a cell.
#[derive(Clone, Debug)]
struct Cell {
    text: String,
    /// Aligned to the right.
    right: bool,
}

impl Cell {
    fn left(text: impl Into<String>) -> Self {
        Self { text: text.into(), right: false }
    }

    fn of(value: &Value, null: &str) -> Self {
        let right = matches!(value, Value::Integer(_) | Value::Real(_));
        Self { text: visible::lines(&visible::value(value, null)), right }
    }

    /// The text on one line.
    fn flat(&self) -> String {
        visible::one_line(&self.text)
    }
}

/// The width of a column.
#[derive(Clone, Copy, Debug)]
struct Column {
    width: usize,
    /// Whether wider cells wrap.
    wraps: bool,
    /// Aligned to the right, whatever its values are.
    right: bool,
}

/// The chosen layout.
enum Laid {
    Columns(Vec<Column>),
    Lines(Line),
}

pub struct Table {
    headers: bool,
    null: String,
    widths: Vec<i16>,
    terminal: Option<usize>,
    columns: Vec<String>,
    sample: Vec<Vec<Cell>>,
    sample_bytes: usize,
    count: u64,
    laid: Option<Laid>,
}

impl Table {
    pub fn new(style: &Style, null: String, terminal: Option<usize>) -> Self {
        Self {
            headers: style.headers,
            null,
            widths: style.widths.clone(),
            terminal,
            columns: Vec::new(),
            sample: Vec::new(),
            sample_bytes: 0,
            count: 0,
            laid: None,
        }
    }

    /// Chooses the layout, and prints the rows that were held back for that.
    fn decide(&mut self, out: &mut String) {
        let sample = std::mem::take(&mut self.sample);
        let mut columns = natural(self.headers, &self.columns, &sample);
        for (column, wish) in columns.iter_mut().zip(&self.widths).filter(|(_, wish)| **wish != 0) {
            *column = Column { width: usize::from(wish.unsigned_abs()), wraps: true, right: *wish < 0 };
        }
        let mut laid = if self.terminal.is_none_or(|limit| fit(&mut columns, limit)) {
            if self.headers {
                head(&self.columns, &columns, out);
            }
            Laid::Columns(columns)
        } else {
            let mut line = Line::new(String::new());
            line.begin(&self.columns, out);
            Laid::Lines(line)
        };
        sample.iter().for_each(|row| laid.put(row, out));
        self.laid = Some(laid);
    }
}

impl Layout for Table {
    fn begin(&mut self, columns: &[String], _out: &mut String) {
        self.columns = columns.iter().map(|name| visible::one_line(name)).collect();
    }

    fn row(&mut self, row: &[Value], out: &mut String) {
        self.count = self.count.saturating_add(1);
        let cells: Vec<Cell> = row.iter().map(|value| Cell::of(value, &self.null)).collect();
        if let Some(laid) = &mut self.laid {
            return laid.put(&cells, out);
        }
        self.sample_bytes = cells.iter().fold(self.sample_bytes, |sum, cell| sum.saturating_add(cell.text.len()));
        self.sample.push(cells);
        if self.sample.len() >= SAMPLE_ROWS || self.sample_bytes >= SAMPLE_BYTES {
            self.decide(out);
        }
    }

    fn end(&mut self, out: &mut String) {
        if self.laid.is_none() {
            self.decide(out);
        }
        out.push_str(&format!("({} {})\n", self.count, plural(self.count, "row")));
    }
}

impl Laid {
    fn put(&mut self, row: &[Cell], out: &mut String) {
        match self {
            Self::Columns(columns) => put(row, columns, out),
            Self::Lines(line) => line.texts(row.iter().map(|cell| cell.text.as_str()), out),
        }
    }
}

/// See [`super::aligned`].
pub fn aligned(header: &[&str], rows: &[Vec<String>]) -> String {
    let header: Vec<String> = header.iter().map(|name| (*name).to_owned()).collect();
    let cell = |text: &String| Cell { right: is_number(text), text: visible::one_line(text) };
    let rows: Vec<Vec<Cell>> = rows.iter().map(|row| row.iter().map(cell).collect()).collect();
    let columns = natural(true, &header, &rows);
    let mut out = String::new();
    head(&header, &columns, &mut out);
    rows.iter().for_each(|row| put(row, &columns, &mut out));
    out
}

/// See [`super::side_by_side`]. The names run down the columns.
pub fn side_by_side(names: &[String], width: Option<usize>) -> String {
    let names: Vec<String> = names.iter().map(|name| visible::one_line(name)).collect();
    let widest = names.iter().map(|name| name.width()).max().unwrap_or(0).saturating_add(GAP.len());
    let across = width.map_or(1, |width| width.saturating_add(GAP.len()) / widest).max(1);
    let down = names.len().div_ceil(across);
    let line = |number: usize| {
        let line: String =
            names.iter().skip(number).step_by(down.max(1)).map(|name| padded(name, widest, false)).collect();
        format!("{}\n", line.trim_end())
    };
    (0..down).map(line).collect()
}

fn is_number(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit()) && !text.contains([':', '/'])
}

/// The columns as wide as they need to be.
fn natural(headers: bool, names: &[String], rows: &[Vec<Cell>]) -> Vec<Column> {
    let mut widths: Vec<usize> = names.iter().map(|name| if headers { name.width() } else { 0 }).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.flat().width());
        }
    }
    widths.into_iter().map(|width| Column { width, wraps: false, right: false }).collect()
}

/// Narrows the widest columns until the table fits; `false` if it can't fit.
fn fit(columns: &mut [Column], limit: usize) -> bool {
    let gaps = GAP.len().saturating_mul(columns.len().saturating_sub(1));
    let fits = |cap: usize| {
        let widths = columns.iter().map(|column| if column.wraps { column.width } else { column.width.min(cap) });
        widths.fold(gaps, usize::saturating_add) <= limit
    };
    let (mut low, mut high) = (READABLE_WIDTH, limit.max(READABLE_WIDTH));
    if !fits(low) {
        return false;
    }
    while low < high {
        let middle = low.saturating_add(high).div_ceil(2);
        if fits(middle) { low = middle } else { high = middle.saturating_sub(1) }
    }
    for column in columns {
        let width = if column.wraps { column.width } else { column.width.min(low) };
        *column = Column { width, wraps: true, right: column.right };
    }
    true
}

fn head(names: &[String], columns: &[Column], out: &mut String) {
    let names: Vec<Cell> = names.iter().map(Cell::left).collect();
    put(&names, columns, out);
    let rule: Vec<Cell> = columns.iter().map(|column| Cell::left("─".repeat(column.width))).collect();
    put(&rule, columns, out);
}

fn put(row: &[Cell], columns: &[Column], out: &mut String) {
    let cells: Vec<Vec<String>> = row.iter().zip(columns).map(|(cell, column)| column.lines(cell)).collect();
    for number in 0..cells.iter().map(Vec::len).max().unwrap_or(0) {
        let parts = cells.iter().zip(row).zip(columns).map(|((lines, cell), column)| {
            let text = lines.get(number).map_or("", String::as_str);
            padded(text, column.width, cell.right || column.right)
        });
        out.push_str(parts.collect::<Vec<_>>().join(GAP).trim_end());
        out.push('\n');
    }
}

impl Column {
    /// The lines of a cell; at least one.
    fn lines(self, cell: &Cell) -> Vec<String> {
        let text = cell.flat();
        if !self.wraps || text.width() <= self.width { vec![text] } else { wrapped(&text, self.width) }
    }
}

fn padded(text: &str, width: usize, right: bool) -> String {
    let space = " ".repeat(width.saturating_sub(text.width()));
    if right { space + text } else { format!("{text}{space}") }
}

fn wrapped(text: &str, width: usize) -> Vec<String> {
    let (mut lines, mut rest) = (Vec::new(), text);
    while rest.width() > width {
        if lines.len().saturating_add(1) == CELL_LINES_MAX {
            let end = fitting(rest, width.saturating_sub(1));
            lines.push(format!("{}{CUT}", rest.get(..end).unwrap_or(rest)));
            return lines;
        }
        let end = fitting(rest, width);
        // At the last space, if it is in the second half of the line.
        let space = rest.get(..end).and_then(|line| line.rfind(' ')).filter(|space| *space >= end / 2);
        let (line, after) = rest.split_at_checked(space.unwrap_or(end)).unwrap_or((rest, ""));
        lines.push(line.to_owned());
        rest = after.trim_start_matches(' ');
    }
    lines.push(rest.to_owned());
    lines
}

/// How many bytes of a text fit into the width, but at least one character.
fn fitting(text: &str, width: usize) -> usize {
    let ends = text.char_indices().map(|(at, c)| at.saturating_add(c.len_utf8()));
    let first = ends.clone().next().unwrap_or(0);
    let fits = |end: &usize| text.get(..*end).is_some_and(|start| start.width() <= width);
    ends.take_while(fits).last().unwrap_or(first)
}
