//! Tables for people: aligned columns, numbers to the right, cut with `…` where the terminal is too narrow.

use quorate::Value;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use super::{Answer, Written};

/// What a column keeps at least when a table is too wide.
const COLUMN_WIDTH_MIN: usize = 4;
/// What stands between columns.
const GAP: &str = "  ";
/// Says that something was cut.
const CUT: char = '…';

/// A text in a cell.
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
}

pub fn text(answer: &Answer, width: Option<usize>) -> String {
    match &answer.written {
        Some(written) if answer.columns.is_empty() => changed(written),
        _ => {
            let header: Vec<String> = answer.columns.iter().map(|name| visible(name)).collect();
            let rows: Vec<Vec<Cell>> = answer.rows.iter().map(|row| row.iter().map(cell).collect()).collect();
            let count = rows.len();
            format!("{}({count} {})\n", lines(header, rows, width), if count == 1 { "row" } else { "rows" })
        }
    }
}

/// A table of texts without limits on its width.
pub fn aligned(header: &[&str], rows: &[Vec<String>]) -> String {
    let cells =
        |row: &Vec<String>| row.iter().map(|text| Cell { right: is_number(text), text: visible(text) }).collect();
    lines(header.iter().map(|name| (*name).to_owned()).collect(), rows.iter().map(cells).collect(), None)
}

fn is_number(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit()) && !text.contains([':', '/'])
}

fn changed(written: &Written) -> String {
    let Written { changes, position, .. } = written;
    format!("OK, {changes} {} changed, position {position}\n", if *changes == 1 { "row" } else { "rows" })
}

fn cell(value: &Value) -> Cell {
    Cell { text: visible(&value.to_string()), right: matches!(value, Value::Integer(_) | Value::Real(_)) }
}

/// The text on one line: line breaks and other control characters as escapes.
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
}

fn lines(header: Vec<String>, rows: Vec<Vec<Cell>>, width: Option<usize>) -> String {
    let mut widths: Vec<usize> = header.iter().map(|name| name.width()).collect();
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.text.width());
        }
    }
    if let Some(width) = width {
        narrow(&mut widths, width);
    }
    let rule = widths.iter().map(|&width| Cell::left("─".repeat(width))).collect();
    let header = header.into_iter().map(Cell::left).collect();
    let all = [header, rule].into_iter().chain(rows);
    all.map(|row| line(row, &widths)).collect()
}

/// Takes from the widest column until the table fits, or no column has anything left to give.
fn narrow(widths: &mut [usize], limit: usize) {
    let gaps = GAP.len().saturating_mul(widths.len().saturating_sub(1));
    let mut total = widths.iter().sum::<usize>().saturating_add(gaps);
    while total > limit {
        let second = widths
            .iter()
            .copied()
            .max()
            .map_or(0, |widest| widths.iter().copied().filter(|&width| width < widest).max().unwrap_or(0));
        let Some(widest) = widths.iter_mut().max().filter(|width| **width > COLUMN_WIDTH_MIN) else { return };
        let step = (*widest - second.max(COLUMN_WIDTH_MIN)).clamp(1, total - limit);
        *widest -= step;
        total -= step;
    }
}

fn line(row: Vec<Cell>, widths: &[usize]) -> String {
    let cells = row.into_iter().zip(widths).map(|(cell, &width)| padded(&cut(cell.text, width), width, cell.right));
    let line = cells.collect::<Vec<_>>().join(GAP);
    format!("{}\n", line.trim_end())
}

fn padded(text: &str, width: usize, right: bool) -> String {
    let space = " ".repeat(width.saturating_sub(text.width()));
    if right { space + text } else { format!("{text}{space}") }
}

fn cut(text: String, width: usize) -> String {
    if text.width() <= width {
        return text;
    }
    let mut kept = String::new();
    let mut used = 1;
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used > width {
            break;
        }
        kept.push(c);
    }
    kept.push(CUT);
    kept
}
